"""The layers of the lake: records as they came (bronze), what they say (silver), and what could not be read."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from streamtable_spark.transforms.codecs import Codec

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


def read(raw: DataFrame, codec: Codec, *, text_keys: bool = True) -> DataFrame:
    """Decode the records of one topic.

    Args:
        raw: The bronze records of the topic.
        codec: The codec of the topic's values.
        text_keys: Whether each record needs a key, which is text; otherwise a key may be missing, or any bytes.

    Returns:
        The columns of bronze, `event` (the decoded value), and `reason`: null where there is an event.
    """
    found = codec.decode(raw)
    reason = fn.col("reason")
    if text_keys:
        key = fn.when(found["key"].isNull(), fn.lit("no key")).when(
            ~fn.is_valid_utf8(found["key"].cast("string")), fn.lit("the key is not UTF-8")
        )
        reason = fn.coalesce(reason, key)
    return found.select(
        *RAW, fn.when(reason.isNull(), fn.col("decoded")).alias("event"), reason.alias("reason")
    )


def ids(decoded: DataFrame, event_id: Column) -> DataFrame:
    """Return the ids and positions of the events that could be decoded.

    Args:
        decoded: The result of `read`.
        event_id: The id of an event, from the column `event`. An event whose id is null repeats none.

    Returns:
        `id`, `hash` of it, `timestamp`, `partition`, `offset`.
    """
    named = decoded.where(fn.col("reason").isNull()).withColumn("id", event_id)
    return named.select("id", fn.xxhash64("id").alias("hash"), *PLACE)


def repeated(ids: DataFrame, event_id: Column, earlier: DataFrame | None = None) -> DataFrame:
    """Return the positions of events that repeat an earlier one.

    Args:
        ids: The ids of a batch, each offset once.
        event_id: The id of an event; see `ids`.
        earlier: The silver table so far, as far back as repetitions are searched; None if there is none.

    Returns:
        `partition`, `offset`, `repeat`, which is true.
    """
    order = Window.partitionBy("id").orderBy(*PLACE)
    found = ids.where("id IS NOT NULL").withColumn("repeat", fn.row_number().over(order) > 1)
    if earlier is not None:
        known = earlier.select(event_id.alias("id")).withColumn("hash", fn.xxhash64("id"))
        # All earlier ids are looked at, so they stay where they are: the batch's hashes are small enough to come to them.
        near = known.join(fn.broadcast(ids.select("hash")), "hash", "left_semi").select("id")
        seen = near.distinct().withColumn("seen", fn.lit(True))
        found = found.join(seen, "id", "left").withColumn("repeat", fn.expr("repeat OR seen IS NOT NULL"))
    return found.where("repeat").select("partition", "offset", "repeat")


def silver(decoded: DataFrame, repeated: DataFrame | None, *, text_keys: bool = True) -> DataFrame:
    """Return the records that could be decoded, each once, and whether they repeat an event.

    Args:
        decoded: The result of `read`, each offset once.
        repeated: The positions of repetitions; None if events have no id, so that none repeats another.
        text_keys: As for `read`.

    Returns:
        `partition`, `offset`, `timestamp`, `key` (text, or bytes), `event`, `repeat` (an earlier record has the same event
        id), `day`, `batch`.
    """
    rows = decoded.where(fn.col("reason").isNull())
    if repeated is None:
        rows = rows.withColumn("repeat", fn.lit(False))
    else:
        rows = rows.join(fn.broadcast(repeated), ["partition", "offset"], "left")
    return rows.select(
        "partition",
        "offset",
        "timestamp",
        (fn.col("key").cast("string") if text_keys else fn.col("key")).alias("key"),
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
