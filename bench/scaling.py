"""The speed-up of a Spark job by more cores: Amdahl's law, from the same work on one core and on two."""

from collections.abc import Mapping, Sequence

from bench.figures import Figure
from bench.tables import Rows, markdown, number

HEAD = ("count", "1 core", "2 cores", "in parallel", "8 cores", "32 cores", "shuffled for each record")
JOBS = {"from Kafka": "spark_count_kafka", "from silver": "spark_count_silver"}
EXPECTED: Sequence[int] = (8, 32)


def in_parallel(one: float, two: float) -> float:
    """The share of the work that is divided by the cores, from the rates on one and on two; 0 to 1."""
    return min(1.0, max(0.0, 2 * (1 - one / two)))


def expected(one: float, share: float, cores: int) -> float:
    """The rate on so many cores, if that on one is known and the share that runs in parallel."""
    return one / (1 - share + share / cores)


def table(figures: Mapping[str, Figure]) -> str:
    """Each count with what was measured, and what follows for machines that were not."""
    rows: Rows = []
    for label, row in JOBS.items():
        one, two = (_value(figures, name) for name in (f"{row}_1_core", row))
        if one and two:
            share = in_parallel(one, two)
            shuffled = _value(figures, f"{row}_shuffle")
            more = [number(expected(one, share, cores)) for cores in EXPECTED]
            rows.append((label, number(one), number(two), f"{share:.0%}", *more, f"{number(shuffled)} bytes"))
    return markdown(HEAD, rows) if rows else "None are published yet: `make bench-spark` makes some."


def _value(figures: Mapping[str, Figure], name: str) -> float | None:
    figure = figures.get(name)
    return figure.value if figure else None
