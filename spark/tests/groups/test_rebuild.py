import re
import signal
from typing import Any

import pytest
from confluent_kafka import KafkaException
from spark.tests.groups.jobs import Jobs, source

from contracts.records import USER_STATUS, USER_STATUS_UPDATE, UserStatusUpdate
from streamtable import Avro
from streamtable.base.partitioner import partition_for

pytestmark = pytest.mark.timeout(600)


@pytest.mark.slow("two processors, a rebuild and two audits while clicks arrive")
def test_a_processor_goes_on_from_a_rebuilt_table_and_counts_every_click_once(jobs: Jobs, stage: Any) -> None:
    """Clicks arrive all the time; some are aborted or unreadable; a letter was sent again."""
    stage.clicks(300)
    stage.clicks(50, committed=False)
    key = next(user for user in map(b"user-%d".__mod__, range(40)) if partition_for(user, 3) == 1)
    unreadable: list[Any] = []
    stage.produce(
        "user-clicks", key, b"no click", 1, on_delivery=lambda _, message: unreadable.append(message.offset())
    )
    stage.produce("user-clicks", b"user-2", None)
    stage.produce("user-clicks", b"\xff", stage.click()[1])
    stage.produce("user-clicks", None, stage.click()[1])
    old = stage.processor("click-count")
    stage.wait(lambda: stage.table("click-count") == stage.truth)
    # A letter of a record that could not be decoded, sent again with a value that can.
    headers = {
        "origin-topic": b"user-clicks",
        "origin-partition": b"1",
        "origin-offset": b"%d" % unreadable[0],
        "attempt": b"1",
    }
    stage.produce(
        "click-count-retry",
        key,
        stage.click()[1],
        1,
        headers={f"streamtable-{name}": value for name, value in headers.items()},
    )
    stage.truth[key] += 1
    stage.wait(lambda: stage.table("click-count") == stage.truth)
    # The table can be right before the last record that cannot be read is among the dead letters.
    stage.wait_handled("click-count", "user-clicks", "click-count-retry")
    stage.group("click-count-v2")

    with stage.arriving():
        done = jobs.rebuild("click-count-v2")
        rebuilt = stage.table("click-count-v2")
        new = stage.processor("click-count-v2")
        stage.clicks(100)
    stage.wait(lambda: stage.table("click-count-v2") == stage.truth)
    assert sum(rebuilt.values()) == done.counts["events"] >= 301
    assert done.counts["unfit"] == 0, "all that cannot be read is in the dead letters"
    assert stage.records("click-count-v2-dead-letters") == []
    for partition, user, _ in stage.records("click-count-v2-table"):
        assert partition == partition_for(user, 3), "views look for a key in one partition only"
    # The replayed letter was sent to the old group: it is part of the new group's audit only through the manifest.
    for earlier, differing in ((done, []), (None, [key.decode()])):
        found = jobs.audit(source("click-count-v2", "click-count"), earlier=earlier)
        assert [each.key for each in found.keys] == differing
    for process in (old, new):
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(60) == 0


def test_what_a_late_task_of_an_earlier_run_has_begun_is_neither_seen_nor_can_it_be_committed(
    jobs: Jobs, stage: Any
) -> None:
    stage.clicks(50)
    stage.group("v2")
    late = stage.producer(
        {"transactional.id": "streamtable-rebuild-v2-table-0", "transaction.timeout.ms": 300_000}
    )
    late.init_transactions(60)
    late.begin_transaction()
    late.produce("v2-table", Avro("long").encode(999), b"stale", 0)
    late.flush(60)
    jobs.rebuild("v2", replace=True)
    with pytest.raises(KafkaException):
        late.commit_transaction(60)
    assert stage.table("v2") == stage.truth


def test_replacing_a_table_deletes_keys_that_vanish_and_leaves_equal_rows_alone(
    jobs: Jobs, stage: Any
) -> None:
    stage.clicks(100)
    stage.group("v2")
    same, users = Avro("long"), iter(stage.truth.items())
    user, count = next(users)
    stage.produce("v2-table", user, same.encode(count), partition_for(user, 3))
    wrong, count = next(users)
    stage.produce("v2-table", wrong, same.encode(count + 1), partition_for(wrong, 3))
    stage.produce("v2-table", b"alien", same.encode(1), 2)
    jobs.rebuild("v2", replace=True)
    assert stage.table("v2") == stage.truth
    records = stage.records("v2-table")
    assert (2, b"alien", None) in records
    assert len([key for _, key, _ in records if key == user]) == 1
    assert len([key for _, key, _ in records if key == wrong]) == 2


@pytest.mark.faults_long("three processors and a rebuild; test_golden.py audits the same join")
def test_a_group_that_joins_a_table_goes_on_from_its_rebuilt_rows(jobs: Jobs, stage: Any) -> None:
    updates, statuses = Avro(USER_STATUS_UPDATE), Avro(USER_STATUS)

    def say(user: str, status: str, at: int) -> None:
        update = UserStatusUpdate(id=f"{status}-{at}", user_id=user, status=status, at=at)
        place = partition_for(user.encode(), 3)
        stage.produce("user-status-updates", user.encode(), updates.encode(update), place)

    stage.create("user-status-updates", "user-status-changes")
    stage.group("user-status")
    stage.group("user-status-v2")
    stage.clicks(60)
    stage.processor("click-count")
    stage.wait(lambda: stage.table("click-count") == stage.truth)
    users = sorted(user.decode() for user in stage.truth)
    for user in users:
        say(user, "late", 5)
        say(user, "early", 2)
    stage.clicks(40)
    stage.wait(lambda: stage.table("click-count") == stage.truth)
    jobs.rebuild("user-status-v2", of=source("user-status"))
    rebuilt = stage.table("user-status-v2", statuses)
    assert {key.decode(): row["status"] for key, row in rebuilt.items()} == dict.fromkeys(users, "late")
    assert sum(row["clicks"] for row in rebuilt.values()) == 60, "clicks before the updates"
    stage.processor("user-status-v2", "user_status")
    say(users[0], "new", 9)
    say(users[1], "too early", 4)
    say(users[2], "new", 9)
    expected = {
        **{key: row["status"] for key, row in rebuilt.items()},
        **{users[n].encode(): "new" for n in (0, 2)},
    }

    def there() -> dict[bytes, str]:
        return {key: row["status"] for key, row in stage.table("user-status-v2", statuses).items()}

    stage.wait(lambda: there() == expected)
    row = stage.table("user-status-v2", statuses)[users[0].encode()]
    assert row["clicks"] == stage.truth[users[0].encode()], "joined with the table as it is now"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--until", "tomorrow"], "neither 'now' nor JSON"),
        (
            ["--until", '{"user-clicks": {"0": 0, "1": 0}}'],
            "user-clicks has the partitions 0 to 2, and '2' is missing",
        ),
        (["--until", '{"user-clicks": {"0": 9, "1": 0, "2": 0}}'], "user-clicks[0] is requested up to 9"),
        (["--until", '{"clicks": {"0": 1}}'], "'clicks' is no input of the group"),
        (["--until", '{"user-clicks": {"0": -1, "1": 0, "2": 0}}'], "user-clicks[0]: -1: Input should be"),
        (["--topic", "user-clicks=elsewhere"], "has no topic 'elsewhere'"),
        (
            ["--scenario", "user-status"],
            "has no topic 'user-status-updates', 'click-count-table-that-is-absent'",
        ),
    ],
)
def test_wrong_arguments_are_refused_in_one_line_before_anything_is_done(
    jobs: Jobs, stage: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    stage.group("v2")
    if "user-status" in arguments:
        arguments = [*arguments, "--topic", "click-count-table=click-count-table-that-is-absent"]
    assert jobs.refused("v2", *arguments) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last
    assert not jobs.manifest("v2").exists()


def test_a_table_that_is_in_use_is_refused(
    jobs: Jobs, stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        return capsys.readouterr().err.splitlines()[-1]

    assert jobs.refused("v2") == 2
    assert re.search("has no topic 'v2-table', 'v2-retry': correct --group", said())
    stage.group("v2")
    stage.produce("v2-table", b"k", Avro("long").encode(1))
    assert jobs.refused("v2") == 2
    assert "v2-table[0] is not empty (it ends at 1)" in said()
    with stage.member("v2") as join:
        join()
        assert jobs.refused("v2", "--replace") == 2
    assert "group 'v2' has 1 live member (other-client on" in said()
    stage.group("v3")
    stage.clicks(10)
    stage.commit("v3", "user-clicks")
    assert jobs.refused("v3") == 2
    assert "group 'v3' has committed offsets already" in said()
