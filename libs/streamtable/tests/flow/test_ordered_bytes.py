"""Bytes that are in the order of the values that they encode."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable.flow.folds.ordered_bytes import ordered_bytes

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, 10**400, -(10**400), 0.1, Decimal("0.1"), -0.0, 5e-324]),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False),
    st.booleans(),
)
TEXTS = st.text(max_size=4) | st.sampled_from(
    ["", "\0", "\0\0", "\0\xff", "a\0", "\ud800", "\uffff", "\U00010000"]
)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5)), timezone(timedelta(hours=-3, minutes=-30))])
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "numbers": NUMBERS,
    "texts": TEXTS,
    "bytes": st.binary(max_size=4) | st.lists(st.sampled_from([0, 1, 255]), max_size=4).map(bytes),
    "datetimes": st.datetimes(timezones=ZONES),
    "local datetimes": st.datetimes(),
    "dates": st.dates(),
    "times": st.times(),
    "durations": st.timedeltas(),
    "ids": st.uuids(),
    "tuples": st.lists(TEXTS, max_size=3).map(tuple),
    "pairs": st.tuples(NUMBERS, TEXTS),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_bytes_are_in_the_order_of_the_values_and_none_is_the_beginning_of_another(
    kind: str, data: st.DataObject
) -> None:
    one, other = data.draw(KINDS[kind]), data.draw(KINDS[kind])
    for descending in (False, True):
        first, second = (ordered_bytes(each, descending=descending) for each in (one, other))
        assert (first == second) == (one == other)
        if one != other:
            assert (first < second) == ((one < other) is not descending)
            assert not first.startswith(second)
            assert not second.startswith(first)


@given(NUMBERS)
def test_nan_is_greater_than_every_number(number: Any) -> None:
    assert ordered_bytes(math.nan) == ordered_bytes(-math.nan) > ordered_bytes(number)
    assert ordered_bytes(math.nan) > ordered_bytes(math.inf)


@pytest.mark.parametrize("value", [None, {}, object(), (1, None), {1}])
def test_what_has_no_order_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be kept in order"):
        ordered_bytes(value)


def test_a_date_is_no_datetime() -> None:
    assert ordered_bytes(date(2020, 1, 1)) != ordered_bytes(datetime(2020, 1, 1, tzinfo=UTC))
