"""The page of tested faults names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/faults.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


def functions(path: str) -> set[str]:
    return {
        node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_the_tests_that_the_page_of_faults_names_exist(path: str) -> None:
    missing = {name for file, name in NAMED if file == path} - functions(path)
    assert not missing


def test_each_fault_names_a_test_or_says_why_there_is_none() -> None:
    tables, _, _ = PAGE.partition("## Faults that are planted")
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    faults = [row for row in rows if not row.startswith("| Fault ")]
    assert len(faults) == 34
    without = [row for row in faults if "::test_" not in row]
    assert all("no test" in row for row in without), without
    assert len(faults) - len(without) >= 28
