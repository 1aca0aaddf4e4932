"""Reorders are placed at the supplier, each once, however often it fails."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from tests.system.bench import Bench, until

from contracts.records import Reorder
from inventory.flow import REORDERS
from inventory.ordering import Placed, at_supplier, ordering
from inventory.supplier import Orders, server_of
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import Stream
from streamtable_calls import RetryAfter
from streamtable_calls.ids import running
from streamtable_testing import Tester

LAMP = Reorder(
    product="lamp", warehouse="berlin", quantity=2, threshold=5, movement="m1", at=1_700_000_000_000
)


async def never(reorder: Reorder) -> Placed:
    raise AssertionError(reorder)


@pytest.fixture
def supplier() -> Iterator[str]:
    """The URL of a supplier that fails twice for each order."""
    server = server_of(Orders(failures=2))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_item_has_the_number_of_its_orders_and_the_last_one(tester: Tester) -> None:
    group = ordering(never)
    (call,) = group.timers
    tester.run(group)
    for number in ("order-1", "order-2"):
        tester.emit(REORDERS, "lamp@berlin", LAMP)
        tester.calls(call).answer({"order": number})  # type: ignore[arg-type] # it is the call of the group
    assert tester.table(group) == {"lamp@berlin": {"placed": 2, "last": "order-2", "error": ""}}


def test_an_order_that_is_given_up_leaves_its_error(tester: Tester) -> None:
    group = ordering(never)
    (call,) = group.timers
    tester.run(group)
    tester.emit(REORDERS, "lamp@berlin", LAMP)
    tester.calls(call).fail(KeyError("order"))  # type: ignore[arg-type] # as above
    assert "KeyError" in tester.table(group)["lamp@berlin"]["error"]


class Later(BaseHTTPRequestHandler):
    """Answers an order with 503, and its item as the header that says when to come back."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        item = json.loads(self.rfile.read(size))["item"]
        self.send_response(503)
        self.send_header("Retry-After", item.partition("@")[0])
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.parametrize(
    ("after", "error"), [("2", RetryAfter), ("Sun, 29 Nov 2026 12:00:00 GMT", httpx.HTTPStatusError)]
)
def test_a_supplier_that_says_when_to_come_back_is_asked_again(after: str, error: type[Exception]) -> None:
    """Both errors are retried, the second one with the usual pauses."""
    with HTTPServer(("127.0.0.1", 0), Later) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = at_supplier(f"http://127.0.0.1:{server.server_port}")

        async def ask() -> None:
            running(["an id"])
            await place({**LAMP, "product": after})

        with pytest.raises(error):
            asyncio.run(ask())
        server.shutdown()
        thread.join()


def test_an_order_that_failed_twice_is_placed_once(
    broker: Broker, topics: Topics, tmp_path: Path, supplier: str
) -> None:
    bench = Bench(broker.bootstrap_servers, topics, tmp_path)
    reorders = Stream(bench.name("reorders"), REORDERS.key, REORDERS.value)
    group = ordering(at_supplier(supplier), bench.name("orders"), reorders)
    bench.create(group)
    bench.send(reorders.name, ("lamp@berlin", REORDERS.value.encode(LAMP)))
    with bench.run(group):
        until(lambda: bench.read(group.table.name), "the order is placed")
    bench.close()
    (placed,) = httpx.get(f"{supplier}/orders").json()
    assert placed.pop("key").startswith(f"{group.name}/0/")
    assert placed == {"attempts": 3, "order": "order-1", "of": {"item": "lamp@berlin", "pieces": 10}}
