"""`TopK` over events that have nothing to be compared by, and over NaN."""

from datetime import timedelta
from itertools import permutations
from math import inf, nan
from typing import Any

import pytest

from streamtable import Group, Input, Json, Persist, Stream, String, TopK
from streamtable.flow import Flow, Session, Tumbling, Windowed
from streamtable_testing import Tester

SCORES: Any = Stream("scores", key=String(), value=Json())
LATE: Any = Stream("late", key=String(), value=Json())
MINUTE = timedelta(minutes=1)
FIRST_MS = 1_699_999_980_000  # a full minute, shortly before the Tester's clock
TOP = TopK[dict[str, Any]](2, lambda event: event["score"])
ROWS: Any = Json()
ORDERS = list(permutations([None, 5, 7]))


@pytest.mark.parametrize("scores", ORDERS)
def test_an_event_without_a_score_is_skipped_wherever_it_comes(
    tester: Tester, scores: tuple[int | None, ...]
) -> None:
    flow = Flow("f")
    folded = flow.stream(SCORES).group_by_key().fold("top", TOP, value=Json())
    group = Group("g", Input(SCORES, aggregate=TOP), Persist(ROWS))
    tester.run(flow)
    tester.run(group)
    for score in scores:
        tester.emit(SCORES, "k", {"score": score})
    for table in (folded.table, group.table):
        assert tester.table(table) == {"k": [{"score": 7}, {"score": 5}]}


def test_a_key_whose_events_have_no_score_gets_no_row(tester: Tester) -> None:
    flow = Flow("f")
    folded = flow.stream(SCORES).group_by_key().fold("top", TOP, value=Json())
    tester.run(flow)
    tester.emit(SCORES, "k", {"score": None})
    assert tester.table(folded.table) == {}


@pytest.mark.parametrize("late", [None, LATE])
@pytest.mark.parametrize("order", list(permutations([(0, None), (4, None), (8, 5), (12, 7)])))
def test_an_event_without_a_score_is_in_no_session_wherever_it_comes(
    tester: Tester, order: tuple[tuple[int, int | None], ...], late: Any
) -> None:
    flow = Flow("f")
    sessions = flow.stream(SCORES).group_by_key().window(Session(5 * MINUTE, grace=60 * MINUTE), late=late)
    folded = sessions.fold("top", TOP, value=Json())
    tester.run(flow)
    for minutes, score in order:
        tester.emit(SCORES, "k", {"score": score}, timestamp_ms=FIRST_MS + minutes * 60_000)
    window = Windowed("k", FIRST_MS + 8 * 60_000, FIRST_MS + 12 * 60_000)
    assert tester.table(folded.table) == {window: [{"score": 7}, {"score": 5}]}


def test_late_events_of_the_best_are_written_as_they_came(tester: Tester) -> None:
    flow = Flow("f")
    minutes = flow.stream(SCORES).group_by_key().window(Tumbling(MINUTE, grace=0 * MINUTE), late=LATE)
    minutes.fold("top", TOP, value=Json())
    tester.run(flow)
    for minute, score in ((5, 1), (0, 2), (0, None)):
        tester.emit(SCORES, "k", {"score": score}, timestamp_ms=FIRST_MS + minute * 60_000)
    assert [record.value for record in tester.records(LATE)] == [{"score": 2}]


@pytest.mark.parametrize("scores", list(permutations([nan, 5.0, inf])))
def test_nan_is_the_greatest_in_whatever_order_events_come(scores: tuple[float, ...]) -> None:
    top = TopK[float](2, lambda score: score)
    row: list[float] = []
    for score in scores:
        row = top.add(row, score)
    assert list(map(str, row)) == ["nan", "inf"]
