"""Reading changelogs on a real broker: where a reader stands, and what it never shows."""

from collections.abc import Iterator

import pytest

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline, wait_until
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import InputLost
from streamtable.kafka import Kafka
from streamtable.kafka.reader import KafkaTableReader

WITHIN_S = 30


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap_servers)


@pytest.fixture
def reader(kafka: Kafka) -> Iterator[KafkaTableReader]:
    made = kafka.table_reader("test")
    yield made
    made.close()


def write(kafka: Kafka, transactional_id: str, topic: str, values: list[bytes], *, commit: bool) -> None:
    outbox = kafka.transactional_producer(transactional_id)
    outbox.open(WITHIN_S)
    outbox.begin()
    for value in values:
        outbox.produce(topic, value, value, partition=0)
    outbox.flush(WITHIN_S)
    (outbox.commit if commit else outbox.abort)(WITHIN_S)
    outbox.close()


def read_to(reader: KafkaTableReader, place: TopicPartition, target: int) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    deadline = Deadline(WITHIN_S)
    while reader.position(place) < target:
        assert not deadline.passed(), reader.position(place)
        batches += reader.poll(1000, 0.1)
    return batches


@pytest.mark.parametrize("commit", [True, False])
def test_the_position_passes_the_markers_at_the_end(
    commit: bool,  # noqa: FBT001 - a parameter of the test
    kafka: Kafka,
    reader: KafkaTableReader,
    topics: Topics,
) -> None:
    topic = topics.create("table", partitions=1)
    place = TopicPartition(topic, 0)
    write(kafka, topics.name("tx"), topic, [b"a", b"b"], commit=True)
    write(kafka, topics.name("tx"), topic, [b"c"], commit=commit)
    end = 5
    wait_until(
        lambda: kafka.cluster().watermarks([place])[place].high == end
    )  # a marker comes after its answer
    reader.assign({place: 0})
    values = [value for batch in read_to(reader, place, end) for value in batch.values]
    assert values == ([b"a", b"b", b"c"] if commit else [b"a", b"b"])
    assert reader.position(place) == end


def test_the_position_passes_aborted_records_when_nothing_else_follows(
    kafka: Kafka, reader: KafkaTableReader, topics: Topics
) -> None:
    topic = topics.create("table", partitions=1)
    place = TopicPartition(topic, 0)
    write(kafka, topics.name("tx"), topic, [b"a"], commit=True)
    write(kafka, topics.name("tx"), topic, [b"gone"] * 3, commit=False)
    end = kafka.cluster().watermarks([place])[place].high
    reader.assign({place: 2})
    assert read_to(reader, place, end) == []


def test_nothing_of_an_open_transaction_is_shown_or_passed(
    kafka: Kafka, reader: KafkaTableReader, topics: Topics
) -> None:
    topic = topics.create("table", partitions=1)
    place = TopicPartition(topic, 0)
    outbox = kafka.transactional_producer(topics.name("tx"))
    outbox.open(WITHIN_S)
    outbox.begin()
    outbox.produce(topic, b"k", b"open")
    outbox.flush(WITHIN_S)
    reader.assign({place: 0})
    assert reader.poll(10, 1) == []
    assert reader.position(place) == 0
    outbox.commit(WITHIN_S)
    assert [batch.values for batch in read_to(reader, place, 2)] == [[b"open"]]
    outbox.close()


def test_a_partition_added_later_starts_at_its_own_offset_and_one_given_back_is_silent(
    kafka: Kafka, reader: KafkaTableReader, topics: Topics
) -> None:
    topic = topics.create("table", partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    outbox = kafka.transactional_producer(None)
    for partition in (0, 1):
        for index in range(5):
            outbox.produce(topic, b"k", b"%d" % index, partition=partition)
    outbox.flush(WITHIN_S)
    reader.assign({first: 0})
    read_to(reader, first, 5)
    reader.assign({second: 3})
    assert [batch.values for batch in read_to(reader, second, 5)] == [[b"3", b"4"]]
    reader.unassign([first])
    outbox.produce(topic, b"k", b"later", partition=0)
    outbox.flush(WITHIN_S)
    assert reader.poll(10, 0.5) == []
    with pytest.raises(KeyError):
        reader.position(first)
    reader.assign({first: 2})
    assert read_to(reader, first, 6)[0].first_offset == 2
    with pytest.raises(AssertionError, match="already read"):
        reader.assign({first: 0})
    outbox.close()


def test_an_offset_outside_of_the_changelog_is_reported_with_its_place(
    reader: KafkaTableReader, topics: Topics
) -> None:
    place = TopicPartition(topics.create("table", partitions=1), 0)
    reader.assign({place: 99})
    with pytest.raises(InputLost) as caught:
        read_to(reader, place, 100)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*place, 99)
