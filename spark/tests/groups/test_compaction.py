"""Topics with offsets whose records compaction has removed."""

import time
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from spark.tests.groups.jobs import Jobs, source

from contracts.records import USER_STATUS, USER_STATUS_UPDATE, UserStatusUpdate
from streamtable import Avro
from streamtable.base.partitioner import partition_for
from streamtable_spark.errors import InputLost
from streamtable_spark.jobs.cluster import Cluster

pytestmark = pytest.mark.timeout(600)
AT_ONCE: Final = {
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "100",
    "min_compaction_lag_ms": "0",
}
UPDATES, STATUSES = Avro(USER_STATUS_UPDATE), Avro(USER_STATUS)


def test_what_compaction_takes_from_under_an_audit_is_no_difference_and_what_is_missing_is_one(
    jobs: Jobs, stage: Any
) -> None:
    """Between the cut and the reading all but two keys change again, and their rows of the cut are removed."""
    hot = source(stage.group("hot", **AT_ONCE), "click-count")
    users = [f"user-{number}" for number in range(30)]
    stage.clicks(users=[*users, "quiet", "wiped"])
    stage.processor("hot")
    stage.wait_handled("hot", "user-clicks")
    stage.produce("hot-table", b"wiped", None, partition_for(b"wiped", 3))
    stage.clicks(users=users)  # behind it, in all partitions
    stage.wait_handled("hot", "user-clicks")

    def overwrite() -> SparkSession:
        with Cluster(stage.servers) as cluster:
            cut = cluster.ends({"hot-table": 3})["hot-table"]

        def gone() -> bool:
            stage.clicks(users=users)  # the last segment is not compacted: keep it rolling
            stage.wait_handled("hot", "user-clicks")
            left = {key for place, offset, key in stage.offsets("hot-table") if offset < cut[place]}
            return left <= {b"quiet", b"wiped"}

        with stage.compacting():
            stage.wait(gone)
        return jobs.spark

    report = jobs.audit(hot, session=overwrite)
    found = {each.key: each.difference for each in report.keys}
    assert found == {"wiped": "missing", **dict.fromkeys(users, "overwritten")}
    assert (report.differences, report.overwritten) == (1, 30)
    assert report.keys[0].key == "wiped", "differences come first"


@pytest.mark.faults_long  # more than a minute
def test_compacted_inputs_are_refused_and_read_over_their_holes_when_that_is_accepted(
    jobs: Jobs, stage: Any
) -> None:
    """The inputs have aborted updates, also at their ends."""
    stage.create("user-status-updates", compacted=True, **AT_ONCE)
    stage.create("user-status-changes")
    stage.group("user-status")
    stage.group("user-status-v2")
    sent = 0

    def say(*, committed: bool = True) -> None:
        nonlocal sent
        sent += 1
        with stage.transaction(committed=committed) as producer:
            for number in range(12):
                user = f"user-{number}"
                update = UserStatusUpdate(id=str(sent), user_id=user, status=f"status {sent}", at=sent)
                producer.produce("user-status-updates", UPDATES.encode(update), user)

    def holes() -> bool:
        say()
        time.sleep(0.1)  # as old as a segment has to be for the next record to close it
        return len(stage.records("user-status-updates")) < 12 * sent - 12

    stage.processor("user-status", "user_status")
    with stage.compacting():
        stage.wait(holes)
    say(committed=False)
    stage.wait_handled("user-status", "user-status-updates")
    statuses = source("user-status")
    for refused in (lambda: jobs.rebuild("user-status-v2", of=statuses), lambda: jobs.audit(statuses)):
        with pytest.raises(InputLost, match="user-status-updates is compacted: of events with the same key"):
            refused()
    assert jobs.audit(statuses, allow_missing=True).differences == 0
    done = jobs.rebuild("user-status-v2", of=statuses, allow_missing=True)
    assert done.counts["events"] < 12 * sent - 12
    live, rebuilt = (stage.table(group, STATUSES) for group in ("user-status", "user-status-v2"))
    assert live == rebuilt
    assert {row["status"] for row in rebuilt.values()} == {f"status {sent - 1}"}
