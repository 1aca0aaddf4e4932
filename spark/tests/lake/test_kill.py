"""The ETL as a process that is killed with all that it has started, so that nobody tidies up behind it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.tests.lake.processes import dies
from spark.tests.lake.runs import Runs, assert_gold_is_what_kafka_says, assert_the_lake_is_what_kafka_has
from spark.tests.lake.stage import Stage

pytestmark = [pytest.mark.faults_long, pytest.mark.timeout(3600)]  # each kill takes a start of Spark


def arguments(runs: Runs, batch: int, *more: str) -> list[str]:
    topics = [word for name in runs.stage.arguments for word in ("--topic", name)]
    place = ["--bootstrap-servers", runs.stage.servers, "--lake", str(runs.folder)]
    return [*place, *topics, "--batch", str(batch), *more]


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
