"""What mypy accepts of a graph and its handlers, and what it refuses, at which line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXPECTED = re.compile(r"# (refused: ([a-z-]+)|is (.+))$")
FOUND = re.compile(r"^[^:]+:(\d+): (?:error: .*\[([a-z-]+)\]|note: Revealed type is \"(.+)\")$")

HEAD = """
from streamtable import (
    Batch, Changes, Context, Count, Group, Input, Join, Json, Long, Lookup, Loop, Output, Persist, RowChange, Stream,
    String, Table, Visit,
)

TEXTS = Stream("texts", String(), String())
NUMBERS = Stream("numbers", String(), Long())
BY_NUMBER = Stream("by-number", Long(), String())
LOOP = Stream("g-loop", String(), Long())
USERS = Table("users", String(), Long())
CITIES = Table("cities", Long(), String())


async def ask() -> int:
    return 1


def texts(ctx: Context[str, int], event: str) -> None: ...
def numbers(ctx: Context[str, int], event: int) -> None: ...
def rows_of_text(ctx: Context[str, str], event: str) -> None: ...
def whole(records: Batch[str, str, int]) -> None: ...
def whole_numbers(records: Batch[str, int, int]) -> None: ...
def changed(ctx: Context[str, int], change: RowChange[int]) -> None: ...
def changed_text(ctx: Context[str, int], change: RowChange[str]) -> None: ...
def visit(ctx: Context[str, int], argument: str) -> None: ...
def visit_text(ctx: Context[str, str], argument: str) -> None: ...
def then(ctx: Context[str, int], result: int) -> None: ...
def then_text(ctx: Context[str, int], result: str) -> None: ...
"""

GRAPHS = """
G = Group(
    "g", Input(TEXTS, texts), Input(NUMBERS, numbers), Loop(LOOP, numbers), Join(USERS), Lookup(CITIES),
    Changes(USERS, changed), Output(BY_NUMBER), Persist(Long()), Visit("v", visit),
)
reveal_type(G)  # is streamtable.graph.Group[str, int]
reveal_type(G.table)  # is streamtable.topics.Table[str, int]
Group("g", Input(TEXTS, batch=whole), Persist(Long()))
Group("g", Input(TEXTS, aggregate=Count()), Persist(Long()))
Group("g", Changes(USERS, changed), Persist(Long()))
Input(TEXTS, numbers)  # refused: arg-type
Input(TEXTS, batch=whole_numbers)  # refused: arg-type
Loop(LOOP, texts)  # refused: arg-type
Changes(USERS, changed_text)  # refused: arg-type
Group("g", Input(TEXTS, numbers), Persist(Long()))  # refused: arg-type
Group("g", Input(TEXTS, texts), Persist(String()))  # refused: arg-type
Group("g", Input(TEXTS, texts), Input(NUMBERS, rows_of_text), Persist(Long()))  # refused: arg-type
Group("g", Input(TEXTS, texts), Join(CITIES), Persist(Long()))  # refused: arg-type
Group("g", Input(TEXTS, texts), Persist(Long()), Visit("v", visit_text))  # refused: arg-type
Join(LOOP)  # refused: arg-type
"""

HANDLERS = """
def use(ctx: Context[str, int], event: str) -> None:
    reveal_type(ctx.value)  # is int | None
    reveal_type(ctx.join(USERS))  # is int | None
    reveal_type(ctx.lookup(CITIES, 1))  # is str | None
    ctx.set(1)
    ctx.emit(BY_NUMBER, 1, "x")
    ctx.emit(BY_NUMBER, 1, None)
    ctx.loopback(LOOP, "a", 1)
    ctx.defer(ask(), then)
    ctx.set("x")  # refused: arg-type
    ctx.emit(BY_NUMBER, 1, 2)  # refused: misc
    ctx.emit(BY_NUMBER, "x", "x")  # refused: misc
    ctx.loopback(LOOP, "a", "x")  # refused: misc
    ctx.loopback(LOOP, 1, 1)  # refused: misc
    ctx.lookup(CITIES, "Rome")  # refused: misc
    ctx.join(CITIES)  # refused: arg-type
    ctx.defer(ask(), then_text)  # refused: arg-type


def use_batch(records: Batch[str, str, int]) -> None:
    reveal_type(records.join(USERS))  # is list[int | None]
    records.put_many({"a": 1, "b": None})
    records.put_many({"a": "x"})  # refused: dict-item
    records.join(CITIES)  # refused: arg-type


def use_change(ctx: Context[str, int], change: RowChange[int]) -> None:
    reveal_type(change.old)  # is int | None
"""


@pytest.mark.parametrize("code", [GRAPHS, HANDLERS], ids=["graphs", "handlers"])
def test_mypy_accepts_what_fits_together_and_refuses_what_does_not(code: str, tmp_path: Path) -> None:
    lines = (HEAD + code).splitlines()
    (tmp_path / "user.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--show-error-codes"]
    command += ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command.append(str(tmp_path / "user.py"))
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    found, other = set(), []
    for line in done.stdout.splitlines():
        if (match := FOUND.match(line)) is not None:
            found.add((int(match[1]), match[2] or match[3].replace("builtins.", "")))
        elif ": note:" not in line:
            other.append(line)
    expected = {
        (number, match[2] or match[3])
        for number, line in enumerate(lines, start=1)
        if (match := EXPECTED.search(line)) is not None
    }
    assert other == [], done.stderr
    assert [(n, what, lines[n - 1]) for n, what in sorted(found ^ expected)] == []
