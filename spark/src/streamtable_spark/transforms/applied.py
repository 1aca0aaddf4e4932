"""The records that a group has applied to its table: its inputs and retries, without its dead letters.

The headers are of dead letters. A letter holds the original position of its record and the attempt that has failed; a
record of an input is attempt 1 of itself, and the headers of a replayed letter hold the number of failed attempts.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from streamtable_spark.transforms.layers import LAST_MS, RECORD

PREFIX = "streamtable-"
ORIGIN = ["origin_topic", "origin_partition", "origin_offset", "attempt"]


Ends = Mapping[str, int]
"""The offsets up to which records count, by partition: `topic[0]`."""


def letters(records: DataFrame, until: Mapping[str, Ends]) -> DataFrame:
    """Return the dead letters in dead-letter topics: the original position of each record, and the attempt that failed.

    Args:
        records: `topic`, `partition`, `offset`, `key`, `value`, `headers`.
        until: The topics of the letters, each with the ends of the inputs of its group: later records are the next group's.

    Returns:
        `origin_topic`, `origin_partition`, `origin_offset`, `attempt`; each once.
    """
    origin = [column.alias(name) for name, column in zip(ORIGIN, _origin(failed=0), strict=True)]
    return records.select("topic", *origin).where(_counts(until)).select(*ORIGIN).distinct()


def applied(
    records: DataFrame, retries: Mapping[str, Ends], inputs: Sequence[str], set_aside: DataFrame
) -> DataFrame:
    """Return the records of a group's inputs and retry topics that are not in its dead letters.

    Args:
        records: The records of all these topics: `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, `headers`.
        retries: The retry topics: the group's own, and the one of the group it was rebuilt from; each with the ends of the inputs
            up to which that group's records count. Later ones are handled by the next group.
        inputs: The names of the input topics, with the loops of both.
        set_aside: The dead letters, as `letters` returns them.

    Returns:
        The columns of `records`, with `input`: the topic that a record counts for. A retry has the timestamp of its
        origin, as the group's handlers get it.
    """
    left = kept(records, retries, inputs, set_aside)
    retried = fn.col("topic").isin(*retries)
    timestamp = fn.when(retried, _origin_timestamp()).otherwise(fn.col("timestamp")).alias("timestamp")
    columns = [timestamp if name == "timestamp" else fn.col(name) for name in RECORD]
    return left.select(*columns, fn.col("origin_topic").alias("input"))


def kept(
    records: DataFrame, retries: Mapping[str, Ends], inputs: Sequence[str], set_aside: DataFrame
) -> DataFrame:
    """Return the same records with the timestamps that they have in their topics.

    Args:
        records: As in `applied`.
        retries: As in `applied`.
        inputs: As in `applied`.
        set_aside: As in `applied`.

    Returns:
        The columns of `records`, and `ORIGIN`: the original position of each record, and its attempt.
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
    fits &= ~retried | _counts(retries)
    return records.select(*RECORD, *origin).where(fits).join(set_aside, ORIGIN, "left_anti")


def _counts(until: Mapping[str, Ends]) -> Column:
    """Return whether the original position of a letter or retry is before the end that its topic has for the input."""
    place = fn.format_string("%s %s[%d]", "topic", "origin_topic", "origin_partition")
    ends = {f"{topic} {place}": end for topic, each in until.items() for place, end in each.items()}
    items = [fn.lit(part) for item in ends.items() for part in item]
    known = fn.create_map(*items).cast("map<string,bigint>")
    return fn.coalesce(fn.col("origin_offset") < known[place], fn.lit(False))


def _origin(*, failed: int) -> list[Column]:
    """Return the original position of a record, and its attempt: the number in its headers plus `failed`."""
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
    """Return the original timestamp of a record; -1 ms if its headers have none, as in the library."""
    said = _number("origin-timestamp-ms")
    return fn.timestamp_millis(fn.when(said.between(-1, LAST_MS), said).otherwise(fn.lit(-1).cast("bigint")))


def _header(name: str) -> Column:
    """Return the last header with this name, the one that the group uses."""
    named = fn.filter("headers", lambda header: header["key"] == PREFIX + name)
    return fn.try_element_at(named, fn.lit(-1))["value"].cast("string")


def _number(name: str) -> Column:
    return _header(name).try_cast("bigint")
