"""When a lake got what: files say it. Spark writes a batch down before it reads it, and each commit of Delta is a file."""

import json
from pathlib import Path
from typing import Any

from bench.measure import RowFailed


def spent(lake: Path, topic: str) -> tuple[float, float]:
    """Seconds from a batch's plan to its commit in bronze, and from there to that in silver, of all batches together.

    Raises:
        RowFailed: a batch is missing somewhere.
    """
    bronze, silver = committed(lake / "bronze"), committed(lake / "silver" / topic)
    planned = {
        int(file.name): file.stat().st_mtime
        for file in (lake / "checkpoint" / "offsets").iterdir()
        if file.name.isdigit()
    }
    if not planned.keys() == bronze.keys() == silver.keys():
        raise RowFailed(
            f"batches {sorted(planned)} were planned, {sorted(bronze)} are in bronze and {sorted(silver)} in silver"
        )
    return (
        sum(bronze[batch] - planned[batch] for batch in planned),
        sum(silver[batch] - bronze[batch] for batch in planned),
    )


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
