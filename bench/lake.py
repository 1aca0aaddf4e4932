"""When a lake got what: files say it. Spark writes a batch down before it reads it, and each commit of Delta is a file."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import RowFailed


class Batch(NamedTuple):
    """What a batch had, and the seconds from its plan to its commit in bronze, and from there to that in silver."""

    records: int
    bronze: float
    silver: float


def batches(lake: Path, name: str, topic: str) -> list[Batch]:
    """The batches of a topic that no one else writes to, in their order.

    Args:
        lake: The lake, which was filled from this topic alone.
        name: The name of the topic's table.
        topic: The name of the topic in Kafka.

    Raises:
        RowFailed: a batch is missing somewhere.
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
    """When a Delta table got each batch: seconds since 1970, by the batch's number."""
    found = {}
    for file in (table / "_delta_log").glob("*.json"):
        for line in objects(file):
            if "txn" in line:
                found[int(line["txn"]["version"])] = file.stat().st_mtime
    return found


def objects(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file that are JSON objects."""
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]
