"""The page about joins: its tables say what comes out for a given input, and that is what comes out."""

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamtable import Json, Stream, String
from streamtable.flow import Flow
from streamtable_testing.tester import Tester

PAGE = (Path(__file__).resolve().parents[2] / "docs/explanation/joins.md").read_text()
JSON: Any = Json()
LEFT: Stream[str, Any] = Stream("left", String(), JSON)
RIGHT: Stream[str, Any] = Stream("right", String(), JSON)
OUT: Stream[str, Any] = Stream("out", String(), JSON)


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def table_of(title: str) -> tuple[list[str], list[list[str]]]:
    """Return the operators, and the rows, of the table behind a comment."""
    lines = PAGE.split(f"<!-- {title} -->")[1].strip().split("\n\n")[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [name.strip("`") for name in head[1:]], rows


CASES = [
    (title, operator)
    for title in ("streams", "as of", "tables", "foreign key")
    for operator in table_of(title)[0]
]


def text(left: Any, right: Any) -> str:
    return "+".join(each[0] for each in (left, right) if each is not None)


def flow_of(title: str, operator: str) -> Flow:
    flow = Flow("f")
    left = flow.stream(LEFT, time=lambda value: value[1])
    group = "right" if title == "foreign key" else ""
    right = flow.stream(RIGHT, time=lambda value: value[1], group=group)
    if title == "streams":
        join: Callable[..., Any] = getattr(left, operator)
        join("j", right, text, within=(ms(10), ms(20)), grace=ms(5)).to(OUT)
        return flow
    rows = [
        side.map_values(lambda value: value if value[0] else None, value=JSON).to_table(name, value=JSON)
        for name, side in (("l", left), ("r", right))
    ]
    if title == "as of":
        join = getattr(left, operator)
        join("j", rows[1], text, history=ms(30), grace=ms(5)).to(OUT)
        return flow
    join = getattr(rows[0], operator)
    on = {"on": lambda row: row[2]} if title == "foreign key" else {}
    join("j", rows[1], text, **on, value=JSON).to_stream().to(OUT)
    return flow


def emit(tester: Tester, line: str) -> None:
    """Emit the record that a line of a table describes."""
    if match := re.fullmatch(r"(left|right|sale|price) (\w+) at (\d+)", line):
        tester.emit(LEFT if match[1] in {"left", "sale"} else RIGHT, "k", [match[2], int(match[3])])
    elif match := re.fullmatch(r"sale (\d) of product (\w)", line):
        tester.emit(LEFT, match[1], [match[1], 1, match[2]])
    elif match := re.fullmatch(r"sale (\d) deleted", line):
        tester.emit(LEFT, match[1], ["", 1])
    elif match := re.fullmatch(r"product (\w) (?:is (\w)|deleted)", line):
        tester.emit(RIGHT, match[1], [match[2] or "", 1])
    else:
        side, what = line.split()
        tester.emit(LEFT if side == "left" else RIGHT, "k", ["" if what == "deleted" else what, 1])


def described(title: str, records: Sequence[Any]) -> str:
    if title in {"tables", "foreign key"}:
        keys = title == "foreign key"
        return ", ".join(
            each.value if each.value is not None else f"{each.key} deleted" if keys else "deleted"
            for each in sorted(records, key=lambda each: each.key)
        )
    return ", ".join(f"{each.value} at {each.timestamp_ms}" for each in records)


@pytest.mark.parametrize(("title", "operator"), CASES)
def test_what_the_page_says_comes_out(tester: Tester, title: str, operator: str) -> None:
    operators, rows = table_of(title)
    tester.run(flow_of(title, operator))
    made = []
    for row in rows:
        before = len(tester.records(OUT))
        emit(tester, row[0])
        made.append([row[0], described(title, tester.records(OUT)[before:])])
    assert made == [[row[0], row[1 + operators.index(operator)]] for row in rows]


def test_each_kind_of_join_has_a_drawing() -> None:
    for part in PAGE.split("\n## ")[3:10]:
        assert "```mermaid" in part, part[:40]
