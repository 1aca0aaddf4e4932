"""Splitting what a consumer returned."""

from confluent_kafka import Consumer, KafkaError, Message

from streamtable.base.types import TopicPartition
from streamtable.kafka.fetch import fetch, split


def message(topic: str, partition: int, offset: int, error: KafkaError | None = None) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, error=error)


def test_runs_of_a_partition_become_one_batch_in_their_order() -> None:
    messages = [
        message("a", 0, 1),
        message("a", 0, 2),
        message("b", 0, 9),
        message("a", 1, 5),
        message("a", 0, 4),
    ]
    batches = split(messages, lambda _: None)
    assert {batch.place: batch.offsets for batch in batches} == {
        TopicPartition("a", 0): [1, 2, 4],
        TopicPartition("b", 0): [9],
        TopicPartition("a", 1): [5],
    }


def test_error_items_are_handed_over_and_are_in_no_batch() -> None:
    error = message("a", 0, 2, KafkaError(KafkaError.UNKNOWN))
    seen: list[Message] = []
    batches = split([message("a", 0, 1), error, message("a", 0, 3)], seen.append)
    assert [batch.offsets for batch in batches] == [[1, 3]]
    assert seen == [error]


def test_more_records_may_be_asked_for_than_the_client_returns_at_once() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    try:
        assert fetch(consumer, 1_000_001, 0) == []
    finally:
        consumer.close()


def test_nothing_makes_no_batch() -> None:
    assert split([], lambda _: None) == []
