"""The published figures, and the tables that are made of them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench import results
from tests.bench.figures import by_name
from tests.bench.goals import Goal, read_goals
from tests.bench.machine import ROOT
from tests.bench.results import Line
from tests.bench.tables import FIGURES_HEAD, GOALS_HEAD, Rows, figure_rows, goal_rows, markdown, number

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "reference" / "benchmark.md"
KINDS = ("full", "peers")
README_GOALS = (
    "count_exactly_once",
    "handler_exactly_once",
    "restore",
    "view_get_p99",
    "memory_10k",
    "latency_p99",
    "first_record",
)
WAYS = ROOT / "docs" / "explanation" / "three-ways.md"
WAYS_HEAD = ("", "handler per record", "whole batches", "micro-batch")
WAYS_ROWS: Sequence[tuple[str, str, Sequence[str]]] = (
    (
        "records/s of one process, exactly once",
        "value",
        ("handler_exactly_once", "count_exactly_once_1s", "microbatch_join"),
    ),
    (
        "CPU a record: µs",
        "cpu_us",
        ("handler_exactly_once", "count_exactly_once_1s", "microbatch_join"),
    ),
    (
        "resident memory at full speed: MB",
        "rss_mb",
        ("handler_exactly_once", "count_exactly_once_1s", "microbatch_join"),
    ),
    ("resident memory at 10,000 records/s: MB", "value", ("", "memory_10k", "microbatch_memory")),
    (
        "from an event to what comes of it, 99th percentile: ms",
        "value",
        ("", "latency_p99", "microbatch_latency_p99"),
    ),
    ("a successor at work, its rows not at hand: s", "value", ("failover_cold", "", "microbatch_restart")),
    ("the same with a warm copy: s", "value", ("failover_warm", "", "")),
)
"""What is said of the three ways, the attribute of a figure, and the rows."""
Published = Mapping[str, Sequence[Line]]


def publish() -> None:
    """Take over the last full run and the last one with peers, and write the tables anew."""
    published = dict(results.read_published())
    for kind in KINDS:
        if lines := results.last_run(results.LINES, kind):
            published[kind] = lines
    results.write_published(published)
    for page, sections in pages(published).items():
        page.write_text(with_sections(page.read_text(), sections))


def pages(published: Published) -> dict[Path, dict[str, str]]:
    """What stands in each page, by the name of its section."""
    return {
        README: {"summary": summary(published)},
        PAGE: {
            "where": where(published),
            "goals": goals(published),
            "figures": table(published.get("full", ())),
            "peers": table(published.get("peers", ())),
        },
        WAYS: {"ways": ways(published)},
    }


def with_sections(text: str, sections: Mapping[str, str]) -> str:
    """The text with what stands between `<!-- bench: name -->` and `<!-- end -->` replaced.

    Raises:
        ValueError: the text has no such section.
    """
    for name, content in sections.items():
        pattern = re.compile(rf"(<!-- bench: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"there is no section {name!r}: write <!-- bench: {name} --> and <!-- end -->")
        text = pattern.sub(lambda found, new=content: f"{found[1]}{new}\n{found[2]}", text)  # type: ignore[misc] # mypy cannot infer a lambda with a default
    return text


def summary(published: Published) -> str:
    """The goals that a reader of the README asks about."""
    chosen = [goal for row in README_GOALS for goal in read_goals() if goal.row == row]
    rows = [row[:4] for row in _judged(chosen, published) if row[1]]
    return (
        markdown(GOALS_HEAD[:4], rows) if rows else "No figures are published yet: `make bench` makes some."
    )


def goals(published: Published) -> str:
    """All goals."""
    return markdown(GOALS_HEAD, _judged(read_goals(), published))


def table(lines: Sequence[Line]) -> str:
    """All rows of a run."""
    rows = figure_rows(results.figures_of(lines))
    return markdown(FIGURES_HEAD, rows) if rows else "None are published yet."


def ways(published: Published) -> str:
    """The three ways to write a processor beside each other, as far as they were measured."""
    figures = by_name(results.figures_of(published.get("full", ())))
    rows: Rows = [
        (label, *(number(getattr(figures.get(row), attribute, None)) for row in names))
        for label, attribute, names in WAYS_ROWS
    ]
    return markdown(WAYS_HEAD, rows)


def where(published: Published) -> str:
    """The machine, and when."""
    said = []
    for kind in KINDS:
        for line in published.get(kind, ())[:1]:
            machine = line["machine"]
            said.append(
                f"- {kind}: {line['time']}, commit {line['commit']}, Python {line['python']}, {machine['cores']} cores "
                f"({machine['cpu']}), {machine['memory_gb']} GB, {machine['system']}, load before {machine['load']}"
            )
    return "\n".join(said) or "Nothing is published yet."


def _judged(chosen: Sequence[Goal], published: Published) -> Rows:
    """Each goal with the figures of one run: those about other libraries with the run that measured them."""
    runs = {kind: by_name(results.figures_of(published.get(kind, ()))) for kind in KINDS}
    return [
        row
        for goal in chosen
        for row in goal_rows([goal], runs["peers" if (goal.of or "").startswith("peer_") else "full"])
    ]
