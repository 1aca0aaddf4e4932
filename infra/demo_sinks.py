"""The sinks in the demo: what they have written where a variable names a target, read back by SQL."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import duckdb
import psycopg
from infra.demo_parts import DemoFailed, Service, mark, say, wait_until
from psycopg import sql
from rich.table import Table

from inventory.known import ANSWERS
from inventory.sinks import STOCK_ROWS
from streamtable_sinks.parquet import committed_files

POSTGRES: Final = "INVENTORY_POSTGRES_URL"
LAKE: Final = "CLICK_COUNT_LAKE"
TARGETS: Final[Mapping[str, str]] = {"inventory-sinks": POSTGRES, "click-count-sinks": LAKE}
"""The services that write to a target, and the variable that names it: they run where it is set."""
_SECONDS: Final = 60.0
_STOCK: Final = "/stock/"


def runs(service: str) -> bool:
    """Return whether a service of the demo runs: it writes to no target, or its target is named."""
    return service not in TARGETS or bool(os.environ.get(TARGETS[service]))


def compare_targets(minute: int, clicks: int, services: Sequence[Service]) -> bool:
    """Compare what the targets have, those that are named. Returns whether all of it is right.

    Args:
        minute: The start of the minute in which alice has clicked, and which has closed.
        clicks: The clicks of alice in it.
        services: The running services.
    """
    right = True
    if url := os.environ.get(POSTGRES):
        expected = {
            path.removeprefix(_STOCK): row["quantity"]
            for path, row in ANSWERS.items()
            if path.startswith(_STOCK)
        }
        right = _compared("stock in PostgreSQL", expected, lambda: _stock(url), services)
    if lake := os.environ.get(LAKE):
        found = lambda: _minutes(lake, minute)  # noqa: E731 - short
        right = _compared("closed minutes in files", {"alice": clicks}, found, services) and right
    return right


def _stock(url: str) -> Mapping[str, int]:
    with psycopg.connect(url) as session:
        query = sql.SQL("SELECT item, quantity FROM {}").format(sql.Identifier(STOCK_ROWS))
        return dict(session.execute(query).fetchall())


def _minutes(lake: str, minute: int) -> Mapping[str, int]:
    files = [f"{lake}/{each}" for each in committed_files(lake)]
    if not files:
        return {}
    asked = duckdb.read_parquet(files).filter(f"epoch_ms(minute) = {minute} AND user = 'alice'")
    return dict(asked.project("user, clicks").fetchall())


def _compared(
    what: str, expected: Mapping[str, int], read: Callable[[], Mapping[str, int]], services: Sequence[Service]
) -> bool:
    found: dict[str, int] = {}

    def known() -> bool:
        found.update(read())
        return found == expected

    try:
        wait_until(what, _SECONDS, services, known)
    except DemoFailed as error:
        say(f"[red]{error}[/]")
    table = Table(what, "expected", "found", "")
    for each, right in expected.items():
        table.add_row(each, str(right), str(found.get(each, "-")), mark(found.get(each) == right))
    say(table)
    return found == expected
