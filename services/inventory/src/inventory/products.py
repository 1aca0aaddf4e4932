"""Products that are kept in PostgreSQL: `inventory products` copies them to the stream of products.

Debezium's connector writes the changes of the table `products` to a topic, a captured table has its rows, and each changed row
becomes an event. The flow stays as it is: it reads the same stream as from the emitter. `inventory.connector` creates the table and registers the connector.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.records import Product
from inventory.flow import PRODUCTS
from streamtable import Changes, Context, Group, OnError, Output, RowChange, Stream
from streamtable_capture import Capture, ConnectKey, Debezium

TABLE: Final = """
create table if not exists products (
  product text primary key,
  category text not null,
  price integer not null check (price >= 0)
)
"""
PREFIX: Final = "inventory"
"""The connector's `topic.prefix`."""


@dataclass(frozen=True)
class ProductRow:
    """A row of the table."""

    product: str
    category: str
    price: int


ROWS: Final[Capture[str, ProductRow]] = Capture(
    "inventory-product-rows",
    Stream(
        f"{PREFIX}.public.products", ConnectKey(product=str), Debezium(ProductRow, table="public.products")
    ),
)


def publish(ctx: Context[str, None], change: RowChange[ProductRow]) -> None:
    """Emit a product that was inserted or changed. One that was deleted keeps its last price, as stock may be left of it."""
    row = change.new
    if row is None:
        return
    event = Product(
        id=f"{ctx.topic}-{ctx.partition}-{ctx.offset}",
        product=row.product,
        category=row.category,
        price=row.price,
        at=ctx.timestamp_ms,
    )
    ctx.emit(PRODUCTS, row.product, event)


EVENTS: Final[Group[str, None]] = Group(
    "inventory-product-events",
    Changes(ROWS.table, publish, start="earliest", on_error=OnError.DEAD_LETTER),
    Output(PRODUCTS),
)

GROUPS: Final[Mapping[str, Group[str, Any]]] = {each.name: each for each in (ROWS, EVENTS)}
"""The groups that `inventory products` runs, by name."""
