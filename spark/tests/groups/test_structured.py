from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.structured import Streaming, main

pytestmark = pytest.mark.timeout(600)


def test_a_count_goes_on_from_its_checkpoint_and_each_click_counts_once(
    spark: SparkSession, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.create("spark-table", compacted=True)
    monkeypatch.setattr("streamtable_spark.jobs.job_args.connect", lambda *_: spark)
    arguments = [
        "--bootstrap-servers", stage.servers, "--output", "spark-table", "--metrics-dir", str(stage.folder),
        "--checkpoint", str(stage.folder / "checkpoint"),
    ]  # fmt: skip
    stage.clicks(100)
    stage.clicks(20, committed=False)
    stage.produce("user-clicks", b"user-1", b"no click")
    for read in (101, 50):
        assert ended(main, arguments) == 0
        assert stage.table("spark") == stage.truth
        exported = (stage.folder / "structured.spark.prom").read_text()
        assert f'streamtable_job_records{{group="spark",job_name="structured"}} {read}.0' in exported
        stage.clicks(50)


def test_wrong_arguments_are_refused(stage: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError, match="a number and a unit"):
        Streaming("k:1", "b", "c", every="often")
    arguments = ["--bootstrap-servers", stage.servers, "--checkpoint", "c", "--output", "nowhere"]
    assert ended(main, arguments) == 2
    assert "has no topic 'nowhere'" in capsys.readouterr().err.splitlines()[-1]
