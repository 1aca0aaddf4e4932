"""Figures and goals as tables: for a terminal, and for Markdown pages."""

from collections.abc import Iterable, Mapping, Sequence

from bench.figures import Figure
from bench.goals import Goal, Verdict
from rich.table import Table

Rows = list[Sequence[str]]
FIGURES_HEAD = ("row", "value", "unit", "compared with", "ratio", "CPU µs a record", "MB", "99 % within µs")
GOALS_HEAD = ("goal", "figure", "at least / at most", "aim", "")
_COLOURS = {Verdict.AIM: "green", Verdict.ENOUGH: "yellow", Verdict.MISSED: "red", Verdict.UNKNOWN: "dim"}


def figure_rows(figures: Iterable[Figure]) -> Rows:
    """Return one row for each figure."""
    return [
        (
            each.name,
            "failed" if each.value is None else number(each.value),
            each.unit,
            each.baseline or "",
            number(each.ratio),
            number(each.cpu_us),
            number(each.rss_mb),
            number(each.p99_us),
        )
        for each in figures
    ]


def goal_rows(goals: Iterable[Goal], figures: Mapping[str, Figure]) -> Rows:
    """Return one row for each goal."""
    rows: Rows = []
    for goal in goals:
        reached = goal.reached(figures)
        rows.append((goal.title, number(reached), goal.limit, f"{goal.aim:g}", goal.verdict(reached).value))
    return rows


def terminal(head: Sequence[str], rows: Rows) -> Table:
    """Format the table for `rich`, with coloured verdicts."""
    colours = {verdict.value: colour for verdict, colour in _COLOURS.items()}
    table = Table(*head)
    for row in rows:
        table.add_row(*row, style=colours.get(row[-1], "red" if "failed" in row else ""))
    return table


def markdown(head: Sequence[str], rows: Rows) -> str:
    """Format the table in Markdown, with numbers to the right."""
    right = {
        column
        for column in range(len(head))
        if rows and all(_isnumber(row[column]) for row in rows) and any(row[column] for row in rows)
    }
    line = ["---:" if column in right else "---" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, line, *rows))


def number(value: float | None) -> str:
    """Format a number with at least three digits; empty for None."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _isnumber(text: str) -> bool:
    return not text or text.replace(",", "").replace(".", "", 1).isdigit()
