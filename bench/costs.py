"""The cost of a record, from the rows about counting: the measurements behind `streamtable capacity`.

Three costs are fitted to all of these rows: of a record by itself, of a row that a commit writes, of a row that is
loaded because it is not in memory. Their frequencies follow from how a processor reads a full topic: the
client returns runs of one partition, and a commit every 200 ms covers some of them. Then the rates are computed from
the costs again, and compared with those that were measured.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from bench.figures import Figure
from bench.site import FULL
from bench.tables import Rows, markdown, number

from streamtable_cli.estimate import CACHE_BYTES, ROW_IN_MEMORY_BYTES, Measured, changed_rows

CLICK_BYTES = 108
RUN_BYTES = 2 << 20
"""The bytes of one partition in one fetch response (`max.partition.fetch.bytes`)."""
ROW_BYTES = 22
KEPT = 7 / 8
"""The average share of the rows with room in memory that are cached: a quarter is evicted at once when it is full."""
ERROR_MAX = 0.5
"""The maximum relative error of the model: the reason why processes are planned for half of their capacity."""
HEAD = ("row", "measured: records/s", "the model: records/s", "off by")
_ROUNDS = 60
_MOMENTS = 200


@dataclass(frozen=True)
class Point:
    """A row about counting from a full topic.

    Attributes:
        row: The name of the row.
        keys: The number of keys, uniformly distributed.
        partitions: The number of partitions of the topic.
        commit_s: The seconds between commits.
        processes: The number of processes that share the partitions.
    """

    row: str
    keys: int = 100_000
    partitions: int = 4
    commit_s: float = 0.2
    processes: int = 1


POINTS = (
    Point("count_exactly_once"),
    Point("count_exactly_once_1s", commit_s=1.0),
    Point("count_keys_10000", keys=10_000),
    Point("count_keys_100000"),
    Point("count_keys_1000000", keys=1_000_000),
    Point("count_keys_5000000", keys=5_000_000),
    Point("count_partitions_16", partitions=16),
    Point("count_partitions_64", partitions=64),
    Point("count_processes_1", partitions=12),
    Point("count_processes_2", partitions=12, processes=2),
    Point("count_processes_4", partitions=12, processes=4),
)


class Shares(NamedTuple):
    """Return, for each record, how many rows a commit writes and how many are loaded."""

    changed: float
    loaded: float


class Checked(NamedTuple):
    """A measured rate and the model's, in records per second."""

    row: str
    measured: float
    model: float

    @property
    def error(self) -> float:
        """The relative error of the model; 0.1: it is a tenth too high."""
        return self.model / self.measured - 1


def shares(point: Point, rate: float, records: int = FULL.stream) -> Shares:
    """Return the shares at this rate of all processes together, over this many records from an empty table."""
    partitions, keys = point.partitions / point.processes, point.keys / point.partitions
    of_commit = rate / point.processes * point.commit_s
    visited = min(partitions, max(1.0, of_commit * CLICK_BYTES / RUN_BYTES))
    changed = visited * changed_rows(keys, of_commit / visited) / of_commit
    room = KEPT * point.processes * CACHE_BYTES / (ROW_BYTES + ROW_IN_MEMORY_BYTES)
    in_memory = [
        min(changed_rows(point.keys, records * (each + 0.5) / _MOMENTS), room) for each in range(_MOMENTS)
    ]
    return Shares(changed, 1 - sum(in_memory) / _MOMENTS / point.keys)


def measured(figures: Mapping[str, Figure], where: str) -> Measured:
    """Return the costs, from the rows of a full run.

    Raises:
        ValueError: A required row was not measured, or no costs fit.
    """
    points = [each for each in POINTS if each.processes == 1 and _has(figures, each.row)]
    rows, costs, busy = [], [], []
    for point in points:
        rate, cost = _rate(figures, point.row), _cost(figures, point.row)
        # Divided by the cost: relative errors count the same for cheap and expensive records.
        rows.append([1 / cost, *(share / cost for share in shares(point, rate))])
        costs.append(1.0)
        busy.append(rate * cost / 1e6)
    if len(points) <= len(Shares._fields) + 1:
        raise ValueError(f"only {len(points)} rows about counting were measured: run `make bench`")
    fitted, *_ = np.linalg.lstsq(np.array(rows), np.array(costs), rcond=None)
    record_us, row_us, load_us = map(float, fitted)
    if min(record_us, row_us, load_us) <= 0:
        raise ValueError(f"no costs fit: {record_us:.2f}, {row_us:.2f} and {load_us:.2f} µs; measure again")
    live = Point("memory_10k")
    work = _live_cost(live, record_us, row_us, load_us) * 10_000 / 1e6
    started, spent = (
        _number(figures, "first_record", "cpu_seconds"),
        _number(figures, "memory_10k", "cpu_seconds"),
    )
    idle = (spent - started) / FULL.live_seconds - work
    kafka = figures.get("kafka_cpu")
    return Measured(
        record_us=round(record_us, 2),
        row_us=round(row_us, 2),
        load_us=round(load_us, 2),
        call_us=round(
            max(0.0, _cost(figures, "handler_exactly_once") - _cost(figures, "count_exactly_once")), 2
        ),
        idle_cores=round(max(0.0, idle), 3),
        busy_cores=round(sum(busy) / len(busy), 3),
        restore_rows_s=_rate(figures, "restore"),
        kafka_us=None if kafka is None or kafka.value is None else kafka.value,
        where=where,
    )


def checked(figures: Mapping[str, Figure], costs: Measured, cores: int) -> Iterator[Checked]:
    """Return each measured row with the model's rate, for a machine with this many processors."""
    for point in POINTS:
        if _has(figures, point.row):
            yield Checked(point.row, _rate(figures, point.row), rate(point, costs, cores))


def rate(point: Point, costs: Measured, cores: int) -> float:
    """Return the records per second: the limit of the processes, or of the machine that also runs Kafka.

    Shares follow from the rate and the rate from the shares: it is the fixed point of both.
    """
    found = 100_000.0
    for _ in range(_ROUNDS):
        changed, loaded = shares(point, found)
        cost = costs.record_us + changed * costs.row_us + loaded * costs.load_us
        most = point.processes * costs.busy_cores * 1e6 / cost
        if costs.kafka_us is not None:
            most = min(most, cores * 1e6 / (cost + costs.kafka_us))
        found = math.sqrt(found * most)  # halfway, so that it does not oscillate
    return found


def table(found: Sequence[Checked]) -> str:
    """Format the checked costs as a page shows them."""
    rows: Rows = [
        (each.row, number(each.measured), number(each.model), f"{each.error:+.0%}") for each in found
    ]
    return markdown(HEAD, rows) if rows else "None are published yet: run `make bench`."


def _live_cost(point: Point, record_us: float, row_us: float, load_us: float) -> float:
    """The cost of a record at 10,000 a second, for ten seconds."""
    found = shares(point, 10_000, int(10_000 * FULL.live_seconds))
    return record_us + found.changed * row_us + found.loaded * load_us


def _has(figures: Mapping[str, Figure], row: str) -> bool:
    return row in figures and bool(figures[row].value) and figures[row].cpu_us is not None


def _rate(figures: Mapping[str, Figure], row: str) -> float:
    return _number(figures, row, "value")


def _cost(figures: Mapping[str, Figure], row: str) -> float:
    return _number(figures, row, "cpu_us")


def _number(figures: Mapping[str, Figure], row: str, name: str) -> float:
    found = getattr(figures.get(row), name, None)
    if found is None:
        raise ValueError(f"row {row} was not measured: run `make bench`")
    return float(found)
