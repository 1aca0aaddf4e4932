"""Which records a group has applied to its table: its inputs and retries, without what it has set aside.

The headers are those of dead letters. A letter says where its record first stood, and which attempt has failed; a
record of an input is attempt 1 of itself, a letter that was sent again says in its headers how often it had failed.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from streamtable_spark.transforms.layers import LAST_MS, RECORD

PREFIX = "streamtable-"
ORIGIN = ["origin_topic", "origin_partition", "origin_offset", "attempt"]


def letters(records: DataFrame) -> DataFrame:
    """The records of a dead-letter topic that are dead letters: where each one's record first stood, and which attempt failed.

    Args:
        records: `topic`, `partition`, `offset`, `key`, `value`, `headers`.

    Returns:
        `origin_topic`, `origin_partition`, `origin_offset`, `attempt`; each once.
    """
    origin = [column.alias(name) for name, column in zip(ORIGIN, _origin(failed=0), strict=True)]
    return records.select(*origin).where("origin_topic IS NOT NULL").distinct()


def applied(
    records: DataFrame, retries: Sequence[str], inputs: Sequence[str], set_aside: DataFrame
) -> DataFrame:
    """Return the records of a group's inputs and retry topics that are not in its dead letters.

    Args:
        records: The records of all these topics: `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, `headers`.
        retries: The names of the retry topics: the group's, and that of the group from which its table was rebuilt.
        inputs: The names of the input topics.
        set_aside: The dead letters, as `letters` returns them.

    Returns:
        The columns of `records`, with `input`: the topic as which a record counts. The timestamp of a retry is that of its
        origin, as the group's handlers are given it.
    """
    left = kept(records, retries, inputs, set_aside)
    retried = fn.col("topic").isin(*retries)
    timestamp = fn.when(retried, _origin_timestamp()).otherwise(fn.col("timestamp")).alias("timestamp")
    columns = [timestamp if name == "timestamp" else fn.col(name) for name in RECORD]
    return left.select(*columns, fn.col("origin_topic").alias("input"))


def kept(
    records: DataFrame, retries: Sequence[str], inputs: Sequence[str], set_aside: DataFrame
) -> DataFrame:
    """Return the same records with the timestamps that they have in their topics.

    Args:
        records: As for `applied`.
        retries: As for `applied`.
        inputs: As for `applied`.
        set_aside: As for `applied`.

    Returns:
        The columns of `records`, and `ORIGIN`: where each record first stood, and which attempt it is.
    """
    # One pass: in two, Spark would read all records from Kafka twice.
    retried = fn.col("topic").isin(*retries)
    here = (fn.col("topic"), fn.col("partition"), fn.col("offset"), fn.lit(1))
    origin = [
        fn.when(retried, first).otherwise(this).alias(name)
        for name, first, this in zip(ORIGIN, _origin(failed=1), here, strict=True)
    ]
    # Else the group refuses a retry: its row would be in another partition's table, or it is no event of the group.
    fits = fn.col("origin_topic").isin(*inputs) & (fn.col("origin_partition") == fn.col("partition"))
    return records.select(*RECORD, *origin).where(fits).join(set_aside, ORIGIN, "left_anti")


def _origin(*, failed: int) -> list[Column]:
    """Where a record first stood, and the attempt that it is about, `failed` more than its headers say."""
    whole = (
        _header("origin-topic").isNotNull()
        & _number("origin-partition").isNotNull()
        & _number("origin-offset").isNotNull()
    )
    attempt = fn.coalesce(_number("attempt"), fn.lit(1)) + failed
    return [
        fn.when(whole, _header("origin-topic")),
        _number("origin-partition").cast("int"),
        _number("origin-offset"),
        attempt.cast("int"),
    ]


def _origin_timestamp() -> Column:
    """The timestamp that a record had where it first stood; -1 ms if its headers do not say one, as in the library."""
    said = _number("origin-timestamp-ms")
    return fn.timestamp_millis(fn.when(said.between(-1, LAST_MS), said).otherwise(fn.lit(-1).cast("bigint")))


def _header(name: str) -> Column:
    """The last one of this name, as the group takes it."""
    named = fn.filter("headers", lambda header: header["key"] == PREFIX + name)
    return fn.try_element_at(named, fn.lit(-1))["value"].cast("string")


def _number(name: str) -> Column:
    return _header(name).try_cast("bigint")
