import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.graph.aggregate import Aggregate, Count, Last, Max, Mean, Min, Sum

EVENTS = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(-5, 5)))


class Rows(dict[bytes, Any]):
    """A table of a dict."""

    def changing(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        for key in keys:
            self.setdefault(key, None)
        return self


def number(event: int) -> int:
    return event


def inverse(event: int) -> int:
    return 1 // event


def one_by_one(aggregate: Aggregate[Any, Any], events: list[tuple[bytes, int]]) -> dict[bytes, Any]:
    """The definition: what each aggregate says of one event and a row."""
    rows: dict[bytes, Any] = {}
    for key, event in events:
        row = rows.get(key)
        match aggregate:
            case Count():
                rows[key] = (row or 0) + 1
            case Last():
                rows[key] = event
            case Sum():
                rows[key] = (row or 0) + event
            case Min():
                rows[key] = event if row is None else min(row, event)
            case Max():
                rows[key] = event if row is None else max(row, event)
    return rows


@pytest.mark.parametrize(
    "aggregate",
    [Count(), Last(), Sum(number), Min(number), Max(number)],
    ids=lambda aggregate: type(aggregate).__name__,
)
@given(first=EVENTS, second=EVENTS)
def test_two_batches_give_what_their_events_one_by_one_give(
    aggregate: Aggregate[Any, Any], first: list[tuple[bytes, int]], second: list[tuple[bytes, int]]
) -> None:
    rows = Rows()
    for events in (first, second):
        aggregate.fold(rows, [key for key, _ in events], [event for _, event in events])
    assert rows == one_by_one(aggregate, first + second)


def test_a_row_of_zero_is_a_row_not_a_missing_one() -> None:
    rows = Rows({b"a": 0})
    Min(number).fold(rows, [b"a"], [3])
    assert rows == {b"a": 0}


def test_a_number_that_cannot_be_taken_is_the_callers_error() -> None:
    with pytest.raises(ZeroDivisionError):
        Sum(inverse).fold(Rows({b"a": 1}), [b"a", b"a"], [1, 0])


def test_a_mean_that_cannot_lose_a_row_says_so_instead_of_staying_wrong() -> None:
    mean = Mean[float](float)
    row = mean.add(mean.first(1.0), math.inf)
    with pytest.raises(ValueError, match="leave such rows out"):
        mean.subtract(row, math.inf)
    assert mean.subtract(mean.first(math.nan), math.nan) is None
