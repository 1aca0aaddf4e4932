"""Event times as columns, against their definitions taken word by word."""

from datetime import timedelta
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamtable.engine.event_time import EventClock
from streamtable.event_time import NO_TIME, EventTimes, running_max
from streamtable.graph import EventTime
from streamtable_testing.clock import VirtualClock

TIME = st.integers(NO_TIME, 30)
TIMES = st.lists(TIME, max_size=12)


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
    clock = EventClock(EventTime(idle_after=None), 0, "ab", {}, VirtualClock())
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
    again = EventClock(EventTime(idle_after=None), 0, "ab", clock.times(), VirtualClock())
    assert (again.times(), again.watermark_ms) == (clock.times(), clock.watermark_ms)


def test_a_new_input_of_a_group_does_not_take_the_watermark_back() -> None:
    event_time = EventTime(idle_after=timedelta(seconds=30))
    before = EventClock(event_time, 0, "a", {}, VirtualClock())
    before.handled("a", [700])
    after = EventClock(event_time, 0, "ab", before.times(), VirtualClock())
    assert after.watermark_ms == 700
    assert list(after.of("b", [300]).late_before_ms) == [700]
    assert after.times()["b"].stream_ms == NO_TIME
