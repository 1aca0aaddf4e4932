"""Output: tables and lines for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamtable_admin.findings import Finding, Level
from streamtable_admin.text import as_json, one_line, printable, printable_lines

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one document.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print JSON: one object per line.")]

_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}
_WIDE = 4_000
"""The width if the output is not a terminal, so that nothing is truncated."""


def console(*, stderr: bool = False) -> Console:
    """Return a console that never interprets brackets or colons in data as markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDE
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, with columns of numbers aligned to the right. Control characters are escaped."""
    rows = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[number], int | float) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable_lines(str(cell))) for cell in row))
    console().print(table)


def show_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print findings, and exit with code 1 if one of them is a problem."""
    if as_json:
        show_json([asdict(each) for each in findings])
    else:
        rows = [(Text(it.level, _COLOURS[it.level]), it.subject, it.fact, it.advice) for it in findings]
        show_table(("", "what", "found", "what to do"), rows)
    if any(each.level is Level.PROBLEM for each in findings):
        raise typer.Exit(1)


def show_json(document: object) -> None:
    print(printable_lines(json.dumps(document, indent=2, ensure_ascii=False, default=as_json)))


def show_json_line(document: object) -> None:
    print(one_line(document), flush=True)


def show_line(text: str) -> None:
    """Print a line; control characters are escaped."""
    print(printable(text))


def note(text: str) -> None:
    """Print a remark to standard error."""
    print(printable(text), file=sys.stderr)
