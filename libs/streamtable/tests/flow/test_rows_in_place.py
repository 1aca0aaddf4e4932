"""A fold that changes its row in place gives the same results as one that makes a new row, whatever the steps behind keep."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamtable import Json, Stream, String
from streamtable.flow import Flow, Session, SessionKey, Sliding, WindowedKey
from streamtable_testing import Tester

LETTERS: Any = Stream("letters", key=String(), value=Json())
QUESTIONS: Any = Stream("questions", key=String(), value=Json())
OUT: Any = Stream("out", key=String(), value=Json())
IN_PLACE = [True, False]
TEN = timedelta(milliseconds=10)


def collected(grouped: Any, *merge: Callable[[Any, Any], Any], in_place: bool) -> Any:
    """Collect the letters of each key, or of each of its windows; of sessions with a function that merges two rows."""
    if in_place:
        return grouped.collect("c", lambda event: event["is"], value=Json())
    return grouped.aggregate("c", list, lambda row, event: [*row, event["is"]], *merge, value=Json())


def letters(flow: Flow) -> Any:
    return flow.stream(LETTERS, time=lambda event: event["at"]).group_by_key()


def emit(tester: Tester, *events: tuple[str, int]) -> None:
    for letter, at in events:
        tester.emit(LETTERS, "k", {"is": letter, "at": at})


@pytest.mark.parametrize("in_place", IN_PLACE)
def test_each_periodic_result_is_the_row_of_its_time(tester: Tester, *, in_place: bool) -> None:
    flow = Flow("f")
    collected(letters(flow), in_place=in_place).every("e", TEN).to(OUT)
    tester.run(flow)
    emit(tester, ("A", 105), ("B", 115), ("C", 125), ("D", 500))
    found = [(record.timestamp_ms, record.value) for record in tester.records(OUT)]
    assert found == [(109, ["A"]), (119, ["A", "B"]), (129, ["A", "B", "C"])]


@pytest.mark.parametrize("in_place", IN_PLACE)
def test_each_periodic_result_of_a_session_is_its_row_of_its_time(tester: Tester, *, in_place: bool) -> None:
    out = Stream("out", key=SessionKey(String()), value=Json())
    flow = Flow("f")
    sessions = letters(flow).window(Session(timedelta(milliseconds=100), grace=timedelta(0)))
    collected(sessions, lambda row, other: [*row, *other], in_place=in_place).every("e", TEN).to(out)
    tester.run(flow)
    emit(tester, ("A", 105), ("B", 115), ("C", 108), ("D", 5000))
    assert next((record.timestamp_ms, record.value) for record in tester.records(out)) == (109, ["A"])


@pytest.mark.parametrize("in_place", IN_PLACE)
def test_a_table_that_is_made_of_the_changes_takes_the_right_rows_away(
    tester: Tester, *, in_place: bool
) -> None:
    flow = Flow("f")
    changes = collected(letters(flow), in_place=in_place).to_stream().filter(lambda row: len(row) != 2)
    kept = changes.to_table("kept", value=Json())
    counts = kept.group_by("by-length", lambda row: str(len(row)), key=String()).count("n")
    tester.run(flow)
    emit(tester, ("A", 105), ("B", 115), ("C", 125), ("D", 500))
    assert tester.table(kept.table) == {"k": ["A", "B", "C", "D"]}
    assert {length: count for length, count in tester.table(counts.table).items() if count} == {"4": 1}


@pytest.mark.parametrize("in_place", IN_PLACE)
def test_a_join_finds_the_row_of_the_time_of_its_record(tester: Tester, *, in_place: bool) -> None:
    flow = Flow("f")
    each_ms = collected(letters(flow), in_place=in_place).every("each-ms", timedelta(milliseconds=1))
    kept = each_ms.to_table("kept", value=Json())
    questions = flow.stream(QUESTIONS, time=lambda event: event["at"])
    questions.join_as_of("j", kept, lambda _, row: row, history=timedelta(1), grace=timedelta(0)).to(OUT)
    tester.run(flow)
    emit(tester, ("A", 105), ("B", 115))
    for at in (110, 120, 300):
        tester.emit(QUESTIONS, "k", {"at": at})
    emit(tester, ("C", 400))
    assert [record.value for record in tester.records(OUT)][:2] == [["A"], ["A", "B"]]


@pytest.mark.parametrize("in_place", IN_PLACE)
@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_closed_sliding_window_does_not_change(
    tester: Tester, *, in_place: bool, in_one_batch: bool
) -> None:
    out = Stream("out", key=WindowedKey(String(), 10), value=Json())
    flow = Flow("f")
    windows = letters(flow).window(Sliding(TEN, grace=timedelta(0)))
    collected(windows, in_place=in_place).final().to(out)
    tester.create(LETTERS)
    if not in_one_batch:
        tester.run(flow)
    emit(tester, ("A", 110), ("B", 115), ("C", 108), ("D", 500))
    if in_one_batch:
        tester.run(flow)
    rows = {record.key.start_ms: record.value for record in tester.records(out) if record.key is not None}
    assert rows[100] == ["A"], "it was closed by B, before C came"
