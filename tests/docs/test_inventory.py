"""The tutorial about the inventory: its tests pass as they stand on the page, and its tables say what comes out."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.docs.pages import steps_of

from contracts.records import PriceAdjustment, Product, StockMovement
from inventory.flow import ADJUSTMENTS, MOVEMENTS, PRODUCTS, REORDERS, Inventory, inventory
from streamtable_testing import Tester

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorial/inventory.md").read_text()
NOON_MS = 1_699_999_200_000


def of_the_page() -> dict[str, Callable[[Tester], None]]:
    (step,) = steps_of(PAGE)
    names: dict[str, Any] = {}
    exec(compile(step.text, step.title or "", "exec"), names)
    return {name: each for name, each in names.items() if name.startswith("test_")}


@pytest.mark.parametrize("name", sorted(of_the_page()))
def test_a_test_of_the_page_passes(name: str, tester: Tester) -> None:
    of_the_page()[name](tester)


def test_the_handler_on_the_page_is_that_of_the_service() -> None:
    source = (ROOT / "services/inventory/src/inventory/flow.py").read_text()
    (shown,) = re.findall(r"def follow\(ctx, movement\):\n(.*?)```", PAGE, re.DOTALL)
    (ours,) = re.findall(r'def follow\(.*?""".*?"""\n(.*?)\n\n\n', source, re.DOTALL)
    plain = ours.replace("domain.", "").replace(
        'Reorder(**after, movement=movement["id"], at=movement["at"])',
        '{**after, "movement": movement["id"], "at": movement["at"]}',
    )
    assert shown.split() == plain.split()


def rows_of(name: str) -> list[list[str]]:
    """The rows of the table of that name, without its head."""
    table = PAGE.split(f"<!-- {name} -->")[1].strip().split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")[2:]]


@pytest.fixture
def made(tester: Tester) -> Inventory:
    found = inventory()
    tester.create(REORDERS)
    tester.run(found.flow)
    return found


def test_prices_are_those_of_the_table(tester: Tester, made: Inventory) -> None:
    for number, (what, price) in enumerate(rows_of("prices")):
        identity = str(UUID(int=number))
        if (cost := re.search(r"costs (\d+)", what)) is not None:
            offered = Product(
                id=identity, product="lamp", category="light", price=int(cost.group(1)), at=NOON_MS
            )
            tester.emit(PRODUCTS, "lamp", offered)
        else:
            percent = re.search(r"by (-?\d+) %", what)
            adjusted = PriceAdjustment(
                id=identity,
                product="lamp",
                warehouse="oslo",
                percent=None if percent is None else int(percent.group(1)),
                at=NOON_MS,
            )
            tester.emit(ADJUSTMENTS, "lamp@oslo", adjusted)
        row = tester.table(made.prices).get("lamp@oslo")
        assert ("" if row is None else str(row["price"])) == price, what


def test_totals_are_those_of_the_table(tester: Tester, made: Inventory) -> None:
    def move(identity: int, kind: Any, quantity: int) -> None:
        movement = StockMovement(
            id=str(UUID(int=identity)),
            product="lamp",
            warehouse="oslo",
            kind=kind,
            quantity=quantity,
            at=NOON_MS,
        )
        tester.emit(MOVEMENTS, "lamp@oslo", movement)

    move(100, "listed", 0)
    for number, (what, *totals) in enumerate(rows_of("totals")):
        if (moved := re.match(r"(\d+) lamps (come|are sold)", what)) is not None:
            move(number, "shipped" if moved.group(2) == "come" else "sold", int(moved.group(1)))
        else:
            category = what.rpartition(" ")[2]
            offered = Product(
                id=str(UUID(int=number)), product="lamp", category=category, price=1, at=NOON_MS
            )
            tester.emit(PRODUCTS, "lamp", offered)
        found = tester.table(made.categories)
        shown = [
            f"{row['items']} item{'s' * (row['items'] != 1)}, {row['quantity']} pieces" if row else ""
            for row in map(found.get, ("light", "wood"))
        ]
        assert shown == totals, what
