"""The events that count, where an event that is sent again counts once: the rule of the library's `Once`, in batch.

In each partition the stream time is the greatest timestamp so far; an event is a repeat if one of the same id was
accepted at a stream time at most `within` before this one's. A dead letter that was sent again has the
timestamp of its event, and counts as if it came after all records of the input. The processor's other condition, that a
timestamp far ahead of its clock does not move the time, is checked against the current clock.
"""

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

WITHIN: Final = timedelta(hours=24)
"""The setting of the services' groups."""
_AHEAD: Final = timedelta(minutes=5)


def accepted(events: DataFrame, within: timedelta = WITHIN) -> DataFrame:
    """Return the events that count: those that repeat no earlier one.

    Args:
        events: The events of one input that could be decoded: `partition`, `offset`, `timestamp`, `key`, `id`, and `retry`:
            whether it is a replayed dead letter.
        within: How long an id is remembered.

    Returns:
        `partition`, `key`, `offset`, `timestamp`, `retry`.
    """
    ms = fn.unix_millis("timestamp")
    moves = ms <= fn.unix_millis(fn.current_timestamp()) + _ms(_AHEAD)
    so_far = (
        Window.partitionBy("partition").orderBy("retry", "offset").rowsBetween(Window.unboundedPreceding, 0)
    )
    time = fn.coalesce(fn.max(fn.when(moves, ms)).over(so_far), fn.lit(-1))
    event = fn.struct("retry", "offset", "time", "key", "timestamp").alias("event")
    of_one_id = (
        events.withColumn("time", time)
        .groupBy("partition", "id")
        .agg(fn.sort_array(fn.collect_list(event)).alias("events"))
    )
    nothing = fn.filter("events", lambda _: fn.lit(False))  # an empty array of the same type
    start = fn.struct(fn.lit(None).cast("bigint").alias("at"), nothing.alias("taken"))

    def fold(so_far: Column, event: Column) -> Column:
        repeat = so_far["at"].isNotNull() & (event["time"] - so_far["at"] <= _ms(within))
        taken = fn.struct(
            event["time"].alias("at"), fn.concat(so_far["taken"], fn.array(event)).alias("taken")
        )
        return fn.when(repeat, so_far).otherwise(taken)

    taken = fn.aggregate("events", start, fold)["taken"]
    return of_one_id.select("partition", fn.explode(taken).alias("event")).select(
        "partition", "event.key", "event.offset", "event.timestamp", "event.retry"
    )


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
