"""Joins of a stream with a global table: the row of any key, from the full copy that each process has."""

from collections.abc import Callable
from typing import Any

import pytest

from streamtable import Group, Input, Json, Long, OnError, Persist, Stream, String, Table
from streamtable.errors import GraphError
from streamtable.flow import Flow, KeyedStream
from streamtable_testing.tester import Tester

SALES: Stream[str, Any] = Stream("sales", String(), Json())
PRICES = Stream("prices", String(), Long())
PRICE_LIST: Table[str, int] = Table("price-list-table", String(), Long(), group="price-list")
OUT: Stream[str, Any] = Stream("out", String(), Json())


def keep(ctx: Any, price: int) -> None:
    ctx.set(price) if price else ctx.delete()


PRICE_LIST_GROUP: Group[str, int] = Group("price-list", Input(PRICES, keep), Persist(Long()))


def product(sale: Any) -> str | None:
    found: str | None = sale["of"]
    return found


def cost(sale: Any, price: int | None) -> Any:
    return [sale["n"], price]


def joined(operator: str, sales: KeyedStream[str, Any], table: Any = PRICE_LIST) -> KeyedStream[str, Any]:
    made: KeyedStream[str, Any] = getattr(sales, operator)(table, cost, on=product)
    return made


def started(tester: Tester, flow: Flow) -> None:
    tester.create(PRICES, partitions=5)  # other partitions than the stream
    tester.create(SALES, partitions=2)
    tester.run(PRICE_LIST_GROUP)
    for key, price in [("pear", 5), ("fig", 7)]:
        tester.emit(PRICES, key, price)
    tester.run(flow)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("join_global", [[1, 5], [2, 7], [5, 6]]),
        ("left_join_global", [[1, 5], [2, 7], [3, None], [4, None], [5, 6], [6, None]]),
    ],
)
@pytest.mark.parametrize("rekeyed", [False, True])
def test_a_record_meets_the_row_of_the_key_that_a_function_takes_from_it(
    tester: Tester, operator: str, expected: list[Any], *, rekeyed: bool
) -> None:
    flow = Flow("f")
    sales = flow.stream(SALES)
    joined(operator, sales.map(lambda key, sale: (key + "!", sale)) if rekeyed else sales).to(OUT)
    started(tester, flow)
    for number, (key, of) in enumerate([("a", "pear"), ("b", "fig"), ("a", "nut"), ("b", None)], start=1):
        tester.emit(SALES, key, {"of": of, "n": number})
    tester.emit(PRICES, "pear", 6)
    tester.emit(PRICES, "fig", 0)
    tester.emit_many(SALES, [("a", {"of": "pear", "n": 5}), ("a", {"of": "fig", "n": 6})])
    records = tester.records(OUT)
    assert [record.value for record in records] == expected
    assert all((record.key or "").endswith("!") == rekeyed for record in records)


def test_a_table_that_the_flow_keeps_is_joined_in_all_of_its_partitions(tester: Tester) -> None:
    flow = Flow("f")
    sold = flow.stream(SALES).group_by("by-product", lambda sale: sale["of"], key=String()).count("sold")
    joined("join_global", flow.stream(SALES), sold.table).to(OUT)
    tester.run(flow, partitions=3)
    for number in range(3):
        tester.emit(SALES, "a", {"of": "pear", "n": number})
    assert [record.value for record in tester.records(OUT)][-1] == [2, 2]


def test_the_group_declares_the_table_once_however_many_steps_join_it() -> None:
    flow = Flow("f")
    sales = flow.stream(SALES)
    joined("join_global", sales).to(OUT)
    joined("left_join_global", sales).to(OUT)
    assert [lookup.table for lookup in flow.group().lookups] == [PRICE_LIST]
    assert "join_global with table price-list-table" in str(flow.describe())


def test_a_function_that_fails_for_one_record_fails_for_it_alone(tester: Tester) -> None:
    flow = Flow("f", on_error=OnError.DEAD_LETTER)
    joined("join_global", flow.stream(SALES)).to(OUT)
    started(tester, flow)
    tester.emit_many(SALES, [("a", {"of": "pear", "n": 1}), ("a", {"n": 2}), ("a", {"of": "fig", "n": 3})])
    assert [record.value for record in tester.records(OUT)] == [[1, 5], [3, 7]]
    assert len(tester.dead_letters(flow.group())) == 1


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda s: s.join_global(s.to_table("t"), cost, on=product), r"takes a Table.*\.table"),
        (lambda s: s.join_global(PRICE_LIST, cost, on="of"), "takes the key of the row"),
    ],
)
def test_what_is_no_global_join_is_refused(build: Callable[[Any], Any], reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        build(Flow("f").stream(SALES))
