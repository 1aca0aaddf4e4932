"""`TopK` over events that have nothing to be compared by, and over NaN."""

from itertools import permutations
from math import inf, nan
from typing import Any

import pytest

from streamtable import Group, Input, Json, Persist, Stream, String, TopK
from streamtable.flow import Flow
from streamtable_testing import Tester

SCORES: Any = Stream("scores", key=String(), value=Json())
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


@pytest.mark.parametrize("scores", list(permutations([nan, 5.0, inf])))
def test_nan_is_the_greatest_in_whatever_order_events_come(scores: tuple[float, ...]) -> None:
    top = TopK[float](2, lambda score: score)
    row: list[float] = []
    for score in scores:
        row = top.add(row, score)
    assert list(map(str, row)) == ["nan", "inf"]
