"""A lake from a real Kafka. The tests build on each other: one lake grows from test to test."""

import io
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark.tests.lake.stage import Stage

from click_count.topics import USER_CLICKS, by_record
from streamtable_spark.jobs import backfill, etl
from streamtable_spark.jobs.days import Days
from streamtable_spark.jobs.lake import Lake
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.running import ended
from streamtable_spark.jobs.topics import topics_of
from streamtable_spark.transforms import clicks
from streamtable_testing import Tester

Rows = list[dict[str, Any]]


class Runs:
    """Runs of the job on one lake."""

    def __init__(self, spark: SparkSession, stage: Stage, folder: Path) -> None:
        self.spark, self.stage, self.folder = spark, stage, folder

    def run(self, *, batch: int = 400, format: str = "delta", allow: bool = False) -> dict[str, int]:  # noqa: A002 - as the setting
        settings = etl.Settings(
            self.stage.servers,
            str(self.folder),
            topics_of(self.stage.arguments),
            format=format,
            records_max=batch,
            allow_missing=allow,
        )
        progress = Progress(etl.STAGES, io.StringIO(), time.monotonic)
        return etl.Etl(self.spark, settings, progress).run("lake")

    def table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(f"{self.folder}/{name}")

    def rows(self, name: str, *columns: str) -> Rows:
        return [row.asDict(recursive=True) for row in self.table(name).select(*columns).collect()]


@pytest.fixture(scope="module")
def runs(spark: SparkSession, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """After a first run over what was sent, in several batches."""
    stage.send(800)
    made = Runs(spark, stage, tmp_path_factory.mktemp("etl") / "lake")
    counts = made.run()
    assert counts["batches"] > 1
    return made


def assert_the_lake_is_what_kafka_has(runs: Runs) -> None:
    """Each committed record in bronze once; each of them either in silver or in quarantine."""
    stage = runs.stage
    raw = runs.rows("bronze", "topic", "partition", "offset", "key", "value")
    for topic in (stage.clicks, stage.updates):
        found = [
            ((row["partition"], row["offset"]), (_bytes(row["key"]), _bytes(row["value"])))
            for row in raw
            if row["topic"] == topic
        ]
        assert len(found) == len(dict(found))
        assert dict(found) == stage.committed(topic)
    good = [
        (row["partition"], row["offset"]) for row in runs.rows("silver/user-clicks", "partition", "offset")
    ]
    assert len(good) == len(set(good))
    assert set(good) == set(stage.readable(stage.clicks))
    bad = [(row["partition"], row["offset"]) for row in runs.rows("quarantine", "partition", "offset")]
    assert len(bad) == len(set(bad))
    assert {*good, *bad} == set(stage.committed(stage.clicks))
    assert not {*good}.intersection(bad)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def assert_gold_is_what_silver_says(runs: Runs) -> None:
    seen = {event["id"]: event for event in runs.stage.readable(runs.stage.clicks).values()}
    expected = Counter(
        (event["user_id"], datetime.fromtimestamp(event["at"] / 1000, UTC).date()) for event in seen.values()
    )
    rows = runs.rows("gold/clicks_per_day", "user_id", "day", "clicks")
    assert {(row["user_id"], row["day"]): row["clicks"] for row in rows} == expected
    assert len(rows) == len(expected)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--lake", "/lake/*"], "taken for a pattern"),
        (["--lake", ""], "a folder is needed"),
        (["--lake", "/lake", "--topic", "clicks"], "--topic 'clicks'"),
        (["--lake", "/lake", "--batch", "0"], "--batch 0"),
        (["--lake", "/lake", "--memory", "1"], "memory '1'"),
        (["--lake", "/lake", "--cores", "0"], "0 cores"),
    ],
)
def test_a_wrong_argument_ends_the_job_with_one_line_that_names_it(
    wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(etl.work, ["--bootstrap-servers", "127.0.0.1:1", *wrong]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert said in line


@pytest.mark.broker
def test_the_lake_has_every_committed_record_once_and_none_of_an_aborted_transaction(runs: Runs) -> None:
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_silver_says(runs)
    reasons = {row["reason"] for row in runs.rows("quarantine", "reason")}
    assert {"no value", "no key", "the key is not UTF-8"} <= reasons


@pytest.mark.broker
def test_the_table_of_the_stream_is_the_table_of_the_batch_for_the_same_records(runs: Runs) -> None:
    group = by_record("click-count")
    batch = {
        row["user_id"]: row["clicks"] for row in clicks.per_user(runs.table("silver/user-clicks")).collect()
    }
    with Tester() as tester:
        tester.run(group)
        for key, value in runs.stage.committed(runs.stage.clicks).values():
            tester.emit_raw(USER_CLICKS.name, key, value)
        tester.commit()
        assert dict(tester.table(group)) == batch


@pytest.mark.broker
def test_a_run_without_new_records_changes_nothing(runs: Runs) -> None:
    before = runs.table("bronze").count()
    assert runs.run().get("user-clicks", 0) == 0
    assert runs.table("bronze").count() == before


@pytest.mark.broker
def test_the_next_run_takes_what_came_since_and_results_follow(runs: Runs) -> None:
    runs.stage.send(240)
    assert runs.run()["user-clicks"] > 0
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_silver_says(runs)


@pytest.mark.broker
def test_days_that_are_made_anew_from_bronze_come_out_the_same(runs: Runs) -> None:
    columns = ("partition", "offset", "key", "event", "repeat")
    before = sorted(map(str, runs.rows("silver/user-clicks", *columns)))
    today = datetime.now(UTC).date()
    backfill.backfill(
        Lake(runs.spark, str(runs.folder)),
        topics_of(runs.stage.arguments),
        Days(today - timedelta(1), today + timedelta(1)),
        Progress(backfill.STAGES, io.StringIO(), time.monotonic),
    )
    assert sorted(map(str, runs.rows("silver/user-clicks", *columns))) == before
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_silver_says(runs)
