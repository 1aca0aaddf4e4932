"""Each test is a way that a table has been lost, doubled or silently reset somewhere; see `tables.recovery`."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.system.bench import Bench, events, until

from localkafka.broker import Broker
from streamtable.base.clock import SystemClock
from streamtable.base.types import Committed, Guarantee, NextOffset, TopicPartition
from streamtable.codec.plain import Long
from streamtable.errors import InputLost, Migrated, OutcomeUnknown, StateLost, TopicMismatch
from streamtable.kafka.transactional import KafkaTransactionalProducer
from streamtable.tables.position import rebuilt

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("guarantee", list(Guarantee))


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def set_offsets(
    bench: Bench, admin: AdminClient, group: str, offsets: Mapping[str, int], metadata: str | None = None
) -> None:
    """Set committed offsets as a tool does. The group must have no members; a closed one is still there for a moment."""
    given: dict[str, Any] = {} if metadata is None else {"metadata": metadata}
    request = ConsumerGroupTopicPartitions(
        group, [Partition(topic, 0, offset, **given) for topic, offset in offsets.items()]
    )
    until(lambda: _succeeds(lambda: admin.alter_consumer_group_offsets([request])), "offsets are set")


def _succeeds(ask: Callable[[], Mapping[Any, Any]]) -> bool:
    try:
        for future in ask().values():
            future.result(10)
    except Exception:  # noqa: BLE001 - the client's many reasons to wait a little
        return False
    return True


def recreate(bench: Bench, admin: AdminClient, topic: str, config: Mapping[str, str]) -> None:
    before = bench.cluster.describe([topic])[topic]
    for future in admin.delete_topics([topic]).values():
        future.result(30)
    until(lambda: not bench.cluster.describe([topic]), "the topic is gone")
    made = type(before)(topic, before.partitions, 1, config)
    until(lambda: _created(bench, made), "the topic is there again")


def _created(bench: Bench, made: Any) -> bool:
    bench.cluster.create_topics([made])
    return made.name in bench.cluster.describe([made.name])


class Interfering:
    """Kafka, but something happens to the outbox's commits.

    Args:
        bench: The bench that provides Kafka.
        commit: called instead of the outbox's `commit`, with the outbox, its number, and the timeout.
    """

    def __init__(
        self, bench: Bench, commit: Callable[[KafkaTransactionalProducer, int, float], None]
    ) -> None:
        self._kafka = bench.kafka
        self._commit = commit
        self.outboxes = 0
        self.commits = 0

    def transactional_producer(
        self, transactional_id: str | None, batch_bytes: int = 1_000_000, transaction_seconds: float = 10.0
    ) -> KafkaTransactionalProducer:
        self.outboxes += 1
        outbox = self._kafka.transactional_producer(transactional_id, batch_bytes, transaction_seconds)
        commit = outbox.commit

        def interfered(timeout: float) -> None:
            self.commits += 1
            outbox.commit = commit  # type: ignore[method-assign] # the real one, for other callers in between
            try:
                self._commit(outbox, self.commits, timeout)
            finally:
                outbox.commit = interfered  # type: ignore[method-assign]

        outbox.commit = interfered  # type: ignore[method-assign]
        return outbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)


class Crash(Exception):
    """Ends a processor as a kill would: nothing more is committed, and its transaction stays open."""


def crash_at(spec: str) -> Callable[[str], None]:
    """A failpoint `name:N` that raises."""
    name, _, times = spec.partition(":")
    left = [int(times or 1)]

    def reached(place: str) -> None:
        left[0] -= place == name
        if place == name and left[0] == 0:
            raise Crash(spec)

    return reached


# ---- where recovery ends -----------------------------------------------------------------------------------------------


def test_a_commit_beyond_the_last_stable_offset_is_recovered(bench: Bench) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group)
    foreign = bench.transaction("foreign")  # from here on the last stable offset stands still
    foreign.produce(group.table.name, b"\xee" * 8, b"foreign", partition=0)
    foreign.flush()
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group)
    running = bench.run(group, state="empty")
    until(lambda: running.processor.recovering, "it is loading")
    bench.send(bench.name("in"), *events("a"))
    assert not running.processor.ready
    foreign.abort_transaction(10)
    bench.wait_handled(group, running)
    running.stop()
    assert bench.rows(group, "empty") == bench.table(group) == {"a": 3}


def test_offsets_set_by_a_tool_recover_to_the_end_past_markers_and_aborted_records(
    bench: Bench, admin: AdminClient
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a", "b", "a"))
    bench.work_off(group)
    aborted = bench.transaction("aborted")
    aborted.produce(group.table.name, b"a", Long().encode(99), partition=0)
    aborted.flush()
    aborted.abort_transaction(10)  # the log now ends with an aborted record and two markers
    set_offsets(bench, admin, group.name, {bench.name("in"): 3})
    assert bench.commits(group)[TopicPartition(bench.name("in"), 0)] == Committed(NextOffset(3), "")
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group, state="empty")
    assert bench.rows(group, "empty") == {"a": 3, "b": 1}


def test_at_least_once_recovers_to_the_end_because_compaction_may_have_taken_the_older_rows(
    bench: Bench,
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a", "b"))
    bench.work_off(group, guarantee=Guarantee.AT_LEAST_ONCE)
    running = bench.run(group, guarantee=Guarantee.AT_LEAST_ONCE, failpoint=crash_at("offsets-sent"))
    bench.send(bench.name("in"), *events("a"))
    assert isinstance(running.failure(), Crash)
    assert bench.table(group) == {"a": 2, "b": 1}  # in the changelog, beyond the committed position
    # On an empty disk: the committed position alone might find a compacted log without any row for "a".
    bench.work_off(group, state="empty", guarantee=Guarantee.AT_LEAST_ONCE)
    assert bench.rows(group, "empty") == {"a": 3, "b": 1}  # counted once more, as it promises, and not less


# ---- unknown outcomes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("happened", [True, False])
def test_counts_are_exact_when_the_outcome_of_a_commit_is_unknown(bench: Bench, happened: bool) -> None:  # noqa: FBT001 - a parameter
    def commit(outbox: KafkaTransactionalProducer, number: int, timeout: float) -> None:
        if happened or number % 2:
            outbox.commit(timeout)
        if number % 2 == 0:
            raise OutcomeUnknown("the connection was cut")

    log: Any = Interfering(bench, commit)
    group = bench.counting()
    with bench.run(group, log=log) as running:
        for _ in range(4):
            bench.send(bench.name("in"), *events("a", "b", times=50))
            bench.wait_handled(group, running)
    assert log.outboxes >= 3
    assert bench.table(group) == bench.rows(group) == {"a": 200, "b": 200}


def test_counts_are_exact_when_the_broker_stands_still_in_the_middle_of_a_commit(
    frail: Broker, frail_bench: Bench
) -> None:
    bench = frail_bench
    paused = threading.Event()

    def commit(outbox: KafkaTransactionalProducer, number: int, timeout: float) -> None:
        if number == 2:
            frail.pause()
            threading.Timer(5.0, frail.resume).start()
            paused.set()
        outbox.commit(timeout)

    log: Any = Interfering(bench, commit)
    group = bench.counting()
    with bench.run(group, log=log) as running:
        bench.send(bench.name("in"), *events("a", times=100))
        until(paused.is_set, "a second commit is on its way")
        bench.wait_handled(group, running)
        bench.send(bench.name("in"), *events("a", times=100))
        bench.wait_handled(group, running)
    assert (
        log.outboxes >= 2
    )  # the one whose commit is unknown was replaced, by a second or third attempt on a slow machine
    assert bench.table(group) == bench.rows(group) == {"a": 200}


# ---- crashes -----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("place", ["flushed:1", "flushed:2"])
def test_a_crash_in_the_first_transactions_of_a_partition_is_recovered_from(
    bench: Bench, place: str, guarantee: Guarantee
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a"))
    assert isinstance(bench.run(group, guarantee=guarantee, failpoint=crash_at(place)).failure(), Crash)
    bench.work_off(group, guarantee=guarantee)
    repeated = guarantee is Guarantee.AT_LEAST_ONCE and place == "flushed:2"
    assert bench.table(group) == bench.rows(group) == {"a": 2 if repeated else 1}


def test_a_kill_in_the_first_transaction_of_a_partition_is_recovered_from(
    bench: Bench, tmp_path: Path
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a"))
    command = [sys.executable, str(ROOT / "tests/system/child.py"), bench.kafka.bootstrap_servers]
    command += [bench.name("")[:-1], str(tmp_path / "child"), "exactly_once", "flushed:2"]
    child = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout=60, check=False)
    assert child.returncode == -signal.SIGKILL
    bench.work_off(group)
    assert bench.table(group) == bench.rows(group) == {"a": 1}


# ---- state and offsets that do not fit ---------------------------------------------------------------------------------


def test_offsets_that_are_gone_stop_the_group_and_say_why(bench: Bench, admin: AdminClient) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group)
    until(lambda: _succeeds(lambda: admin.delete_consumer_groups([group.name])), "the group is deleted")
    error = bench.run(group).failure()
    assert isinstance(error, StateLost)
    assert "no committed offset" in str(error)
    assert "count everything twice" in str(error)
    assert (error.topic, error.partition) == (group.table.name, 0)
    assert bench.table(group) == {"a": 1}


def test_input_that_was_deleted_before_it_was_read_stops_the_group_with_the_place(
    bench: Bench, admin: AdminClient
) -> None:
    group = bench.counting()
    stream = bench.name("in")
    bench.send(stream, *events("a"))
    bench.work_off(group)
    bench.send(stream, *events("a", "a", "a"))
    for future in admin.delete_records([Partition(stream, 0, 3)]).values():
        future.result(10)
    error = bench.run(group).failure()
    assert isinstance(error, InputLost)
    assert (error.topic, error.partition, error.offset) == (stream, 0, 1)
    assert "holds 3 to 4" in str(error)


def test_an_input_that_is_recreated_while_it_is_read_stops_the_group(
    bench: Bench, admin: AdminClient
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a", times=5))
    running = bench.run(group)
    bench.wait_handled(group, running)
    recreate(bench, admin, bench.name("in"), {})
    error = running.failure()
    assert isinstance(error, InputLost | TopicMismatch)
    assert error.topic == bench.name("in")


@pytest.mark.parametrize("topic", ["in", "g-retry", "g-dead-letters", "g-table"])
def test_a_changed_number_of_partitions_is_refused_with_both_numbers(
    bench: Bench, admin: AdminClient, topic: str
) -> None:
    group = bench.counting()
    for future in admin.create_partitions([NewPartitions(bench.name(topic), 3)]).values():
        future.result(10)
    until(lambda: bench.cluster.topics([bench.name(topic)])[bench.name(topic)].partitions == 3, "it has 3")
    error = bench.run(group).failure()
    assert isinstance(error, TopicMismatch)
    numbers = "it has 1, the input 3" if topic == "in" else "it has 3, the input 1"
    assert numbers in str(error)


@BOTH
def test_a_recreated_input_is_refused_even_when_the_local_disk_is_lost(
    bench: Bench, admin: AdminClient, guarantee: Guarantee
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a", times=100))
    bench.work_off(group, guarantee=guarantee)
    recreate(bench, admin, bench.name("in"), {})
    bench.send(bench.name("in"), *events("a", times=300))
    error = bench.run(group, state="lost", guarantee=guarantee).failure()
    assert isinstance(error, InputLost)
    assert (error.topic, error.partition) == (bench.name("in"), 0)
    # It stays refused, whatever a disk holds; an operator who sets the offset accepts the loss.
    assert isinstance(bench.run(group, guarantee=guarantee).failure(), InputLost)
    set_offsets(bench, admin, group.name, {bench.name("in"): 0})
    bench.work_off(group, guarantee=guarantee)
    assert bench.rows(group) == {"a": 400}


@BOTH
def test_nothing_of_a_recreated_input_is_committed_at_the_old_one_s_offset(
    bench: Bench, admin: AdminClient, guarantee: Guarantee
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a", times=100))
    running = bench.run(group, guarantee=guarantee)
    bench.wait_handled(group, running)
    recreate(bench, admin, bench.name("in"), {})
    # More than the old one had: the client continues in the middle of it.
    bench.send(bench.name("in"), *events("a", times=300))
    error = running.failure()
    assert isinstance(error, InputLost)
    assert error.topic == bench.name("in")
    changes = [Long().decode(each.value or b"") for each in bench.read(group.table.name)]
    assert changes[-1] == 100


# ---- the changelog's topic ---------------------------------------------------------------------------------------------


def test_a_changelog_that_was_recreated_empty_stops_the_group(bench: Bench, admin: AdminClient) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group)
    recreate(bench, admin, group.table.name, {"cleanup.policy": "compact"})
    error = bench.run(group).failure()
    assert isinstance(error, StateLost)
    assert "its changelog ends at 0" in str(error)


def test_a_changelog_that_was_rebuilt_replaces_the_local_copy(
    bench: Bench, admin: AdminClient, logged: list[Any]
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a", "b"))
    bench.work_off(group)
    recreate(bench, admin, group.table.name, {"cleanup.policy": "compact"})
    made = [("a", Long().encode(10)), ("c", Long().encode(30))]
    bench.send(group.table.name, *made)
    metadata = rebuilt(2, {}, None).encode()
    set_offsets(bench, admin, group.name, {bench.name("in"): 2, group.retry: 0}, metadata)
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group)
    assert bench.rows(group) == {"a": 11, "c": 30}
    reasons = [line["reason"] for line in logged if "discarded" in line["event"]]
    assert len(reasons) == 1
    assert "an earlier topic of the same name" in reasons[0]


def test_a_changelog_that_is_recreated_under_a_running_processor_stops_it(
    bench: Bench, admin: AdminClient
) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), *events("a", "b", times=20))
    running = bench.run(group)
    bench.wait_handled(group, running)
    recreate(bench, admin, group.table.name, {"cleanup.policy": "compact"})
    bench.send(bench.name("in"), *events("a"))
    assert isinstance(running.failure(), StateLost)
    assert bench.committed(group)[TopicPartition(bench.name("in"), 0)] == 40


def test_a_copy_older_than_the_tombstones_does_not_bring_deleted_keys_back(
    bench: Bench, logged: list[Any]
) -> None:
    compacting = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "100",
        "min.compaction.lag.ms": "0",
        "delete.retention.ms": "100",
    }
    group = bench.counting(config={"table": compacting})
    stream = bench.name("in")
    bench.send(stream, *events("gone", "a"))
    bench.work_off(group, state="old")
    bench.send(stream, ("gone", "delete"))
    bench.work_off(group, state="new")

    def compacted() -> bool:
        # The active segment is not compacted: keep it rolling.
        bench.send(stream, *events("a"))
        bench.work_off(group, state="new")
        return all(record.key != b"gone" for record in bench.read(group.table.name))

    until(compacted, "the key and its tombstone are compacted away", 60)
    bench.work_off(group, state="old")
    assert "gone" not in bench.rows(group, "old")
    assert bench.rows(group, "old") == bench.rows(group, "new")
    assert any("deleted keys would come back" in line.get("reason", "") for line in logged)


def test_a_copy_from_the_day_before_yesterday_is_thrown_away_and_one_of_today_is_not(
    bench: Bench, logged: list[Any]
) -> None:
    class Later(SystemClock):
        def now(self) -> float:
            return super().now() + days * 86_400

    def thrown_away() -> int:
        return sum("discarded" in line["event"] for line in logged)

    group = bench.counting()
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group)
    days = 0.9
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group, clock=Later())
    assert thrown_away() == 0
    days = 2.0
    bench.send(bench.name("in"), *events("a"))
    bench.work_off(group, clock=Later())
    assert thrown_away() == 1
    assert bench.rows(group) == {"a": 3}


# ---- membership --------------------------------------------------------------------------------------------------------


def test_nothing_is_ever_committed_by_a_process_that_has_not_joined(bench: Bench) -> None:
    group = bench.counting()
    offsets = {TopicPartition(bench.name("in"), 0): Committed(NextOffset(7), "")}
    consumer = bench.kafka.group_consumer(group.name, "i")
    outbox = bench.kafka.transactional_producer(f"{group.name}-i")
    outbox.open(20)
    outbox.begin()
    assert consumer.membership().member_id == ""
    with pytest.raises(Migrated):
        outbox.send_offsets(offsets, consumer.membership())
    with pytest.raises(Migrated):
        consumer.commit(offsets)
    outbox.abort(10)
    outbox.close()
    consumer.close()
    assert bench.committed(group) == {}
