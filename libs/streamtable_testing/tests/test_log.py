"""The situations that tests can create only on the virtual Kafka. test_contract.py tests its guarantees."""

import pytest

from streamtable.base.topics import Stream
from streamtable.base.types import Ack, Committed, NextOffset, RecordBatch, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.errors import InputLost, RetryLater
from streamtable.graph.group import Group, Input, Persist
from streamtable_testing.clock import VirtualClock
from streamtable_testing.log import VirtualKafka

TABLE = TopicPartition("table", 0)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def kafka(clock: VirtualClock) -> VirtualKafka:
    made = VirtualKafka(clock)
    made.create_topic("table", compacted=True, delete_retention_ms=60_000)
    return made


def read(kafka: VirtualKafka, start: int = 0) -> tuple[list[tuple[int, bytes | None, bytes | None]], int]:
    reader = kafka.table_reader("test")
    reader.assign({TABLE: start})
    batches: list[RecordBatch] = reader.poll(1000, 0)
    rows = [row for each in batches for row in zip(each.offsets, each.keys, each.values, strict=True)]
    return rows, reader.position(TABLE)


def test_compaction_keeps_the_last_value_of_each_key_at_its_offset(kafka: VirtualKafka) -> None:
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)):
        kafka.append("table", key, value)
    kafka.compact("table")
    assert read(kafka) == ([(2, b"a", b"2"), (3, b"b", None)], 4)
    assert kafka.cluster().watermarks([TABLE])[TABLE] == Watermarks(0, 4)


def test_a_tombstone_goes_when_compaction_finds_it_again_after_its_retention(
    kafka: VirtualKafka, clock: VirtualClock
) -> None:
    kafka.append("table", b"a", None)
    clock.advance(3600)
    kafka.compact("table")
    assert len(kafka.records("table")) == 1
    clock.advance(61)
    kafka.compact("table")
    assert read(kafka) == ([], 1)


def test_compaction_drops_what_was_aborted_and_does_not_touch_what_is_open(kafka: VirtualKafka) -> None:
    outbox = kafka.transactional_producer("tx")
    outbox.open(1)
    kafka.append("table", b"a", b"1")
    outbox.begin()
    outbox.produce("table", b"a", b"aborted")
    outbox.flush(1)
    outbox.abort(1)
    outbox.begin()
    outbox.produce("table", b"a", b"2")
    outbox.flush(1)
    kafka.compact("table")
    assert [record.value() for _, record in kafka.records("table")] == [b"1"]
    outbox.commit(1)
    assert read(kafka) == ([(0, b"a", b"1"), (3, b"a", b"2")], 5)


def test_deleted_records_leave_a_higher_beginning(kafka: VirtualKafka) -> None:
    for _ in range(3):
        kafka.append("table", b"a", b"1")
    kafka.delete_records(TABLE, before=2)
    assert kafka.cluster().watermarks([TABLE])[TABLE] == Watermarks(2, 3)
    assert [row[0] for row in read(kafka, 2)[0]] == [2]
    reader = kafka.table_reader("test")
    reader.assign({TABLE: 0})
    with pytest.raises(InputLost, match="2 to 3"):
        [reader.poll(10, 0) for _ in range(2)]


def test_a_topic_made_again_has_another_id_and_no_committed_offsets(kafka: VirtualKafka) -> None:
    before = kafka.cluster().topics(["table"])["table"].topic_id
    kafka.group("g").offsets.committed[TABLE] = Committed(NextOffset(5))
    kafka.delete_topic("table")
    assert kafka.cluster().topics(["table"]) == {}
    kafka.create_topic("table")
    assert kafka.cluster().topics(["table"])["table"].topic_id != before
    assert kafka.cluster().stable_offsets("g", [TABLE]) == {TABLE: None}


def test_a_topic_is_made_once(kafka: VirtualKafka) -> None:
    with pytest.raises(ValueError, match="already"):
        kafka.create_topic("table")


def test_all_topics_of_a_group_can_be_made_at_once(kafka: VirtualKafka) -> None:
    stream = Stream("events", String(), String())
    group: Group[str, int] = Group("g", Input(stream, lambda ctx, _: ctx.set(1)), Persist(Long()))
    kafka.create_topics_of(group, partitions=3)
    kafka.create_topics_of(group)
    found = kafka.cluster().topics(["events", "g-table", "g-retry", "g-dead-letters"])
    assert {name: (each.partitions, each.compacted) for name, each in found.items()} == {
        "events": (3, False),
        "g-table": (3, True),
        "g-retry": (3, False),
        "g-dead-letters": (3, False),
    }


def test_records_written_from_outside_say_where_they_stand(kafka: VirtualKafka, clock: VirtualClock) -> None:
    assert kafka.append("table", b"a", b"1", headers=[("h", None)], timestamp_ms=7) == Ack("table", 0, 0)
    assert kafka.append("table", b"a", b"1", partition=0) == Ack("table", 0, 1)
    (_, first), (_, second) = kafka.records("table")
    assert (first.headers(), first.timestamp()[1]) == ([("h", None)], 7)
    assert (second.headers(), second.timestamp()[1]) == (None, clock.now() * 1000)


def test_a_partition_that_is_gone_gives_nothing(kafka: VirtualKafka) -> None:
    reader = kafka.table_reader("test")
    reader.assign({TABLE: 0})
    kafka.delete_topic("table")
    assert reader.poll(10, 0) == []
    with pytest.raises(RetryLater):
        kafka.cluster().watermarks([TABLE])


def test_a_members_poll_without_records_lets_its_time_pass_and_a_readers_does_not(
    kafka: VirtualKafka, clock: VirtualClock
) -> None:
    before = clock.now()
    kafka.table_reader("test").poll(10, 0.5)
    kafka.group_consumer("g", "i").poll(10, 0.25)
    assert clock.now() - before == 0.25
