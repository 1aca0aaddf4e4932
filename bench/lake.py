"""The times of a lake's batches, from its files: Spark writes a plan before it reads a batch, and each Delta commit is a file."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import RowFailed

BATCHES = 2.5
"""The number of batches of two million clicks in five million."""


class Batch(NamedTuple):
    """The records of a batch, and the seconds from its plan to its commit in bronze, and from there to its commit in silver."""

    records: int
    bronze: float
    silver: float


def batches(lake: Path, name: str, topic: str) -> list[Batch]:
    """Return the batches of a topic with no other writers, in order.

    Args:
        lake: The lake, which was filled from this topic alone.
        name: The name of the topic's table.
        topic: The name of the topic in Kafka.

    Raises:
        RowFailed: A batch is missing in a table.
    """
    bronze, silver = committed(lake / "bronze"), committed(lake / "silver" / name)
    plans = {
        int(file.name): file for file in (lake / "checkpoint" / "offsets").iterdir() if file.name.isdigit()
    }
    if not plans.keys() == bronze.keys() == silver.keys():
        raise RowFailed(
            f"batches {sorted(plans)} were planned, {sorted(bronze)} are in bronze and {sorted(silver)} in silver"
        )
    found, before = [], 0
    for number, plan in sorted(plans.items()):
        end = sum(objects(plan)[-1][topic].values())
        planned = plan.stat().st_mtime
        found.append(Batch(end - before, bronze[number] - planned, silver[number] - bronze[number]))
        before = end
    return found


def committed(table: Path) -> dict[int, float]:
    """Return the commit time of each batch in a Delta table, in seconds since 1970, by the batch's number."""
    found = {}
    for file in (table / "_delta_log").glob("*.json"):
        for line in objects(file):
            if "txn" in line:
                found[int(line["txn"]["version"])] = file.stat().st_mtime
    return found


def objects(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file that are JSON objects."""
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]
