"""Answers: tables and lines for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one document.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print JSON: one object a line.")]

_WIDE = 4_000
"""Columns where the output is no terminal: nothing is cut."""


def console(*, stderr: bool = False) -> Console:
    """Never reads a bracket or colon of somebody's data as an instruction."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDE
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Numbers to the right."""
    rows = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", header_style="bold")
    for number, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[number], int | float) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    console().print(table)


def show_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False, default=_plain))


def show_json_line(document: object) -> None:
    print(one_line(document), flush=True)


def one_line(document: object) -> str:
    return printable(json.dumps(document, ensure_ascii=False, default=_plain))


def note(text: str) -> None:
    """Something about the answer that is not the answer."""
    print(printable(text), file=sys.stderr)


def printable(text: str) -> str:
    """Without control characters, which could do things to a terminal; as JSON escapes them."""
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def at(milliseconds: int) -> str:
    """A Kafka timestamp as people read it; empty if the record has none."""
    if milliseconds < 0:
        return ""
    try:
        text = datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return text.replace("+00:00", "Z")


def count(number: int, one: str, many: str = "") -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _plain(value: Any) -> Any:
    """What JSON has no word for; bytes are shown in hex, as everywhere."""
    match value:
        case bytes():
            return value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case Mapping():
            return dict(value)
    return repr(value)
