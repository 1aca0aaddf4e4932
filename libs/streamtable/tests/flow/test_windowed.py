"""Windowed tables through the engine, without a broker: known answers, late records, and what does not depend on batches."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import Json, Long, Stream, String
from streamtable.errors import GraphError, StateMeaningChanged
from streamtable.flow import (
    Assigned,
    Flow,
    Hopping,
    Session,
    Sliding,
    TimeWindow,
    Tumbling,
    Windowed,
    WindowedKey,
    WindowedTable,
)
from streamtable.flow.folds import sessions as session_folds
from streamtable.flow.windows.windows import Window
from streamtable_testing.tester import Tester

TIMES = Stream("times", String(), Long())  # a value is its own event time
LATE = Stream("late", String(), Long())


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


TUMBLING = Tumbling(ms(10), grace=ms(5))
HOPPING = Hopping(ms(10), ms(5), grace=ms(5))
SESSION = Session(ms(5), grace=ms(5))
SLIDING = Sliding(ms(10), grace=ms(5))


def counting(window: Any, **more: Any) -> tuple[Flow, WindowedTable[str, int]]:
    flow = Flow("f")
    stream = flow.stream(TIMES, time=lambda value: value)
    return flow, stream.group_by_key().window(window, **more).count("counts")


def rows(tester: Tester, table: WindowedTable[str, Any]) -> dict[tuple[str, int, int], Any]:
    return {(key.key, key.start_ms, key.end_ms): row for key, row in tester.table(table.table).items()}


def emit(tester: Tester, *events: tuple[str, int]) -> None:
    tester.emit_many(TIMES, events)


def test_sessions_of_more_keys_than_are_remembered_are_read_again(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_folds, "_KNOWN_MAX", 2)
    flow, table = counting(SESSION)
    tester.run(flow)
    for at in (3, 7):
        for key in "abcde":
            emit(tester, (key, at))
    assert rows(tester, table) == {(key, 3, 7): 2 for key in "abcde"}


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (TUMBLING, {("a", 0, 10): 2, ("a", 10, 20): 1, ("b", 10, 20): 1}),
        (
            HOPPING,
            {
                ("a", -5, 5): 1, ("a", 0, 10): 2, ("a", 5, 15): 2, ("a", 10, 20): 1, ("b", 5, 15): 1,
                ("b", 10, 20): 1,
            },
        ),
        (SESSION, {("a", 3, 11): 3, ("b", 12, 12): 1}),
        (
            SLIDING,
            {
                ("a", -7, 3): 1, ("a", -3, 7): 2, ("a", 1, 11): 3, ("a", 4, 14): 2, ("a", 8, 18): 1, ("b", 2, 12): 1,
            },
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "one by one"])
def test_records_are_counted_by_key_and_window(
    tester: Tester, window: Window, expected: Mapping[Any, int], *, at_once: bool
) -> None:
    flow, table = counting(window)
    tester.run(flow)
    events = [("a", 3), ("a", 7), ("a", 11), ("b", 12)]
    for part in [events] if at_once else [[event] for event in events]:
        emit(tester, *part)
    assert rows(tester, table) == expected
    assert table.table.name == "f-counts"


def kept(stream: Any, what: str) -> WindowedTable[str, Any]:
    tables: Mapping[str, Callable[[], WindowedTable[str, Any]]] = {
        "count": lambda: stream.count("t"),
        "sum": lambda: stream.sum("t", lambda v: v * 2),
        "min": lambda: stream.min("t", lambda v: -v),
        "max": lambda: stream.max("t", str, value=String()),
        "reduce": lambda: stream.reduce("t", lambda row, v: row * 100 + v, value=Long()),
    }
    return tables[what]()


@pytest.mark.parametrize(
    ("what", "expected"), [("count", 2), ("sum", 22), ("min", -7), ("max", "7"), ("reduce", 407)]
)
@pytest.mark.parametrize("window", [TUMBLING, SESSION], ids=["tumbling", "session"])
def test_an_aggregate_makes_of_each_window_what_its_name_says(
    tester: Tester, window: Any, what: str, expected: Any
) -> None:
    flow = Flow("f")
    grouped = flow.stream(TIMES, time=lambda value: value).group_by_key()
    table = kept(grouped.window(window), what)
    tester.run(flow)
    emit(tester, ("a", 4), ("a", 7))
    (row,) = rows(tester, table).values()
    assert row == expected


def test_windows_and_sessions_are_aggregated_by_functions(tester: Tester) -> None:
    flow = Flow("f")
    grouped = flow.stream(TIMES, time=lambda value: value).group_by_key()
    tumbling = grouped.window(TUMBLING).aggregate("tumbling", str, comma, value=String())
    session = grouped.window(SESSION).aggregate(
        "session", str, comma, lambda one, other: f"{one};{other}", value=String()
    )
    tester.run(flow)
    for event in [("a", 1), ("a", 11), ("a", 6)]:  # the last one merges two sessions
        emit(tester, event)
    assert rows(tester, tumbling) == {("a", 0, 10): ",1,6", ("a", 10, 20): ",11"}
    assert rows(tester, session) == {("a", 1, 11): ",1;,11,6"}


def comma(row: str, value: int) -> str:
    return f"{row},{value}"


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "one by one"])
def test_a_session_whose_row_becomes_none_has_ended(tester: Tester, *, at_once: bool) -> None:
    flow = Flow("f")
    grouped = flow.stream(TIMES, time=lambda value: value).group_by_key()
    ending: Any = lambda row, value: None if value == 3 else row + value  # noqa: E731 - types say that rows are not None
    table = grouped.window(SESSION).reduce("t", ending)
    tester.run(flow)
    events = [("a", 1), ("a", 3), ("a", 4)]
    for part in [events] if at_once else [[event] for event in events]:
        emit(tester, *part)
    assert rows(tester, table) == {("a", 4, 4): 4}


def test_a_record_that_merges_sessions_deletes_their_rows(tester: Tester) -> None:
    flow, table = counting(SESSION)
    out = Stream("out", table.table.key, Long())
    table.changes().to(out)
    tester.run(flow)
    for event in [("a", 100), ("a", 110), ("b", 100), ("a", 105)]:
        emit(tester, event)
    assert rows(tester, table) == {("a", 100, 110): 3, ("b", 100, 100): 1}
    changes = [(*(record.key or ()), record.value) for record in tester.records(out)]
    assert changes[:3] == [("a", 100, 100, 1), ("a", 110, 110, 1), ("b", 100, 100, 1)]
    assert sorted(changes[3:], key=str) == [
        ("a", 100, 100, None), ("a", 100, 110, 3), ("a", 110, 110, None)
    ]  # fmt: skip


def test_sessions_of_keys_that_begin_alike_are_kept_apart(tester: Tester) -> None:
    flow, table = counting(SESSION)
    tester.run(flow)
    keys = ["a", "ab", "a\0\0\0\0\0\0\0\1", "a" + "\0" * 16, ""]
    for time in (10, 12, 100):
        emit(tester, *((key, time) for key in keys))
    assert rows(tester, table) == {
        (key, *span): n for key in keys for span, n in (((10, 12), 2), ((100, 100), 1))
    }


# ---- late records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "one by one"])
def test_a_record_counts_until_event_time_has_passed_the_end_of_its_window_and_the_grace(
    tester: Tester, *, at_once: bool
) -> None:
    flow, table = counting(TUMBLING, late=LATE)
    tester.run(flow)
    events = [("a", 3), ("b", 14), ("a", 4), ("b", 15), ("a", 5), ("b", 6)]
    for part in [events] if at_once else [[event] for event in events]:
        emit(tester, *part)
    assert rows(tester, table) == {("a", 0, 10): 2, ("b", 10, 20): 2}
    assert [(r.key, r.value, r.timestamp_ms) for r in tester.records(LATE)] == [("a", 5, 5), ("b", 6, 6)]


@pytest.mark.parametrize("window", [TUMBLING, SESSION, SLIDING])
def test_late_records_have_keys_of_the_codec_of_their_stream(tester: Tester, window: Window) -> None:
    late = Stream("late", Json(), Long())
    flow, _ = counting(window, late=late)
    tester.run(flow)
    emit(tester, ("a", 100), ("a", 3))
    assert [(record.key, record.value) for record in tester.records(late)] == [("a", 3)]


@dataclass(frozen=True)
class Halves(TimeWindow):
    """The first half of each 20 ms; what comes in the second half has no window."""

    @property
    def meaning(self) -> str:
        return "halves"

    def key(self, inner: Any) -> Any:
        return WindowedKey(inner, 10)

    def end_of(self, start: int) -> int:
        return start + 10

    def assign(self, times: Sequence[int]) -> Assigned:
        placed = [(index, time // 20 * 20) for index, time in enumerate(times) if time % 20 < 10]
        return Assigned([index for index, _ in placed], [start for _, start in placed])


@pytest.mark.parametrize("together", [1, 3, 100])
def test_a_record_without_a_window_is_not_late_in_whichever_batch_it_comes(together: int) -> None:
    flow, table = counting(Halves(grace=ms(0)), late=LATE)
    with Tester(poll_records=together, work_on_request=True) as tester:
        tester.run(flow)
        emit(tester, *(("a", time) for time in (21, 33, 34, 45, 22, 51, 65)))
        tester.work()
        assert rows(tester, table) == {("a", 20, 30): 1, ("a", 40, 50): 1, ("a", 60, 70): 1}
        assert [record.value for record in tester.records(LATE)] == [22]


def test_late_records_of_windows_are_not_written_as_keys_of_other_windows() -> None:
    stream = counting(TUMBLING)[1].final()
    late: Any = Stream("late", Tumbling(ms(20), grace=ms(5)).key(String()), Long())
    with pytest.raises(GraphError, match=r"late= of window\(\): readers would get other windows"):
        stream.group_by_key().window(TUMBLING, late=late)


def test_a_record_is_counted_in_those_of_its_hopping_windows_that_are_open(tester: Tester) -> None:
    flow, table = counting(HOPPING, late=LATE)
    tester.run(flow)
    emit(tester, ("a", 16), ("a", 7), ("a", 3))
    assert rows(tester, table) == {("a", 10, 20): 1, ("a", 15, 25): 1, ("a", 5, 15): 1}
    assert [r.value for r in tester.records(LATE)] == [3]


def test_a_closed_session_is_not_extended_by_a_record_that_is_near_enough(tester: Tester) -> None:
    flow, table = counting(SESSION, late=LATE)
    tester.run(flow)
    # The session of 10 is closed at 21: one that begins at 12 is not, and it is a session of its own.
    emit(tester, ("a", 10), ("b", 21), ("a", 12), ("a", 5))
    assert rows(tester, table) == {("a", 10, 10): 1, ("b", 21, 21): 1, ("a", 12, 12): 1}
    assert [r.value for r in tester.records(LATE)] == [5]


def test_a_record_is_late_after_a_restart_if_it_was_before(tester: Tester) -> None:
    flow, table = counting(TUMBLING, late=LATE)
    tester.run(flow)
    emit(tester, ("a", 3), ("a", 15))
    tester.crash(flow.group())
    tester.start(flow.group(), disk=False)
    emit(tester, ("a", 4))
    assert rows(tester, table) == {("a", 0, 10): 1, ("a", 10, 20): 1}
    assert [r.value for r in tester.records(LATE)] == [4]


def test_event_time_goes_through_a_repartition_topic(tester: Tester) -> None:
    flow = Flow("f")
    stream = flow.stream(TIMES, time=lambda value: value)
    table = stream.group_by("last-digit", lambda v: v % 10, key=Long()).window(TUMBLING).count("t")
    tester.run(flow)
    for event in [("a", 3), ("b", 13), ("c", 13), ("d", 3)]:
        emit(tester, event)
    assert table.table.name == "f-last-digit-t"
    assert tester.table(table.table) == {Windowed(3, 0, 10): 2, Windowed(3, 10, 20): 2}


def test_a_window_without_a_retention_that_can_be_is_refused() -> None:
    with pytest.raises(GraphError, match="retention"):
        counting(TUMBLING, retention=ms(-1))


# ---- independence of batches --------------------------------------------------------------------------------------------------


Event = tuple[str, int]
records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30)
windows = st.sampled_from([TUMBLING, HOPPING, SESSION, SLIDING, Sliding(ms(3), grace=ms(0))])


def expected_rows(events: Iterable[Event], window: Window) -> dict[tuple[str, int, int], int]:
    """The definition, record by record."""
    found: dict[tuple[str, int, int], int] = {}
    now = -1
    accepted: list[Event] = []
    for key, time in events:
        now = max(now, time)
        if isinstance(window, Sliding):
            size = window.size_ms
            if window.closes_at(time, time + size) > now:
                accepted.append((key, time))
            times = [at for each, at in accepted if each == key]
            for start in window.starts(times):
                if window.closes_at(start, start + size) > now:
                    found[key, start, start + size] = sum(start <= at <= start + size for at in times)
            continue
        if isinstance(window, Session):
            near = [
                (start, end)
                for each, start, end in found
                if each == key
                and start - window.gap_ms <= time <= end + window.gap_ms
                and window.closes_at(start, end) > now
            ]
            start, end = min([time, *(s for s, _ in near)]), max([time, *(e for _, e in near)])
            if window.closes_at(start, end) > now:
                found[key, start, end] = 1 + sum(found.pop((key, s, e)) for s, e in near)
            continue
        every = window.every_ms if isinstance(window, Hopping) else 10
        for start in range(-10, time + 1, every):
            if time < start + 10 and start + 10 + window.grace_ms > now:
                found[key, start, start + 10] = found.get((key, start, start + 10), 0) + 1
    return found


@settings(max_examples=40, deadline=None)
@given(records, windows, st.data())
def test_rows_are_those_of_the_definition_however_the_input_is_divided_and_restarted(
    events: list[Event], window: Window, data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    restarts = data.draw(st.sets(st.integers(0, len(bounds))))
    flow, table = counting(window)
    with Tester() as tester:
        tester.run(flow)
        for number, (begin, end) in enumerate(pairwise(bounds)):
            emit(tester, *events[begin:end])
            if number in restarts:
                tester.crash(flow.group())
                tester.start(flow.group(), disk=number % 2 == 0)
        assert rows(tester, table) == expected_rows(events, window)


@settings(max_examples=40, deadline=None)
@given(records, st.data())
def test_the_row_of_a_sliding_window_has_its_own_values_in_the_order_in_which_they_came(
    events: list[Event], data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    window = Sliding(ms(10), grace=ms(100))
    flow = Flow("f")
    grouped = flow.stream(TIMES, time=lambda value: value).group_by_key().window(window)
    table = grouped.aggregate("values", list[int], _appended, value=Json())
    with Tester() as tester:
        tester.run(flow)
        for begin, end in pairwise(bounds):
            emit(tester, *events[begin:end])
        expected = {
            (key, start, start + 10): [at for each, at in events if each == key and start <= at <= start + 10]
            for key in {key for key, _ in events}
            for start in window.starts([at for each, at in events if each == key])
        }
        assert rows(tester, table) == expected


def _appended(row: Any, value: int) -> Any:
    row.append(value)  # in place, as an aggregate may
    return row


def test_a_record_is_in_no_sliding_window_that_has_closed(tester: Tester) -> None:
    flow, table = counting(SLIDING, late=LATE)
    tester.run(flow)
    emit(tester, ("a", 10), ("b", 25), ("a", 12), ("a", 9))
    assert rows(tester, table) == {
        ("a", 0, 10): 1,
        ("a", 11, 21): 1,
        ("b", 15, 25): 1,
    }
    assert [r.value for r in tester.records(LATE)] == [9]


def test_without_a_grace_a_record_in_order_is_in_the_sliding_window_that_ends_at_it(tester: Tester) -> None:
    flow, table = counting(Sliding(ms(10), grace=ms(0)), late=LATE)
    tester.run(flow)
    emit(tester, ("a", 10), ("a", 10), ("a", 15))
    assert rows(tester, table) == {("a", 0, 10): 2, ("a", 5, 15): 3, ("a", 11, 21): 1}
    assert not tester.records(LATE)


# ---- final results ------------------------------------------------------------------------------------------------------------


def finals(window: Any, **more: Any) -> tuple[Flow, WindowedTable[str, int], Stream[Windowed[str], int]]:
    flow, table = counting(window, **more)
    out = Stream("out", table.table.key, Long())
    table.final().to(out)
    return flow, table, out


def final_rows(tester: Tester, out: Stream[Windowed[str], int]) -> list[tuple[str, int, int, int | None]]:
    return [(*record.key, record.value) for record in tester.records(out) if record.key]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (TUMBLING, [("a", 0, 10, 2), ("a", 10, 20, 1), ("b", 10, 20, 1)]),
        (
            HOPPING,
            [
                ("a", -5, 5, 1), ("a", 0, 10, 2), ("a", 5, 15, 2), ("b", 5, 15, 1), ("a", 10, 20, 1), ("b", 10, 20, 1),
            ],
        ),
        (SESSION, [("a", 3, 11, 3), ("b", 12, 12, 1)]),
    ],
)  # fmt: skip
def test_each_window_comes_out_once_when_event_time_has_passed_it(
    tester: Tester, window: Window, expected: list[Any]
) -> None:
    flow, _, out = finals(window)
    tester.run(flow)
    emit(tester, ("a", 3), ("a", 7), ("a", 11), ("b", 12))
    assert final_rows(tester, out) == [each for each in expected if each[1] < 0]  # closed at 10
    emit(tester, ("c", 40))
    assert final_rows(tester, out) == expected
    emit(tester, ("c", 41))
    assert final_rows(tester, out) == expected


def test_a_window_comes_out_at_its_end_and_grace_and_not_before(tester: Tester) -> None:
    flow, _, out = finals(TUMBLING)
    tester.run(flow)
    emit(tester, ("a", 3), ("b", 14))
    assert final_rows(tester, out) == []
    emit(tester, ("b", 15))
    assert final_rows(tester, out) == [("a", 0, 10, 1)]
    assert [record.timestamp_ms for record in tester.records(out)] == [9]


def test_the_last_window_of_a_silent_stream_comes_out(tester: Tester) -> None:
    flow, _, out = finals(TUMBLING)
    tester.run(flow)
    emit(tester, ("a", 3))
    tester.advance(60)
    assert final_rows(tester, out) == [("a", 0, 10, 1)]


def test_closed_windows_are_kept_for_the_retention_and_then_deleted_from_table_and_topic(
    tester: Tester,
) -> None:
    flow, table, _ = finals(TUMBLING, retention=ms(100))
    tester.run(flow)
    emit(tester, ("a", 3), ("a", 15))
    assert rows(tester, table) == {("a", 0, 10): 1, ("a", 10, 20): 1}
    emit(tester, ("a", 114))
    assert ("a", 0, 10) in rows(tester, table)
    emit(tester, ("a", 116))
    assert rows(tester, table) == {("a", 10, 20): 1, ("a", 110, 120): 2}


def test_rows_of_closed_windows_are_deleted_without_final_too(tester: Tester) -> None:
    flow, table = counting(TUMBLING, retention=ms(0))
    tester.run(flow)
    emit(tester, ("a", 3), ("a", 15))
    assert rows(tester, table) == {("a", 10, 20): 1}


def test_what_follows_closed_windows_is_part_of_the_same_group(tester: Tester) -> None:
    flow, table = counting(TUMBLING)
    busy = table.final().filter(lambda n: n > 1).map(lambda window, n: (window.key, n))
    busy.to(LATE)
    per_key = busy.repartition("busy", key=String(), value=Long()).group_by_key().count("busy-windows")
    assert [group.name for group in flow.groups] == ["f", "f-busy"]
    tester.run(flow)
    emit(tester, ("a", 1), ("a", 2), ("b", 3), ("a", 11), ("a", 12), ("c", 90))
    assert [(r.key, r.value) for r in tester.records(LATE)] == [("a", 2), ("a", 2)]
    assert tester.table(per_key.table) == {"a": 2}


@pytest.mark.parametrize("later", [(1_000,), (15, 16, 20, 1_000)])
def test_closed_windows_are_in_time_for_windows_behind_them_however_far_the_watermark_jumps(
    tester: Tester, later: tuple[int, ...]
) -> None:
    flow, table = counting(TUMBLING)
    again = table.final().group_by_key().window(TUMBLING).count("again")
    tester.run(flow)
    emit(tester, ("a", 3), *(("b", time) for time in later))
    found = tester.table(again.table)
    assert {key: n for key, n in found.items() if key.key.key == "a"} == {
        Windowed(Windowed("a", 0, 10), 0, 10): 1
    }


def test_a_closed_window_cannot_be_processed_with_a_record() -> None:
    _, table = counting(TUMBLING)
    for rows in (table.final(), table.changes(), table.to_stream().filter(bool)):
        with pytest.raises(
            GraphError, match=r"process\(\) after windows.*Put repartition\(name, value=codec\) between them"
        ):
            rows.process(lambda ctx, n: [n])


@pytest.mark.parametrize("by_hand", [False, True])
def test_windows_are_processed_behind_a_topic(tester: Tester, *, by_hand: bool) -> None:
    flow, table = counting(TUMBLING)
    seen: list[Any] = []
    if by_hand:
        closed = Stream("closed", TUMBLING.key(String()), Long())
        table.final().to(closed)
        behind = flow.stream(closed, group="behind")
    else:
        behind = table.final().repartition("behind")
    behind.process(lambda ctx, n: seen.append((ctx.key, n, ctx.event_time_ms)))
    tester.run(flow)
    emit(tester, ("a", 3), ("a", 4), ("a", 1_000))
    assert seen == [(Windowed("a", 0, 10), 2, 9)]


@settings(max_examples=40, deadline=None)
@given(records, windows, st.data())
def test_each_window_comes_out_exactly_once_whatever_crashes(
    events: list[Event], window: Window, data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    restarts = data.draw(st.sets(st.integers(0, len(bounds))))
    failpoint = data.draw(st.sampled_from([None, "begun", "changelog-produced", "offsets-sent", "committed"]))
    flow, _, out = finals(window)
    with Tester() as tester:
        tester.run(flow)
        group = flow.group()
        for number, (begin, end) in enumerate(pairwise(bounds)):
            if number in restarts and end > begin:
                tester.crash(group, at=failpoint)
            emit(tester, *events[begin:end])
            if number in restarts and end > begin:
                tester.start(group, disk=number % 2 == 0)
        emit(tester, ("z", 1_000))
        expected = expected_rows([*events, ("z", 1_000)], window)
        assert sorted(final_rows(tester, out)) == sorted(
            (*key, n) for key, n in expected.items() if key[0] != "z"
        )


# ---- emission at intervals -----------------------------------------------------------------------------------------------


INTERVAL = 4
Emitted = tuple[str, int, int, int | None, int]


def every(window: Any, interval: int = INTERVAL) -> tuple[Flow, Stream[Windowed[str], int]]:
    flow, table = counting(window)
    out = Stream("out", table.table.key, Long())
    table.every("ticks", ms(interval)).to(out)
    return flow, out


def emitted(tester: Tester, out: Stream[Windowed[str], int]) -> list[Emitted]:
    return [(*r.key, r.value, r.timestamp_ms) for r in tester.records(out) if r.key is not None]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (TUMBLING, [("a", 0, 10, 2, 3), ("a", 0, 10, 3, 7)]),
        (
            HOPPING,
            [("a", 0, 10, 2, 3), ("a", -5, 5, 2, 3), ("a", 0, 10, 3, 7), ("a", 5, 15, 1, 7)],
        ),
        (SESSION, [("a", 1, 1, None, 3), ("a", 1, 2, 2, 3), ("a", 1, 2, None, 7), ("a", 1, 5, 3, 7)]),
    ],
)
def test_a_row_that_has_changed_comes_out_at_the_end_of_the_interval(
    tester: Tester, window: Window, expected: list[Emitted]
) -> None:
    flow, out = every(window)
    tester.run(flow)
    for event in [("a", 1), ("a", 2)]:
        emit(tester, event)
    assert emitted(tester, out) == []
    for event in [("a", 5), ("b", 8)]:
        emit(tester, event)
    assert emitted(tester, out) == expected


def test_a_window_that_closes_within_an_interval_comes_out_when_it_closes(tester: Tester) -> None:
    flow, out = every(TUMBLING, interval=1000)
    tester.run(flow)
    emit(tester, ("a", 1), ("a", 2))
    emit(tester, ("b", 14))
    assert emitted(tester, out) == []
    emit(tester, ("b", 15))
    assert emitted(tester, out) == [("a", 0, 10, 2, 14)]


def test_a_row_that_has_not_changed_does_not_come_out_again(tester: Tester) -> None:
    flow, out = every(TUMBLING)
    tester.run(flow)
    for time in (1, 5, 9, 13):
        emit(tester, ("a", 1) if time == 1 else ("b", time))
    assert [row for row in emitted(tester, out) if row[0] == "a"] == [("a", 0, 10, 1, 3)]


def test_changes_and_final_rows_and_intervals_go_together(tester: Tester) -> None:
    flow, table = counting(TUMBLING)
    outs = [Stream(name, table.table.key, Long()) for name in ("changes", "fast", "slow", "final")]
    table.changes().to(outs[0])
    table.every("fast", ms(2)).to(outs[1])
    table.every("slow", ms(6)).to(outs[2])
    table.final().to(outs[3])
    tester.run(flow)
    for time in range(0, 10, 1):
        emit(tester, ("a", time))
    emit(tester, ("b", 50))
    counts = [[row[3] for row in emitted(tester, out) if row[0] == "a"] for out in outs]
    assert counts == [list(range(1, 11)), [2, 4, 6, 8, 10], [6, 10], [10]]


def test_another_interval_needs_another_name(tester: Tester) -> None:
    flow, _ = every(TUMBLING)
    tester.run(flow)
    emit(tester, ("a", 1))
    tester.leave(flow.group())
    del tester._instances["f"]
    changed, _ = every(TUMBLING, interval=5)
    with pytest.raises(StateMeaningChanged, match="emitted every 5 ms"):
        tester.run(changed)


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(microseconds=1500), timedelta(seconds=-1)])
def test_an_interval_that_cannot_be_is_refused(interval: timedelta) -> None:
    _, table = counting(TUMBLING)
    with pytest.raises(GraphError, match="whole milliseconds"):
        table.every("ticks", interval)


def expected_emissions(events: list[Event], window: Window) -> list[Emitted]:
    """The definition, record by record."""
    found: list[Emitted] = []
    waiting: dict[tuple[int, tuple[str, int, int]], int | None] = {}
    before: dict[tuple[str, int, int], int] = {}
    for index, (_, time) in enumerate(events):
        now = max(at for _, at in events[: index + 1])
        rows = expected_rows(events[: index + 1], window)
        for key in before.keys() | rows.keys():
            if before.get(key) != rows.get(key):
                interval_end = (now // INTERVAL + 1) * INTERVAL
                waiting[min(interval_end, window.closes_at(*key[1:])), key] = rows.get(key)
        before = rows
        for at, key in sorted(each for each in waiting if each[0] <= now):
            # Kafka's client takes 0 for now, so what has the event time 0 is written as of 1.
            found.append((*key, waiting.pop((at, key)), at - 1 or 1))
        assert time <= now
    return found


@settings(max_examples=40, deadline=None)
@given(records, windows)
def test_what_comes_out_is_that_of_the_definition(events: list[Event], window: Window) -> None:
    flow, out = every(window)
    with Tester() as tester:
        tester.run(flow)
        for event in events:
            emit(tester, event)
        assert Counter(emitted(tester, out)) == Counter(expected_emissions(events, window))


@settings(max_examples=40, deadline=None)
@given(records, windows, st.data())
def test_each_row_comes_out_at_most_once_in_an_interval_and_last_as_it_is_at_the_end_whatever_crashes(
    events: list[Event], window: Window, data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    restarts = data.draw(st.sets(st.integers(0, len(bounds))))
    failpoint = data.draw(st.sampled_from([None, "begun", "changelog-produced", "offsets-sent", "committed"]))
    flow, out = every(window)
    with Tester() as tester:
        tester.run(flow)
        group = flow.group()
        for number, (begin, end) in enumerate(pairwise(bounds)):
            if number in restarts and end > begin:
                tester.crash(group, at=failpoint)
            emit(tester, *events[begin:end])
            if number in restarts and end > begin:
                tester.start(group, disk=number % 2 == 0)
        emit(tester, ("z", 1_000))
        found = [row for row in emitted(tester, out) if row[0] != "z"]
        moments = [(*row[:3], row[4]) for row in found]
        assert len(set(moments)) == len(moments)
        last = {row[:3]: row[3] for row in found}
        rows = {key: row for key, row in expected_rows(events, window).items() if key[0] != "z"}
        assert {key: row for key, row in last.items() if row is not None} == rows


def test_a_record_at_time_zero_stays_there_behind_a_topic_between_groups(tester: Tester) -> None:
    flow = Flow("f")
    beside = flow.stream(Stream("beside", String(), Long()), time=lambda value: value)
    by_one = flow.stream(TIMES, time=lambda value: value).group_by(
        "by-one", lambda value: "k", key=String(), beside=beside
    )
    counts = by_one.window(Tumbling(ms(10), grace=ms(0))).count("counts")
    tester.run(flow)
    tester.emit(Stream("beside", String(), Long()), "z", 100)
    emit(tester, *(("k", time) for time in (0, 1, 5, 12, 25)))
    assert rows(tester, counts) == {("k", 0, 10): 3, ("k", 10, 20): 1, ("k", 20, 30): 1}


def test_a_record_at_time_zero_is_not_written_as_of_now(tester: Tester) -> None:
    flow, out = Flow("f"), Stream("out", String(), Long())
    flow.stream(TIMES, time=lambda value: value).to(out)
    tester.run(flow)
    emit(tester, ("k", 0), ("k", 5))
    assert [record.timestamp_ms for record in tester.records(out)] == [1, 5]


def test_a_record_without_a_timestamp_is_written_as_of_now(tester: Tester) -> None:
    flow, out = Flow("f"), Stream("out", String(), Long())
    flow.stream(TIMES).to(out)
    tester.run(flow)
    tester.emit_raw("times", b"k", Long().encode(7), timestamp_ms=-1)
    (record,) = tester.records(out)
    assert (record.value, record.timestamp_ms > 1_000_000) == (7, True)


def added_in_place(row: dict[str, int], value: dict[str, int]) -> dict[str, int]:
    row["n"] += value["n"]
    return row


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Hopping(ms(20), ms(10), grace=ms(0)), {("k", 0, 20): 11, ("k", 10, 30): 11}),
        (Sliding(ms(10), grace=ms(0)), {("k", 5, 15): 1, ("k", 6, 16): 11, ("k", 16, 26): 10}),
        (Session(ms(5), grace=ms(0)), {("k", 15, 16): 11}),
    ],
)
def test_a_function_of_reduce_may_change_the_row_in_place(
    tester: Tester, window: Any, expected: dict[tuple[str, int, int], int], *, apart: bool
) -> None:
    json: Any = Json()
    flow, events, out = Flow("f"), Stream("events", String(), json), Stream("out", String(), json)
    stream = flow.stream(events, time=lambda value: value["t"])
    kept = stream.group_by_key().window(window).reduce("sums", added_in_place)
    stream.to(out)
    tester.run(flow)
    given_events = [("k", {"t": 15, "n": 1}), ("k", {"t": 16, "n": 10})]
    for each in [[event] for event in given_events] if apart else [given_events]:
        tester.emit_many(events, each)
    found = {key: row["n"] for key, row in rows(tester, kept).items()}
    assert found == expected
    assert [record.value and record.value["n"] for record in tester.records(out)] == [1, 10]
