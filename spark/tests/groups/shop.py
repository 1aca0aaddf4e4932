"""A group that no scenario has: two inputs, a loop, a state table, ids that count once, and timers in event time."""

from datetime import timedelta
from typing import Any

from streamtable import (
    Avro,
    Context,
    EventTime,
    Group,
    Input,
    Json,
    Loop,
    Once,
    OnError,
    Output,
    Persist,
    State,
    Stream,
    String,
    Timer,
)

ORDERS: Stream[str, Any] = Stream("orders", String(), Json())
PAYMENTS: Stream[str, Any] = Stream("payments", String(), Json())
REMINDERS: Stream[str, Any] = Stream("reminders", String(), Json())
OPEN: State[str, int] = State("open", key=String(), value=Avro("long"))
PAID_WITHIN_MS = 5_000
Row = Any  # numbers by name


def changed(ctx: Context[str, Row], **by: int) -> None:
    row = ctx.value or {}
    new = {**row, **{name: row.get(name, 0) + number for name, number in by.items()}}
    # Sorted: the order of its numbers depends on the order between inputs, which differs between live runs.
    ctx.set(dict(sorted(new.items())))


def pay(ctx: Context[str, Row], payment: dict[str, Any]) -> None:
    number = payment["number"]
    cents = ctx.table(OPEN).get(number)
    if cents is not None:
        ctx.table(OPEN).delete(number)
        ctx.timers.cancel(REMIND, number)
        changed(ctx, paid=cents)


def remind(ctx: Context[str, Row], number: str) -> None:
    ctx.emit(REMINDERS, ctx.key, {"number": number})
    changed(ctx, reminded=1)


def recommended(ctx: Context[str, Row], times: int) -> None:
    changed(ctx, recommended=times)


REMIND: Timer[str, str, Row] = Timer("remind", remind, String())


def shop(name: str) -> Group[str, Row]:
    """The group of that name."""
    loop: Stream[str, Any] = Stream(f"{name}-loop", String(), Json())

    def order(ctx: Context[str, Row], order: dict[str, Any]) -> None:
        if order["cents"] < 0:
            ctx.fail("an order of less than nothing")
        ctx.table(OPEN).put(order["number"], order["cents"])
        ctx.timers.at(REMIND, order["at"] + PAID_WITHIN_MS, order["number"], order["number"])
        ctx.loopback(loop, order["by"], 1)
        changed(ctx, orders=1)

    once = Once[Any](by="number", within=timedelta(days=1))
    return Group(
        name,
        Input(ORDERS, order, time=lambda event: event["at"], once=once, on_error=OnError.DEAD_LETTER),
        Input(PAYMENTS, pay, time=lambda event: event["at"], on_error=OnError.DEAD_LETTER),
        Loop(loop, recommended),
        Output(REMINDERS),
        OPEN,
        REMIND,
        EventTime(idle_after=None, max_ahead=None),
        Persist(Json()),
    )
