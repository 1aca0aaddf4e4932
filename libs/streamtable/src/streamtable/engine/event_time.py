"""Event time in a task: the stream time of each input, and the watermark, which never decreases.

The watermark is the least stream time (the greatest event time seen) of the inputs that are not idle. All of it is
committed with the offsets and goes back with them, so a record is late, or is not, whatever crashed in between.

The stream time of an input that carries watermarks is the least watermark of the tasks that write it. Its silence says
nothing: those who write it tell it when theirs fall silent.

Any other input is idle when the broker has said twice, `idle_after` apart, that it ends at the same offset, and that offset
has been reached. Silence of the broker proves nothing: a process that stood still or was cut off takes no input for idle.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import compress
from typing import Any

from streamtable.clock import Clock
from streamtable.engine.producer_times import ProducerTimes
from streamtable.errors import FutureEventTime, HandlerFailed, InvalidEventTime, StreamtableError
from streamtable.event_time import NO_TIME, EventTimes, InputTime, running_max
from streamtable.graph import EventTime, Group, Input
from streamtable.types import NextOffset, RecordBatch, TopicPartition, Watermarks
from streamtable.watermarks import Mark, Marked

OBSERVE_SECONDS = 5.0
"""The interval at which the ends of inputs are requested, in seconds; shorter if inputs become idle sooner."""

_LOOKS = 4  # at the ends of inputs within `idle_after`
_OBSERVE_SECONDS_MIN = 0.2
_APPEND_TIME = 2  # the type of a timestamp that the broker has given, as the client says it
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999, the last that a datetime can say
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ObservedEnds:
    """The ends of inputs as the broker has reported them.

    Attributes:
        asked_at: Monotonic time before it was asked.
        answered_at: Monotonic time after it has answered.
        wall_ms: Milliseconds since 1970 before it was asked.
        ends: The low and high watermarks of the partitions.
    """

    asked_at: float
    answered_at: float
    wall_ms: int
    ends: Mapping[TopicPartition, Watermarks]


def observe_seconds(event_time: EventTime | None) -> float:
    """Return the interval in seconds at which to request the ends of a group's inputs, to find idle inputs in time."""
    if event_time is None or event_time.idle_after is None:
        return OBSERVE_SECONDS
    often = event_time.idle_after.total_seconds() / _LOOKS
    return min(max(often, _OBSERVE_SECONDS_MIN), OBSERVE_SECONDS)


class EventClock:
    """The event time of one partition of a group.

    Args:
        event_time: The settings of the group.
        partition: The number of the partition.
        inputs: The topics that advance it.
        committed: The event times that were committed with their offsets.
        clock: The monotonic clock, for the age of the ends that the broker has reported.
        in_band: The topics that carry watermarks.
        passes_on: Whether the watermark is written to the outputs as soon as it advances without records.

    Attributes:
        watermark_ms: No event before this time is expected any more; `NO_TIME` at first.
        must_commit: Whether the watermark has advanced so far without records that it must be committed by itself.
    """

    def __init__(
        self,
        event_time: EventTime,
        partition: int,
        inputs: Sequence[str],
        committed: Mapping[str, InputTime],
        clock: Clock,
        in_band: Collection[str] = (),
        *,
        passes_on: bool = False,
    ) -> None:
        self._partition = partition
        self._clock = clock
        idle_after = event_time.idle_after
        self._idle_after = None if idle_after is None else idle_after.total_seconds()
        self._observe_seconds = observe_seconds(event_time)
        known = {topic: committed.get(topic, InputTime()) for topic in inputs}
        self._streams = {topic: each.stream_ms for topic, each in known.items()}
        self.watermark_ms = max(each.watermark_ms for each in known.values())
        self._producers = {topic: ProducerTimes(known[topic].producers_ms) for topic in in_band}
        self._passes_on = passes_on
        self._goes_by_itself = False  # since a commit in which it had advanced without records
        self.must_commit = False
        self._committed = self.times()
        self._ends: dict[str, tuple[int, float]] = {}  # the end of each input, and since when it is known
        self._idle: frozenset[str] = frozenset()
        self._idle_until = 0.0  # monotonic time up to which this is believed

    # ---- records ---------------------------------------------------------------------------------------------------

    def of(self, topic: str, event_ms: Sequence[int], marked: Marked | None = None) -> EventTimes:
        """Return the event times of the next records of an input. They count only once the records are handled.

        Args:
            topic: The input.
            event_ms: The event time of each record.
            marked: The watermark headers of the records, and the marks between them, if the input carries watermarks.
        """
        others = [
            at for other, at in self._streams.items() if other != topic and other not in self._idle_now()
        ]
        others_ms, watermark_ms = min(others, default=None), self.watermark_ms
        times = EventTimes(event_ms, self._streams[topic], others_ms, watermark_ms)
        if marked is None or not (self._producers[topic].known or marked.carries):
            return times
        # One that carries nothing, from before its producers wrote marks, is taken as in time.
        late_before = [
            max(carried if carried != NO_TIME else at, watermark_ms)
            for carried, at in zip(marked.late_before_ms, event_ms, strict=True)
        ]
        least = self._producers[topic].before_each(len(event_ms), marked.marks)
        watermarks = [
            max(watermark_ms, at if others_ms is None else min(at, others_ms))
            for at in running_max(least, self._streams[topic])
        ]
        return EventTimes.given(event_ms, late_before, watermarks)

    def handled(self, topic: str, event_ms: Sequence[int]) -> None:
        """Note that records of an input with these times have been handled."""
        self._ends.pop(topic, None)
        self._idle -= {topic}
        self._goes_by_itself = False
        if topic not in self._producers or not self._producers[topic].known:
            self._streams[topic] = max(self._streams[topic], max(event_ms, default=NO_TIME))
        self._advance()

    def marked(self, topic: str, marks: Iterable[Mark]) -> None:
        """Note the watermarks of the producers of an input."""
        for mark in marks:
            self._producers[topic].marked(mark)
        if self._producers[topic].known:
            self._streams[topic] = max(self._streams[topic], self._producers[topic].least_ms)
            self._advance()

    def _advance(self) -> None:
        idle = self._idle_now()
        active = [at for topic, at in self._streams.items() if topic not in idle]
        self.watermark_ms = max(self.watermark_ms, min(active, default=NO_TIME))

    # ---- idle inputs -----------------------------------------------------------------------------------------------

    def observe(self, observed: ObservedEnds, next_offsets: Mapping[str, NextOffset]) -> None:
        """Find out which inputs are idle.

        Args:
            observed: The ends of the inputs as reported by the broker.
            next_offsets: The next offset of each input, after the records that were handled.
        """
        if self._idle_after is None:
            return
        idle = set()
        for topic in self._streams.keys() - self._producers.keys():
            marks = observed.ends.get(TopicPartition(topic, self._partition))
            if marks is None:
                continue
            end, since = self._ends.get(topic, (NO_TIME, 0.0))
            if end != marks.high:
                self._ends[topic] = marks.high, observed.answered_at
            elif next_offsets[topic] == end and observed.asked_at - since >= self._idle_after:
                idle.add(topic)
        self._idle = frozenset(idle)
        # Two looks may fail before what was seen last is too old.
        self._idle_until = observed.asked_at + 3 * self._observe_seconds
        self._advance()
        idle_after_ms = int(self._idle_after * 1000)
        if len(idle) == len(self._streams):
            self.watermark_ms = max(self.watermark_ms, observed.wall_ms - idle_after_ms)
        # Less than that is not worth a commit of its own: what fires because of it is committed with it.
        advanced_ms = self.watermark_ms - max(each.watermark_ms for each in self._committed.values())
        at_once = self._passes_on and bool(idle) and not self._goes_by_itself
        self.must_commit = advanced_ms >= (1 if at_once else max(idle_after_ms, 1))

    def _idle_now(self) -> frozenset[str]:
        # A process that stood still has not seen what has come since: then no input counts as idle.
        if self._idle and self._clock.monotonic() > self._idle_until:
            self._idle = frozenset()
        return self._idle

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def times(self) -> dict[str, InputTime]:
        """Return the event times to be committed with the offset of each input."""
        return {
            topic: InputTime(at, self.watermark_ms, self._producers_ms(topic))
            for topic, at in self._streams.items()
        }

    def _producers_ms(self, topic: str) -> tuple[int, ...]:
        found = self._producers.get(topic)
        return () if found is None else tuple(found.watermarks_ms)

    def committed(self, times: Mapping[str, InputTime]) -> None:
        """Note that these times have been committed."""
        self._committed = dict(times)
        self._goes_by_itself = self._goes_by_itself or self.must_commit
        self.must_commit = False

    def rewind(self) -> None:
        """Go back to the times that were committed last."""
        self._streams = {topic: each.stream_ms for topic, each in self._committed.items()}
        self.watermark_ms = max(each.watermark_ms for each in self._committed.values())
        self._producers = {
            topic: ProducerTimes(self._committed[topic].producers_ms) for topic in self._producers
        }
        self._idle = frozenset()
        self.must_commit = False


class TimedInput:
    """Takes the event times of the records of one input, and advances the clock when they have been handled.

    Args:
        group: The group, named in errors.
        edge: The input.
        event_clock: The event time of the task.
        clock: Wall time, which records may be ahead of by `max_ahead`.
    """

    def __init__(
        self, group: Group[Any, Any], edge: Input[Any, Any, Any], event_clock: EventClock, clock: Clock
    ) -> None:
        assert group.event_time is not None, "the graph says so"
        self._group = group.name
        self._topic = edge.stream.name
        self._time = edge.time
        ahead = group.event_time.max_ahead
        self._ahead_ms = None if ahead is None else int(ahead / timedelta(milliseconds=1))
        self._event_clock = event_clock
        self._clock = clock

    def read(
        self,
        records: RecordBatch,
        events: Sequence[Any],
        bad: dict[int, StreamtableError],
        marked: Marked | None = None,
    ) -> RecordBatch:
        """Return the records with their event times.

        Args:
            records: Records of the input, or dead letters of it that were sent again.
            events: Their decoded values.
            bad: The records that no handler must see, by index; those without a usable time are added.
            marked: The watermark headers of the records, if the input carries watermarks.
        """
        # A record whose handler has failed counts: its time must not depend on what became of it.
        skip = {index for index, error in bad.items() if not isinstance(error, HandlerFailed)}
        times, failed = self._times(records, events, skip)
        if failed:
            for index, error in failed.items():
                bad[index] = self._invalid(records, index, error)
        self._refuse_future(records, times, bad)
        return records.timed(self._event_clock.of(self._topic, times, marked))

    def handled(self, records: RecordBatch, taken: int, marked: Marked | None = None) -> None:
        """Advance the event time by the first `taken` of these records, replayed dead letters excepted."""
        if records.topic == self._topic and records.times is not None and taken:
            event_ms = records.times.event_ms[:taken]
            if marked is not None:
                event_ms = list(compress(event_ms, (at == NO_TIME for at in marked.late_before_ms)))
            self._event_clock.handled(self._topic, event_ms)

    def marked(self, marked: Marked, taken: int) -> None:
        """Advance the event time by the producers' marks up to the first `taken` of the records."""
        if marked.marks and marked.records.topic == self._topic:
            self._event_clock.marked(self._topic, (mark for before, mark in marked.marks if before <= taken))

    def _times(
        self, records: RecordBatch, events: Sequence[Any], skip: set[int]
    ) -> tuple[list[int], dict[int, Exception]]:
        if not skip:
            try:
                found: list[Any] = (
                    records.timestamps() if self._time is None else list(map(self._time, events))
                )
            except Exception:  # noqa: BLE001, S110 - each record is asked again, to find those that raise
                pass
            else:
                if set(map(type, found)) == {int} and min(found) >= 0 and max(found) <= _LATEST_MS:
                    return found, {}
        times, failed = [NO_TIME] * len(records), {}
        for index, event in enumerate(events):
            if index not in skip:
                try:
                    times[index] = milliseconds(
                        _stamped(records, index) if self._time is None else self._time(event)
                    )
                except Exception as error:  # noqa: BLE001 - user code may raise anything
                    failed[index] = error
        return times, failed

    def _invalid(self, records: RecordBatch, index: int, error: Exception) -> HandlerFailed:
        failed = HandlerFailed(
            f"the event time of a record of group {self._group!r} cannot be read: {type(error).__name__}: {error}",
            topic=records.topic,
            partition=records.partition,
            offset=records.offsets[index],
        )
        failed.__cause__ = error
        return failed

    def _refuse_future(
        self, records: RecordBatch, times: list[int], bad: dict[int, StreamtableError]
    ) -> None:
        """Refuse the records that are too far ahead of the time when the broker appended them, or of the wall clock."""
        if self._ahead_ms is None or not times:
            return
        kind, first_ms = records.messages[0].timestamp()
        # The append time decides alike whenever the record is read; of a dead letter it is long past.
        appended = kind == _APPEND_TIME and records.topic == self._topic
        than_ms = first_ms if appended else int(self._clock.now() * 1000)
        if max(times) <= than_ms + self._ahead_ms:
            return
        clocks = records.timestamps() if appended else [than_ms] * len(records)
        for index, (time_ms, clock_ms) in enumerate(zip(times, clocks, strict=True)):
            if time_ms > clock_ms + self._ahead_ms:
                times[index] = NO_TIME
                bad[index] = FutureEventTime(
                    f"the event time {as_text(time_ms)} is more than {self._ahead_ms / 1000:g} s ahead of "
                    f"{as_text(clock_ms)}, {'when the broker appended the record' if appended else 'the time now'}: "
                    "correct the clock of the program that wrote it, or raise max_ahead of EventTime",
                    topic=records.topic,
                    partition=records.partition,
                    offset=records.offsets[index],
                )


def milliseconds(found: object) -> int:
    """Return an event time as milliseconds since 1970.

    Raises:
        InvalidEventTime: It is neither an int nor an aware datetime, or out of range: before 1970 or after 9999.
    """
    if isinstance(found, datetime) and found.tzinfo is not None:
        found = (found - _EPOCH) // timedelta(milliseconds=1)
    if type(found) is not int:
        raise InvalidEventTime(
            f"{found!r} is no event time: return milliseconds since 1970 as an int, or a datetime with a time zone"
        )
    if found < 0:
        raise InvalidEventTime(
            f"{found} is no event time: it is before 1970, where event time begins. Give such events a later time, or filter "
            "them out before"
        )
    if found > _LATEST_MS:
        raise InvalidEventTime(f"{found} is no event time: it is after 9999. Is it in microseconds?")
    return found


def _stamped(records: RecordBatch, index: int) -> int:
    """Return the timestamp of a record. Raises `InvalidEventTime` if it has none."""
    found = records.timestamp(index)
    if found == NO_TIME:
        raise InvalidEventTime("the record has no timestamp: take the time from the event, with Input(time=)")
    return found


def as_text(time_ms: int) -> str:
    """Return an event time for people, in UTC."""
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
