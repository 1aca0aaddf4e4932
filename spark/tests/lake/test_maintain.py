"""Compaction and expiry of small lakes without Kafka; beside the ETL they are tested in `test_etl` and `test_parquet`."""

import io
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from spark.tests.lake.processes import dies, kill, started

from streamtable_spark.demo import LAKE
from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs import etl, maintain
from streamtable_spark.jobs.formats import undisturbed
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.lake import BRONZE, Lake, Origin
from streamtable_spark.jobs.progress import Progress

BATCHES, ROWS = 4, 3
DAY_S = 86_400


class Small:
    """A lake of some small batches."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.lake = Lake(spark, str(folder))

    @property
    def tables(self) -> Any:
        origin = self.lake.origin()
        assert origin is not None
        return self.lake.tables(origin)

    def append(self, batch: int) -> None:
        rows = self.spark.range(batch * ROWS, batch * ROWS + ROWS, numPartitions=1)
        columns = {"day": fn.lit("2026-03-01").cast("date"), "batch": fn.lit(batch).cast("bigint")}
        self.tables.append(BRONZE, rows.withColumns(columns), batch)

    def finish(self, batch: int) -> None:
        """Note a batch as finished, like Spark in its checkpoint."""
        path = self.folder / "checkpoint/commits" / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v1\n{}")

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.tables.read(BRONZE).select("id").collect())

    def maintain(self, **settings: Any) -> dict[str, dict[str, Any]]:
        progress = Progress(maintain.STAGES, io.StringIO(), time.monotonic)
        return maintain.maintain(self.lake, maintain.Settings(**settings), progress)

    def files(self) -> set[str]:
        """All files in the table's folder except Hadoop's checksums."""
        folder = self.folder / BRONZE
        return {
            str(each.relative_to(folder))
            for each in folder.rglob("*")
            if each.is_file() and each.suffix != ".crc"
        }


def template(spark: SparkSession, folder: Path, kind: str) -> Path:
    made = Small(spark, folder)
    made.lake.declare(Origin("one", kind, {}))
    for batch in range(BATCHES):
        made.append(batch)
        made.finish(batch)
    return folder


@pytest.fixture(scope="module")
def delta_template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return template(spark, tmp_path_factory.mktemp("small") / "delta", "delta")


@pytest.fixture
def delta(spark: SparkSession, delta_template: Path, tmp_path: Path) -> Small:
    return Small(spark, shutil.copytree(delta_template, tmp_path / "lake"))


@pytest.fixture(scope="module")
def compacted(spark: SparkSession, delta_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Small:
    """A copy of the Delta lake whose small files were written together."""
    made = Small(spark, shutil.copytree(delta_template, tmp_path_factory.mktemp("small") / "compacted"))
    made.maintain()
    return made


def aged(small: Small, folder: Path, days: int) -> Small:
    """A copy of the lake as if everything had been done there this many days earlier."""
    shutil.copytree(small.folder, folder, ignore=shutil.ignore_patterns("*.crc"))
    for path in folder.rglob("_delta_log/*.json"):
        earlier = re.sub(
            r'"deletionTimestamp":(\d+)',
            lambda found: f'"deletionTimestamp":{int(found[1]) - days * DAY_S * 1000}',
            path.read_text(),
        )
        path.write_text(earlier)
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - days * DAY_S
        os.utime(path, (then, then))
    return Small(small.spark, folder)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--lake", "/lake", "--keep", "0"], "--keep 0: at least 1 day"),
        (["--lake", "/lake", "--file-mb", "0"], "--file-mb 0"),
        (["--lake", "/lake/*"], "taken for a pattern"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(maintain.work, wrong) == 2
    assert said in capsys.readouterr().err


def test_plain_tables_are_refused_by_compaction_and_in_an_object_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    plain = Small(spark, tmp_path / "lake")
    plain.lake.declare(Origin("one", "parquet", {}))
    with pytest.raises(ConfigurationError, match="plain parquet tables"):
        plain.maintain()
    with pytest.raises(ConfigurationError, match="--format delta"):
        etl.Settings("localhost:9092", "s3a://bucket/lake", LAKE, format="parquet")


def test_a_folder_without_a_lake_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no lake"):
        Small(spark, tmp_path / "nothing").maintain()


def test_small_files_become_one_for_each_day_and_every_row_stays(delta: Small) -> None:
    rows, files, small = delta.ids(), delta.files(), sorted(delta.tables.sizes(BRONZE))
    assert len(small) == BATCHES
    assert delta.maintain(dry_run=True) == {BRONZE: {"compact": small}}
    assert delta.files() == files, "a dry run changes none"
    assert delta.maintain() == {BRONZE: {"compacted": BATCHES, "into": 1}}
    assert len(delta.tables.sizes(BRONZE)) == 1
    assert delta.ids() == rows
    assert delta.maintain() == {}, "there is nothing left to do"
    delta.append(BATCHES - 1)
    assert delta.ids() == rows, "that a batch came is known as before"


def test_only_versions_that_are_older_than_the_days_that_are_kept_would_go(
    compacted: Small, delta: Small, tmp_path: Path
) -> None:
    small = sorted(delta.tables.sizes(BRONZE))
    old = aged(compacted, tmp_path / "old", days=10)
    assert old.maintain(keep_days=11) == {}
    files = old.files()
    assert old.maintain(dry_run=True, keep_days=9) == {BRONZE: {"expire": small}}
    assert old.files() == files, "a dry run changes none"


@pytest.mark.faults_long("four looks at all versions of a table")
def test_versions_are_kept_for_the_days_that_were_asked_for_and_not_longer(
    compacted: Small, delta: Small, tmp_path: Path
) -> None:
    small = sorted(delta.tables.sizes(BRONZE))
    old = aged(compacted, tmp_path / "old", days=10)
    assert old.maintain(keep_days=11) == {}
    earlier = old.spark.read.format("delta").option("versionAsOf", 1).load(f"{old.folder}/{BRONZE}")
    assert earlier.count() == 2 * ROWS
    files = old.files()
    assert old.maintain(dry_run=True, keep_days=9) == {BRONZE: {"expire": small}}
    assert old.files() == files, "a dry run changes none"
    old.append(BATCHES)
    young = set(old.tables.sizes(BRONZE))
    assert old.maintain(keep_days=9)[BRONZE]["expired"] == BATCHES
    assert young < {name for name in old.files() if name.endswith(".parquet")}, "files replaced today stay"
    assert old.ids() == [*range((BATCHES + 1) * ROWS)]
    properties = old.spark.sql(f"SHOW TBLPROPERTIES delta.`{old.folder}/{BRONZE}`").collect()
    kept = {row["key"]: row["value"] for row in properties}
    assert kept["delta.logRetentionDuration"] == "interval 9 days"


def test_what_others_disturb_is_tried_again_some_times_and_other_failures_are_not() -> None:
    waited: list[float] = []
    left = 4

    def disturbed() -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            raise PySparkException("[DELTA_CONCURRENT_DELETE_READ] another writer was quicker")
        return "done"

    assert undisturbed(disturbed, waited.append) == "done"
    assert len(waited) == 4
    left = 5
    with pytest.raises(RetryLater, match="run this again"):
        undisturbed(disturbed, waited.append)

    def broken() -> None:
        raise PySparkException("[DIVIDE_BY_ZERO]")

    with pytest.raises(PySparkException, match="DIVIDE"):
        undisturbed(broken, waited.append)
    assert len(waited) == 8


def job(lake: Small) -> tuple[str, ...]:
    return ("--lake", str(lake.folder), "--cores", "1")


@pytest.mark.faults_long  # three starts of Spark
@pytest.mark.timeout(1200)
def test_a_delta_table_survives_a_power_cut_while_it_is_compacted_and_expired(
    delta: Small, tmp_path: Path
) -> None:
    rows, table = delta.ids(), delta.folder / BRONZE
    before = set(table.rglob("*.parquet"))
    with started("-m", "streamtable_spark.jobs.maintain", *job(delta)) as (child, lines):
        while not set(table.rglob("*.parquet")) - before:
            assert child.poll() is None, lines
            time.sleep(0.002)
        kill(child)
    assert delta.ids() == rows, "while it writes"
    dies("maintain", "compacted:1", *job(delta))
    assert delta.ids() == rows
    old = aged(delta, tmp_path / "old", days=10)
    names = old.maintain(dry_run=True)[BRONZE]["expire"]
    with started("-m", "streamtable_spark.jobs.maintain", *job(old)) as (child, lines):
        while all((old.folder / BRONZE / name).exists() for name in names):
            assert child.poll() is None, lines
            time.sleep(0.002)
        kill(child)
    assert old.ids() == rows, "while it deletes"
    old.maintain()
    assert not [name for name in names if (old.folder / BRONZE / name).exists()]
    assert old.ids() == rows
