"""The ETL as a process that is killed with all its children, without any cleanup."""

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from spark.tests.lake.processes import dies, kill, started
from spark.tests.lake.runs import Runs, assert_gold_is_what_kafka_says, assert_the_lake_is_what_kafka_has
from spark.tests.lake.stage import Stage

from streamtable_spark.jobs.job_args import INTERRUPTED

pytestmark = [pytest.mark.faults_long, pytest.mark.timeout(3600)]  # Spark starts again after each kill
KILLS = 10


def arguments(runs: Runs, batch: int, *more: str) -> list[str]:
    topics = [word for name in runs.stage.arguments for word in ("--topics", name)]
    place = ["--bootstrap-servers", runs.stage.servers, "--lake", str(runs.folder)]
    return [*place, "--graph", "streamtable_spark.demo:LAKE", *topics, "--batch", str(batch), *more]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_driver_that_is_killed_between_data_and_checkpoint_or_between_two_tables_repeats_nothing(
    spark: SparkSession, stage: Stage, tmp_path: Path, kind: str
) -> None:
    runs = Runs(spark, stage, tmp_path / "lake", format=kind)
    for step in ("batch written:2", "bronze written:2"):
        stage.send(160)
        dies("etl", step, *arguments(runs, 60, "--format", kind))
    runs.run()
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_kafka_says(runs)


def test_a_driver_that_is_killed_at_random_points_repeats_nothing_and_loses_nothing(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    runs = Runs(spark, stage, tmp_path / "lake")
    killed: list[str] = []
    for seed in range(3 * KILLS):
        random = Random(seed)
        stage.send(160)
        stages, pause = random.randrange(1, 6), random.uniform(0, 1.5)
        with started("-m", "streamtable_spark.jobs.etl", *arguments(runs, 50)) as (child, lines):
            while sum('"stage"' in line for line in lines) < stages and child.poll() is None:
                time.sleep(0.005)
            time.sleep(pause)
            if child.poll() is None:
                kill(child)
                killed.append(f"seed {seed}, {pause:.2f} s after {lines[-1].strip()}")
                print(killed[-1])  # noqa: T201 - so that it can be repeated
        if len(killed) == KILLS:
            break
    assert len(killed) == KILLS
    counts = runs.run()
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_kafka_says(runs)
    print(f"{runs.table('bronze').count()} records in the lake, {counts} of them by the last run")  # noqa: T201 - the same


def test_a_driver_that_is_interrupted_in_a_batch_says_so_and_the_next_run_goes_on(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    runs = Runs(spark, stage, tmp_path / "lake")
    stage.send(160)
    with started("-m", "streamtable_spark.jobs.etl", *arguments(runs, 50)) as (child, lines):
        while not any('"stage"' in line for line in lines):
            assert child.poll() is None, lines
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGINT)
        assert child.wait(120) == INTERRUPTED
    assert [line for line in lines if line.startswith("error: ")] == [
        "error: interrupted; run it again, it goes on where it was\n"
    ]
    runs.run()
    assert_the_lake_is_what_kafka_has(runs)
