import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Producer, TopicPartition

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.reading import read_to_end


def test_the_committed_records_of_each_partition_are_read_in_order_up_to_its_end(
    broker: Broker, topics: Topics
) -> None:
    topic = topics.create("in", partitions=3)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topics.name("id")}
    )
    producer.init_transactions(60)
    for number in range(5):
        producer.begin_transaction()
        for partition in (0, 2):
            producer.produce(topic, str(number).encode(), partition=partition)
        assert producer.flush(60) == 0
        if number == 3:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    starts = [
        TopicPartition(topic, 0, OFFSET_BEGINNING),
        TopicPartition(topic, 1, 0),
        TopicPartition(topic, 2, 2),
    ]
    found = read_to_end(broker.bootstrap_servers, starts)
    read = {
        partition: [each.value() for each in found if each.partition() == partition] for partition in range(3)
    }
    # Each transaction ends with a marker, which takes an offset.
    assert read == {0: [b"0", b"1", b"2", b"4"], 1: [], 2: [b"1", b"2", b"4"]}


def test_an_offset_that_a_partition_does_not_have_is_an_error(broker: Broker, topics: Topics) -> None:
    topic = topics.create("in", partitions=1)
    with pytest.raises(KafkaException):
        read_to_end(broker.bootstrap_servers, [TopicPartition(topic, 0, 7)])
