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
        records: with the source's columns.
        batch: number of the batch that they came in.

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
        raw: bronze.
        framing: of the topic's values.

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


def silver(decoded: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """What could be read, each record once, and whether it repeats an event.

    Args:
        decoded: what `read` returns, each offset once. Its event is a struct; only one that has an `id` can be a
            repetition.
        earlier: silver so far, as far back as repetitions are looked for; None: there is nothing.

    Returns:
        `partition`, `offset`, `timestamp`, `key` (text), `event`, `repeat` (an earlier record has the same event id),
        `day`, `batch`.
    """
    rows = decoded.where(fn.col("reason").isNull()).withColumn("key", fn.col("key").cast("string"))
    kept = ["partition", "offset", "timestamp", "key", "event", "repeat", "day", "batch"]
    if "id" not in rows.select("event.*").columns:
        return rows.withColumn("repeat", fn.lit(False)).select(*kept)
    # Only the ids are sorted and moved, and joined with the records by their places: there are few repetitions.
    repeated = fn.broadcast(_repeated(rows.select(fn.col("event.id").alias("_id"), *PLACE), earlier))
    marked = rows.join(repeated, ["partition", "offset"], "left")
    return marked.withColumn("repeat", fn.coalesce("repeat", fn.lit(False))).select(*kept)


def _repeated(ids: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """The places of those that have come before: `partition`, `offset`, `repeat`, which is true."""
    order = Window.partitionBy("_id").orderBy(*PLACE)
    found = ids.withColumn("repeat", fn.row_number().over(order) > 1)
    if earlier is not None:
        known = earlier.select(fn.col("event.id").alias("_id"), fn.xxhash64("event.id").alias("_hash"))
        hashes = ids.select(fn.xxhash64("_id").alias("_hash"))
        # All earlier ids are looked at, so they stay where they are: the batch's hashes are small enough to come to them.
        near = known.join(fn.broadcast(hashes), "_hash", "left_semi").select("_id")
        seen = near.distinct().withColumn("_seen", fn.lit(True))
        found = found.join(seen, "_id", "left").withColumn("repeat", fn.expr("repeat OR _seen IS NOT NULL"))
    return found.where("repeat").select("partition", "offset", "repeat")


def quarantine(decoded: DataFrame) -> DataFrame:
    """What could not be read, raw, with the reason: the columns of bronze and `reason`."""
    return decoded.where(fn.col("reason").isNotNull()).select(*RAW, "reason")


def day_of(milliseconds: Column) -> Column:
    """The date in UTC of milliseconds since 1970; null for what no calendar has."""
    usable = fn.when(milliseconds.between(FIRST_MS, LAST_MS), milliseconds)
    return fn.to_date(fn.timestamp_millis(usable))
