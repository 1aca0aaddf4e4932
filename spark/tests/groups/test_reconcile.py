import json
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamtable import Avro
from streamtable.partitioner import partition_for
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.progress import Progress
from streamtable_spark.jobs.reconcile import STAGES, Wanted, main, reconcile
from streamtable_spark.jobs.report import Report
from streamtable_spark.jobs.running import Source, ended
from streamtable_spark.transforms.tables import TABLES

pytestmark = pytest.mark.timeout(600)


def audit(spark: SparkSession, stage: Any) -> Report:
    with Cluster(stage.servers) as cluster:
        return reconcile(
            lambda: spark,
            cluster,
            Wanted(Source("click-count", TABLES["click-count"], {}), stage.folder / "audit"),
            Progress(STAGES, StringIO(), lambda: 0.0),
            now=lambda: datetime(2026, 3, 1, tzinfo=UTC),
        )


def test_an_audit_of_a_running_group_finds_the_one_row_that_was_planted_and_no_other(
    spark: SparkSession, stage: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With aborted clicks and such that cannot be read in the input. The planted row stands before the cut."""
    stage.clicks(200)
    stage.clicks(30, committed=False)
    stage.produce("user-clicks", b"user-1", b"no click")
    stage.processor("click-count")
    stage.wait(lambda: stage.table("click-count") == stage.truth)
    report = audit(spark, stage)
    assert (report.differences, report.events, report.unfit) == (0, 200, 0)
    assert all(each.expected_digest == each.live_digest for each in report.partitions)
    assert sum(each.live_rows for each in report.partitions) == len(stage.truth)

    user = b"user-7"
    place = partition_for(user, 3)
    stage.produce("click-count-table", user, Avro("long").encode(stage.truth[user] + 5), place)
    # A commit behind it, in its partition, that does not touch it: the cut is beyond the planted record.
    other = next(each for each in stage.truth if each != user and partition_for(each, 3) == place)
    stage.produce("user-clicks", other, stage.click()[1], place)
    stage.truth[other] += 1
    stage.wait(lambda: stage.table("click-count")[other] == stage.truth[other])
    monkeypatch.setattr("streamtable_spark.jobs.reconcile.connect", lambda *_: spark)
    folder = stage.folder / "audit"
    arguments = ["--bootstrap-servers", stage.servers, "--group", "click-count", "--report", str(folder)]
    assert ended(main, arguments) == 1
    said = capsys.readouterr()
    count = stage.truth[user]
    assert f"different: partition {place}, key user-7" in said.out
    assert said.err.splitlines()[-1].startswith('{"state": "done"')
    written = json.loads((folder / "report.json").read_text())
    assert [each["key"] for each in written["keys"]] == ["user-7"]
    assert json.loads(written["keys"][0]["expected"]) == {"value": count}
    assert json.loads(written["keys"][0]["live"]) == {"value": count + 5}
    assert "1 key is not as the inputs say" in (folder / "report.html").read_text()
    assert [bytes(row["key"]) for row in spark.read.parquet(str(folder / "differences")).collect()] == [user]


def test_a_group_that_cannot_be_audited_is_refused_in_one_line(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--bootstrap-servers",
        stage.servers,
        "--group",
        "click-count",
        "--report",
        str(stage.folder / "audit"),
    ]
    assert ended(main, arguments) == 2
    assert "group 'click-count' has no committed offsets" in capsys.readouterr().err.splitlines()[-1]
    assert ended(main, [*arguments[:3], "elsewhere"]) == 2
    assert "what group 'elsewhere' computes is not known" in capsys.readouterr().err.splitlines()[-1]
