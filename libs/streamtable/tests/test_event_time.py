"""Event times as columns, against their definitions taken word by word."""

from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamtable.base.event_time import NO_TIME, EventTimes, running_max
from streamtable.base.topics import Stream
from streamtable.base.types import RecordBatch
from streamtable.base.watermarks import Mark
from streamtable.codec.plain import Long, String
from streamtable.engine.time.event_time import EventClock, TimedInput
from streamtable.errors import FutureEventTime, StreamtableError
from streamtable.graph.group import EventTime, Group, Input
from streamtable_testing.clock import VirtualClock

TIME = st.integers(NO_TIME, 30)
TIMES = st.lists(TIME, max_size=12)


def group_of(
    inputs: str, idle_after: timedelta | None = timedelta(seconds=30), *, watermarks: bool = False
) -> Group[Any, Any]:
    """A group with an input for each letter."""
    streams = [Stream(name, String(), Long()) for name in inputs]
    edges: list[Any] = [Input(stream, lambda ctx, event: None, watermarks=watermarks) for stream in streams]
    return Group("g", *edges, EventTime(idle_after=idle_after))


@given(TIMES, TIME)
def test_a_running_maximum_is_that_of_all_before_and_the_floor(times: list[int], floor: int) -> None:
    assert list(running_max(times, floor)) == [max(floor, *times[: n + 1]) for n in range(len(times))]


@given(TIMES, TIME, st.none() | TIME, TIME)
def test_the_columns_of_records_are_what_their_names_say(
    times: list[int], stream: int, others: int | None, watermark: int
) -> None:
    found = EventTimes(times, stream, others, watermark)
    streams = list(accumulate(times, max, initial=stream))
    assert list(found.late_before_ms) == [max(each, watermark) for each in streams[1:]]
    free = [each if others is None else min(each, others) for each in streams[:-1]]
    assert list(found.watermarks_ms) == [max(watermark, each) for each in free]


@given(TIMES, TIME, st.none() | TIME, TIME, st.data())
def test_a_choice_of_records_keeps_the_columns_that_they_have_among_all(
    times: list[int], stream: int, others: int | None, watermark: int, data: Any
) -> None:
    whole = EventTimes(times, stream, others, watermark)
    keep = data.draw(st.lists(st.booleans(), min_size=len(times), max_size=len(times)))
    chosen = [n for n, kept in enumerate(keep) if kept]
    start = data.draw(st.integers(0, len(chosen)))
    stop = data.draw(st.integers(start, len(chosen)))
    found = EventTimes(times, stream, others, watermark).only(keep).part(start, stop)
    for column in ("event_ms", "late_before_ms", "watermarks_ms"):
        expected = [list(getattr(whole, column))[n] for n in chosen[start:stop]]
        assert list(getattr(found, column)) == expected


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(TIME, min_size=1, max_size=4)), max_size=8), st.data()
)
def test_a_record_is_late_or_not_however_inputs_are_interleaved_batches_cut_and_work_undone(
    batches: list[tuple[str, list[int]]], data: Any
) -> None:
    clock = EventClock(group_of("ab", None), 0, {}, VirtualClock())
    seen: dict[str, list[int]] = {"a": [], "b": []}
    before = NO_TIME
    for topic, times in batches:
        if data.draw(st.booleans()):
            clock.committed(clock.times())
        for _ in range(data.draw(st.integers(0, 1))):  # handled, undone, and handled again
            committed = clock.times()
            clock.committed(committed)
            clock.handled(topic, times)
            clock.rewind()
            assert clock.times() == committed
        told = clock.of(topic, times)
        for time, late_before in zip(times, told.late_before_ms, strict=True):
            seen[topic].append(time)
            assert late_before == max(seen[topic])
        clock.handled(topic, times)
        assert clock.watermark_ms >= before
        before = clock.watermark_ms
        expected = [max(each, default=NO_TIME) for each in seen.values()]
        assert clock.watermark_ms == min(expected)
    again = EventClock(group_of("ab", None), 0, clock.times(), VirtualClock())
    assert (again.times(), again.watermark_ms) == (clock.times(), clock.watermark_ms)


def test_a_new_input_of_a_group_does_not_take_the_watermark_back() -> None:
    before = EventClock(group_of("a"), 0, {}, VirtualClock())
    before.handled("a", [700])
    after = EventClock(group_of("ab"), 0, before.times(), VirtualClock())
    assert after.watermark_ms == 700
    assert list(after.of("b", [300]).late_before_ms) == [700]
    assert after.times()["b"].stream_ms == NO_TIME


MARK = st.builds(Mark, st.integers(0, 2), st.just(3), st.integers(0, 100), st.booleans())


@given(st.lists(MARK, max_size=12), st.lists(st.integers(0, 12)))
def test_marks_of_producers_let_event_time_go_on_as_far_in_one_batch_as_one_by_one(
    marks: list[Mark], cuts: list[int]
) -> None:
    def clock() -> EventClock:
        return EventClock(group_of("a", watermarks=True), 0, {}, VirtualClock())

    one_by_one, in_batches = clock(), clock()
    for mark in marks:
        one_by_one.marked("a", [mark])
    for begin, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(marks)), len(marks)]):
        in_batches.marked("a", marks[begin:end])
    assert in_batches.times() == one_by_one.times()


# ---- clocks from the future ------------------------------------------------------------------------------------------

HOUR = 3_600_000
NOW = 1_700_000_000_000
CREATED, APPENDED = 1, 2


class Dated:
    """A message that has only a timestamp."""

    def __init__(self, kind: int, timestamp_ms: int) -> None:
        self._timestamp = kind, timestamp_ms

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b""

    def offset(self) -> int:
        return 0

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp


def refused(topic: str, *records: tuple[int, int, int]) -> list[int]:
    """Return the indexes of refused records, of (kind of timestamp, timestamp, event time), all relative to now."""
    edge: Input[str, int, int] = Input(
        Stream("in", String(), Long()), lambda ctx, event: None, time=lambda event: event
    )
    group: Group[str, int] = Group("g", edge)
    assert group.event_time is not None
    clock = VirtualClock(NOW / 1000)
    timed = TimedInput(group, edge, EventClock(group, 0, {}, clock), clock)
    messages = [Dated(kind, NOW + timestamp_ms) for kind, timestamp_ms, _ in records]
    bad: dict[int, StreamtableError] = {}
    found = timed.read(RecordBatch(topic, 0, messages), [NOW + event_ms for *_, event_ms in records], bad)
    assert found.times is not None
    assert all(isinstance(error, FutureEventTime) for error in bad.values())
    assert [n for n, time in enumerate(found.times.event_ms) if time == NO_TIME] == sorted(bad)
    return sorted(bad)


def test_an_event_is_compared_with_the_clock_where_producers_date_records() -> None:
    assert refused("in", (CREATED, -9 * HOUR, HOUR), (CREATED, -9 * HOUR, HOUR + 1)) == [1]


def test_an_event_is_compared_with_the_time_when_the_broker_appended_it() -> None:
    """The decision is therefore the same when the record is read again, much later."""
    appended = [(APPENDED, -9 * HOUR, -8 * HOUR), (APPENDED, -9 * HOUR, -8 * HOUR + 1), (APPENDED, 0, HOUR)]
    assert refused("in", *appended) == [1]
    assert refused("in", (APPENDED, -9 * HOUR, -8 * HOUR)) == []


def test_a_dead_letter_that_is_sent_again_is_compared_with_the_clock_which_may_have_come_to_it() -> None:
    assert refused("g-retry", (APPENDED, -9 * HOUR, HOUR)) == []
    assert refused("g-retry", (APPENDED, -9 * HOUR, HOUR + 1)) == [0]
