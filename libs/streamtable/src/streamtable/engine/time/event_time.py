"""Event time in a task: the stream time of each input, and the watermark, which never decreases.

The watermark is the least stream time (the greatest event time seen) of the inputs that are not idle. All of it is
committed with the offsets and goes back with them, so a record is late, or is not, whatever crashed in between. A group
whose own output comes back to it has a watermark for each stage of its inputs (`streamtable.graph.stages`).

The stream time of an input that carries watermarks is the least watermark of the tasks that write it, without those whose
own inputs are idle. Its silence says nothing: those who write it tell it when theirs fall silent.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import compress
from operator import gt
from typing import Any

import structlog

from streamtable.base.clock import Clock
from streamtable.base.event_time import NO_TIME, EventTimes, InputTime, running_max
from streamtable.base.mapped import mapped
from streamtable.base.types import NextOffset, RecordBatch
from streamtable.base.watermarks import Mark, Marked
from streamtable.engine.time.producers import ProducerTimes
from streamtable.engine.time.silence import ObservedEnds, Silence
from streamtable.errors import FutureEventTime, HandlerFailed, InvalidEventTime, StreamtableError
from streamtable.graph.group import Group, Input
from streamtable.graph.timer import TIMERS

_APPEND_TIME = 2  # the type of a timestamp that the broker has given, as the client says it
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999, the last that a datetime can say
# So many seconds since 1970 are 2001, and so many milliseconds January 1970; ten times as many are 2286, and April 1970.
_SECONDS = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
log = structlog.get_logger()


class EventClock:
    """The event time of one partition of a group.

    Args:
        group: The graph, with event time.
        partition: The number of the partition.
        committed: The event times that were committed with the offsets of its inputs.
        clock: The monotonic clock.

    Attributes:
        must_commit: Whether the watermark has advanced so far without records that it must be committed by itself.
    """

    def __init__(
        self, group: Group[Any, Any], partition: int, committed: Mapping[str, InputTime], clock: Clock
    ) -> None:
        assert group.event_time is not None, "the graph says so"
        idle_after, stages, inputs = group.event_time.idle_after, group.stages, group.event_time_inputs
        in_band = [edge.stream.name for edge in group.inputs if edge.watermarks]
        self._idle_after_ms = None if idle_after is None else int(idle_after / timedelta(milliseconds=1))
        self._stage_of = {topic: stages.inputs.get(topic, 0) for topic in inputs}
        # The stage whose watermark fires timers.
        self._timers = stages.states.get(TIMERS["event"], stages.last)
        silent = [topic for topic in inputs if topic not in in_band]
        self._silence = Silence(group.event_time, partition, silent, clock)
        # The outputs are to have the watermark as soon as it advances without records.
        self._passes_on = any(edge.watermarks for edge in group.outputs)
        self._goes_by_itself = False  # since a commit where it had advanced without records
        self.must_commit = False
        self._committed = {topic: committed.get(topic, InputTime()) for topic in inputs}
        self._producers = dict.fromkeys(in_band, ProducerTimes())
        self._streams: dict[str, int] = {}
        self._watermarks: list[int] = []  # of each stage; none is less than the next stage's
        self._restore()
        # A watermark ahead of all events has got there in silence, which lasts: it goes on from there.
        self._resumed_ms = [
            NO_TIME if at <= max(self._up_to(stage).values()) else at + (self._idle_after_ms or 0)
            for stage, at in enumerate(self._watermarks)
        ]

    @property
    def watermark_ms(self) -> int:
        """The watermark: no event before this time is expected any more; `NO_TIME` at first."""
        return self._watermarks[-1]

    def watermark_of(self, stage: int) -> int:
        """Return the watermark of the inputs up to a stage. The last stage's is the least."""
        return self._watermarks[stage]

    def idle(self, stage: int) -> bool:
        """Return whether all inputs up to a stage are idle."""
        return self._up_to(stage).keys() <= self._idle_inputs()

    def _up_to(self, stage: int) -> dict[str, int]:
        """Return the stream times of the inputs up to a stage."""
        return {topic: at for topic, at in self._streams.items() if self._stage_of[topic] <= stage}

    # ---- records ---------------------------------------------------------------------------------------------------

    def of(
        self,
        topic: str,
        event_ms: Sequence[int],
        marked: Marked | None = None,
        seen_ms: Sequence[int] | None = None,
    ) -> EventTimes:
        """Return the event times of the next records of an input. They count only once the records are handled.

        Args:
            topic: The input.
            event_ms: The event time of each record.
            marked: The watermark headers of the records, and the marks between them, if the input carries watermarks.
            seen_ms: The time that each record advances the stream time of its input to; None: its event time.
        """
        idle, closed_ms = self._idle_inputs(), self._watermarks[self._stage_of[topic]]
        watermark_ms, others_ms = self._watermarks[self._timers], None
        others = [at for each, at in self._up_to(self._timers).items() if each != topic and each not in idle]
        if self._stage_of[topic] > self._timers:
            others_ms = NO_TIME  # these records do not advance it
        elif others:
            others_ms = min(others)
        times = EventTimes(
            event_ms, self._streams[topic], others_ms, watermark_ms, seen_ms=seen_ms, closed_ms=closed_ms
        )
        if marked is None or not (self._producers[topic].known or marked.carries):
            return times
        # One that carries nothing, from before its producers wrote marks, is taken as in time.
        late_before = [
            max(carried if carried != NO_TIME else at, closed_ms)
            for carried, at in zip(marked.late_before_ms, event_ms, strict=True)
        ]
        least = self._producers[topic].before_each(len(event_ms), marked.marks)
        watermarks = [
            max(watermark_ms, at if others_ms is None else min(at, others_ms))
            for at in running_max(least, self._streams[topic])
        ]
        return EventTimes.given(event_ms, late_before, watermarks)

    def handled(self, topic: str, seen_ms: Sequence[int]) -> None:
        """Note that records of an input which move it to these times have been handled."""
        self._silence.handled(topic)
        self._goes_by_itself = False
        if topic not in self._producers:
            for stage in range(self._stage_of[topic], len(self._resumed_ms)):
                self._resumed_ms[stage] = (
                    NO_TIME  # the silence has ended: the next one counts from its last event
                )
        if topic not in self._producers or not self._producers[topic].known:
            self._streams[topic] = max(self._streams[topic], max(seen_ms, default=NO_TIME))
        self._advance()

    def marked(self, topic: str, marks: Iterable[Mark]) -> None:
        """Note the watermarks of the producers of an input.

        One after the other: a producer that is idle in between has let event time go on, in whichever batch its marks come.
        """
        for mark in marks:
            self._producers[topic].marked(mark)
            self._streams[topic] = max(self._streams[topic], self._producers[topic].least_ms)
            self._advance()

    def _advance(self) -> None:
        idle = self._idle_inputs()
        for stage, at in enumerate(self._watermarks):
            active = [time for topic, time in self._up_to(stage).items() if topic not in idle]
            self._watermarks[stage] = max(at, min(active) if active else self._told_up_to(stage))
        self._pull()

    def _told_up_to(self, stage: int) -> int:
        """Return the greatest time that idle tasks have written into the inputs up to a stage."""
        told = (at for topic, at in self._up_to(stage).items() if topic in self._producers)
        return max(told, default=NO_TIME)

    def _pull(self) -> None:
        """Let stages whose inputs are all idle follow the next one, as an idle input follows the others."""
        for stage in reversed(range(len(self._watermarks) - 1)):
            if self.idle(stage):
                self._watermarks[stage] = max(self._watermarks[stage : stage + 2])

    # ---- idle inputs -----------------------------------------------------------------------------------------------

    def observe(self, observed: ObservedEnds, next_offsets: Mapping[str, NextOffset]) -> None:
        """Find out which inputs are idle, and advance without them.

        Args:
            observed: The ends of the inputs as reported by the broker.
            next_offsets: The next offset of each input, after the records that were handled.
        """
        if self._idle_after_ms is None:
            return
        self._silence.observe(observed, next_offsets)
        self._advance()
        for stage, at in enumerate(self._watermarks):
            if self.idle(stage):
                self._watermarks[stage] = max(
                    at, self._in_silence(stage, self._idle_after_ms, observed.asked_at)
                )
        self._pull()
        # Less than that is not worth a commit of its own: what fires because of it is committed with it.
        pairs = zip(self._watermarks, self._committed_watermarks(), strict=True)
        advanced_ms = max(at - before for at, before in pairs)
        at_once = self._passes_on and bool(self._silence.idle) and not self._goes_by_itself
        self.must_commit = advanced_ms >= (1 if at_once else max(self._idle_after_ms, 1))

    def _in_silence(self, stage: int, idle_after_ms: int, now: float) -> int:
        """Return the time that idle inputs have reached: event time has gone on since their last event, as fast as the clock.

        It never goes to the wall clock: old events may follow a silence, as when a backlog is loaded.
        """
        own = {topic: at for topic, at in self._up_to(stage).items() if topic not in self._producers}
        last_ms = max([self._resumed_ms[stage], *own.values()])
        if last_ms == NO_TIME or not own:
            return NO_TIME
        return last_ms + self._silence.passed_ms(own, now) - idle_after_ms

    def _idle_inputs(self) -> frozenset[str]:
        told = (topic for topic, producers in self._producers.items() if producers.idle)
        return self._silence.idle.union(told)

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def times(self) -> dict[str, InputTime]:
        """Return the event times to be committed with the offset of each input."""
        found = {}
        for topic, at in self._streams.items():
            producers = self._producers.get(topic) or ProducerTimes()
            watermark_ms = self._watermarks[self._stage_of[topic]]
            found[topic] = InputTime(
                at, watermark_ms, tuple(producers.watermarks_ms), frozenset(producers.idle_ones)
            )
        return found

    def raise_to(self, watermarks_ms: Mapping[str, int]) -> None:
        """Advance, without records, to the watermarks that the task has committed with these inputs."""
        before = list(self._watermarks)
        for topic, watermark_ms in watermarks_ms.items():
            for stage in range(self._stage_of.get(topic, -1) + 1):
                self._watermarks[stage] = max(self._watermarks[stage], watermark_ms)
        self.must_commit = self.must_commit or before != self._watermarks

    def committed(self, times: Mapping[str, InputTime]) -> None:
        """Note that these times have been committed."""
        self._committed = dict(times)
        self._goes_by_itself = self._goes_by_itself or self.must_commit
        self.must_commit = False

    def rewind(self) -> None:
        """Go back to the times that were committed last."""
        self._restore()
        self._silence.forget()
        self.must_commit = False

    def _restore(self) -> None:
        self._streams = {topic: each.stream_ms for topic, each in self._committed.items()}
        self._watermarks = self._committed_watermarks()
        self._producers = {
            topic: ProducerTimes(self._committed[topic].producers_ms, self._committed[topic].idle)
            for topic in self._producers
        }

    def _committed_watermarks(self) -> list[int]:
        # The watermark of a stage is at least the watermark of the stages behind it, also if its own inputs are new.
        return [
            max(at.watermark_ms for topic, at in self._committed.items() if self._stage_of[topic] >= stage)
            for stage in range(max(self._stage_of.values()) + 1)
        ]


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
        self._doubted = False

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
        self._doubt(records, times)
        self._refuse_future(records, times, bad)
        return records.timed(self._event_clock.of(self._topic, times, marked, self._seen(records, times)))

    def handled(self, records: RecordBatch, taken: int, marked: Marked | None = None) -> None:
        """Advance the event time by the first `taken` of these records, replayed dead letters excepted."""
        if records.topic == self._topic and records.times is not None and taken:
            seen_ms = records.times.seen_ms[:taken]
            if marked is not None:
                seen_ms = list(compress(seen_ms, (at == NO_TIME for at in marked.late_before_ms)))
            self._event_clock.handled(self._topic, seen_ms)

    def marked(self, marked: Marked, taken: int) -> None:
        """Advance the event time by the producers' marks up to the first `taken` of the records."""
        if marked.marks and marked.records.topic == self._topic:
            self._event_clock.marked(self._topic, (mark for before, mark in marked.marks if before <= taken))

    def _seen(self, records: RecordBatch, times: list[int]) -> list[int] | None:
        """Return the time that each record advances the stream time to; None: its event time.

        A claimed time does not move it past the record's own timestamp, which the program or the broker has stamped that
        accepted the record: one wrong clock must not make the records of all others late.
        """
        if self._time is None or not times:
            return None
        stamped = records.timestamps()
        if not any(map(gt, times, stamped)):  # the usual case, at a third of the cost
            return None
        return [min(at, stamp) if stamp > 0 else at for at, stamp in zip(times, stamped, strict=True)]

    def _times(
        self, records: RecordBatch, events: Sequence[Any], skip: set[int]
    ) -> tuple[list[int], dict[int, Exception]]:
        if not skip:
            try:
                found: list[Any] = records.timestamps() if self._time is None else mapped(self._time, events)
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
            f"the event time of a record of group {self._group!r} cannot be read: {type(error).__name__}: {error}"
        )
        failed.__cause__ = error
        return failed.at(*records.place, records.offsets[index])

    def _doubt(self, records: RecordBatch, times: list[int]) -> None:
        """Warn once of times that are most probably seconds: windows and joins would take each for the beginning of 1970."""
        latest = max(times, default=NO_TIME)
        if not self._doubted and _SECONDS <= latest < 10 * _SECONDS:
            self._doubted = True
            reason = (
                f"{latest} is {as_text(latest)} in milliseconds, and {as_text(latest * 1000)} in seconds. Event times are "
                "milliseconds since 1970: multiply by 1000 in time=, or in the program that stamps the records"
            )
            place = f"{records.topic}[{records.partition}]@{records.first_offset}"
            log.warning("event times look like seconds", group=self._group, place=place, reason=reason)

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
                    "correct the clock of the program that wrote it, or raise max_ahead of EventTime"
                ).at(*records.place, records.offsets[index])


def milliseconds(found: object) -> int:
    """Return an event time as milliseconds since 1970.

    Raises:
        InvalidEventTime: It is neither an int nor an aware datetime, or out of range: before 1970 or after 9999.
    """
    if isinstance(found, datetime) and found.tzinfo is not None:
        found = (found - _EPOCH) // timedelta(milliseconds=1)
    if type(found) is not int:
        raise InvalidEventTime(
            f"{found!r} is not an event time: return milliseconds since 1970 as an int, or a datetime with a time zone"
        )
    if found < 0:
        raise InvalidEventTime(
            f"{found} is not an event time: it is before 1970, where event time begins. Return max(0, ...) for "
            "such events, or drop them by on_error= of the input"
        )
    if found > _LATEST_MS:
        raise InvalidEventTime(f"{found} is not an event time: it is after 9999. Is it in microseconds?")
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
