"""Modules that import each other in a circle have no beginning for a reader. Imports within functions and for types count too."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [*sorted(each for each in ROOT.glob("*/*/src") if each.is_dir()), ROOT / "spark" / "src"]
CIRCLES = {
    # Each operator returns the stream or table on which others follow.
    frozenset(
        f"streamtable.flow.{name}"
        for name in (
            "cogrouped",
            "grouped",
            "ranked",
            "stream",
            "stream_joins",
            "table",
            "table_joins",
            "windowed",
        )
    ),
}
"""The circles that there are. Remove one when it is gone; add none."""


def imports_of(text: str) -> Iterator[str]:
    """Yield the modules that a module imports, and the names from them, which may be modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circles_of(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the modules that reach each other."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        found: set[str] = set()
        left = [module]
        while left:
            new = imports[left.pop()] - found
            found |= new
            left.extend(new)
        reached[module] = found
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in imports
        if module in reached[module]
    }


def modules(package: Path) -> dict[str, set[str]]:
    source = package.parent
    names = {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for path in package.rglob("*.py")
    }
    # The face of a package is left out: it only has the names of what is in it.
    faces = {name for name, path in names.items() if path.name == "__init__.py"}
    return {
        name: {each for each in imports_of(path.read_text()) if each in names and each not in faces} - {name}
        for name, path in names.items()
        if name not in faces
    }


PACKAGES = [
    package
    for source in SOURCES
    for package in sorted(source.iterdir())
    if (package / "__init__.py").exists() and package.name != "contracts"
]


def test_circles_are_found() -> None:
    assert circles_of({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset({"a", "b", "c"})}
    assert circles_of({"a": {"b"}, "b": set()}) == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_modules_do_not_import_each_other_in_a_circle(package: Path) -> None:
    known = {circle for circle in CIRCLES if min(circle).split(".")[0] == package.name}
    assert circles_of(modules(package)) == known
