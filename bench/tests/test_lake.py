import json
import os
from pathlib import Path

import pytest
from bench.lake import Batch, batches, committed, objects
from bench.measure import RowFailed


def wrote(file: Path, at: float, *lines: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(json.dumps(line) for line in lines))
    os.utime(file, (at, at))


def batch(lake: Path, number: int, planned: float, bronze: float, silver: float) -> None:
    read = {"clicks-in-2": {"0": 5 * number + 5, "1": 2}}
    wrote(lake / "checkpoint" / "offsets" / str(number), planned, {"batchWatermarkMs": 0}, read)
    for table, at in (("bronze", bronze), ("silver/clicks", silver)):
        log = lake / table / "_delta_log" / f"{number:020}.json"
        wrote(log, at, {"commitInfo": {}}, {"txn": {"appId": "etl", "version": number}})


def test_the_time_of_each_batch_is_divided_into_that_of_bronze_and_that_of_silver(tmp_path: Path) -> None:
    batch(tmp_path, 0, 100.0, 103.0, 104.5)
    batch(tmp_path, 1, 104.5, 105.5, 107.5)
    assert batches(tmp_path, "clicks", "clicks-in-2") == [Batch(7, 3.0, 1.5), Batch(5, 1.0, 2.0)]


def test_a_commit_that_is_no_batchs_does_not_count(tmp_path: Path) -> None:
    batch(tmp_path, 0, 1.0, 2.0, 3.0)
    wrote(
        tmp_path / "bronze/_delta_log/00000000000000000001.json",
        9.0,
        {"commitInfo": {"operation": "OPTIMIZE"}},
    )
    assert committed(tmp_path / "bronze") == {0: 2.0}


def test_a_batch_that_is_not_in_silver_fails_the_row(tmp_path: Path) -> None:
    batch(tmp_path, 0, 1.0, 2.0, 3.0)
    (tmp_path / "silver/clicks/_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(RowFailed, match=r"\[0\] are in bronze and \[\] in silver"):
        batches(tmp_path, "clicks", "clicks-in-2")


def test_among_other_lines_objects_are_found(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text('a warning\n{"name": "exact"}\n\n{"name": "hll"}\n')
    assert [each["name"] for each in objects(file)] == ["exact", "hll"]
