"""The default of a setting stands once, in `Settings`: whoever changes it in one of two places makes two defaults."""

import ast
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from streamtable import Settings

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "libs/streamtable/src/streamtable/base/settings.py"
DEFAULTS = {
    name: field.default for name, field in Settings.declared.items() if field.default not in {None, MISSING}
}


def repeated(source: str) -> set[str]:
    """Return the settings whose default is written again, as the default of a parameter or a field of that name."""
    return {name for name, value in defaults_in(source) if name in DEFAULTS and value == DEFAULTS[name]}


def defaults_in(source: str) -> Iterator[tuple[str, Any]]:
    """Yield the parameters and fields that have a constant as their default, such as 30.0 or 24 * 3600."""
    for node in ast.walk(ast.parse(source)):
        found: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            values = node.args.defaults
            found += zip(names[len(names) - len(values) :], values, strict=True)
            found += zip([each.arg for each in node.args.kwonlyargs], node.args.kw_defaults, strict=True)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append((node.target.id, node.value))
        for name, value in found:
            if value is not None and all(
                isinstance(part, ast.Constant | ast.BinOp | ast.operator) for part in ast.walk(value)
            ):
                yield name, eval(ast.unparse(value), {})


def test_the_default_of_a_setting_stands_nowhere_else() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in ROOT.glob("*/*/src/**/*.py")
        if path != TABLE and "spark" not in path.parts
        for name in repeated(path.read_text(encoding="utf-8"))
    }
    assert found == set(), "write default_of(...) of streamtable.base.settings"


def test_a_repeated_default_is_found_however_it_is_written() -> None:
    assert repeated(
        "def f(a, state_retention=24 * 3600.0, *, guarantee='exactly_once', purge=False): ..."
    ) == {
        "state_retention",
        "guarantee",
    }
    assert repeated("class A:\n    stall_timeout: float = 30\n    stall_exit: float | None = None") == {
        "stall_timeout"
    }
    assert repeated("def f(stall_timeout: float = default_of('stall_timeout')): ...") == set()
