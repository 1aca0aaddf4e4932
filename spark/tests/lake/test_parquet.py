"""Plain Parquet from topics to results, with a crash after every step."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.tests.lake.runs import (
    ENDS,
    Runs,
    assert_gold_is_what_kafka_says,
    assert_reach_is_known,
    assert_the_lake_is_what_kafka_has,
    crash_at,
)
from spark.tests.lake.stage import Stage

from streamtable_spark.demo import LAKE
from streamtable_spark.jobs.etl import STEPS
from streamtable_spark.jobs.topics import topics_of


@pytest.mark.broker
@pytest.mark.faults_long  # a minute: seven runs of the job
@pytest.mark.timeout(900)
def test_a_plain_lake_is_right_after_a_crash_at_every_step(
    spark: SparkSession, stage: Stage, social: list[str], tmp_path: Path
) -> None:
    topics = topics_of([*stage.arguments, *social], LAKE.topics)
    runs = Runs(spark, stage, tmp_path / "lake", topics, format="parquet")
    for step in STEPS:
        stage.send(40)
        with pytest.raises(ENDS):
            runs.run(reached=crash_at(step))
    runs.run()
    assert_the_lake_is_what_kafka_has(runs)
    assert_gold_is_what_kafka_says(runs)
    assert_reach_is_known(runs)
    anybody = spark.read.parquet(f"{runs.folder}/bronze")
    assert anybody.count() == runs.table("bronze").count()
