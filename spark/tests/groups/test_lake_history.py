from io import StringIO
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.tests.groups.jobs import Jobs, source

from streamtable_spark.demo import LAKE
from streamtable_spark.errors import ConfigurationError, InputLost
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.etl import STAGES, Etl, Settings
from streamtable_spark.jobs.lake_history import divided
from streamtable_spark.jobs.positions import Span
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.topics import Contents, topics_of

pytestmark = pytest.mark.timeout(600)


def fill(spark: SparkSession, stage: Any, lake: str, *topics: str, allow: bool = False) -> None:
    """Fill a lake with the records of these topics, by default of the clicks."""
    contents = Contents(topics_of(list(topics) or ["user-clicks"], LAKE.topics))
    etl = Settings(stage.servers, lake, contents, format="parquet", allow_missing=allow)
    Etl(spark, etl, Progress(STAGES, StringIO(), lambda: 0.0)).run("lake")


def test_a_table_has_the_clicks_of_the_lake_that_kafka_has_no_longer_and_those_behind_them(
    spark: SparkSession, jobs: Jobs, stage: Any
) -> None:
    lake = str(stage.folder / "lake")
    stage.clicks(50)
    with Cluster(stage.servers) as cluster:
        in_lake = cluster.ends({"user-clicks": 3})["user-clicks"]
        cluster.wait_stable("user-clicks", in_lake, 60)
    fill(spark, stage, lake)
    stage.clicks(20)
    stage.delete_records("user-clicks", in_lake)
    stage.group("v2")
    jobs.rebuild("v2", lake=lake)
    assert stage.table("v2") == stage.truth


def settled(stage: Any) -> None:
    """Wait until readers see all clicks that were sent: the broker shows the end of a transaction a moment after it."""
    with Cluster(stage.servers) as cluster:
        cluster.wait_stable("user-clicks", cluster.ends({"user-clicks": 3})["user-clicks"], 60)


def test_a_lake_that_was_filled_in_spite_of_missing_records_has_no_whole_history(
    spark: SparkSession, jobs: Jobs, stage: Any
) -> None:
    lake = str(stage.folder / "lake")
    stage.clicks(20)
    settled(stage)
    fill(spark, stage, lake)
    stage.clicks(20)
    settled(stage)
    stage.delete_records("user-clicks")
    for _ in range(2):
        stage.clicks(20)
        settled(stage)
        fill(spark, stage, lake, allow=True)
    stage.group("v2")
    with pytest.raises(
        InputLost, match=r"user-clicks\[0\]: the ETL has continued without offsets \d+ to \d+, which are gone"
    ):
        jobs.rebuild("v2", lake=lake)
    done = jobs.rebuild("v2", lake=lake, allow_missing=True)
    assert done.counts["events"] == 60


@pytest.mark.parametrize(
    ("needed", "lake", "start", "parts"),
    [
        ((0, 9), (0, 5), 3, ((0, 5), (5, 9))),
        ((0, 9), (0, 5), 7, ((0, 5), (7, 9))),  # 5 and 6 are gone
        ((0, 9), (2, 5), 3, ((2, 5), (5, 9))),  # 0 and 1 are gone
        ((0, 9), (2, 5), 0, ((0, 0), (0, 9))),
        ((0, 9), (3, 5), 2, ((0, 0), (2, 9))),
        ((0, 9), (0, 12), 20, ((0, 9), (9, 9))),
        ((4, 9), (0, 3), 2, ((4, 4), (4, 9))),
        ((4, 9), (0, 7), 5, ((4, 7), (7, 9))),
        ((0, 0), (0, 5), 3, ((0, 0), (0, 0))),
        ((0, 9), (0, 0), 3, ((0, 0), (3, 9))),
    ],
)
def test_offsets_come_from_the_lake_where_it_has_them_and_else_from_kafka(
    needed: tuple[int, int], lake: tuple[int, int], start: int, parts: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    assert divided(Span(*needed), Span(*lake), start) == (Span(*parts[0]), Span(*parts[1]))


def test_a_table_has_the_records_of_a_topic_that_the_lake_got_later(
    spark: SparkSession, jobs: Jobs, stage: Any
) -> None:
    lake = str(stage.folder / "lake")
    stage.create("user-status-updates")
    stage.produce("user-status-updates", b"user-1", b"no update")
    fill(spark, stage, lake, "user-status-updates")
    stage.clicks(50)
    with Cluster(stage.servers) as cluster:
        in_lake = cluster.ends({"user-clicks": 3})["user-clicks"]
        cluster.wait_stable("user-clicks", in_lake, 60)
    fill(spark, stage, lake, "user-status-updates", "user-clicks")
    stage.delete_records("user-clicks", in_lake)
    stage.group("v2")
    jobs.rebuild("v2", lake=lake)
    assert stage.table("v2") == stage.truth


def test_a_rebuild_keeps_no_plan_of_a_folder_that_is_no_lake(jobs: Jobs, stage: Any) -> None:
    stage.group("v2")
    (stage.folder / "thesis.txt").write_text("not yours")
    with pytest.raises(ConfigurationError, match="there is no lake at"):
        jobs.rebuild("v2", lake=str(stage.folder))
    assert not jobs.manifest("v2").exists()


def test_a_rebuild_that_was_interrupted_is_not_finished_from_another_lake(jobs: Jobs, stage: Any) -> None:
    def interrupted(step: str) -> None:
        raise InterruptedError(step)

    stage.group("v2")
    with pytest.raises(InterruptedError, match="begun"):
        jobs.rebuild("v2", interrupted)
    with pytest.raises(ConfigurationError, match=r"a rebuild from earliest, not finished: .* without --from"):
        jobs.rebuild("v2", lake=str(stage.folder))


@pytest.mark.faults_long("it fills a lake, rebuilds a table three times, and audits it")
def test_a_table_made_from_the_lake_is_the_one_made_from_the_topics_when_these_had_their_beginning(
    spark: SparkSession, jobs: Jobs, stage: Any
) -> None:
    """The lake has the first clicks, also aborted ones and poison; later ones come from Kafka."""
    lake = str(stage.folder / "lake")
    stage.clicks(100)
    stage.clicks(20, committed=False)
    stage.produce("user-clicks", b"user-1", b"no click")
    with Cluster(stage.servers) as cluster:  # the broker shows the end of a transaction a moment after it
        in_lake = cluster.ends({"user-clicks": 3})["user-clicks"]
        cluster.wait_stable("user-clicks", in_lake, 60)
    fill(spark, stage, lake)
    stage.clicks(50)
    stage.group("v2")
    stage.group("v3")
    from_topics = jobs.rebuild("v2")

    stage.delete_records("user-clicks", in_lake)
    with pytest.raises(InputLost, match=r"user-clicks\[0\] begins at offset \d+: what was before is gone"):
        jobs.rebuild("v3")
    from_lake = jobs.rebuild("v3", lake=lake)
    assert stage.table("v2") == stage.table("v3") == stage.truth
    assert (from_lake.table, from_lake.counts) == (from_topics.table, from_topics.counts)
    assert from_lake.offsets["user-clicks"] == from_topics.offsets["user-clicks"]
    report = jobs.audit(source("v3", "click-count"), lake=lake)
    assert (report.differences, report.events, report.unfit) == (0, 150, 1)

    stage.delete_records("user-clicks")
    with pytest.raises(InputLost, match=r"and the lake has it from 0 up to"):
        jobs.rebuild("v3", lake=lake, replace=True)
