"""The lake's clicks as Spark's own functions fill them: from Kafka to bronze, from there to silver by `from_avro`.

It is what a user of Spark writes by the manuals: a streaming query with `foreachBatch`; the single-object header compared with the
one of the schema and cut off; `from_avro`, which makes a row of nulls of what it cannot decode, and such records go to quarantine;
repeated events by a window over their ids, and by a join with the ids of the earlier batches. Session, source options, batches and
layout are the same as the ETL's, so that the difference is the programs'.

It does not find what `from_avro` lets pass: bytes behind a value, text that is not UTF-8, a boolean that is 2.

Behind it, in the same session, all of bronze is decoded by `FAILFAST` and written, with no check and no search for repeats: the
least that a table of decoded events costs.
"""

import os

from bench.job import Job
from bench.lake import BATCHES
from bench.programs.from_avro import event
from bench.programs.spark_count import INPUT, measured
from bench.programs.spark_steps import Steps
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from streamtable_spark.jobs.kafka import Kafka
from streamtable_spark.session import Local, connect

WRITER = "from-avro"
"""The name under which Delta records the numbers of the batches."""
HORIZON_DAYS = 7
BRONZE = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "day", "batch")
SILVER = ("partition", "offset", "timestamp", "key", "event", "repeat", "day", "batch")


def decoded(raw: DataFrame, mode: str) -> DataFrame:
    """Return bronze records with the column `event`; see `event` for `mode`."""
    return raw.withColumn("event", event(fn.col("value"), mode)).withColumn(
        "key", fn.col("key").cast("string")
    )


def silver(read: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """Return the rows of the decoded events of a batch.

    Args:
        read: The records of the batch, see `decoded`.
        earlier: The silver table, as far back as repeats are searched; None if there is none.

    Returns:
        The columns `SILVER`; `repeat`: an earlier record of this batch or of another one has the same id.
    """
    order = Window.partitionBy("event.id").orderBy("timestamp", "partition", "offset")
    rows = read.where("event.id IS NOT NULL").withColumn("repeat", fn.row_number().over(order) > 1)
    if earlier is not None:
        seen = earlier.select(fn.col("event.id").alias("seen")).distinct()
        rows = rows.join(seen, rows["event.id"] == seen["seen"], "left")
        rows = rows.withColumn("repeat", fn.col("repeat") | fn.col("seen").isNotNull())
    return rows.select(*SILVER)


def append(rows: DataFrame, table: str, batch: int) -> None:
    """Add the rows of a batch to a Delta table, once."""
    (
        rows.write.format("delta")
        .mode("append")
        .partitionBy("day")
        .option("txnAppId", WRITER)
        .option("txnVersion", batch)
        .save(table)
    )


def etl(spark: SparkSession, job: Job, steps: Steps) -> None:
    """Fill the lake."""
    lake = job.state_dir
    bronze, clicks = f"{lake}/bronze", f"{lake}/silver/{INPUT}"

    def take(records: DataFrame, batch: int) -> None:
        steps.reached("planned")
        days = {"day": fn.to_date("timestamp"), "batch": fn.lit(batch).cast("bigint")}
        append(records.withColumns(days).select(*BRONZE), bronze, batch)
        steps.reached("bronze written")
        read = decoded(spark.read.format("delta").load(bronze).where(fn.col("batch") == batch), "PERMISSIVE")
        earlier = None
        if batch:
            first, last = read.agg(fn.min("day"), fn.max("day")).collect()[0]
            earlier = spark.read.format("delta").load(clicks)
            earlier = earlier.where(
                fn.col("day").between(
                    fn.date_sub(fn.lit(first), HORIZON_DAYS), fn.date_add(fn.lit(last), HORIZON_DAYS)
                )
            )
        append(silver(read, earlier), clicks, batch)
        steps.reached("silver written")
        append(read.where("event.id IS NULL").select(*BRONZE), f"{lake}/quarantine", batch)
        steps.reached("batch written")

    source = spark.readStream.format("kafka").options(**Kafka(job.broker).spark_source())
    source = source.option("subscribe", job.topic).option("startingOffsets", "earliest")
    source = source.option("includeHeaders", "true").option(
        "maxOffsetsPerTrigger", int(job.records / BATCHES)
    )
    writer = source.load().writeStream.option("checkpointLocation", f"{lake}/checkpoint")
    writer.trigger(availableNow=True).foreachBatch(take).start().awaitTermination()
    steps.reached("batches read")


def unchecked(raw: DataFrame, folder: str, count: int) -> DataFrame:
    """Return one row, after all records were decoded and written to a new table."""
    rows = decoded(raw, "FAILFAST").withColumn("repeat", fn.lit(False)).select(*SILVER)
    rows.write.format("delta").partitionBy("day").save(folder)
    return raw.sparkSession.range(1).select(fn.lit(count).alias("clicks"))


def main() -> None:
    job = Job.from_environment(os.environ)
    steps = Steps()
    spark = connect("bench", Local(cores=job.clients))
    etl(spark, job, steps)
    bronze = spark.read.format("delta").load(f"{job.state_dir}/bronze")
    unchecked(bronze.where("batch = 1"), f"{job.state_dir}/warm-up", 0)
    folder = f"{job.state_dir}/unchecked/silver/{INPUT}"
    measured("unchecked", spark, job.records, lambda: unchecked(bronze, folder, job.records))
    spark.stop()


if __name__ == "__main__":
    main()
