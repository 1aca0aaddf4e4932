"""Refused backfills, and a first quarantine; `test_etl` compares recomputed days with the ETL's days."""

import io
import time
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from contracts.records import USER_CLICK, UserClick
from streamtable import Avro
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs import backfill
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.lake import BRONZE, QUARANTINE, Lake, Origin, delta_tables
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.silver import silver
from streamtable_spark.jobs.topics import Contents, Result, Topic
from streamtable_spark.transforms import layers
from streamtable_spark.transforms.avro import AvroCodec

DEMO = ["--graph", "streamtable_spark.demo:LAKE"]


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (["--from", "2026-13-01", "--to", "2026-12-31"], "--from '2026-13-01'"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "later than the start"),
        (["--from", "2026-01-01", "--to", "2026-01-01"], "for that one day: --to 2026-01-02"),
        (["--from", "2026-01-01T00:00+02:00", "--to", "2026-01-02"], "in UTC"),
    ],
)
def test_wrong_days_are_refused_before_anything_starts(
    days: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(backfill.work, ["--lake", "/lake", *DEMO, *days]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_a_lake_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no lake"):
        delta_tables(Lake(spark, str(tmp_path / "nothing")))


def test_plain_tables_cannot_be_changed_in_place_and_the_run_is_reported_as_failed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Lake(spark, str(tmp_path)).declare(Origin("x", "parquet", {}))
    monkeypatch.setattr("streamtable_spark.jobs.job_args.connect", lambda *_: spark)
    days = [*DEMO, "--from", "2026-01-01", "--to", "2026-01-02"]
    assert (
        ended(backfill.work, ["--lake", str(tmp_path), "--metrics-dir", str(tmp_path / "metrics"), *days])
        == 2
    )
    assert "plain parquet tables" in capsys.readouterr().err
    exported = (tmp_path / "metrics/backfill.prom").read_text()
    assert 'streamtable_job_failed{group="",job_name="backfill"} 1.0' in exported


CLICKS = Topic("clicks", "c", AvroCodec.released(USER_CLICK), "id")
DAYS = backfill.DateRange(date(2026, 3, 1), date(2026, 3, 2))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A lake whose batch 0 is in bronze and finished: a click, a repeat of it, and what is none."""
    made, at = Lake(spark, str(tmp_path)), datetime(2026, 3, 1, 12, tzinfo=UTC)
    made.declare(Origin("x", "delta", {}))
    (tmp_path / "checkpoint/commits").mkdir(parents=True)
    (tmp_path / "checkpoint/commits/0").write_text("v1\n{}")
    good = Avro(USER_CLICK).encode(UserClick(id="1", user_id="u", url="/", at=1))
    rows = [("c", 0, n, at, b"u", value, None) for n, value in enumerate([good, good, b"x"])]
    columns = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    records = spark.createDataFrame(rows, columns + "headers array<struct<key: string, value: binary>>")
    delta_tables(made).append(BRONZE, layers.bronze(records, 0), 0)
    return made


def recomputed(lake: Lake, contents: Contents) -> dict[str, int]:
    return backfill.backfill(lake, contents, DAYS, Progress(backfill.STAGES, io.StringIO(), time.monotonic))


def test_a_recomputed_result_follows_the_finished_batches_only(lake: Lake) -> None:
    tables = delta_tables(lake)
    results = {"all": Result(("clicks",), lambda silver: silver.groupBy().count())}
    for _ in range(2):
        recomputed(lake, Contents((CLICKS,), results))
        # The ETL was killed in the middle of batch 1.
        rows = tables.read("silver/clicks").withColumn("batch", fn.lit(1).cast("bigint"))
        tables.append("silver/clicks", rows, 1)
    (row,) = tables.read("gold/all").collect()
    assert (row["count"], row["batch"]) == (2, 0)


def test_records_that_cannot_be_read_any_more_come_into_quarantine_where_none_was_before(lake: Lake) -> None:
    tables = delta_tables(lake)
    for _ in range(2):
        found = recomputed(lake, Contents((CLICKS,)))
        assert found == {"clicks": 2, "clicks quarantined": 1}
        found_rows = tables.read("silver/clicks").orderBy("offset").collect()
        assert [(row["offset"], row["repeat"]) for row in found_rows] == [(0, False), (1, True)]
        assert [row["offset"] for row in tables.read(QUARANTINE).collect()] == [2]


def test_a_backfill_of_any_days_marks_the_repeats_that_the_etl_has_marked(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, str(tmp_path))
    lake.declare(Origin("x", "delta", {}))
    (tmp_path / "checkpoint/commits").mkdir(parents=True)
    tables = delta_tables(lake)
    encode = Avro(USER_CLICK).encode
    # Of each batch the days of an event, by its id: later batches have earlier days, and a day beyond the horizon of seven.
    batches = [
        [(5, "late"), (1, "far"), (1, "same"), (9, "same")],
        [(3, "late"), (6, "twice"), (6, "twice")],
        [(20, "far"), (13, "late"), (12, "late")],
    ]
    offset = 0
    for batch, sent in enumerate(batches):
        rows = []
        for day, name in sent:
            at = datetime(2026, 3, day, 12, tzinfo=UTC)
            value = encode(UserClick(id=name, user_id="u", url="/", at=1))
            rows.append(("c", 0, offset, at, b"u", value, None))
            offset += 1
        columns = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
        records = spark.createDataFrame(rows, columns + "headers array<struct<key: string, value: binary>>")
        raw = layers.bronze(records, batch)
        tables.append(BRONZE, raw, batch)
        earlier = tables.read("silver/clicks") if batch else None
        with ExitStack() as kept:
            tables.append("silver/clicks", silver(CLICKS, raw, earlier, kept), batch)
        (tmp_path / f"checkpoint/commits/{batch}").write_text("v1\n{}")
    expected = {row["offset"]: row["repeat"] for row in tables.read("silver/clicks").collect()}
    assert sorted(offset for offset, repeat in expected.items() if repeat) == [3, 4, 6, 8, 9]
    for first, last in ((3, 3), (5, 5), (1, 20), (9, 9), (12, 13), (20, 20)):
        start = date(2026, 3, 1) + timedelta(first - 1)
        days = backfill.DateRange(start, start + timedelta(last - first + 1))
        progress = Progress(backfill.STAGES, io.StringIO(), time.monotonic)
        backfill.backfill(lake, Contents((CLICKS,)), days, progress)
        found = {row["offset"]: row["repeat"] for row in tables.read("silver/clicks").collect()}
        assert found == expected, days
