"""Clicks counted by Spark: from Kafka, decoded as a rebuild does it and by `from_avro` alone, and from the silver table of a lake."""

import os
import time
from collections.abc import Callable
from typing import Any

from bench.family import processes, together
from bench.job import Job
from bench.programs.from_avro import event
from bench.programs.marks import tell
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.positions import Offsets, spans_to
from streamtable_spark.session import Local, connect
from streamtable_spark.transforms.tables import TABLES, events

TABLE = TABLES["click-count"]
INPUT = "user-clicks"
WARM_PART = 10
"""The divisor of the records for the warm-up of Java."""
PART_ON_ONE_CORE = 5
"""The divisor of the records in Kafka on one core: all of them would take twice as long as on two."""


def from_kafka(spark: SparkSession, job: Job, ends: Offsets) -> DataFrame:
    """One row: the events of all users up to these offsets.

    Repeats are not queried, so Spark's optimizer leaves their detection out of the plan; a rebuild includes it.
    """
    starts = {job.topic: dict.fromkeys(ends, 0)}
    records = read(spark, job.broker, spans_to({job.topic: ends}, starts))
    counted = TABLE.rows({INPUT: events(records, TABLE.inputs[INPUT])})
    return counted.agg(fn.sum("events").alias("clicks"))


def by_from_avro(spark: SparkSession, job: Job, ends: Offsets) -> DataFrame:
    """Return one row: the same by Spark's own decoder, which lets malformed values pass; see `from_avro`."""
    starts = {job.topic: dict.fromkeys(ends, 0)}
    records = read(spark, job.broker, spans_to({job.topic: ends}, starts))
    clicks = records.select("partition", "key", event(fn.col("value"), "PERMISSIVE")["id"].alias("id"))
    counted = clicks.groupBy("partition", "key").agg(fn.count("id").alias("clicks"))
    return counted.agg(fn.sum("clicks").alias("clicks"))


def from_silver(spark: SparkSession, job: Job) -> DataFrame:
    """One row: the clicks of all users in the lake, which has already marked repeats."""
    silver = spark.read.format("delta").load(f"{job.state_dir}/silver/{INPUT}")
    counted = silver.where(~fn.col("repeat")).groupBy("key").agg(fn.count("*").alias("clicks"))
    return counted.agg(fn.sum("clicks").alias("clicks"))


def measured(name: str, spark: SparkSession, records: int, make: Callable[[], DataFrame]) -> None:
    """Print the result, its duration in seconds and CPU seconds, and the bytes shuffled for it."""
    shuffle_bytes, cpu, began = shuffled(spark), spent(), time.time()
    total = make().collect()[0]["clicks"]
    tell(
        {
            "name": name,
            "records": records,
            "clicks": total,
            "seconds": time.time() - began,
            "cpu_seconds": spent() - cpu,
            "shuffle_bytes": shuffled(spark) - shuffle_bytes,
        }
    )


def spent() -> float:
    """Return the CPU seconds of this process and its children, mainly Java."""
    return together(os.getpid(), processes()).cpu


def shuffled(spark: SparkSession) -> int:
    """Return the shuffle bytes that all stages so far have written."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    store = context.statusStore()
    defaults = [getattr(store, f"stageList$default${number}")() for number in range(2, 6)]
    stages = store.stageList(None, *defaults)
    return sum(stages.apply(each).shuffleWriteBytes() for each in range(stages.size()))


def main() -> None:
    job = Job.from_environment(os.environ)
    spark = connect("bench", Local(cores=job.clients))
    with Cluster(job.broker) as cluster:
        ends = cluster.ends({job.topic: job.partitions})[job.topic]
    few = {number: end // WARM_PART for number, end in ends.items()}
    if job.clients == 1:
        ends = {number: end // PART_ON_ONE_CORE for number, end in ends.items()}
    from_kafka(spark, job, few).collect()
    measured("kafka", spark, sum(ends.values()), lambda: from_kafka(spark, job, ends))
    if job.clients > 1:
        by_from_avro(spark, job, few).collect()
        measured("from_avro", spark, sum(ends.values()), lambda: by_from_avro(spark, job, ends))
    from_silver(spark, job).collect()
    measured("silver", spark, job.records, lambda: from_silver(spark, job))
    spark.stop()


if __name__ == "__main__":
    main()
