from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, OtherLake
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.formats import DeltaTables, ParquetTables
from streamtable_spark.jobs.lake import Lake, Origin, lake_folder


@pytest.mark.parametrize("text", ["/data/lake", "lake", "s3a://bucket/lake", "file:///data/my lake"])
def test_usual_folders_are_taken_as_they_stand(text: str) -> None:
    assert lake_folder(f"{text}/") == text


@pytest.mark.parametrize(
    "text",
    ["", "/", " /lake", "/lake/*", "/lake/{a,b}", "/a/../b", "http://x/lake", "jdbc:x://y", "/a\nb", "/a`b"],
)
def test_folders_that_spark_would_take_for_something_else_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="lake "):
        lake_folder(text)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_batch_that_is_written_twice_is_there_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = str(tmp_path)
    tables = DeltaTables(spark, folder, "one") if kind == "delta" else ParquetTables(spark, folder)
    rows = spark.range(3).withColumns({"day": fn.lit("2026-01-01").cast("date"), "batch": fn.lit(4)})
    for _ in range(2):
        tables.append("silver/clicks", rows, 4)
    assert sorted(row["id"] for row in tables.read("silver/clicks").collect()) == [0, 1, 2]


def test_a_first_batch_that_was_cut_short_is_no_table_yet(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "silver/clicks/batch=0/_temporary/0").mkdir(parents=True)
    assert not ParquetTables(spark, str(tmp_path)).exists("silver/clicks")


def test_upsert_replaces_rows_of_the_same_keys_also_where_a_key_is_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = DeltaTables(spark, str(tmp_path), "one")
    columns = "user string, day date, n int"
    tables.overwrite("gold/x", spark.createDataFrame([("a", None, 1), ("b", None, 1)], columns))
    for _ in range(2):  # as after a crash
        new = spark.createDataFrame([("a", None, 2), ("c", None, 3)], columns)
        tables.upsert("gold/x", new, ("user", "day"), new)
    assert tables.read("gold/x").count() == 3
    found = {row["user"]: row["n"] for row in tables.read("gold/x").collect()}
    assert found == {"a": 2, "b": 1, "c": 3}
    before = spark.read.format("delta").option("versionAsOf", 0).load(tables.path("gold/x"))
    assert before.count() == 2


def test_what_a_lake_is_made_from_is_written_down_and_read_again(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path / "lake"))
    assert lake.origin() is None
    for topics in ({"a": "1"}, {"a": "1", "b": "2"}):
        lake.declare(Origin("x", "delta", topics))
        assert lake.origin() == Origin("x", "delta", topics)


def test_a_folder_with_something_else_in_it_is_no_lake(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("not yours")
    with pytest.raises(OtherLake, match="not empty"):
        Lake(spark, str(tmp_path)).origin()


@pytest.mark.parametrize("name", ["", "thesis.txt", "nothing"])
def test_a_job_that_reads_a_lake_asks_for_one_where_there_is_none(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    (tmp_path / "thesis.txt").write_text("not yours")
    with pytest.raises(ConfigurationError, match=r"there is no lake at .*: name the folder of one"):
        Lake(spark, str(tmp_path / name)).known()


def test_a_run_that_was_killed_while_it_declared_the_lake_is_no_hindrance(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "origin.json.new").write_text('{"lake": "x", "for')
    lake = Lake(spark, str(tmp_path))
    assert lake.origin() is None
    lake.declare(Origin("x", "delta", {}))
    assert lake.origin() == Origin("x", "delta", {})
    assert Files(spark).names(str(tmp_path)) == ["origin.json"]


def test_a_damaged_origin_is_said_to_be_damaged(spark: SparkSession, tmp_path: Path) -> None:
    Files(spark).write(f"{tmp_path}/origin.json", '{"lake": "x", "for')
    with pytest.raises(OtherLake, match="damaged"):
        Lake(spark, str(tmp_path)).origin()
