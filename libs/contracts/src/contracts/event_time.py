"""The valid range of event times: one rule for edges, processors and batch jobs.

Where the event with the latest time wins, an event from the far future would win for ever. So an event may be at most a
few minutes ahead of the clock. A processor compares it with the timestamp of its Kafka record, not with the processor's
own clock, so the result is the same when the topic is replayed, and the same in Spark. The timestamp is set by the
producer; the broker rejects timestamps more than an hour ahead of its clock (`message.timestamp.after.max.ms`), which
limits how far ahead an event time can be in total.
"""

from typing import Final

MAX_AHEAD_SECONDS: Final = 300.0


def fault_of_time(at: int, recorded_ms: int, max_ahead_seconds: float = MAX_AHEAD_SECONDS) -> str | None:
    """Return the reason why an event time is invalid; None if it is valid.

    Args:
        at: The time of the event, in milliseconds since 1970.
        recorded_ms: The timestamp of the Kafka record.
        max_ahead_seconds: The maximum that the event time may be ahead of that timestamp.
    """
    if at < 0:
        return "the event time must not be before 1970"
    if at > recorded_ms + max_ahead_seconds * 1000:
        return f"the event time must be at most {max_ahead_seconds:g} s ahead of the record's timestamp"
    return None
