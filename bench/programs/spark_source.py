"""Clicks read by Spark's Kafka source and discarded, or written to plain Parquet: the ceilings of jobs that read a topic.

Neither uses code of this project, and the source is read as Spark reads it by default; their difference is Spark's cost of writing
Parquet.
"""

import os

from bench.job import Job
from bench.programs.spark_count import INPUT, WARM_PART, measured
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.positions import Offsets, spans_to
from streamtable_spark.session import Local, connect

SOURCES_OF_VERSION_1 = "avro,csv,json,kafka,orc,parquet,text"
"""Spark's default. The jobs read topics by the newer interface, which is faster: goals hold them to Spark as it comes."""


def source(spark: SparkSession, job: Job, ends: Offsets) -> DataFrame:
    """Return the records up to these offsets, like a rebuild."""
    starts = {job.topic: dict.fromkeys(ends, 0)}
    return read(spark, job.broker, spans_to({job.topic: ends}, starts))


def thrown_away(records: DataFrame, count: int) -> DataFrame:
    """Return one row, after all bytes of all records were read."""
    records.write.format("noop").mode("overwrite").save()
    return records.sparkSession.range(1).select(fn.lit(count).alias("clicks"))


def to_parquet(records: DataFrame, folder: str, count: int) -> DataFrame:
    """Return one row, after all records were written to a folder unchanged."""
    records.write.mode("overwrite").parquet(folder)
    return records.sparkSession.range(1).select(fn.lit(count).alias("clicks"))


def main() -> None:
    job = Job.from_environment(os.environ)
    spark = connect("bench", Local(cores=job.clients))
    spark.conf.set("spark.sql.sources.useV1SourceList", SOURCES_OF_VERSION_1)
    with Cluster(job.broker) as cluster:
        ends = cluster.ends({job.topic: job.partitions})[job.topic]
    few = {number: end // WARM_PART for number, end in ends.items()}
    thrown_away(source(spark, job, few), 0)
    records = sum(ends.values())
    measured(INPUT, spark, records, lambda: thrown_away(source(spark, job, ends), records))
    to_parquet(source(spark, job, few), job.state_dir, 0)
    measured("parquet", spark, records, lambda: to_parquet(source(spark, job, ends), job.state_dir, records))
    spark.stop()


if __name__ == "__main__":
    main()
