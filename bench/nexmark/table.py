"""The table of the page about Nexmark: each query, with Kafka Streams and Flink SQL beside it where they were measured."""

from collections.abc import Mapping

from bench.figures import Figure
from bench.nexmark.queries import OUTPUTS
from bench.tables import Rows, markdown, number

HEAD = (
    "query",
    "records/s",
    "Kafka Streams",
    "ratio",
    "Flink SQL",
    "CPU µs per record",
    "Kafka Streams",
    "ratio",
    "Flink SQL",
    "MB",
    "Kafka Streams",
    "Flink SQL",
)


def table(figures: Mapping[str, Figure]) -> str:
    """Return the figures of a run side by side."""
    rows: Rows = [_row(query, figures) for query in OUTPUTS if f"nexmark_q{query}" in figures]
    return markdown(HEAD, rows) if rows else "None are published yet: run `make bench-nexmark`."


def _row(query: int, figures: Mapping[str, Figure]) -> tuple[str, ...]:
    ours, theirs = figures[f"nexmark_q{query}"], figures.get(f"peer_nexmark_q{query}")
    flink = figures.get(f"flink_nexmark_q{query}")
    failed = [each.name for each in (ours, theirs, flink) if each is not None and each.error is not None]
    cells = [f"{query}: {', '.join(failed)} failed" if failed else f"{query}"]
    for attribute in ("value", "cpu_us", "rss_mb"):
        mine = getattr(ours, attribute)
        other = None if theirs is None else getattr(theirs, attribute)
        cells += [number(mine), number(other)]
        if attribute != "rss_mb":
            cells.append(number(mine / other if mine is not None and other else None))
        cells.append(number(None if flink is None else getattr(flink, attribute)))
    return tuple(cells)
