"""The streams, and the flow from movements to stock, reorders, prices, totals by category, and sales by hour."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from contracts.records import (
    CATEGORIZED_STOCK,
    CATEGORY_STOCK,
    PRICE,
    PRICE_ADJUSTMENT,
    PRODUCT,
    REORDER,
    STOCK,
    STOCK_MOVEMENT,
    CategoryStock,
    Price,
    PriceAdjustment,
    Product,
    Reorder,
    Stock,
    StockMovement,
)
from inventory import domain
from streamtable import Avro, Context, Once, OnError, Output, State, Stream, String, Table
from streamtable.flow import Flow, KeyedStream, Tumbling, Windowed, WindowedKey

V = TypeVar("V")

MOVEMENTS: Final[Stream[str, StockMovement]] = Stream("stock-movements", String(), Avro(STOCK_MOVEMENT))
"""Listings, shipments and sales in one stream, keyed by item, since their order matters: "lamp@berlin"."""

PRODUCTS: Final[Stream[str, Product]] = Stream("products", String(), Avro(PRODUCT))
"""The category and list price of products, keyed by product."""

ADJUSTMENTS: Final[Stream[str, PriceAdjustment]] = Stream(
    "price-adjustments", String(), Avro(PRICE_ADJUSTMENT)
)
"""Price adjustments of warehouses, keyed by item; co-partitioned with the movements."""

REORDERS: Final[Stream[str, Reorder]] = Stream("reorders", String(), Avro(REORDER))
"""One record for each time that a stock has fallen below its threshold, keyed by item."""

ONCE: Final[Once[Any]] = Once(by="id", within=timedelta(hours=24))
"""An event that is sent again, for example after a lost response, counts once: an old price does not come back."""

HOURS_TABLE: Final = "hours"
HOUR_MS: Final = 3_600_000
HOURS: Final = Tumbling(timedelta(milliseconds=HOUR_MS), grace=timedelta(minutes=10))
PRODUCT_HOURS: Final[Stream[Windowed[str], int]] = Stream(
    "product-hours", key=WindowedKey(String(), HOUR_MS), value=Avro("long")
)
"""One record for each product and hour, when the hour has closed: the pieces sold."""
LEVELS: Final[State[str, Stock]] = State("levels", key=String(), value=Avro(STOCK))


@dataclass(frozen=True)
class Inventory:
    """The flow, and the tables that it keeps.

    Attributes:
        flow: The flow.
        stock: The stock of each item.
        prices: The price of each item that has an adjustment and a product.
        categories: The stock of each category.
        hours: The pieces sold of each product and hour.
    """

    flow: Flow
    stock: Table[str, Stock]
    prices: Table[str, Price]
    categories: Table[str, CategoryStock]
    hours: Table[Windowed[str], int]


def inventory(name: str = "inventory") -> Inventory:
    """Return the flow of this name, which is the prefix of its groups, topics and tables."""
    flow = Flow(name, on_error=OnError.DEAD_LETTER)
    movements = flow.stream(MOVEMENTS, time=lambda movement: movement["at"], once=ONCE)
    products = checked(flow.stream(PRODUCTS, group="products", once=ONCE), domain.fault_of_product).to_table(
        "catalogue", value=Avro(PRODUCT)
    )
    adjustments = checked(flow.stream(ADJUSTMENTS, once=ONCE), domain.fault_of_adjustment)

    stock = movements.process(follow, LEVELS, Output(REORDERS)).to_table("stock", value=Avro(STOCK))
    prices = (
        adjustments.map_values(lambda adjustment: None if adjustment["percent"] is None else adjustment)
        .to_table("adjustments", value=Avro(PRICE_ADJUSTMENT))
        .join("adjusted", products, domain.priced, on=lambda adjustment: adjustment["product"])
        .to_stream()
        .to_table("prices", value=Avro(PRICE))
    )
    categories = (
        stock.join("categorized", products, domain.categorized, on=lambda row: row["product"])
        .group_by("by-category", lambda row: row["category"], key=String(), value=Avro(CATEGORIZED_STOCK))
        .aggregate(
            "totals",
            lambda: CategoryStock(items=0, quantity=0),
            domain.with_stock,
            domain.without_stock,
            value=Avro(CATEGORY_STOCK),
        )
    )
    hours = (
        movements.filter(lambda movement: movement["kind"] == "sold")
        .group_by("by-product", lambda movement: movement["product"], key=String())
        .window(HOURS)
        .sum(HOURS_TABLE, lambda movement: movement["quantity"], value=Avro("long"))
    )
    hours.final().to(PRODUCT_HOURS)
    return Inventory(flow, stock.table, prices.table, categories.table, hours.table)


def follow(ctx: Context[str, None], movement: StockMovement) -> Iterator[Stock]:
    """Update the stock of an item by a movement, and emit a reorder each time that it falls below its threshold."""
    levels = ctx.table(LEVELS)
    before = levels.get(ctx.key)
    if (fault := domain.fault_of_movement(ctx.key, movement, before)) is not None:
        ctx.fail(fault)
    after = domain.moved(before, movement)
    levels.put(ctx.key, after)
    if domain.is_low(after) and not domain.is_low(before):
        ctx.emit(REORDERS, ctx.key, Reorder(**after, movement=movement["id"], at=movement["at"]))
    yield after


def checked(stream: KeyedStream[str, V], fault_of: Callable[[str, V], str | None]) -> KeyedStream[str, V]:
    """Send the records that have a fault to the dead letters, with the fault as the reason."""

    def passed(ctx: Context[str, None], value: V) -> Iterator[V]:
        if (fault := fault_of(ctx.key, value)) is not None:
            ctx.fail(fault)
        yield value

    return stream.process(passed)


FLOW: Final = inventory().flow
"""The flow by its usual name, for Spark's jobs: `--graph inventory.flow:FLOW`."""
