"""The query service: stocks, prices, totals and sales by hour over REST, from local copies of their tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI

from contracts.records import CategoryStock, Price, Stock
from inventory import models
from inventory.flow import HOURS_TABLE
from inventory.keys import CATEGORY, ITEM, PRODUCT
from servicekit.http.app import HttpEdge
from servicekit.http.cursors import Cursors
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit.http.server_events import EventStreams
from servicekit.http.table_api import GetRow, ListRows, ListWindows, TableApi, TableRoute, WatchRow, WatchRows
from servicekit.tables.protocol import UserTable, WindowTable

_EVENTS: Final = (
    'Server-sent events `stock`, with data like `{"item": "lamp@berlin", "product": "lamp", "warehouse": "berlin", '
    '"quantity": 7, "threshold": 5, "partition": 9, "offset": 41}`. `unreadable`, with the `item`, is sent instead of a '
    "stock that cannot be decoded. `missed` is sent last if changes were missed: reconnect."
)


@dataclass(frozen=True)
class Tables:
    """The queried tables."""

    stock: UserTable[Stock]
    prices: UserTable[Price]
    categories: UserTable[CategoryStock]


def build_query(
    tables: Tables,
    windows: Mapping[str, WindowTable[int]],
    cursors: Cursors,
    events: EventStreams,
    writes: ReadYourWrites,
    *,
    metrics: Callable[[], bytes],
    edge: HttpEdge | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        tables: The tables.
        windows: Sales by product and hour, under `HOURS_TABLE`.
        cursors: Signs the cursors of pages.
        events: Server-sent events.
        writes: Waits for the writes that requests name.
        metrics: Returns what `/metrics` answers.
        edge: Authentication, limits and instruments.
    """
    api: TableApi[Stock] = TableApi(
        title="inventory query",
        version="1.0.0",
        text="The stock of warehouses, from this replica's local copies of the tables. Every response has the age of the "
        "copy; until the copies are complete the service responds with 503.",
        members=_members,
        event="stock",
        events_text=_EVENTS,
        key=ITEM,
        routes=_routes(tables),
    )
    return api.build(
        tables.stock, None, cursors, events, metrics=metrics, edge=edge, writes=writes, windows=windows
    )


def _routes(tables: Tables) -> tuple[TableRoute, ...]:
    return (
        GetRow(
            "/stock/{item}",
            "get_stock",
            "The stock of a product in a warehouse. With `If-None-Match` an unchanged row is not sent again.",
            "stock",
            models.StockAnswer,
            missing="the warehouse does not list this product",
        ),
        ListRows(
            "/stock",
            "list_stock",
            "All items, a page at a time; `prefix=lamp@` selects those of a product. This is no snapshot: each page has the "
            "state of the table at the time of its request.",
            "stock",
            models.StockPage,
            models.ItemStock,
        ),
        GetRow(
            "/prices/{item}",
            "get_price",
            "The price of a product in a warehouse that has adjusted it.",
            "prices",
            models.PriceAnswer,
            missing="the warehouse has not adjusted the price of this product, or the product is unknown",
            table=tables.prices,
        ),
        GetRow(
            "/categories/{category}",
            "get_category",
            "The stock of all products of a category.",
            "categories",
            models.CategoryAnswer,
            missing="no product of this category has been stocked",
            table=tables.categories,
            key=CATEGORY,
        ),
        ListWindows(
            "/products/{product}/hours",
            "get_hours",
            "The pieces sold of a product by the hour of the sale, in a range of time. They are kept for a day.",
            "products",
            models.ProductHours,
            members=lambda quantity: {"quantity": quantity},
            table=HOURS_TABLE,
            key=PRODUCT,
        ),
        WatchRow("/stock/{item}/events", "watch_item", "The stock of an item now and each time it changes."),
        WatchRows("/events", "watch_items", "Each change of a stock from now on."),
    )


def _members(row: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the members of responses and events for a row of any of the tables."""
    return {**row} if row is not None else {"quantity": None}
