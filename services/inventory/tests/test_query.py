from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from contracts.records import CategoryStock, Price, Stock
from inventory.flow import HOURS_TABLE
from inventory.query import Tables, build_query
from servicekit.http.cursors import Cursors
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit_testing import MemoryTable
from streamtable.flow import Windowed

HOUR_MS = 3_600_000


class Hours:
    """A view of hours, as far as the question needs it."""

    ready = True
    not_ready = ""

    def windows(self, key: str, since_ms: int, until_ms: int) -> "Found":
        assert (since_ms, until_ms) == (1, 2 * HOUR_MS)
        return Found([(Windowed(key, HOUR_MS, 2 * HOUR_MS), 7)])

    def position(self) -> Mapping[int, Any]:
        return {0: Place()}


class Place:
    age_seconds = 0.25


class Found(list[tuple[Windowed[str], int]]):
    unreadable = 0


def stock(item: str, quantity: int) -> Stock:
    product, _, warehouse = item.partition("@")
    return Stock(product=product, warehouse=warehouse, quantity=quantity, threshold=5)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    stocks: MemoryTable[Stock] = MemoryTable()
    prices: MemoryTable[Price] = MemoryTable()
    categories: MemoryTable[CategoryStock] = MemoryTable()
    for item, quantity in (("desk@oslo", 2), ("lamp@berlin", 3), ("lamp@oslo", 4)):
        stocks.put(item, stock(item, quantity))
    prices.put("lamp@oslo", Price(product="lamp", warehouse="oslo", list_price=100, percent=25, price=125))
    categories.put("light", CategoryStock(items=2, quantity=7))
    events = EventStreams(Streams(limit=4), heartbeat_seconds=0.2)
    writes = ReadYourWrites({"stock-movements": stocks}, 0.3)
    cursors = Cursors(b"0123456789abcdef")
    app = build_query(
        Tables(stocks, prices, categories),
        {HOURS_TABLE: Hours()},
        cursors,
        events,
        writes,
        metrics=lambda: b"",
    )
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    with httpx.Client(base_url=server.start()) as client:
        yield client
    server.stop()
    events.close()


FRESH = {"age_seconds": 0.25, "stale": False}


def test_an_item_is_answered_with_its_stock_and_place(client: httpx.Client) -> None:
    found = client.get("/stock/lamp@berlin")
    row = {"item": "lamp@berlin", "product": "lamp", "warehouse": "berlin", "quantity": 3, "threshold": 5}
    assert found.json() == {**row, "partition": 0, "offset": 3, **FRESH}
    assert (
        client.get("/stock/lamp@berlin", headers={"If-None-Match": found.headers["etag"]}).status_code == 304
    )


def test_the_items_of_a_product_are_those_that_begin_with_it(client: httpx.Client) -> None:
    found = client.get("/stock", params={"prefix": "lamp@", "limit": 1}).json()
    assert [item["item"] for item in found["items"]] == ["lamp@berlin"]
    rest = client.get("/stock", params={"prefix": "lamp@", "cursor": found["next"]}).json()
    assert [(item["item"], item["quantity"]) for item in rest["items"]] == [("lamp@oslo", 4)]
    assert rest["next"] is None


def test_prices_totals_and_hours_are_answered_from_their_own_tables(client: httpx.Client) -> None:
    price = client.get("/prices/lamp@oslo").json()
    assert (price["item"], price["list_price"], price["price"]) == ("lamp@oslo", 100, 125)
    total = client.get("/categories/light").json()
    assert (total["category"], total["items"], total["quantity"]) == ("light", 2, 7)
    hours = client.get("/products/lamp/hours", params={"since": 1, "until": 2 * HOUR_MS}).json()
    assert hours == {
        "product": "lamp",
        "items": [{"quantity": 7, "start_ms": HOUR_MS, "end_ms": 2 * HOUR_MS}],
        "unreadable": 0,
        **FRESH,
    }


@pytest.mark.parametrize("path", ["/stock/lamp@lima", "/prices/lamp@berlin", "/categories/steel"])
def test_what_is_not_there_is_not_found(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/stock/lamp",
        "/stock/Lamp@oslo",
        "/stock/lamp@",
        "/stock?prefix=@oslo",
        "/prices/lamp",
        "/categories/Light",
        "/products/lamp@oslo/hours",
        "/events?prefix=Lamp",
    ],
)
def test_what_cannot_be_a_key_is_a_problem(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
