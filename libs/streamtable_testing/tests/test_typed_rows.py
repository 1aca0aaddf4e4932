"""Typed events and rows in a running group: poison before any handler, and types that change between two starts."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from streamtable import (
    BatchContext,
    Context,
    Group,
    Input,
    Json,
    Long,
    Once,
    OnError,
    Persist,
    State,
    Stream,
    String,
    Table,
    Typed,
)
from streamtable.errors import StateMeaningChanged
from streamtable.flow import Flow
from streamtable_testing import Tester


class Item(msgspec.Struct, frozen=True):
    price: float


class Order(msgspec.Struct, frozen=True):
    id: str
    items: list[Item] = []


class Total(msgspec.Struct, frozen=True):
    cents: int


class TotalOfShop(msgspec.Struct, frozen=True):
    cents: int
    shop: str = ""


class TotalInText(msgspec.Struct, frozen=True):
    cents: str


ANY = Stream[str, Any]("orders", String(), Json())
OUT = Stream("out", String(), Long())
ORDERS = Stream("orders", String(), Typed(Order))
BAD = {"id": "a", "items": [{"price": 1}, {"price": 2}, {"price": "x"}]}


@pytest.fixture
def tester() -> Iterator[Tester]:
    with Tester() as tester:
        yield tester


def letters(tester: Tester, group: Group[Any, Any]) -> list[str]:
    return [letter.reason for letter in tester.dead_letters(group)]


@pytest.mark.parametrize("by_batch", [False, True])
def test_what_does_not_fit_is_a_dead_letter_before_any_handler_sees_it(
    tester: Tester, *, by_batch: bool
) -> None:
    seen: list[Order] = []

    def one(ctx: Context[str, int], order: Order) -> None:
        seen.append(order)
        ctx.set((ctx.value or 0) + 1)

    def many(batch: BatchContext[str, Order, int]) -> None:
        seen.extend(batch.events)

    edge = Input(ORDERS, batch=many) if by_batch else Input(ORDERS, one)
    group = Group("g", edge, Persist(Long()))
    tester.run(group)
    tester.emit_many(ANY, [("a", {"id": "1"}), ("a", BAD), ("a", {"id": "2"})])
    assert seen == [Order("1"), Order("2")]
    assert letters(tester, group) == ["Order: $.items[2].price: expected float, got str"]


def test_a_field_of_a_typed_event_is_the_id_by_which_it_counts_once(tester: Tester) -> None:
    def count(ctx: Context[str, int], _: Order) -> None:
        ctx.set((ctx.value or 0) + 1)

    once = Once[Order](by="id", within=timedelta(days=1))
    group = Group("g", Input(ORDERS, count, once=once, on_error=OnError.DEAD_LETTER), Persist(Long()))
    tester.run(group)
    tester.emit_many(ORDERS, [("a", Order("1")), ("a", Order("2")), ("a", Order("1"))])
    assert tester.table(group) == {"a": 2}


def totals(kind: type[Any], *, own: bool) -> Group[str, Any]:
    """A group that keeps totals in its own table, or in a state."""
    state = State("totals", key=String(), value=Typed(kind))

    def add(ctx: Context[str, Any], order: Order) -> None:
        row = ctx.value if own else ctx.table(state).get(ctx.key)
        total = kind(type(kind(0).cents)(int(row.cents if row else 0) + int(order.items[0].price)))
        if own:
            ctx.set(total)
        else:
            ctx.table(state).put(ctx.key, total)

    return Group("g", Input(ORDERS, add), Persist(Typed(kind)) if own else state)


def rows(tester: Tester, group: Group[str, Any]) -> Any:
    return tester.table(group) if group.persist else tester.table(group, group.states[0])


@pytest.mark.parametrize("own", [True, False])
def test_rows_of_an_older_type_are_read_and_a_type_that_cannot_read_them_stops_at_the_start(
    tester: Tester, *, own: bool
) -> None:
    before, after, wrong = (totals(kind, own=own) for kind in (Total, TotalOfShop, TotalInText))
    order = Order("1", [Item(5.0)])
    tester.run(before)
    tester.emit(ORDERS, "a", order)
    tester.stop(before)
    tester.start(after)
    tester.emit(ORDERS, "a", order)
    assert rows(tester, after) == {"a": TotalOfShop(10)}
    tester.stop(after)
    with pytest.raises(
        StateMeaningChanged,
        match=r"do not fit its type any more: \$\.cents: integer was written, and string is read",
    ) as refused:
        tester.start(wrong)
    assert (refused.value.state, refused.value.topic) == (
        ("table", "g-table") if own else ("totals", "g-totals")
    )
    tester.start(before)  # back again: nothing was changed, and the older type ignores the newer field
    tester.emit(ORDERS, "a", order)
    assert rows(tester, before) == {"a": Total(15)}


def test_another_codec_than_a_typed_one_is_refused_for_the_rows(tester: Tester) -> None:
    before = totals(Total, own=True)
    tester.run(before)
    tester.emit(ORDERS, "a", Order("1", [Item(5.0)]))
    tester.stop(before)
    with pytest.raises(
        StateMeaningChanged, match=r"means 'String\(\) to Json\(\).*written as 'String\(\) to Typed"
    ):
        tester.start(Group("g", Input(ORDERS, lambda ctx, order: None), Persist(Json())))


def joined(kind: type[Any]) -> Flow:
    """A flow whose join keeps the rows of both sides in a table of its own."""
    flow = Flow("f")
    left, right = (flow.table(Table(name, String(), Typed(kind))) for name in ("left", "right"))
    left.join("both", right, lambda one, two: one.cents).to_stream().to(OUT)
    return flow


def restart(tester: Tester, before: Flow, after: Flow) -> None:
    tester.leave(before.group())
    del tester._instances[before.name]
    tester.run(after)


def test_the_schemas_of_rows_that_a_join_keeps_are_compared_too(tester: Tester) -> None:
    before, after, wrong = map(joined, (Total, TotalOfShop, TotalInText))
    tester.run(before)
    tester.emit(Stream("left", String(), Typed(Total)), "a", Total(5))
    restart(tester, before, after)
    tester.emit(Stream("right", String(), Typed(TotalOfShop)), "a", TotalOfShop(6, "x"))
    assert [each.value for each in tester.records(OUT)] == [5]
    with pytest.raises(StateMeaningChanged, match=r"\$\.cents: integer was written"):
        restart(tester, after, wrong)
