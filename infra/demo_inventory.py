"""The inventory in the demo: sends a small data set and compares its known results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx
from infra.demo_parts import DemoFailed, Service, answers, mark, say, wait_until
from rich.table import Table

from inventory.flow import HOUR_MS, REORDERS
from inventory.known import ANSWERS, HOURS, REORDERED, SETTING_UP, TRADING
from servicekit_testing.topic_reading import committed_records

ANSWER_SECONDS = 30.0  # rows go through several groups
SUPPLIER_FAILS = 2
"""The number of attempts of each order that the supplier refuses before it places it."""


def trade(
    client: httpx.Client,
    emitter: str,
    at: int,
    write: Callable[[Sequence[Mapping[str, Any]]], None] | None = None,
) -> None:
    """Send products and their events in warehouses, all with this event time. `write`: writes products to a database instead."""
    count = 0
    for path, events in (*SETTING_UP, *TRADING):
        if path == "/products" and write is not None:
            write(events)
            continue
        client.post(f"{emitter}{path}", json=[{**event, "at": at} for event in events]).raise_for_status()
        count += len(events)
    say(
        f"Emitted by REST and acknowledged by Kafka: {count} products, listings, prices, shipments and sales."
    )


def compare_orders(client: httpx.Client, supplier: str, services: Sequence[Service]) -> bool:
    """Wait until the supplier, which fails twice for each order, has placed all of them. Returns whether each was placed once."""
    expected = {item: [SUPPLIER_FAILS + 1] * len(left) for item, left in REORDERED.items()}
    found: dict[str, list[int]] = {}

    def placed() -> bool:
        found.clear()
        for order in client.get(f"{supplier}/orders").raise_for_status().json():
            found.setdefault(order["of"]["item"], []).append(order["attempts"])
        return found == expected

    try:
        wait_until("the orders at the supplier", ANSWER_SECONDS, services, placed)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("ordered at the supplier, which fails twice", "expected attempts", "attempts", "")
    for item, right in expected.items():
        table.add_row(item, str(right), str(found.get(item, "-")), mark(found.get(item) == right))
    say(table)
    return found == expected


def compare_stock(
    client: httpx.Client, query: str, hour: int, bootstrap_servers: str, services: Sequence[Service]
) -> bool:
    """Wait for the stocks, prices, totals, sales of the hour and orders, print them, return whether all are right."""
    expected: dict[str, object] = {
        **ANSWERS,
        **{f"/products/{product}/hours": quantity for product, quantity in HOURS.items()},
        **{f"ordered again: {item}": list(left) for item, left in REORDERED.items()},
    }
    found: dict[str, object] = {}

    def known() -> bool:
        for path, members in ANSWERS.items():
            if (answer := answers(client, f"{query}{path}")) is not None:
                found[path] = {member: answer[member] for member in members}
        for product in HOURS:
            path = f"/products/{product}/hours"
            answer = answers(client, f"{query}{path}?{urlencode({'since': hour, 'until': hour + HOUR_MS})}")
            if answer is not None and answer["items"]:
                found[path] = answer["items"][0]["quantity"]
        ordered: dict[str, list[int]] = {}
        for item, order in committed_records(bootstrap_servers, REORDERS, ANSWER_SECONDS):
            if order is not None:
                ordered.setdefault(item, []).append(order["quantity"])
        found.update({f"ordered again: {item}": left for item, left in ordered.items()})
        return found == expected

    try:
        wait_until("the stocks", ANSWER_SECONDS, services, known)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table("inventory", "expected", "found", "")
    for what, right in expected.items():
        shown = found.get(what, "-")
        table.add_row(what, str(right), str(shown), mark(shown == right))
    say(table)
    return found == expected
