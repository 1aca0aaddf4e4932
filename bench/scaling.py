"""The speed-up of a Spark job with more cores, by Amdahl's law from the same work on one core and on two."""

from collections.abc import Mapping, Sequence

from bench.figures import Figure
from bench.tables import Rows, markdown, number

HEAD = ("count", "1 core", "2 cores", "in parallel", "8 cores", "32 cores", "shuffled for each record")
JOBS = {"from Kafka": "spark_count_kafka", "from silver": "spark_count_silver"}
EXPECTED: Sequence[int] = (8, 32)


def in_parallel(one: float, two: float) -> float:
    """Return the parallel share of the work, 0 to 1, from the rates on one core and on two."""
    return min(1.0, max(0.0, 2 * (1 - one / two)))


def expected(one: float, share: float, cores: int) -> float:
    """Return the rate on this many cores, from the rate on one and the parallel share."""
    return one / (1 - share + share / cores)


def table(figures: Mapping[str, Figure]) -> str:
    """Return the table of measured rates of each count, and the expected rates on larger machines."""
    rows: Rows = []
    for label, row in JOBS.items():
        one, two = (_value(figures, name) for name in (f"{row}_1_core", row))
        if one and two:
            share = in_parallel(one, two)
            shuffled = _value(figures, f"{row}_shuffle")
            more = [number(expected(one, share, cores)) for cores in EXPECTED]
            rows.append((label, number(one), number(two), f"{share:.0%}", *more, f"{number(shuffled)} bytes"))
    return markdown(HEAD, rows) if rows else "None are published yet: run `make bench-spark`."


def _value(figures: Mapping[str, Figure], name: str) -> float | None:
    figure = figures.get(name)
    return figure.value if figure else None
