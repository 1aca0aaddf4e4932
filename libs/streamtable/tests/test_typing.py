"""The graphs and handlers that mypy and pyright accept, and those that they reject, with the line of the error."""

import json
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
    BatchContext, Changes, Context, Count, Group, Input, Join, Json, Long, Lookup, Loop, NoKey, Output, Persist, RowChange,
    Stream, String, Table, Visit,
)

TEXTS = Stream("texts", String(), String())
NUMBERS = Stream("numbers", String(), Long())
BY_NUMBER = Stream("by-number", Long(), String())
LOOP = Stream("g-loop", String(), Long())
USERS = Table("users", String(), Long())
CITIES = Table("cities", Long(), String())




def texts(ctx: Context[str, int], event: str) -> None: ...
def numbers(ctx: Context[str, int], event: int) -> None: ...
def rows_of_text(ctx: Context[str, str], event: str) -> None: ...
def whole(records: BatchContext[str, str, int]) -> None: ...
def whole_numbers(records: BatchContext[str, int, int]) -> None: ...
def changed(ctx: Context[str, int], change: RowChange[int]) -> None: ...
def changed_text(ctx: Context[str, int], change: RowChange[str]) -> None: ...
def visit(ctx: Context[str, int], argument: str) -> None: ...
def visit_text(ctx: Context[str, str], argument: str) -> None: ...
"""

GRAPHS = """
G = Group(
    "g", Input(TEXTS, texts), Input(NUMBERS, numbers), Loop(LOOP, numbers), Join(USERS), Lookup(CITIES),
    Changes(USERS, changed), Output(BY_NUMBER), Persist(Long()), Visit("v", visit),
)
reveal_type(G)  # is streamtable.graph.group.Group[str, int]
reveal_type(G.table)  # is streamtable.base.topics.Table[str, int]
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
    ctx.set("x")  # refused: arg-type
    ctx.emit(BY_NUMBER, 1, 2)  # refused: misc
    ctx.emit(BY_NUMBER, "x", "x")  # refused: misc
    ctx.loopback(LOOP, "a", "x")  # refused: misc
    ctx.loopback(LOOP, 1, 1)  # refused: misc
    ctx.lookup(CITIES, "Rome")  # refused: misc
    ctx.join(CITIES)  # refused: arg-type


def use_batch(records: BatchContext[str, str, int]) -> None:
    reveal_type(records.join(USERS))  # is list[int | None]
    records.put_many({"a": 1, "b": None})
    records.put_many({"a": "x"})  # refused: dict-item
    records.join(CITIES)  # refused: arg-type


def use_change(ctx: Context[str, int], change: RowChange[int]) -> None:
    reveal_type(change.old)  # is int | None
"""

FLOWS = """
from datetime import timedelta

from streamtable import Collect, TopK
from streamtable.flow import Flow, Sliding, Tumbling

FLOW = Flow("f")
S = FLOW.stream(TEXTS)
N = FLOW.stream(NUMBERS, time=lambda number: number)
T = FLOW.table(USERS)
C = S.group_by_key().count("counts")
reveal_type(S)  # is streamtable.flow.stream.KeyedStream[str, str]
reveal_type(S.map_values(len))  # is streamtable.flow.stream.KeyedStream[str, int]
reveal_type(S.map_values(lambda key, text: len(text), with_key=True))  # is streamtable.flow.stream.KeyedStream[str, int]
reveal_type(S.flat_map_values(lambda text: [len(text)]))  # is streamtable.flow.stream.KeyedStream[str, int]
reveal_type(S.map(lambda key, text: (len(text), key)))  # is streamtable.flow.stream.KeyedStream[int, str]
reveal_type(S.flat_map(lambda key, text: [(len(text), key)]))  # is streamtable.flow.stream.KeyedStream[int, str]
reveal_type(S.filter(bool).peek(print))  # is streamtable.flow.stream.KeyedStream[str, str]
reveal_type(S.split(str.isupper)[0])  # is streamtable.flow.stream.KeyedStream[str, str]
reveal_type(S.key_by("k1", len, key=Long()))  # is streamtable.flow.stream.KeyedStream[int, str]
reveal_type(S.group_by("k2", len, key=Long()))  # is streamtable.flow.grouped.GroupedStream[int, str]
reveal_type(C)  # is streamtable.flow.table.KeyedTable[str, int]
reveal_type(C.table)  # is streamtable.base.topics.Table[str, int]
reveal_type(C.to_stream())  # is streamtable.flow.stream.KeyedStream[str, int | None]
reveal_type(C.to_stream().to_table("t1"))  # is streamtable.flow.table.KeyedTable[str, int]
reveal_type(S.to_table("t2"))  # is streamtable.flow.table.KeyedTable[str, str]
reveal_type(T.filter(lambda number: number > 0).map_values(str))  # is streamtable.flow.table.KeyedTable[str, str]
reveal_type(T.group_by("g1", str, key=String()))  # is streamtable.flow.grouped.GroupedTable[str, int]
reveal_type(T.group_by("g2", str, key=String()).count("t3"))  # is streamtable.flow.table.KeyedTable[str, int]
reveal_type(S.group_by_key().sum("t4", len))  # is streamtable.flow.table.KeyedTable[str, int]
reveal_type(S.group_by_key().max("t5", str.upper, value=String()))  # is streamtable.flow.table.KeyedTable[str, str]
H = timedelta(hours=1)
reveal_type(S.join("j1", N, lambda text, number: (text, number), within=H, grace=H))  # is streamtable.flow.stream.KeyedStream[str, tuple[str, int]]
reveal_type(S.left_join("j2", N, lambda text, number: number, within=(H, H), grace=H))  # is streamtable.flow.stream.KeyedStream[str, int | None]
reveal_type(S.outer_join("j3", N, lambda text, number: text, within=H, grace=H))  # is streamtable.flow.stream.KeyedStream[str, str | None]
reveal_type(S.join_global(USERS, lambda text, number: number, on=str.upper))  # is streamtable.flow.stream.KeyedStream[str, int]
reveal_type(S.left_join_global(USERS, lambda text, number: number, on=lambda text: text or None))  # is streamtable.flow.stream.KeyedStream[str, int | None]
reveal_type(C.every("e2", timedelta(1)))  # is streamtable.flow.stream.KeyedStream[str, int | None]
reveal_type(C.join("j4", T, lambda count, number: (count, number)))  # is streamtable.flow.table.KeyedTable[str, tuple[int, int]]
reveal_type(C.left_join("j5", T, lambda count, number: number))  # is streamtable.flow.table.KeyedTable[str, int | None]
reveal_type(C.outer_join("j6", T, lambda count, number: count))  # is streamtable.flow.table.KeyedTable[str, int | None]
reveal_type(T.join("j7", T, max, on=lambda number: str(number)))  # is streamtable.flow.table.KeyedTable[str, int]
reveal_type(S.join_table(T, lambda text, number: number))  # is streamtable.flow.stream.KeyedStream[str, int]
reveal_type(S.left_join_table(T, lambda text, number: number))  # is streamtable.flow.stream.KeyedStream[str, int | None]
reveal_type(S.join_as_of("j8", T, lambda text, number: number, history=H, grace=H))  # is streamtable.flow.stream.KeyedStream[str, int]
def add_text(row: int, text: str) -> int: return row
def add_number(row: int, number: int) -> int: return row
G = S.group_by_key().cogroup(add_text).cogroup(N.group_by_key(), add_number)
reveal_type(G.aggregate("c1", int, value=Long()))  # is streamtable.flow.table.KeyedTable[str, int]
reveal_type(G.window(Tumbling(H, grace=H)).aggregate("c2", int, value=Long()))  # is streamtable.flow.windowed.WindowedTable[str, int]
reveal_type(S.group_by_key().fold("t8", Collect(len), value=Json()))  # is streamtable.flow.table.KeyedTable[str, list[int]]
reveal_type(S.group_by_key().fold("t9", TopK(3, len), value=Json()))  # is streamtable.flow.table.KeyedTable[str, list[str]]
reveal_type(T.group_by("g3", str, key=String()).collect("t10", lambda number: number + 1, value=Json()))  # is streamtable.flow.table.KeyedTable[str, list[int]]
reveal_type(N.group_by_key().reduce("t6", max))  # is streamtable.flow.table.KeyedTable[str, int]
reveal_type(S.group_by_key().aggregate("t7", int, lambda row, text: row + len(text), value=Long()))  # is streamtable.flow.table.KeyedTable[str, int]
W = S.group_by_key().window(Tumbling(timedelta(1), grace=timedelta(0)), late=TEXTS).count("w1")
reveal_type(W)  # is streamtable.flow.windowed.WindowedTable[str, int]
reveal_type(S.group_by_key().window(Sliding(timedelta(1), grace=timedelta(0))).aggregate("w5", int, lambda row, text: row + len(text), value=Long()))  # is streamtable.flow.windowed.WindowedTable[str, int]
reveal_type(W.every("e1", timedelta(seconds=1)))  # is streamtable.flow.stream.KeyedStream[tuple[str, int, int, fallback=streamtable.flow.windows.keys.Windowed[str]], int | None]
reveal_type(W.left_join("w6", W, lambda one, other: other, value=None).final())  # is streamtable.flow.stream.KeyedStream[tuple[str, int, int, fallback=streamtable.flow.windows.keys.Windowed[str]], int | None]
reveal_type(W.final())  # is streamtable.flow.stream.KeyedStream[tuple[str, int, int, fallback=streamtable.flow.windows.keys.Windowed[str]], int]
reveal_type(W.changes())  # is streamtable.flow.stream.KeyedStream[tuple[str, int, int, fallback=streamtable.flow.windows.keys.Windowed[str]], int | None]
S.to(TEXTS)
S.to(lambda key, text: TEXTS if key else None, streams=[TEXTS])
C.to_stream().to(NUMBERS)
S.merge(S.filter(bool)).to(TEXTS)
E = FLOW.stream(Stream("events", NoKey(), String()))
reveal_type(E)  # is streamtable.flow.stream.KeyedStream[None, str]
reveal_type(E.key_by("k5", len, key=Long()))  # is streamtable.flow.stream.KeyedStream[int, str]
reveal_type(FLOW.stream(TEXTS, tombstones=True))  # is streamtable.flow.stream.KeyedStream[str, str | None]
reveal_type(FLOW.stream(TEXTS, tombstones=True).to_table("t6"))  # is streamtable.flow.table.KeyedTable[str, str]
"""

TYPED = """
from dataclasses import dataclass
from typing import TypedDict

import msgspec
from pydantic import BaseModel

from streamtable import Typed


class Order(msgspec.Struct):
    id: str


@dataclass
class Click:
    url: str


class Fields(TypedDict):
    a: int


class Model(BaseModel):
    a: int


ORDERS = Stream("orders", String(), Typed(Order))
EITHER: Typed[Order | Click] = Typed(Order | Click)
reveal_type(ORDERS)  # is streamtable.base.topics.Stream[str, typed.Order]
reveal_type(Stream("clicks", String(), Typed(Click)))  # is streamtable.base.topics.Stream[str, typed.Click]
reveal_type(Typed(Model).decode(b""))  # is typed.Model
reveal_type(Typed(Fields).decode(b"")["a"])  # is int


def on_order(ctx: Context[str, int], order: Order) -> None: ...
def on_click(ctx: Context[str, int], click: Click) -> None: ...


Input(ORDERS, on_order)
Input(ORDERS, on_click)  # refused: arg-type
Typed(Order).encode(Click("/"))  # refused: arg-type
"""

REFUSED = """
from datetime import timedelta

from streamtable.flow import Flow, Session, Tumbling

FLOW = Flow("f")
S = FLOW.stream(TEXTS)
N = FLOW.stream(NUMBERS)
T = FLOW.table(USERS)


def plus(number: int) -> int:
    return number + 1


def key_and_number(key: str, number: int) -> int:
    return number


def pair(key: int, text: str) -> tuple[str, str]:
    return text, text


def process(ctx: Context[str, int], number: int) -> list[int]:
    return [number]


def to_numbers(key: str, text: str) -> Stream[str, int]:
    return NUMBERS


def longest(row: int, text: str) -> str:
    return text


FLOW.stream(USERS)  # refused: call-overload
FLOW.stream(TEXTS, tombstones=True).map_values(str.upper)  # refused: arg-type
FLOW.stream(TEXTS, tombstones=True, time=len)  # refused: call-overload
FLOW.stream(Stream("events", NoKey(), String())).to(TEXTS)  # refused: arg-type
FLOW.table(TEXTS)  # refused: arg-type
FLOW.stream(TEXTS, time=plus)  # refused: arg-type
S.filter(plus)  # refused: arg-type
S.filter(key_and_number, with_key=True)  # refused: call-overload
S.map_values(plus)  # refused: arg-type
S.map_values(key_and_number, with_key=True)  # refused: call-overload
S.map_values(len, value=String())  # refused: arg-type
S.flat_map_values(len)  # refused: arg-type
S.map(pair)  # refused: arg-type
S.flat_map(pair)  # refused: arg-type
S.peek(key_and_number)  # refused: arg-type
S.split(plus)  # refused: arg-type
S.merge(N)  # refused: arg-type
S.process(process)  # refused: arg-type
S.repartition("r1", key=Long())  # refused: arg-type
S.repartition("r2", value=Long())  # refused: arg-type
S.key_by("k1", len, key=String())  # refused: arg-type
S.key_by("k2", plus, key=Long())  # refused: arg-type
S.group_by("k3", len, key=String())  # refused: arg-type
S.group_by("k4", len)  # refused: call-arg
S.to(NUMBERS)  # refused: arg-type
S.to(BY_NUMBER)  # refused: arg-type
S.to(USERS)  # refused: call-overload
S.to(to_numbers, streams=[TEXTS])  # refused: arg-type
S.to_table("t1", value=Long())  # refused: arg-type
S.group_by_key().count()  # refused: call-arg
S.group_by_key().count("t2", value=String())  # refused: arg-type
S.group_by_key().sum("t3", plus)  # refused: arg-type
S.group_by_key().sum("t4", str.upper)  # refused: arg-type
S.group_by_key().min("t5", str.upper)  # refused: arg-type
S.group_by_key().max("t6", str.upper, value=Long())  # refused: arg-type
S.group_by_key().reduce("t7", plus)  # refused: arg-type
S.group_by_key().aggregate("t8", int, longest, value=Long())  # refused: arg-type
S.group_by_key().aggregate("t9", int, lambda row, text: row, value=String())  # refused: arg-type
T.filter(str.upper)  # refused: arg-type
T.map_values(str.upper)  # refused: arg-type
T.group_by("g1", plus, key=String())  # refused: arg-type
T.group_by("g2", str.upper, key=String())  # refused: arg-type
T.group_by("g3", str, key=String()).sum("t10", str.upper)  # refused: arg-type
T.group_by("g4", str, key=String()).min("t11", str.upper)  # refused: arg-type
T.group_by("g6", str, key=String()).collect("t13", str.upper, value=Json())  # refused: arg-type
T.group_by("g5", str, key=String()).aggregate("t12", int, max, value=Long())  # refused: call-arg
T.to_stream().to(TEXTS)  # refused: arg-type
MINUTE = Tumbling(timedelta(minutes=1), grace=timedelta(0))
GAP = Session(timedelta(minutes=1), grace=timedelta(0))
Tumbling(timedelta(minutes=1))  # refused: call-arg
S.group_by_key().window(timedelta(1))  # refused: call-overload
S.group_by_key().window(MINUTE, late=NUMBERS)  # refused: arg-type
S.group_by_key().window(MINUTE).sum("w2", str.upper)  # refused: arg-type
S.group_by_key().window(GAP).aggregate("w3", int, lambda row, text: row, value=Long())  # refused: call-arg
S.group_by_key().window(MINUTE).count("w4").final().to(NUMBERS)  # refused: arg-type
H = timedelta(hours=1)


def both(text: str, number: int) -> str:
    return text


def text_and_text(text: str, other: str) -> str:
    return text


S.join("j4", N, text_and_text, within=H, grace=H)  # refused: arg-type
S.left_join("j5", N, both, within=H, grace=H)  # refused: arg-type
S.outer_join("j6", N, both, within=H, grace=H)  # refused: arg-type
S.join("j7", S.key_by("k9", len, key=Long()), text_and_text, within=H, grace=H)  # refused: arg-type
S.join("j8", N, both, within=H)  # refused: call-arg
T.join("j10", S.to_table("t13"), text_and_text)  # refused: arg-type
T.left_join("j11", T, max)  # refused: arg-type
T.join("j12", N, max)  # refused: call-overload
S.join_global(USERS, max, on=len)  # refused: arg-type
S.group_by_key().window(MINUTE).count("w7").join("w8", T, max)  # refused: arg-type
T.join("j13", T, max, on=plus)  # refused: arg-type
S.join_table(T, text_and_text)  # refused: arg-type
S.join_table(N, both)  # refused: arg-type
S.left_join_table(T, both)  # refused: arg-type
S.left_join_as_of("j14", T, both, history=H, grace=H)  # refused: arg-type
N.group_by_key().cogroup(str.upper)  # refused: arg-type
S.join("j9", N, both, within=1, grace=H)  # refused: arg-type
S.group_by_key().window(MINUTE).count("w5").every("e2", 5)  # refused: arg-type
"""


PROGRAMS = {
    "graphs": GRAPHS,
    "handlers": HANDLERS,
    "flows": FLOWS,
    "typed": TYPED,
    "refused": REFUSED,
}
PAGE = (ROOT / "docs/how-to/extend.md").read_text()
# The programs of the page, which both must accept; here, since a start of each takes longer than all programs.
OF_THE_PAGE = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TEXTS = {name: HEAD + text for name, text in PROGRAMS.items()}
TEXTS |= {f"extend_{number}": text for number, text in enumerate(OF_THE_PAGE)}


def text_of(name: str) -> list[str]:
    return TEXTS[name].splitlines()


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The messages of mypy for each program, from one run: the start of mypy takes longer than all programs."""
    folder = tmp_path_factory.mktemp("typing")
    for name in TEXTS:
        (folder / f"{name}.py").write_text("\n".join(text_of(name)))
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--show-error-codes"]
    command += ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command += [str(folder / f"{name}.py") for name in TEXTS]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    said = {name: [line for line in lines if line.partition(":")[0].endswith(f"{name}.py")] for name in TEXTS}
    assert sum(map(len, said.values())) == len(lines), "all is said of one of them"
    return said


@pytest.mark.parametrize("name", TEXTS)
def test_mypy_accepts_what_fits_together_and_refuses_what_does_not(
    name: str, checked: dict[str, list[str]]
) -> None:
    lines = text_of(name)
    found, other = set(), []
    for line in checked[name]:
        if (match := FOUND.match(line)) is not None:
            found.add((int(match[1]), match[2] or match[3].replace("builtins.", "")))
        elif ": note:" not in line:
            other.append(line)
    expected = {
        (number, match[2] or match[3])
        for number, line in enumerate(lines, start=1)
        if (match := EXPECTED.search(line)) is not None
    }
    assert other == []
    assert [(n, what, lines[n - 1]) for n, what in sorted(found ^ expected)] == []


@pytest.fixture(scope="module")
def checked_by_pyright(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """The lines of each program with pyright's errors, from one run. Its settings are its own."""
    folder = tmp_path_factory.mktemp("pyright")
    for name in TEXTS:
        (folder / f"{name}.py").write_text("\n".join(text_of(name)))
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(folder)]
    command += ["--pythonpath", sys.executable, "--level", "error"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    found: dict[str, set[int]] = {name: set() for name in TEXTS}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        found[Path(each["file"]).stem].add(each["range"]["start"]["line"] + 1)
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_pyright_refuses_the_same_lines(name: str, checked_by_pyright: dict[str, set[int]]) -> None:
    lines = text_of(name)
    expected = {number for number, line in enumerate(lines, start=1) if "# refused:" in line}
    assert [(n, lines[n - 1]) for n in sorted(checked_by_pyright[name] ^ expected)] == []
