"""The numbers of aggregates, in any order of records."""

import struct
import sys
from datetime import timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import reduce
from itertools import permutations
from math import inf, isfinite, isnan, nan
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import Avro, EventTime, Group, Input, Json, Max, Mean, Min, Persist, Stream, String, Sum
from streamtable.base.arithmetic import alone, greatest, least, minus, numbers_only, plus
from streamtable.errors import HandlerFailed
from streamtable.flow import Flow, Hopping, Session, Sliding, Tumbling
from streamtable.flow.folds.table_sums import ExactSum, ExactSumCodec
from streamtable_testing import Tester

OTHER_NAN: float = struct.unpack(">d", b"\xff\xf8" + bytes(5) + b"\x07")[0]
SPECIAL = [1.0, nan, inf, -inf, None, OTHER_NAN, -2.5]
numbers = st.lists(st.sampled_from([*SPECIAL, 4.0]), min_size=1, max_size=6)


def spark_s(kind: str, given: list[float | None]) -> float | None:
    """Spark's aggregate, by its definition: NULL is ignored, and NaN is greater than any other number."""
    there = [each for each in given if each is not None]
    if not there:
        return None
    real = [each for each in there if not isnan(each)]
    if kind == "sum":
        return sum(there)
    if kind == "min":
        return min(real, default=nan)
    return max(real) if len(real) == len(there) else nan


def raw(value: float | None) -> bytes | None:
    """The bytes of a row; all NaNs have the same."""
    return None if value is None else struct.pack(">d", nan if isnan(value) else value)


@given(numbers, st.sampled_from(["sum", "min", "max"]))
def test_a_fold_of_numbers_has_the_same_bytes_in_any_order_and_is_spark_s(
    given_: list[float | None], kind: str
) -> None:
    combine = {"sum": plus, "min": least, "max": greatest}[kind]
    for order in list(permutations(given_))[:50]:
        found, beside = numbers_only(order, range(len(order)))
        assert [order[index] is None for index in beside] == [False] * len(found)
        made = reduce(combine, found) if found else None
        assert (None if made is None else struct.pack(">d", made)) == raw(spark_s(kind, given_))


SCORE: Stream[str, Any] = Stream("scores", String(), Avro({"type": "record", "name": "S", "fields": [
    {"name": "at", "type": "long"}, {"name": "n", "type": ["null", "double"], "default": None},
]}))  # fmt: skip
AROUND = timedelta(milliseconds=20)
WINDOWS = [
    None,
    Tumbling(AROUND, grace=AROUND),
    Hopping(AROUND, AROUND / 2, grace=AROUND),
    Sliding(AROUND, grace=AROUND),
    Session(AROUND, grace=AROUND),
]


def rows_of(
    window: Any, kind: str, given_: list[tuple[int, float | None]], *, late: bool
) -> dict[Any, bytes | None]:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    grouped: Any = flow.stream(SCORE, time=lambda score: score["at"]).group_by_key()
    more = {"late": Stream("late", String(), SCORE.value)} if late else {}
    windowed = grouped if window is None else grouped.window(window, **more)
    table = getattr(windowed, kind)("t", lambda score: score["n"], value=Avro("double"))
    with Tester() as tester:
        tester.run(flow)
        for at, number in given_:
            tester.emit(SCORE, "k", {"at": at, "n": number})
        return {key: raw(row) for key, row in tester.table(table.table).items()}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", ["sum", "min", "max"])
@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: type(window).__name__)
def test_a_table_does_not_depend_on_the_order_of_special_numbers(
    window: Any, kind: str, *, late: bool
) -> None:
    if window is None and late:
        pytest.skip("a table without windows has no late records")
    given_ = [(100, None), (110, 1.0), (119, nan), (121, inf), (123, -inf), (125, None)]
    first = rows_of(window, kind, given_, late=late)
    assert first
    assert None not in first.values()
    for order in (given_[::-1], [*given_[3:], *given_[:3]]):
        assert rows_of(window, kind, order, late=late) == first


def test_a_late_record_of_a_sum_is_written_with_its_value() -> None:
    late: Stream[str, Any] = Stream("late", String(), SCORE.value)
    flow = Flow("f", event_time=EventTime(idle_after=None))
    grouped = flow.stream(SCORE, time=lambda score: score["at"]).group_by_key()
    grouped.window(Tumbling(AROUND, grace=timedelta(0)), late=late).sum(
        "t", lambda s: s["n"], value=Avro("double")
    )
    with Tester() as tester:
        tester.create(late)
        tester.run(flow)
        for at in (100, 500, 101):
            tester.emit(SCORE, "k", {"at": at, "n": 1.0})
        assert [record.value for record in tester.records(late)] == [{"at": 101, "n": 1.0}]


@pytest.mark.parametrize("aggregate", [Sum, Min, Max])
def test_a_built_in_aggregate_leaves_out_none_and_makes_no_row_of_it(aggregate: Any) -> None:
    group: Group[str, Any] = Group(
        "g", Input(SCORE, aggregate=aggregate(lambda score: score["n"])), Persist(Avro("double"))
    )
    with Tester() as tester:
        tester.run(group)
        tester.emit(SCORE, "none", {"at": 1, "n": None})
        for number in (2.0, None, nan, 1.0):
            tester.emit(SCORE, "k", {"at": 1, "n": number})
        ((key, row),) = tester.table(group).items()
    expected: dict[Any, float] = {Sum: nan, Min: 1.0, Max: nan}
    assert (key, raw(row)) == ("k", raw(expected[aggregate]))


def test_a_count_counts_records_without_a_number() -> None:
    flow = Flow("f")
    table = flow.stream(SCORE).map_values(lambda score: score["n"]).group_by_key().count("n")
    with Tester() as tester:
        tester.run(flow)
        for number in (None, nan, 1.0):
            tester.emit(SCORE, "k", {"at": 1, "n": number})
        assert tester.table(table.table) == {"k": 3}


# ---- sums of tables ------------------------------------------------------------------------------------------------------


ROWS: Stream[str, float] = Stream("rows", String(), Avro("double"))
changes = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([1.5, nan, inf, -inf, 1e308, None])), max_size=12
)


def summed(codec: Any = None) -> tuple[Flow, Any]:
    flow = Flow("f")
    rows = flow.stream(ROWS, tombstones=True).to_table("rows")
    codec = codec or Avro("double")
    return flow, rows.group_by("all", lambda _: "all", key=String()).sum(
        "total", lambda row: row, value=codec
    )


def exactly(rows: list[float]) -> float:
    if special := [row for row in rows if not isfinite(row)]:
        return sum(special)  # finite rows are no part of it: their sum may be beyond the floats
    whole = sum(map(Fraction, rows))
    return float(whole) if whole < Fraction(sys.float_info.max) else inf


@settings(max_examples=40, deadline=None)
@given(changes)
def test_the_sum_of_a_table_is_that_of_the_rows_that_are_there_now(
    given_: list[tuple[str, float | None]],
) -> None:
    flow, total = summed()
    now: dict[str, float] = {}
    with Tester() as tester:
        tester.run(flow)
        for key, row in given_:
            tester.emit(ROWS, key, row)
            now.pop(key, None)
            if row is not None:
                now[key] = row
            expected = exactly(list(now.values()))
            found = tester.table(total.table).get("all", 0.0)
            if isfinite(expected):
                assert abs(found - expected) <= 1e292  # sums of floats are rounded
            else:
                assert raw(found) == raw(expected)
        for key in "abc":
            tester.emit(ROWS, key, None)
        assert abs(tester.table(total.table).get("all", 0.0)) <= 1e292


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_the_sum_of_a_table_heals_when_the_row_is_gone(bad: float) -> None:
    flow, total = summed()
    with Tester() as tester:
        tester.run(flow)
        tester.emit(ROWS, "a", 1.25)
        tester.emit(ROWS, "b", bad)
        assert raw(tester.table(total.table)["all"]) == raw(bad)
        tester.crash(flow.group("all"))
        tester.start(flow.group("all"), disk=False)
        tester.emit(ROWS, "c", 2.0)
        tester.emit(ROWS, "b", None)
        assert tester.table(total.table) == {"all": 3.25}
        assert tester.table(flow.group("all"), flow.group("all").states[1]) == {}


def test_a_sum_that_its_codec_cannot_hold_is_refused_with_a_reason() -> None:
    flow, _ = summed(Json())
    with Tester() as tester:
        tester.run(flow)
        with pytest.raises(HandlerFailed, match="does not fit Json"):
            tester.emit(ROWS, "a", nan)
    assert [state.name for state in flow.group("all").states] == ["total"]


@given(st.fractions(), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_an_exact_sum_comes_back(finite: Any, nans: int, plus_: int, minus: int) -> None:
    one = ExactSum(finite, nans, plus_, minus)
    assert ExactSumCodec().decode(ExactSumCodec().encode(one)) == one


# ---- decimals and texts --------------------------------------------------------------------------------------------------


TOKENS = Avro({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18})
AMOUNTS: Stream[str, Decimal] = Stream("amounts", String(), TOKENS)
LARGE, SMALL, SMALLEST = map(Decimal, ("100000000000", "0.123456789012345678", "0.000000000000000009"))


@pytest.mark.parametrize("order", list(permutations([LARGE, SMALL, SMALLEST])))
def test_a_sum_of_decimals_has_all_their_digits_in_any_order(order: tuple[Decimal, ...]) -> None:
    flow = Flow("f")
    table = flow.stream(AMOUNTS).group_by_key().sum("n", lambda amount: amount, value=TOKENS)
    with Tester() as tester:
        tester.run(flow)
        for amount in order:
            tester.emit(AMOUNTS, "k", amount)
        assert tester.table(table.table) == {"k": Decimal("100000000000.123456789012345687")}


def test_a_sum_of_decimals_of_a_table_has_all_digits_of_the_rows_that_are_left() -> None:
    flow = Flow("f")
    grouped = flow.stream(AMOUNTS).to_table("t").group_by("g", lambda _: "all", key=String())
    table = grouped.sum("n", lambda amount: amount, value=TOKENS)
    with Tester() as tester:
        tester.run(flow)
        for key, amount in (("a", LARGE), ("b", SMALL), ("c", SMALLEST)):
            tester.emit(AMOUNTS, key, amount)
        assert tester.table(table.table) == {"all": Decimal("100000000000.123456789012345687")}
        tester.emit(AMOUNTS, "a", Decimal(0))
        assert tester.table(table.table) == {"all": Decimal("0.123456789012345687")}


def test_decimals_of_more_digits_than_a_sum_can_have_are_an_error() -> None:
    tiny = Decimal("1E-990")
    assert minus(plus(Decimal("1E+8"), tiny), tiny) == Decimal("1E+8")
    for operation in (plus, minus):
        with pytest.raises(ValueError, match="more than 1,000 digits"):
            operation(Decimal("1E+20"), tiny)


def test_a_mean_of_decimals_keeps_the_digits_of_its_sum() -> None:
    mean: Mean[Decimal] = Mean(lambda amount: amount)
    row = mean.subtract(mean.add(mean.first(LARGE), SMALL), LARGE)
    assert row == {"mean": SMALL, "sum": SMALL, "count": 1}


class Money(NamedTuple):
    """Adds to another one, and to decimals of its own accord."""

    units: Decimal

    def __add__(self, other: Any) -> Any:
        return Money(self.units + other.units) if isinstance(other, Money) else self.units + other

    def __radd__(self, other: Any) -> Any:
        return other + self.units


class Size(IntEnum):
    SMALL = 1


def test_types_with_an_addition_of_their_own_and_enums_of_numbers_have_sums() -> None:
    one = Money(Decimal(1))
    assert plus(alone(one), one) == Money(Decimal(2))
    assert (plus(one, Decimal(2)), plus(Decimal(2), one)) == (Decimal(3), Decimal(3))
    assert type(alone(Size.SMALL)) is int


class Price(Decimal):
    """A decimal by another name, with no addition of its own."""


@pytest.mark.parametrize("other", [Price("1E-30"), Decimal("1E-30")])
def test_sums_of_subclasses_of_decimals_and_integers_have_all_digits(other: Decimal) -> None:
    assert str(plus(Price(1), other)) == str(plus(Size.SMALL, other)) == "1." + "0" * 29 + "1"


@pytest.mark.parametrize("aggregate", [Sum, Mean])
@pytest.mark.parametrize("given_", ["12", b"12", [1], (1,)])
def test_a_sum_of_texts_or_lists_is_refused_at_the_first_one(aggregate: Any, given_: Any) -> None:
    group: Group[str, Any] = Group("g", Input(SCORE, aggregate=aggregate(lambda _: given_)), Persist(Json()))
    with Tester() as tester:
        tester.run(group)
        with pytest.raises(HandlerFailed, match=r"a sum of a .*take a number from the value"):
            tester.emit(SCORE, "k", {"at": 1, "n": None})
