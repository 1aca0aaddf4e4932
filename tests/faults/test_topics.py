"""Topics that are deleted, truncated, recreated or extended: a processor stops with an error and never silently starts over."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import NewPartitions
from tests.faults.arena import Arena, Process, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.oracle import parts
from tests.faults.worker import EXIT_GAVE_UP

pytestmark = pytest.mark.faults

CHECK_TOPICS_SECONDS = 40.0  # a processor compares its topics every 30 s


def stopped_halfway(arena: Arena) -> Process:
    """Run a process that handles half of the events and shuts down gracefully."""
    first, _ = parts(arena.events, 2)
    process = arena.start("a")
    arena.feed(first)
    arena.wait_handled()
    arena.finish()
    return process


def refusal(process: Process, timeout: float = 30) -> str:
    """Return the error that ends the process."""
    ended = process.wait_end(timeout)
    assert ended == EXIT_GAVE_UP, f"ended with {ended}: {process.log[-2000:]}"
    return process.log.strip().splitlines()[-1]


def delete_topic(arena: Arena, topic: str) -> None:
    arena.admin.delete_topics([topic])[topic].result(30)


def delete_records(arena: Arena, topic: str, partition: int, before: int) -> None:
    place = Partition(topic, partition, before)

    def allowed() -> bool:
        # The broker applies a changed cleanup policy a moment later.
        try:
            arena.admin.delete_records([place])[place].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
        return True

    wait_until(allowed, f"records of {topic} deleted", 30)


@pytest.mark.faults_long(
    "tests/system/test_recovery_traps.py has the same on a real broker, in its own process"
)
@aside
def test_a_deleted_changelog_is_missed_by_name(make: ArenaMaker) -> None:
    arena = make()
    process = stopped_halfway(arena)
    delete_topic(arena, arena.table)
    process.start()
    said = refusal(process)
    assert said.startswith("TopicMissing: ")
    assert arena.table in said


@pytest.mark.faults_long(
    "tests/system/test_recovery_traps.py has the same on a real broker, in its own process"
)
@aside
def test_a_changelog_that_was_created_again_is_not_taken_for_the_old_one(make: ArenaMaker) -> None:
    arena = make()
    process = stopped_halfway(arena)
    delete_topic(arena, arena.table)
    arena.create_table()
    process.start()
    said = refusal(process)
    assert said.startswith("StateLost: ")
    assert "ends at 0" in said


@aside
def test_a_changelog_cut_before_the_store_has_it_is_refused(make: ArenaMaker) -> None:
    arena = make()
    process = stopped_halfway(arena)
    partition, changes = max(arena.records(arena.table).items(), key=lambda item: len(item[1]))
    cut = changes[len(changes) // 2].offset
    # A compacted topic rejects DeleteRecords, but an operator can work around that.
    arena.cluster.alter_topic(arena.table, {"cleanup.policy": "delete"})
    delete_records(arena, arena.table, partition, cut)
    arena.cluster.alter_topic(arena.table, {"cleanup.policy": "compact"})
    other = arena.start("with-an-empty-disk")
    said = refusal(other)
    assert said.startswith("StateLost: ")
    assert f"records 0 to {cut}" in said
    assert f"[{partition}]" in said
    # A process that has everything on its own disk can continue.
    arena.feed(arena.events[len(arena.events) // 2 :])
    process.start()
    arena.processes.pop(other.name)
    arena.wait_handled()


@pytest.mark.faults_long(
    "tests/system/test_recovery_traps.py has the same on a real broker, in its own process"
)
@aside
def test_input_that_expired_before_it_was_read_is_not_skipped_in_silence(make: ArenaMaker) -> None:
    arena = make()
    process = stopped_halfway(arena)
    arena.feed(arena.events[len(arena.events) // 2 :])
    end = max(arena.cluster.watermarks(arena.places(arena.input)).items(), key=lambda item: item[1].high)
    place, marks = end
    delete_records(arena, arena.input, place.partition, marks.high - 1)
    process.start()
    said = refusal(process)
    assert said.startswith("InputLost: ")
    assert f"the topic holds {marks.high - 1} to {marks.high}" in said


@aside
def test_input_that_expires_while_its_reader_is_frozen_is_not_skipped_in_silence(make: ArenaMaker) -> None:
    arena = make()
    first, second = parts(arena.events, 2)
    process = arena.start("a")
    arena.feed(first)
    arena.wait_handled()
    process.child.pause()
    arena.feed(second)
    for place, marks in arena.cluster.watermarks(arena.places(arena.input)).items():
        delete_records(arena, arena.input, place.partition, marks.high - 1)
    process.child.resume()
    assert refusal(process).startswith("InputLost: ")


@pytest.mark.faults_long(
    "tests/system/test_recovery_traps.py has the same on a real broker, in its own process"
)
@aside
def test_an_input_that_was_created_again_is_not_read_as_if_it_were_the_old_one(make: ArenaMaker) -> None:
    arena = make()
    process = stopped_halfway(arena)
    delete_topic(arena, arena.input)
    arena.topics.create("input", partitions=arena.partitions)
    arena.feed(arena.events)
    process.start()
    said = refusal(process)
    assert said.startswith("InputLost: ")
    assert "it was deleted and created again" in said


@pytest.mark.faults_long(
    "tests/system/test_recovery_traps.py has the same on a real broker, in its own process"
)
@aside
def test_an_input_that_got_partitions_while_no_process_ran_is_refused_with_both_numbers(
    make: ArenaMaker,
) -> None:
    arena = make()
    process = stopped_halfway(arena)
    arena.admin.create_partitions([NewPartitions(arena.input, 6)])[arena.input].result(30)
    process.start()
    said = refusal(process)
    assert said.startswith("TopicMismatch: ")
    assert "it has 4, the input 6" in said


@pytest.mark.faults_long
@aside
def test_an_input_that_gets_partitions_stops_its_readers_within_a_minute(make: ArenaMaker) -> None:
    arena = make()
    process = arena.start("a")
    arena.feed(arena.events)
    arena.wait_handled()
    arena.admin.create_partitions([NewPartitions(arena.input, 6)])[arena.input].result(30)
    said = refusal(process, CHECK_TOPICS_SECONDS)
    assert said.startswith("TopicMismatch: ")
    assert "it has 4, the input 6" in said
