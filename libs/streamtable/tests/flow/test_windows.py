"""Windows as pure functions, compared with their definitions."""

from collections.abc import Callable
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable import Bytes, Long, Stream, String
from streamtable.errors import DeserializationError, GraphError, SerializationError
from streamtable.flow import Flow, Hopping, Session, SessionKey, Tumbling, Windowed, WindowedKey
from streamtable.flow.windows.windows import Sliding
from streamtable_testing import Tester

NOW = timedelta(0)
times = st.integers(0, 10_000)
# Around today, where floats would no longer be exact.
late_times = st.integers(1_700_000_000_000, 1_700_000_000_000 + 10_000)


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


@given(st.lists(times | late_times), st.integers(1, 3_000))
def test_a_record_is_in_the_one_tumbling_window_that_begins_at_or_before_it(
    events: list[int], size: int
) -> None:
    assigned = Tumbling(ms(size), grace=NOW).assign(events)
    assert assigned.indexes is None
    assert len(assigned.starts) == len(events)
    for time, start in zip(events, assigned.starts, strict=True):
        assert start % size == 0
        assert start <= time < start + size


@given(st.lists(times), st.integers(1, 500), st.data())
def test_a_record_is_in_every_hopping_window_around_it_and_in_no_other(
    events: list[int], size: int, data: st.DataObject
) -> None:
    every = data.draw(st.integers(max(1, size // 8), size))
    indexes, starts = Hopping(ms(size), ms(every), grace=NOW).assign(events)
    assert indexes is not None
    expected = [
        (index, start)
        for index, time in enumerate(events)
        for start in range(-(size // every) * every, time + 1, every)
        if time < start + size
    ]
    assert list(zip(indexes, starts, strict=True)) == expected


@given(st.lists(late_times), st.integers(1, 3_000))
def test_hopping_windows_that_do_not_overlap_are_tumbling_windows(events: list[int], size: int) -> None:
    hopping = Hopping(ms(size), ms(size), grace=NOW).assign(events)
    assert hopping.starts == list(Tumbling(ms(size), grace=NOW).assign(events).starts)
    assert hopping.indexes == list(range(len(events)))


@given(st.lists(st.integers(200, 500), max_size=12), st.integers(0, 100))
def test_sliding_windows_are_the_distinct_sets_of_records_within_the_difference(
    events: list[int], difference: int
) -> None:
    starts = Sliding(ms(difference), grace=NOW).starts(events)
    contents = [tuple(t for t in sorted(events) if start <= t <= start + difference) for start in starts]
    # By the definition: for each place that a window can have, its records.
    places = range(200 - difference - 1, 502)
    every = {tuple(t for t in sorted(events) if start <= t <= start + difference) for start in places} - {()}
    assert len(contents) == len(set(contents))
    # Places where a record leaves before the next one comes are contained in others, and are no windows.
    assert set(contents) <= every
    for one, other in combinations(sorted(set(events)), 2):
        if other - one <= difference:
            assert any(one in content and other in content for content in contents)


@pytest.mark.parametrize(
    ("window", "last_open"),
    [
        (Tumbling(ms(100), grace=ms(10)), 309),  # the window [200, 300)
        (Hopping(ms(100), ms(50), grace=ms(10)), 309),
        (Sliding(ms(100), grace=ms(10)), 310),  # [200, 300]: a record at 300 belongs to it
        (Session(ms(50), grace=ms(10)), 360),  # from 200 to 300; a record at 350 still belongs to it
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else "",
)
def test_a_window_closes_when_event_time_has_passed_its_end_and_the_grace(
    window: Tumbling, last_open: int
) -> None:
    assert window.closes_at(200, 300) == last_open + 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Tumbling(ms(0), grace=NOW), "size"),
        (lambda: Tumbling(timedelta(microseconds=1500), grace=NOW), "whole milliseconds"),
        (lambda: Tumbling(ms(1), grace=ms(-1)), "grace"),
        (
            lambda: Tumbling(60, grace=NOW),  # type: ignore[arg-type] # this is what it is about
            "timedelta",
        ),
        (lambda: Hopping(ms(10), ms(11), grace=NOW), "no window"),
        (lambda: Hopping(ms(10), ms(0), grace=NOW), "every"),
        (lambda: Hopping(ms(20_001), ms(2), grace=NOW), "change 10,001 windows; give at most 10,000"),
        (lambda: Sliding(ms(-1), grace=NOW), "difference"),
        (lambda: Session(ms(-1), grace=NOW), "gap"),
        (lambda: Tumbling(grace=NOW), "size"),
        (lambda: Tumbling(days=1, grace=NOW), "name of the time zone"),
        (lambda: Tumbling(zone="UTC", grace=NOW), "days=None"),
        (lambda: Tumbling(days=0, zone="UTC", grace=NOW), "days=0"),
        (lambda: Tumbling(ms(1), days=1, zone="UTC", grace=NOW), "and also days=1"),
        (lambda: Tumbling(days=1, zone="Mars/Olympus", grace=NOW), "Mars/Olympus.*tzdata"),
        (lambda: Tumbling(days=1, zone="../UTC", grace=NOW), "not in the time zone database"),
        (lambda: Tumbling(days=1, zone="Europe", grace=NOW), "not in the time zone database"),
    ],
)
def test_a_window_that_cannot_be_is_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        make()


def test_a_window_without_a_grace_is_refused() -> None:
    with pytest.raises(TypeError, match="grace"):
        Tumbling(ms(1))  # type: ignore[call-arg] # this is what it is about


# ---- keys on the wire -------------------------------------------------------------------------------------------------------


def test_a_windowed_key_is_the_key_and_the_start_as_kafka_streams_writes_them() -> None:
    codec = WindowedKey(String(), 60_000)
    assert codec.encode(Windowed("alice", 0x0102, 0x0102 + 60_000)) == b"alice" + bytes(6) + b"\x01\x02"
    assert codec.decode(b"alice" + bytes(6) + b"\x01\x02") == Windowed("alice", 258, 60_258)


def test_a_session_key_is_the_key_the_end_and_the_start_as_kafka_streams_writes_them() -> None:
    data = b"alice" + bytes(7) + b"\x09" + bytes(7) + b"\x05"
    assert SessionKey(String()).encode(Windowed("alice", 5, 9)) == data
    assert SessionKey(String()).decode(data) == Windowed("alice", 5, 9)


@given(st.binary(), st.integers(0, (1 << 62)), st.integers(0, 1 << 61))
def test_windowed_keys_of_any_bytes_come_back(key: bytes, start: int, size: int) -> None:
    for codec in (WindowedKey(Bytes(), size), SessionKey(Bytes())):
        window = Windowed(key, start, start + size)
        assert codec.decode(codec.encode(window)) == window


@given(st.lists(st.none() | st.binary(max_size=40)))
def test_poison_keys_of_a_column_do_not_stop_the_others(data: list[bytes | None]) -> None:
    for codec in (WindowedKey(Long(), 1), SessionKey(Long())):
        found = codec.decode_many(data)
        for index, item in enumerate(data):
            if item is None:
                assert found.values[index] is None
            elif index in found.poison:
                with pytest.raises(DeserializationError):
                    codec.decode(item)
            else:
                assert found.values[index] == codec.decode(item)


@pytest.mark.parametrize("codec", [WindowedKey(String(), 1), SessionKey(String())])
def test_a_window_that_ends_before_1970_cannot_be_encoded(codec: Any) -> None:
    with pytest.raises(SerializationError, match="1970"):
        codec.encode(Windowed("a", -2, -1))


def test_a_key_whose_window_ends_before_1970_is_poison() -> None:
    with pytest.raises(DeserializationError, match="would end before 1970"):
        WindowedKey(String(), 1).decode(b"a" + b"\xff" * 7 + b"\xfe")


def test_sliding_windows_around_1970_begin_before_it() -> None:
    assert Sliding(ms(5), grace=NOW).starts([0, 2]) == [-5, -3, 1]


@pytest.mark.parametrize(
    ("window", "before_1970"),
    [
        (Hopping(ms(100), ms(40), grace=NOW), [-40]),
        (Sliding(ms(100), grace=NOW), [-70, -30]),
        (Tumbling(days=1, zone="Europe/Berlin", grace=NOW), [-3_600_000]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_windows_of_the_first_events_of_1970_may_begin_before_it(
    window: Any, before_1970: list[int]
) -> None:
    flow = Flow("f")
    events: Stream[str, int] = Stream("events", String(), Long())
    out: Stream[Any, int] = Stream("out", window.key(String()), Long())
    counts = flow.stream(events, time=lambda at: at).group_by_key().window(window).count("n")
    counts.final().to(out)
    with Tester() as tester:
        tester.create(out)
        tester.run(flow)
        for at in (30, 70):
            tester.emit(events, "k", at)
        found = tester.view(counts.table).windows("k")
        assert [key.start_ms for key, _ in found if key.start_ms < 0] == before_1970
        assert [key.start_ms for key, _ in found] == sorted(key.start_ms for key, _ in found)
        for key, count in found:
            behind = 1 if isinstance(window, Sliding) else 0
            assert count == sum(key.start_ms <= at < key.end_ms + behind for at in (30, 70))
        assert tester.view(counts.table).windows("k", -40, -29) == [
            each for each in found if each[0].start_ms < -29
        ]
        tester.emit(events, "last", 200_000_000)
        finals = {each.key: each.value for each in tester.records(out) if each.key and each.key.key == "k"}
    assert finals == dict(found)
