"""The edge that configures the event time of a group."""

from dataclasses import dataclass
from datetime import timedelta

from streamtable.base.topics import check_kind
from streamtable.errors import GraphError
from streamtable.graph.edge import Edge

_EVENT_TIME_MAX = timedelta(days=36_500)


@dataclass(frozen=True)
class EventTime(Edge[object, object]):
    """The event time of a group: the time when its events happened, as opposed to the time when they are processed.

    Each partition of the group has a *watermark*: the least, over its inputs, of the greatest event time seen. It is
    committed with the offsets. A group whose inputs have `time=` follows event time with these defaults.

    Args:
        idle_after: The time without records after which an input is idle, once all its records are handled. An idle input does
            not hold the watermark back; when all inputs are idle, the watermark advances by the time that has passed since
            the last event, less this time. Records that arrive later with an earlier event time are late. None: an input
            never becomes idle, as for replays of history.
        max_ahead: A record whose event time is further ahead of the wall clock goes to the dead letters. Where the broker
            dates the records (LogAppendTime), that time counts instead of the wall clock. None: no limit. Whatever it
            is, a time that `time=` returns moves the watermark no further than the record's own timestamp.
    """

    idle_after: timedelta | None = timedelta(seconds=30)
    max_ahead: timedelta | None = timedelta(hours=1)

    def __post_init__(self) -> None:
        for name, given in (("idle_after", self.idle_after), ("max_ahead", self.max_ahead)):
            if given is not None:
                check_kind(given, f"{name}= of EventTime", timedelta)
            if given is not None and not timedelta(0) < given <= _EVENT_TIME_MAX:
                raise GraphError(
                    f"EventTime has {name}={given!r}: give more than 0 and at most {_EVENT_TIME_MAX}, or None"
                )
