import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.tests.groups.jobs import Jobs

from streamtable import Avro
from streamtable.base.partitioner import partition_for
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.positions import cut_of
from streamtable_spark.jobs.reconcile import main

pytestmark = pytest.mark.timeout(600)
COUNTS = Avro("long")


def plant(stage: Any, *rows: tuple[bytes, int | None]) -> None:
    """Write rows into the live table past its processor, and wait until the group has committed after them."""
    for user, count in rows:
        stage.produce(
            "click-count-table", user, None if count is None else COUNTS.encode(count), partition_for(user, 3)
        )
    inputs = ["user-clicks", "click-count-retry"]
    with Cluster(stage.servers) as cluster:
        planted = cluster.ends({"click-count-table": 3})["click-count-table"]

        def behind() -> bool:
            cut = cut_of("click-count", cluster.committed("click-count", dict.fromkeys(inputs, 3)))
            return all(
                cut.tables["table"][partition_for(user, 3)] >= planted[partition_for(user, 3)]
                for user, _ in rows
            )

        stage.wait(behind)


def test_an_audit_of_a_group_at_work_finds_each_row_that_was_planted_among_2000_and_no_other(
    spark: SparkSession,
    jobs: Jobs,
    stage: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Clicks arrive all the time. Some earlier ones were aborted, and one cannot be read."""
    stage.clicks(200, users=[f"user-{number}" for number in range(2_000)])
    stage.clicks(30, committed=False)
    stage.produce("user-clicks", b"user-1", b"no click")
    stage.processor("click-count")
    stage.wait_handled("click-count", "user-clicks")
    folder = stage.folder / "audit"
    arguments = ["--bootstrap-servers", stage.servers, "--group", "click-count", "--report", str(folder)]
    with stage.arriving():
        report = jobs.audit()
        assert (report.differences, report.keys, report.unfit) == (0, [], 0)
        assert sum(each.live_rows for each in report.partitions) == 2_000
        assert all(each.expected_digest == each.live_digest for each in report.partitions)
        assert report.events >= 2_200

        plant(stage, (b"user-777", 5), (b"user-888", None), (b"nobody", 1))
        monkeypatch.setattr("streamtable_spark.jobs.job_args.connect", lambda *_: spark)
        assert ended(main, arguments) == 1
    said = capsys.readouterr()
    place = partition_for(b"user-777", 3)
    assert (
        f'different: partition {place}, key user-777: expected {{"value":1}}, live {{"value":5}}' in said.out
    )
    assert said.err.splitlines()[-1].startswith('{"state": "done"')
    written = json.loads((folder / "report.json").read_text())
    assert {
        each["key"]: (each["difference"], each["expected"], each["live"]) for each in written["keys"]
    } == {
        "user-777": ("different", '{"value":1}', '{"value":5}'),
        "user-888": ("missing", '{"value":1}', None),
        "nobody": ("extra", None, '{"value":1}'),
    }
    assert "3 keys are not as the inputs say" in (folder / "report.html").read_text()
    differences = spark.read.parquet(str(folder / "differences"))
    assert sorted(bytes(row["key"]) for row in differences.collect()) == [
        b"nobody",
        b"user-777",
        b"user-888",
    ]


@pytest.mark.faults_long
@pytest.mark.timeout(1800)
def test_one_row_in_a_million_that_is_not_as_it_should_be_is_found(jobs: Jobs, stage: Any) -> None:
    for begin in range(0, 1_000_000, 100_000):
        stage.clicks(users=[f"user-{number}" for number in range(begin, begin + 100_000)])
    stage.processor("click-count")
    with Cluster(stage.servers) as cluster:
        table = {"click-count-table": 3}
        stage.wait(lambda: sum(cluster.ends(table)["click-count-table"].values()) >= 1_000_000, 600)
    stage.wait_handled("click-count", "user-clicks")
    with stage.arriving():
        assert jobs.audit().differences == 0
        plant(stage, (b"user-777777", 5))
        report = jobs.audit()
    assert [(each.key, each.difference) for each in report.keys] == [("user-777777", "different")]
    assert sum(each.live_rows for each in report.partitions) == 1_000_000


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
