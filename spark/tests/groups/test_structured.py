from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.running import ended
from streamtable_spark.jobs.structured import Streaming, main, start

pytestmark = pytest.mark.timeout(600)


def test_a_count_goes_on_from_its_checkpoint_and_each_click_counts_once(
    spark: SparkSession, stage: Any
) -> None:
    stage.create("spark-table", compacted=True)
    streaming = Streaming(stage.servers, "user-clicks", "spark-table", str(stage.folder / "checkpoint"))
    stage.clicks(100)
    stage.clicks(20, committed=False)
    stage.produce("user-clicks", b"user-1", b"no click")
    for _ in range(2):
        query = start(spark, streaming)
        assert query.awaitTermination(300)
        assert stage.table("spark") == stage.truth
        stage.clicks(50)


def test_wrong_arguments_are_refused(stage: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError, match="a number and a unit"):
        Streaming("k:1", "a", "b", "c", every="often")
    arguments = ["--bootstrap-servers", stage.servers, "--checkpoint", "c", "--output", "nowhere"]
    assert ended(main, arguments) == 2
    assert "has no topic 'nowhere'" in capsys.readouterr().err.splitlines()[-1]
