"""The published figures, and the tables made from them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench import costs, results, scaling, stages
from bench.figures import Figure, by_name
from bench.goals import Goal, read_goals
from bench.machine import ROOT
from bench.nexmark import table as nexmark
from bench.results import Line
from bench.tables import FIGURES_HEAD, GOALS_HEAD, Rows, figure_rows, goal_rows, markdown, number

from streamtable_cli import capacity
from streamtable_cli.estimate import Measured, Workload, estimate

README = ROOT / "README.md"
PAGE = ROOT / "docs" / "reference" / "benchmark.md"
CAPACITY = ROOT / "docs" / "operate" / "capacity.md"
MEASURED = ROOT / "libs" / "streamtable_cli" / "src" / "streamtable_cli" / "measured.json"
LOADS = {
    "capacity-demo": Workload(1_000, 100_000, replicas=1),
    "capacity-100k": Workload(100_000, 10_000_000, partitions=24),
    "capacity-100k-changed": Workload(100_000, 10_000_000, partitions=24, standby=True),
    "capacity-10m": Workload(10_000_000, 1_000_000_000, partitions=480),
    "capacity-10m-changed": Workload(
        10_000_000, 1_000_000_000, partitions=480, views=0, retention_h=24, lag_s=300, recovery_s=600
    ),
}
"""The loads that the page about capacity works through; each is a command there."""
SPARK = ROOT / "docs" / "explanation" / "spark.md"
NEXMARK = ROOT / "docs" / "reference" / "nexmark.md"
KINDS = ("full", "peers", "spark")
README_HEAD = (
    "records/s (CPU µs a record)",
    "Streamtable",
    "Kafka Streams",
    "Goka",
    "Quix Streams",
    "a loop by hand",
)
README_ROWS: Sequence[tuple[str, str]] = (
    ("count by key", "count_exactly_once_1s"),
    ("count by key in windows of a minute", "window_count"),
    ("count of sessions by key", "session_count"),
    ("repartition, then count", "repartition_count"),
    ("join of two streams", "stream_join"),
    ("join of two tables", "table_join"),
    ("join of two tables by a foreign key", "foreign_key_join"),
)
"""The rows of the README's table of figures: the titles, and the rows of the run beside other libraries."""
README_PEERS = ("kafka_streams", "goka", "quix_streams")
README_OTHERS: Sequence[tuple[str, str]] = (
    (
        "a handler in Python that is called for each record: {} records/s, exactly once",
        "handler_exactly_once",
    ),
    (
        "99 % of clicks are counted in a view of another process within {} ms, at 1,000 a second",
        "latency_p99",
    ),
    ("a view's get takes {} µs (99 %)", "view_get_p99"),
    ("the first record is processed {} s after the start of the process", "first_record"),
    ("resident memory at 10,000 records/s with 100,000 keys: {} MB", "memory_10k"),
)
"""The list below the table of the README: the texts, and the rows of their figures."""
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
"""The rows of the table of the three ways: title, attribute of a figure, and the benchmark row of each way."""
Published = Mapping[str, Sequence[Line]]


def publish(kinds: Sequence[str] = KINDS) -> None:
    """Publish the last run of each of these kinds, and rewrite the tables."""
    published = dict(results.read_published())
    for kind in kinds:
        if lines := results.last_run(results.LINES, kind):
            published[kind] = lines
    results.write_published(published)
    MEASURED.write_text(measured(published))
    for page, sections in pages(published).items():
        page.write_text(with_sections(page.read_text(), sections))


def pages(published: Published) -> dict[Path, dict[str, str]]:
    """Return the contents of each page, by the name of its section."""
    return {
        README: {"summary": summary(published)},
        PAGE: {
            "where": where(published),
            "goals": goals(published),
            "figures": table(published.get("full", ())),
            "peers": table(published.get("peers", ())),
            "spark": table(published.get("spark", ())),
        },
        CAPACITY: capacities(published),
        SPARK: {
            "stages": stages.table(by_name(results.figures_of(published.get("spark", ())))),
            "scaling": scaling.table(by_name(results.figures_of(published.get("spark", ())))),
        },
        WAYS: {"ways": ways(published)},
        NEXMARK: {
            "where-nexmark": where(published, ["nexmark"]),
            "nexmark": nexmark.table(by_name(results.figures_of(published.get("nexmark", ())))),
        },
    }


def with_sections(text: str, sections: Mapping[str, str]) -> str:
    """Return the text with the contents between `<!-- bench: name -->` and `<!-- end -->` replaced.

    Raises:
        ValueError: The text has no such section.
    """
    for name, content in sections.items():
        pattern = re.compile(rf"(<!-- bench: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"there is no section {name!r}: write <!-- bench: {name} --> and <!-- end -->")
        text = pattern.sub(lambda found, new=content: f"{found[1]}{new}\n{found[2]}", text)  # type: ignore[misc] # mypy cannot infer a lambda with a default
    return text


def summary(published: Published) -> str:
    """Return the README's figures: a table beside other libraries, and a list of the others."""
    beside = by_name(results.figures_of(published.get("peers", ())))
    rows: Rows = [
        (title, *(_rate(beside.get(each)) for each in _beside(row)))
        for title, row in README_ROWS
        if beside.get(row) is not None
    ]
    own = by_name(results.figures_of(published.get("full", ())))
    values = [
        (text, number(found.value)) for text, row in README_OTHERS if (found := own.get(row)) is not None
    ]
    parts = [
        markdown(README_HEAD, rows) if rows else "",
        "\n".join(f"- {text.format(value)}" for text, value in values),
    ]
    return (
        "\n\n".join(filter(None, parts)) or "No figures are published yet: `make bench-publish` makes some."
    )


def _beside(row: str) -> list[str]:
    """Return the rows of all columns of a line of the README: a count by key has no other name with other libraries."""
    plain = row == README_ROWS[0][1]
    peers = [f"peer_{peer}" if plain else f"peer_{peer}_{row}" for peer in README_PEERS]
    return [row, *peers, "plain_loop" if plain else ""]


def _rate(figure: Figure | None) -> str:
    if figure is None or figure.value is None:
        return ""
    return f"{number(figure.value)} ({number(figure.cpu_us)})" if figure.cpu_us else number(figure.value)


def goals(published: Published) -> str:
    """All goals."""
    return markdown(GOALS_HEAD, _judged(read_goals(), published))


def table(lines: Sequence[Line]) -> str:
    """Return the table of all rows of a run."""
    rows = figure_rows(results.figures_of(lines))
    return markdown(FIGURES_HEAD, rows) if rows else "None are published yet."


def ways(published: Published) -> str:
    """Return the table that compares the three ways to write a processor, where they were measured."""
    figures = by_name(results.figures_of(published.get("full", ())))
    rows: Rows = [
        (label, *(number(getattr(figures.get(row), attribute, None)) for row in names))
        for label, attribute, names in WAYS_ROWS
    ]
    return markdown(WAYS_HEAD, rows)


def measured(published: Published) -> str:
    """Return the measurements that `streamtable capacity` uses."""
    return json.dumps(asdict(_measured(published)), indent=1) + "\n"


def capacities(published: Published) -> dict[str, str]:
    """Return the tables of the example loads, and the comparison of the model with the measurements."""
    known = _measured(published)
    sections = {}
    for name, load in LOADS.items():
        found = estimate(load, known)
        tables = (
            (capacity.HEAD, capacity.figures(load, found)),
            (capacity.LIMITS_HEAD, capacity.limits(found)),
        )
        sections[name] = "\n\n".join(markdown(head, rows) for head, rows in tables)
    figures = by_name(results.figures_of(published["full"]))
    cores = published["full"][0]["machine"]["cores"]
    sections["capacity-points"] = costs.table(list(costs.checked(figures, known, cores)))
    return sections


def _measured(published: Published) -> Measured:
    first = published["full"][0]
    at = f"{first['machine']['cores']} cores ({first['machine']['cpu']}), commit {first['commit']}, {first['time']}"
    return costs.measured(by_name(results.figures_of(published["full"])), at)


def where(published: Published, kinds: Sequence[str] = KINDS) -> str:
    """Return the list of the machines and times of the published runs."""
    said = []
    for kind in kinds:
        for line in published.get(kind, ())[:1]:
            machine = line["machine"]
            said.append(
                f"- {kind}: {line['time']}, commit {line['commit']}, Python {line['python']}, {machine['cores']} cores "
                f"({machine['cpu']}), {machine['memory_gb']} GB, {machine['system']}, load before {machine['load']}"
            )
    return "\n".join(said) or "Nothing is published yet."


def _judged(chosen: Sequence[Goal], published: Published) -> Rows:
    """Return the table of goals, each with the figures of one run: goals about other libraries and Spark with their own run."""
    runs = {kind: by_name(results.figures_of(published.get(kind, ()))) for kind in KINDS}
    return [row for goal in chosen for row in goal_rows([goal], runs[_kind(goal)])]


def _kind(goal: Goal) -> str:
    if goal.row.startswith("spark_"):
        return "spark"
    return "peers" if (goal.of or "").startswith("peer_") else "full"
