"""Finds the inputs of a task that are idle: they have ended, as the broker has confirmed, and have been silent for long.

An input is idle when the broker has said twice, `idle_after` apart, that it ends at the same offset, and that offset has
been reached. Silence of the broker proves nothing: a process that stood still or was cut off takes no input for idle.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamtable.base.clock import Clock
from streamtable.base.event_time import NO_TIME
from streamtable.base.types import NextOffset, TopicPartition, Watermarks
from streamtable.graph.group import EventTime

OBSERVE_SECONDS = 5.0
"""The interval between requests of the inputs' end offsets, in seconds; shorter if inputs become idle sooner."""

_LOOKS = 4  # at the ends of inputs within `idle_after`
_OBSERVE_SECONDS_MIN = 0.2


@dataclass(frozen=True)
class ObservedEnds:
    """The ends of inputs as the broker has reported them.

    Attributes:
        asked_at: Monotonic time before it was asked.
        answered_at: Monotonic time after it has answered.
        ends: The low and high watermarks of the partitions.
    """

    asked_at: float
    answered_at: float
    ends: Mapping[TopicPartition, Watermarks]


def observe_seconds(event_time: EventTime | None) -> float:
    """Return the seconds between requests of the end offsets of a group's inputs, to find idle inputs in time."""
    if event_time is None or event_time.idle_after is None:
        return OBSERVE_SECONDS
    often = event_time.idle_after.total_seconds() / _LOOKS
    return min(max(often, _OBSERVE_SECONDS_MIN), OBSERVE_SECONDS)


class Silence:
    """The silence of the inputs of one partition of a group.

    Args:
        event_time: The settings of the group.
        partition: The number of the partition.
        inputs: The inputs that can be idle.
        clock: The monotonic clock, for the age of the ends that the broker has reported.
    """

    def __init__(self, event_time: EventTime, partition: int, inputs: Iterable[str], clock: Clock) -> None:
        idle_after = event_time.idle_after
        self._idle_after = None if idle_after is None else idle_after.total_seconds()
        self._observe_seconds = observe_seconds(event_time)
        self._partition = partition
        self._clock = clock
        self._seen_at = dict.fromkeys(inputs, clock.monotonic())  # when its last event was seen, or the start
        self._ends: dict[str, tuple[int, float]] = {}  # the end of each input, and since when it is known
        self._idle: frozenset[str] = frozenset()
        self._idle_until = 0.0  # `_idle` is trusted until this monotonic time

    @property
    def idle(self) -> frozenset[str]:
        """The inputs that are idle now."""
        # A process that stood still has not seen the records since: then no input counts as idle.
        if self._idle and self._clock.monotonic() > self._idle_until:
            self._idle = frozenset()
        return self._idle

    def handled(self, topic: str) -> None:
        """Note that records of an input have been handled."""
        self._ends.pop(topic, None)
        self._idle -= {topic}
        if topic in self._seen_at:
            self._seen_at[topic] = self._clock.monotonic()

    def observe(self, observed: ObservedEnds, next_offsets: Mapping[str, NextOffset]) -> None:
        """Find out which inputs are idle.

        Args:
            observed: The ends of the inputs as reported by the broker.
            next_offsets: The next offset of each input, after the records that were handled.
        """
        if self._idle_after is None:
            return
        idle = set()
        for topic in self._seen_at:
            marks = observed.ends.get(TopicPartition(topic, self._partition))
            if marks is None:
                continue
            end, since = self._ends.get(topic, (NO_TIME, 0.0))
            if end != marks.high:
                self._ends[topic] = marks.high, observed.answered_at
            elif next_offsets[topic] == end and observed.asked_at - since >= self._idle_after:
                idle.add(topic)
        self._idle = frozenset(idle)
        # Two requests may fail before the last observation is too old.
        self._idle_until = observed.asked_at + 3 * self._observe_seconds

    def passed_ms(self, topics: Iterable[str], now: float) -> int:
        """Return the milliseconds that have passed since the last event of these inputs was seen, or since the start."""
        return max(0, int((now - max(self._seen_at[topic] for topic in topics)) * 1000))

    def forget(self) -> None:
        """Take no input for idle: the records since the last commit will come again."""
        self._idle = frozenset()
