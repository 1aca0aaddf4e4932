"""Places the reorders of the flow at a supplier over HTTP: `inventory ordering`.

Each reorder is one durable call, whose id is its idempotency key: however often it is tried, the supplier places one order.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, TypedDict

import httpx

from contracts.records import ITEM_ORDERS, REORDER, ItemOrders, Reorder
from inventory.flow import REORDERS
from inventory.settings import SUPPLIER
from streamtable import Avro, Context, Group, Input, Json, Persist, Stream
from streamtable_calls import Call, CallFailed, Retry, RetryAfter, call_id

_PIECES_AT_LEAST: Final = 10


class Placed(TypedDict):
    """The supplier's answer."""

    order: str


Place = Callable[[Reorder], Awaitable[Placed]]


def at_supplier(url: str) -> Place:
    """Return the function that places an order at a supplier.

    Args:
        url: The URL of the supplier, which recognises a repeated order by its `Idempotency-Key`.
    """

    async def place(reorder: Reorder) -> Placed:
        order = {"item": f"{reorder['product']}@{reorder['warehouse']}", "pieces": _PIECES_AT_LEAST}
        async with httpx.AsyncClient(base_url=url) as client:  # orders are rare
            response = await client.post("/orders", json=order, headers={"Idempotency-Key": call_id()})
        after = response.headers.get("Retry-After", "")
        if response.status_code in {429, 503} and after.isdigit():  # else it is a date: the usual pause
            raise RetryAfter(float(after))
        return Placed(order=response.raise_for_status().json()["order"])

    return place


def ordering(
    place: Place, name: str = "inventory-orders", reorders: Stream[str, Reorder] = REORDERS
) -> Group[str, Any]:
    """Return the group that places the reorders.

    Args:
        place: Places one order.
        name: The name of the group.
        reorders: The reorders.
    """
    call: Call[str, Reorder, Any, Any] = Call(
        "place",
        place,
        request=Avro(REORDER),
        response=Json(),
        then=_placed,
        failed=_given_up,
        timeout=timedelta(seconds=10),
        retry=Retry(first=timedelta(milliseconds=500), attempts=20, on=(httpx.HTTPError, TimeoutError)),
    )

    def reorder(ctx: Context[str, Any], event: Reorder) -> None:
        ctx.call(call, event)

    return Group(name, Input(reorders, reorder), call, Persist(Avro(ITEM_ORDERS)))


def _placed(ctx: Context[str, Any], reorder: Reorder, answer: Placed) -> None:
    del reorder
    row = ctx.value or ItemOrders(placed=0, last="", error="")
    ctx.set({**row, "placed": row["placed"] + 1, "last": answer["order"]})


def _given_up(ctx: Context[str, Any], reorder: Reorder, error: CallFailed) -> None:
    del reorder
    row = ctx.value or ItemOrders(placed=0, last="", error="")
    ctx.set({**row, "error": str(error)})


def orders(url: str = SUPPLIER) -> Group[str, Any]:
    """Return the group that places the reorders at the supplier with this URL: `inventory ordering` runs it."""
    return ordering(at_supplier(url))
