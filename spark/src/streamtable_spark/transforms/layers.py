"""The layers of the lake: records as they came (bronze), what they say (silver), and what could not be read."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from streamtable_spark.transforms.avro import Framing, decode

BRONZE: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, day date, batch bigint"
)
RAW: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "day", "batch")
PLACE: Final = ("timestamp", "partition", "offset")
# What a timestamp of Spark can hold and print; the far ends of a long are no dates.
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999


def bronze(records: DataFrame, batch: int) -> DataFrame:
    """Records of Spark's Kafka source, as they are kept.

    Args:
        records: The records, with the columns of Spark's Kafka source.
        batch: The number of the batch that the records belong to.

    Returns:
        `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, `headers`; `day`, the date of the timestamp in UTC;
        `batch`.
    """
    return records.withColumns(
        {"day": fn.to_date("timestamp"), "batch": fn.lit(batch).cast("bigint")}
    ).select(*RAW)


def read(raw: DataFrame, framing: Framing) -> DataFrame:
    """Decode the records of one topic.

    Args:
        raw: The bronze records of the topic.
        framing: The framing of the topic's values.

    Returns:
        The columns of bronze, `event` (the decoded value), and `reason`: null where there is an event.
    """
    found = decode(raw, framing)
    key = fn.when(found["key"].isNull(), fn.lit("no key")).when(
        ~fn.is_valid_utf8(found["key"].cast("string")), fn.lit("the key is not UTF-8")
    )
    reason = fn.coalesce("reason", key)
    return found.select(
        *RAW, fn.when(reason.isNull(), fn.col("decoded")).alias("event"), reason.alias("reason")
    )


def ids(decoded: DataFrame) -> DataFrame:
    """Return the ids and positions of the events that could be decoded.

    Args:
        decoded: The result of `read`. Its event is a struct; only one that has an `id` can be a repetition.

    Returns:
        `id` (null where events have none), `hash` of it, `timestamp`, `partition`, `offset`.
    """
    known = "id" in decoded.select("event.*").columns
    found = fn.col("event.id") if known else fn.lit(None).cast("string")
    named = decoded.where(fn.col("reason").isNull()).withColumn("id", found)
    return named.select("id", fn.xxhash64("id").alias("hash"), *PLACE)


def repeated(ids: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """Return the positions of events that repeat an earlier one.

    Args:
        ids: The ids of a batch, each offset once.
        earlier: The silver table so far, as far back as repetitions are searched; None if there is none.

    Returns:
        `partition`, `offset`, `repeat`, which is true.
    """
    order = Window.partitionBy("id").orderBy(*PLACE)
    found = ids.where("id IS NOT NULL").withColumn("repeat", fn.row_number().over(order) > 1)
    if earlier is not None and "id" in earlier.select("event.*").columns:
        known = earlier.select(fn.col("event.id").alias("id"), fn.xxhash64("event.id").alias("hash"))
        # All earlier ids are looked at, so they stay where they are: the batch's hashes are small enough to come to them.
        near = known.join(fn.broadcast(ids.select("hash")), "hash", "left_semi").select("id")
        seen = near.distinct().withColumn("seen", fn.lit(True))
        found = found.join(seen, "id", "left").withColumn("repeat", fn.expr("repeat OR seen IS NOT NULL"))
    return found.where("repeat").select("partition", "offset", "repeat")


def silver(decoded: DataFrame, repeated: DataFrame) -> DataFrame:
    """Return the records that could be decoded, each once, and whether they repeat an event.

    Args:
        decoded: The result of `read`, each offset once.
        repeated: The positions of repetitions.

    Returns:
        `partition`, `offset`, `timestamp`, `key` (text), `event`, `repeat` (an earlier record has the same event id),
        `day`, `batch`.
    """
    rows = decoded.where(fn.col("reason").isNull()).join(
        fn.broadcast(repeated), ["partition", "offset"], "left"
    )
    return rows.select(
        "partition",
        "offset",
        "timestamp",
        fn.col("key").cast("string").alias("key"),
        "event",
        fn.coalesce("repeat", fn.lit(False)).alias("repeat"),
        "day",
        "batch",
    )


def quarantine(decoded: DataFrame) -> DataFrame:
    """What could not be read, raw, with the reason: the columns of bronze and `reason`."""
    return decoded.where(fn.col("reason").isNotNull()).select(*RAW, "reason")


def day_of(milliseconds: Column) -> Column:
    """The date in UTC of milliseconds since 1970; null for what no calendar has."""
    usable = fn.when(milliseconds.between(FIRST_MS, LAST_MS), milliseconds)
    return fn.to_date(fn.timestamp_millis(usable))
