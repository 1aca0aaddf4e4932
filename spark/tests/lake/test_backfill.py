"""What is refused; that days come out the same is tested with the lake that `test_etl` makes."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs import backfill
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.lake import Lake, Origin, delta_tables

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
    monkeypatch.setattr("streamtable_spark.jobs.backfill.connect", lambda *_: spark)
    days = [*DEMO, "--from", "2026-01-01", "--to", "2026-01-02"]
    assert (
        ended(backfill.work, ["--lake", str(tmp_path), "--metrics-dir", str(tmp_path / "metrics"), *days])
        == 2
    )
    assert "plain parquet tables" in capsys.readouterr().err
    exported = (tmp_path / "metrics/backfill.prom").read_text()
    assert 'streamtable_job_failed{group="",job_name="backfill"} 1.0' in exported
