"""Which times an event may claim: one rule for edges, processors and batch jobs.

Where the event with the latest time wins, one from the far future would win for ever. So an event may be at most a few
minutes ahead of the clock. A processor compares with its record's timestamp in Kafka, not with its own clock: the answer
is then the same when history is read again, and the same in Spark. The timestamp comes from the producer; a broker
refuses those that are more than an hour ahead of it (`message.timestamp.after.max.ms`), which bounds the two together.
"""

from typing import Final

MAX_AHEAD_SECONDS: Final = 300.0


def fault_of_time(at: int, recorded_ms: int, max_ahead_seconds: float = MAX_AHEAD_SECONDS) -> str | None:
    """Return why an event cannot have this time; None: it can.

    Args:
        at: The time of the event, in milliseconds since 1970.
        recorded_ms: The timestamp of its record.
        max_ahead_seconds: How far it may be ahead of that.
    """
    if at < 0:
        return "the event time must not be before 1970"
    if at > recorded_ms + max_ahead_seconds * 1000:
        return f"the event time must be at most {max_ahead_seconds:g} s ahead of the record's timestamp"
    return None
