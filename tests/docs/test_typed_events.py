"""The page on typed events: its programs run, and what it says of changes is so."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamtable_testing import Tester

PAGE = (Path(__file__).parents[2] / "docs/how-to/typed-events.md").read_text()
FILES = dict(re.findall(r"^```python title=\"(\w+)\.py\"\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a program of the page by its name."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)  # of another test's program
    yield __import__
    for name in FILES:
        sys.modules.pop(name, None)


def test_the_program_of_the_page_adds_up_and_dead_letters_name_the_place(
    tester: Tester, programs: Any
) -> None:
    page = programs("shop")
    tester.run(page.REVENUE)
    tester.emit(page.ORDERS, "ada", page.Order("1", [page.Item("x", 1.5), page.Item("y", 2.0)]))
    bad = b'{"id":"2","items":[{"sku":"x","price":1},{"sku":"y","price":2},{"sku":"z","price":"3"}]}'
    tester.emit_raw(page.ORDERS.name, b"ada", bad)
    assert tester.table(page.REVENUE) == {"ada": page.Revenue(1, 3.5)}
    (letter,) = tester.dead_letters(page.REVENUE)
    assert letter.reason == "Order: $.items[2].price: expected float, got str"
    assert letter.reason in PAGE


def test_the_orders_of_the_page_are_declared_with_a_registry_without_asking_it(programs: Any) -> None:
    page = programs("registered")
    assert page.ORDERS.value.framing.subject_of(page.ORDERS.value.definition) == "orders-value"
    page.REGISTRY.close()
