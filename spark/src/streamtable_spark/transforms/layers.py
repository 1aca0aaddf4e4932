"""The layers of the lake: raw records (bronze), decoded records (silver), and records that could not be read."""

from datetime import date
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from streamtable_spark.transforms.codecs import Codec

RECORD: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
RAW: Final = (*RECORD, "day", "batch")
PLACE: Final = ("timestamp", "partition", "offset")
ID_HASH: Final = "id_hash"
# What a timestamp of Spark can hold and print; the far ends of a long are no dates.
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999


def bronze(records: DataFrame, batch: int) -> DataFrame:
    """Return the bronze rows of records of Spark's Kafka source.

    Args:
        records: The records, with the columns of Spark's Kafka source.
        batch: The number of the batch that the records belong to.

    Returns:
        `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, `headers`; `day`, the date of the timestamp in UTC,
        see `printable`; `batch`.
    """
    return records.withColumns({"day": printable(fn.to_date("timestamp")), "batch": _constant(batch)}).select(
        *RAW
    )


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
        `id_hash` (see `silver`), `day`, `batch`, `timestamp`, `partition`, `offset`.
    """
    right = decoded.where(fn.col("reason").isNull())
    return right.select(_hash(event_id).alias(ID_HASH), "day", "batch", *PLACE)


def suspects(raw: DataFrame, peeked_id: Column, earlier: DataFrame | None = None) -> DataFrame:
    """Return the hashes of ids that may occur more than once: of all that do, and by chance of a few others.

    Nearly always there are few of them. So the search uses 8 bytes of each id, without decoding the rest of a value.

    Args:
        raw: The bronze records of a batch.
        peeked_id: The id of an event, from the column `value`; undefined where the value cannot be decoded.
        earlier: As in `repeated`.

    Returns:
        `half`: the first hash of an id, each once; see `half_of`.
    """
    halves = raw.select(half_of(peeked_id).alias("half")).groupBy("half").count().where("half IS NOT NULL")
    twice = halves.where("count > 1").select("half")
    if earlier is None or ID_HASH not in earlier.columns:
        return twice
    # All earlier ids are compared, so they are not shuffled: the ids of the batch are few enough to be broadcast. The
    # condition is always true; with it Spark sees that these are the rows above, and counts them once for both.
    here = fn.broadcast(halves.where("count > 0").select("half"))
    before = earlier.select(fn.col(ID_HASH)["high"].alias("half"))
    return twice.unionByName(before.join(here, "half", "left_semi")).distinct()


def of_suspects(raw: DataFrame, peeked_id: Column, suspects: DataFrame) -> DataFrame:
    """Return the bronze records that have one of these ids; see `suspects`."""
    return raw.join(fn.broadcast(suspects), half_of(peeked_id) == suspects["half"], "left_semi")


def repeated(ids: DataFrame, earlier: DataFrame | None, horizon_days: int) -> DataFrame:
    """Return the positions of events that repeat one of an earlier batch, or an earlier one of their own batch.

    Args:
        ids: The ids of one or more batches, each offset once; see `ids`.
        earlier: Other rows of silver, as far away as repetitions are searched; None if there are none. Rows from before the
            topic's events had an id have no hash, and repeat none. Without `PLACE` all are of earlier batches.
        horizon_days: The most days between an event and its repeat in a later batch.

    Returns:
        `partition`, `offset`, `repeat`, which is true.
    """
    named = ids.where(fn.col(ID_HASH).isNotNull())
    there = named
    if earlier is not None and ID_HASH in earlier.columns:
        # All earlier ids are compared, so they are not shuffled: the hashes of the batch are small enough to be broadcast.
        halves = fn.broadcast(named.select(fn.col(ID_HASH)["high"].alias("half")))
        near = earlier.select(*[name for name in ids.columns if name in earlier.columns])
        near = near.where(fn.col(ID_HASH).isNotNull())
        near = near.join(halves, near[ID_HASH]["high"] == halves["half"], "left_semi")
        there = there.unionByName(near, allowMissingColumns=True)
    # Hardly any id occurs twice, so ids are counted first: only those that remain are compared. Of an id that occurs often, one
    # row for each batch and day is enough.
    place = fn.struct(*PLACE)
    of_day = there.groupBy(ID_HASH, "batch", "day").agg(
        fn.count("*").alias("n"), fn.min(place).alias("first")
    )
    twice = of_day.groupBy(ID_HASH).agg(
        fn.sum("n").alias("n"), fn.collect_list(fn.struct("batch", "day", "first")).alias("others")
    )

    def repeats(other: Column) -> Column:
        batch, near = fn.col("batch"), fn.abs(fn.date_diff(other["day"], "day")) <= horizon_days
        same = (other["batch"] == batch) & (other["first"] < place)
        return same | ((fn.coalesce(other["batch"], fn.lit(-1)) < batch) & near)

    # Not broadcast: a batch may consist of repeats.
    found = named.join(twice.where("n > 1"), ID_HASH).where(fn.exists("others", repeats))
    return found.select("partition", "offset", fn.lit(True).alias("repeat"))


def silver(
    decoded: DataFrame, repeated: DataFrame | None, event_id: Column | None = None, *, text_keys: bool = True
) -> DataFrame:
    """Return the records that could be decoded, each once, and whether they repeat an event.

    Args:
        decoded: The result of `read`, each offset once.
        repeated: The positions of repetitions; None if there are none.
        event_id: The id of an event; see `ids`. None if events have no id.
        text_keys: As in `read`.

    Returns:
        `partition`, `offset`, `timestamp`, `key` (text, or bytes), `event`, `repeat` (an earlier record has the same event
        id), `day`, `batch`; where events have ids, `id_hash`: 128 bits of the id, so that later batches find it again.
    """
    rows = decoded.where(fn.col("reason").isNull())
    repeat = fn.lit(False)
    if repeated is not None:
        rows = rows.join(repeated, ["partition", "offset"], "left")
        repeat = fn.coalesce("repeat", fn.lit(False))
    key = fn.col("key").cast("string") if text_keys else fn.col("key")
    columns = ("partition", "offset", "timestamp", key.alias("key"), "event", repeat.alias("repeat"))
    hashed = [] if event_id is None else [_hash(event_id).alias(ID_HASH)]
    return rows.select(*columns, "day", "batch", *hashed)


def quarantine(decoded: DataFrame, silver: DataFrame | None = None) -> DataFrame:
    """Return the raw records that could not be read, with the reason: the columns of bronze and `reason`.

    Args:
        decoded: The result of `read`.
        silver: The rows of these records that silver has already, perhaps from another codec: all others are returned.
    """
    if silver is None:
        return decoded.where(fn.col("reason").isNotNull()).select(*RAW, "reason")
    others = decoded.join(silver.select("partition", "offset"), ["partition", "offset"], "left_anti")
    reason = fn.coalesce("reason", fn.lit("could not be read when its batch was written"))
    return others.select(*RAW, reason.alias("reason"))


def day_of(milliseconds: Column) -> Column:
    """Return the date in UTC of milliseconds since 1970; null for times that no calendar has."""
    usable = fn.when(milliseconds.between(FIRST_MS, LAST_MS), milliseconds)
    return fn.to_date(fn.timestamp_millis(usable))


def printable(day: Column) -> Column:
    """Return a date in the years 1 to 9999: the nearest one, since Python has no others."""
    return fn.least(fn.greatest(day, fn.lit(f"{date.min}").cast("date")), fn.lit(date.max))


def half_of(event_id: Column) -> Column:
    """Return the first of the two hashes of an id; null if there is no id."""
    return fn.when(event_id.isNotNull(), fn.xxhash64(event_id))


def _hash(event_id: Column) -> Column:
    """Return two hashes with different seeds: with a single hash, two of a billion ids could collide by chance."""
    both = fn.struct(fn.xxhash64(event_id).alias("high"), fn.xxhash64(fn.lit("low"), event_id).alias("low"))
    return fn.when(event_id.isNotNull(), both)


def _constant(number: int) -> Column:
    """Return a number that is not a literal in the program that Spark generates: else Java compiles it again each time."""
    return fn.get(fn.array(fn.lit(number).cast("bigint")), fn.col("partition") * 0)
