"""Each built-in aggregate is one class, which makes the same rows of a group, a stream, windows, sessions and a table."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamtable import (
    Avro,
    Collect,
    Count,
    Group,
    Input,
    Json,
    Last,
    Long,
    Max,
    Mean,
    Min,
    Persist,
    Stream,
    String,
    Sum,
    TopK,
    Typed,
)
from streamtable.errors import GraphError
from streamtable.flow import Flow, Hopping, KeyedStream, Session, Sliding, Tumbling
from streamtable.graph.aggregate import Aggregate
from streamtable_testing.tester import Tester

SALES: Stream[str, Any] = Stream("sales", String(), Json())
LONG = timedelta(seconds=10)
EVENTS = [{"at": at, "cents": cents} for at, cents in [(1001, 7), (1002, 3), (1004, 9), (1006, 3), (1008, 5)]]
NUMBERS = [event["cents"] for event in EVENTS]


def cents(sale: dict[str, int]) -> int:
    return sale["cents"]


AGGREGATES: dict[str, tuple[Aggregate[Any, Any], Any]] = {
    "Count": (Count(), 5),
    "Sum": (Sum(cents), 27),
    "Min": (Min(cents), 3),
    "Max": (Max(cents), 9),
    "Mean": (Mean(cents), {"mean": 5.4, "sum": 27, "count": 5}),
    "TopK": (TopK(2, cents), [EVENTS[2], EVENTS[0]]),
    "Collect": (Collect(cents), NUMBERS),
    "Last": (Last(), EVENTS[4]),
}


def in_windows(window: Any) -> Callable[[KeyedStream[str, Any], Aggregate[Any, Any]], Any]:
    return lambda stream, aggregate: (
        stream.group_by_key().window(window).fold("t", aggregate, value=Json()).final()
    )


PLACES: dict[str, Callable[[KeyedStream[str, Any], Aggregate[Any, Any]], Any]] = {
    "stream": lambda stream, aggregate: stream.group_by_key().fold("t", aggregate, value=Json()).to_stream(),
    "tumbling": in_windows(Tumbling(LONG, grace=LONG)),
    "hopping": in_windows(Hopping(LONG, LONG, grace=LONG)),
    "sliding": in_windows(Sliding(LONG, grace=LONG)),
    "session": in_windows(Session(timedelta(milliseconds=4), grace=LONG)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [0, 2, 4, 1, 3]], ids=["in order", "out of order"])
def test_an_aggregate_makes_the_same_row_of_a_stream_in_each_kind_of_window(
    tester: Tester, place: str, name: str, order: list[int]
) -> None:
    aggregate, row = AGGREGATES[name]
    flow, out = Flow("f"), Stream[Any, Any]("out", String(), Json())
    found = PLACES[place](flow.stream(SALES, time=lambda sale: sale["at"]), aggregate)
    found.map(lambda key, row: ("k", row), value=Json()).to(out)
    tester.run(flow)
    for index in order:
        tester.emit(SALES, "a", EVENTS[index])
    tester.emit(SALES, "z", {"at": 1_000_000, "cents": 0})
    rows: list[Any] = [record.value for record in tester.records(out)]
    if name == "Collect":
        row = [NUMBERS[index] for index in order]
        if place == "session" and order != sorted(order):  # rows of merged sessions lie together
            rows, row = [sorted(each) for each in rows], sorted(row)
    if name == "Last":
        row = EVENTS[order[-1]]
    assert row in rows


@pytest.mark.parametrize("name", AGGREGATES)
def test_an_aggregate_makes_the_same_row_in_a_group(tester: Tester, name: str) -> None:
    aggregate, row = AGGREGATES[name]
    group: Group[str, Any] = Group("g", Input(SALES, aggregate=aggregate), Persist(Json()))
    tester.run(group)
    tester.emit_many(SALES, [("a", event) for event in EVENTS[:2]])
    tester.emit_many(SALES, [("a", event) for event in EVENTS[2:]])
    assert tester.table(group.table) == {"a": row}


@pytest.mark.parametrize("name", [name for name in AGGREGATES if name != "Last"])
def test_an_aggregate_of_a_grouped_table_is_the_same_after_rows_have_changed_and_gone(
    tester: Tester, name: str
) -> None:
    aggregate, row = AGGREGATES[name]
    flow = Flow("f")
    table = flow.stream(SALES).map_values(lambda sale: sale or None, value=Json()).to_table("latest")
    kept = table.group_by("all", lambda _: "a", key=String()).fold("t", aggregate, value=Json())
    tester.run(flow)
    for number, event in enumerate(EVENTS):
        tester.emit(SALES, f"{number}", {"at": 1, "cents": 100 + number})
        tester.emit(SALES, "gone", {"at": 1, "cents": number})
        tester.emit(SALES, f"{number}", event)
    tester.emit(SALES, "gone", {})
    (found,) = tester.table(kept.table).values()
    if name == "Collect":  # of equal ones, any is taken away
        found, row = sorted(found), sorted(row)
    assert found == row


class Longest(Aggregate[str, str]):
    """Neither merges nor subtracts."""

    def initial(self) -> str:
        return ""

    def add(self, row: str, event: str) -> str:
        return max(row, event, key=len)


def test_an_aggregate_of_ones_own_is_refused_where_it_lacks_a_method() -> None:
    stream = Flow("f").stream(Stream("words", String(), String()))
    assert stream.group_by_key().fold("longest", Longest(), value=String()).table.name == "f-longest"
    sessions = stream.group_by_key().window(Session(LONG, grace=LONG))
    with pytest.raises(GraphError, match=r"longest 's' by sessions: Longest has no merge\(\)"):
        sessions.fold("s", Longest(), value=String())
    table = stream.to_table("t").group_by("by", str, key=String())
    with pytest.raises(GraphError, match=r"longest 'g' of a grouped table: Longest has no subtract\(\)"):
        table.fold("g", Longest(), value=String())


def test_the_last_row_of_a_grouped_table_is_refused_as_its_rows_come_in_no_order() -> None:
    table = Flow("f").stream(SALES).to_table("t").group_by("by", lambda _: "a", key=String())
    with pytest.raises(GraphError, match=r"last 'g' of a grouped table: Last has no subtract\(\)"):
        table.fold("g", Last(), value=Json())


FLOAT_MEANS = Avro(
    {
        "type": "record",
        "name": "MeanOfFloats",
        "fields": [{"name": name, "type": "float"} for name in ("mean", "sum")]
        + [{"name": "count", "type": "long"}],
    }
)


@pytest.mark.parametrize(
    ("aggregate", "codec"), [(Sum(cents), Avro("float")), (Mean(cents), FLOAT_MEANS)], ids=["sum", "mean"]
)
def test_sums_that_are_rounded_when_they_are_read_again_are_refused(
    aggregate: Aggregate[Any, Any], codec: Any
) -> None:
    stream = Flow("f").stream(SALES)
    grouped = stream.group_by_key()
    table = stream.to_table("t").group_by("by", lambda _: "a", key=String())
    windows = grouped.window(Tumbling(LONG, grace=LONG))
    for fold in (grouped.fold, table.fold, windows.fold):
        with pytest.raises(GraphError, match="give a schema with double in the place of float"):
            fold("s", aggregate, value=codec)
    with pytest.raises(GraphError, match="give a schema with double in the place of float"):
        Group("g", Input(SALES, aggregate=aggregate), Persist(codec))


@pytest.mark.parametrize("in_one_batch", [True, False])
@pytest.mark.parametrize("codec", [Long(), Json(), Typed(int)], ids=repr)
def test_a_sum_of_booleans_counts_those_that_are_true(
    tester: Tester, codec: Any, *, in_one_batch: bool
) -> None:
    flow = Flow("f")
    grouped = flow.stream(SALES).group_by_key()
    kept = grouped.sum("t", lambda sale: sale["cents"] > 4, value=codec)
    mean = grouped.fold("m", Mean(lambda sale: sale["cents"] > 4), value=Json())
    tester.run(flow)
    sales = [("a", EVENTS[0]), ("a", EVENTS[2]), ("b", EVENTS[0]), ("c", EVENTS[1])]
    for batch in [sales] if in_one_batch else [[sale] for sale in sales]:
        tester.emit_many(SALES, batch)
    rows = tester.table(kept.table)
    assert rows == {"a": 2, "b": 1, "c": 0}
    assert {type(row) for row in rows.values()} == {int}
    assert type(tester.table(mean.table)["b"]["sum"]) is int


def test_a_top_of_another_number_is_another_meaning() -> None:
    assert TopK(2, cents).meaning != TopK(3, cents).meaning
    with pytest.raises(ValueError, match="at least one"):
        TopK(0, cents)
