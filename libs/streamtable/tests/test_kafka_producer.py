"""Single records to a real broker, each answered once."""

import os
import threading
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline
from streamtable.base.types import Ack
from streamtable.errors import ConfigurationError, QueueFull, RetryLater, SerializationError, StreamtableError
from streamtable.kafka import Kafka
from streamtable.kafka.producer import KafkaProducer

WITHIN_S = 30


@pytest.fixture
def producer(broker: Broker) -> Iterator[KafkaProducer]:
    made = Kafka(broker.bootstrap_servers).producer()
    yield made
    made.close(WITHIN_S)


def test_each_record_is_answered_once_with_its_place(producer: KafkaProducer, topics: Topics) -> None:
    topic = topics.create("events", partitions=12)
    answers: list[Ack | StreamtableError] = []
    threads = set()

    def done(answer: Ack | StreamtableError) -> None:
        answers.append(answer)
        threads.add(threading.current_thread().name)

    for _ in range(3):
        producer.produce(topic, b"alice", b"hello", done)
    assert producer.flush(WITHIN_S) == 0
    assert answers == [Ack(topic, 9, 0), Ack(topic, 9, 1), Ack(topic, 9, 2)]
    assert threads == {"kafka-producer"}


def test_a_callback_that_fails_keeps_no_other_record_from_its_answer(
    producer: KafkaProducer, topics: Topics
) -> None:
    topic = topics.create("events", partitions=1)
    answers: list[Ack | StreamtableError] = []

    def fail(_: Ack | StreamtableError) -> None:
        raise ValueError("as of a tracer")

    for done in (fail, answers.append, fail, answers.append):
        producer.produce(topic, b"alice", b"hello", done)
    assert producer.flush(WITHIN_S) == 0
    assert answers == [Ack(topic, 0, 1), Ack(topic, 0, 3)]


def test_many_threads_may_produce(producer: KafkaProducer, topics: Topics) -> None:
    topic = topics.create("events", partitions=2)
    answers: list[Ack | StreamtableError] = []

    def some() -> None:
        for _ in range(100):
            producer.produce(topic, None, b"value", answers.append)

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(WITHIN_S) == 0
    assert len({answer for answer in answers if isinstance(answer, Ack)}) == 400


def test_a_record_that_is_too_large_for_client_or_topic_is_unencodable(
    producer: KafkaProducer, topics: Topics
) -> None:
    topic = topics.create("events", partitions=1, config={"max.message.bytes": "1000"})
    answers: list[Ack | StreamtableError] = []
    producer.produce(topic, b"k", os.urandom(2_000_000), answers.append)
    producer.produce(topic, b"k", os.urandom(2_000), answers.append)
    assert producer.flush(WITHIN_S) == 0
    assert [type(answer) for answer in answers] == [SerializationError, SerializationError]


@pytest.mark.parametrize(("option", "limit"), [({}, 66_000), ({"batch.size": "1000"}, 1_000)])
def test_small_records_fit_a_topic_with_a_small_limit(
    broker: Broker, topics: Topics, option: dict[str, str], limit: int
) -> None:
    topic = topics.create("events", partitions=1, config={"max.message.bytes": str(limit)})
    producer = Kafka(broker.bootstrap_servers, option).producer()
    answers: list[Ack | StreamtableError] = []
    for _ in range(600):
        producer.produce(topic, b"k", os.urandom(200), answers.append)
    producer.close(WITHIN_S)
    assert [answer for answer in answers if not isinstance(answer, Ack)] == []


def test_a_batch_that_is_too_large_for_its_topic_says_which_option_makes_it_smaller(
    producer: KafkaProducer, topics: Topics
) -> None:
    topic = topics.create("events", partitions=1, config={"max.message.bytes": "1000"})
    answers: list[Any] = []
    for _ in range(100):
        producer.produce(topic, b"k", os.urandom(200), answers.append)
    assert producer.flush(WITHIN_S) == 0
    assert "batch.size" in next(str(answer) for answer in answers if not isinstance(answer, Ack))


@pytest.mark.parametrize(
    ("headers", "timestamp_ms", "reason"),
    [
        ([("\udcff", b"x")], 0, "UTF-8"),
        ([(b"bytes", b"x")], 0, "UTF-8"),
        ([], 32_503_680_000_000, "INVALID_TIMESTAMP"),
    ],
)
def test_a_record_that_no_topic_takes_is_unencodable(
    producer: KafkaProducer, topics: Topics, headers: Any, timestamp_ms: int, reason: str
) -> None:
    topic = topics.create("in")
    answers: list[Any] = []
    try:
        producer.produce(topic, b"k", b"v", answers.append, headers=headers, timestamp_ms=timestamp_ms)
        assert producer.flush(10) == 0
    except SerializationError as error:
        answers.append(error)
    (answer,) = answers
    assert isinstance(answer, SerializationError)
    assert reason in str(answer)


def test_what_is_not_delivered_when_it_closes_is_answered_too(frozen_broker: Broker) -> None:
    broker = frozen_broker
    topic = Topics(broker.bootstrap_servers).create("events")
    producer = Kafka(broker.bootstrap_servers).producer()
    answers: list[Ack | StreamtableError] = []
    producer.produce(topic, b"k", b"v", answers.append)
    assert producer.flush(WITHIN_S) == 0
    broker.pause()
    producer.produce(topic, b"k", b"v", answers.append)
    assert producer.flush(0.3) == 1
    end = Deadline(3)
    producer.close(0.5)
    producer.close(0.5)
    assert not end.passed()
    assert [type(answer) for answer in answers] == [Ack, RetryLater]
    broker.resume()


def test_a_record_for_a_topic_that_is_not_there_says_how_to_create_it(broker: Broker, topics: Topics) -> None:
    # By default the client continues looking for half a minute.
    producer = Kafka(broker.bootstrap_servers, {"topic.metadata.propagation.max.ms": "1000"}).producer()
    answers: list[Ack | StreamtableError] = []
    producer.produce(topics.name("none"), b"alice", b"hello", answers.append)
    assert producer.flush(60) == 0
    producer.close(WITHIN_S)
    (answer,) = answers
    assert isinstance(answer, RetryLater)
    assert "streamtable topics apply" in answer.message


def test_a_full_queue_is_waited_for(broker: Broker, topics: Topics) -> None:
    topic = topics.create("events", partitions=1)
    producer = Kafka(broker.bootstrap_servers, {"queue.buffering.max.messages": "10"}).producer()
    answers: list[Ack | StreamtableError] = []
    for _ in range(100):
        producer.produce(topic, b"k", b"v", answers.append)
    producer.close(WITHIN_S)
    assert [answer for answer in answers if not isinstance(answer, Ack)] == []
    assert len(answers) == 100


def test_a_record_that_waits_for_room_while_the_producer_closes_is_answered_too(
    frozen_broker: Broker,
) -> None:
    broker = frozen_broker
    topic = Topics(broker.bootstrap_servers).create("events", partitions=1)
    producer = Kafka(broker.bootstrap_servers, {"queue.buffering.max.messages": "1"}).producer()
    answers: list[Any] = []
    producer.produce(topic, b"k", b"v", answers.append)
    assert producer.flush(WITHIN_S) == 0
    broker.pause()
    producer.produce(topic, b"k", b"v", answers.append)

    def wait_for_room() -> None:
        try:
            producer.produce(topic, b"k", b"v", answers.append)
        except QueueFull as error:
            answers.append(error)

    waiting = [threading.Thread(target=wait_for_room) for _ in range(8)]
    for each in waiting:
        each.start()
    producer.close(0.5)
    for each in waiting:
        each.join(WITHIN_S)
    broker.resume()
    assert len(answers) == 10


def test_a_record_fails_after_the_delivery_timeout_and_is_not_sent_later(frozen_broker: Broker) -> None:
    broker = frozen_broker
    topic = Topics(broker.bootstrap_servers).create("events", partitions=1)
    kafka = Kafka(broker.bootstrap_servers)
    producer = kafka.producer(delivery_timeout=1.0)
    answers: list[Ack | StreamtableError] = []
    end = Deadline(WITHIN_S)
    while not any(isinstance(answer, Ack) for answer in answers):  # a new broker takes its time
        assert not end.passed()
        producer.produce(topic, b"k", b"first", answers.append)
        assert producer.flush(WITHIN_S) == 0
    answers.clear()
    broker.pause()
    try:
        end = Deadline(10)
        producer.produce(topic, b"k", b"in flight", answers.append)
        assert producer.flush(0.3) == 1  # it has been handed to the broker's socket
        producer.produce(topic, b"k", b"queued behind it", answers.append)
        assert producer.flush(WITHIN_S) == 0
        assert not end.passed()
    finally:
        broker.resume()
    assert [type(answer) for answer in answers] == [RetryLater, RetryLater]
    while not isinstance(last := answers[-1], Ack):
        producer.produce(topic, b"k", b"last", answers.append)
        assert producer.flush(WITHIN_S) == 0
    producer.close(WITHIN_S)
    stored = [record.value() for record in read(broker, topic, last.offset + 1)]
    # A record on the wire when the broker froze is taken when it continues; it is not sent again.
    assert stored.count(b"in flight") <= 1
    assert stored.count(b"queued behind it") <= 1
    assert [value for value, _ in groupby(stored)] == [
        value for value in (b"first", b"in flight", b"queued behind it", b"last") if value in stored
    ]
    assert stored[-1] == b"last"


def read(broker: Broker, topic: str, count: int) -> list[Any]:
    """The first records of the topic's only partition."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reading", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    deadline = Deadline(WITHIN_S)
    while len(found) < count:
        assert not deadline.passed()
        found += consumer.consume(count - len(found), 1)
    consumer.close()
    return found


def test_a_record_that_finds_no_room_in_the_queue_is_not_sent(frozen_broker: Broker) -> None:
    broker = frozen_broker
    topic = Topics(broker.bootstrap_servers).create("events", partitions=1)
    kafka = Kafka(broker.bootstrap_servers, {"queue.buffering.max.messages": "1"})
    producer = kafka.producer(delivery_timeout=0.5)
    answers: list[Ack | StreamtableError] = []

    def produce_many() -> None:
        for _ in range(100):  # the client reports expired records once a second, which makes room
            producer.produce(topic, b"k", b"v", answers.append)

    broker.pause()
    try:
        with pytest.raises(QueueFull, match="not sent") as full:
            produce_many()
        assert full.value.topic == topic
    finally:
        broker.resume()
    producer.close(WITHIN_S)


@pytest.mark.parametrize("seconds", [0, -1, 0.05, 3601, float("nan"), float("inf")])
def test_a_delivery_timeout_that_makes_no_sense_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="delivery timeout"):
        Kafka("127.0.0.1:9092").producer(delivery_timeout=seconds)


@pytest.mark.parametrize(("option", "bytes_most"), [({}, 20_000), ({"compression.type": "none"}, 10**9)])
def test_records_are_compressed_unless_an_option_says_otherwise(
    broker: Broker, topics: Topics, option: dict[str, str], bytes_most: int
) -> None:
    topic = topics.create("events", partitions=1)
    producer = Kafka(broker.bootstrap_servers, option).producer()
    for number in range(1_000):
        producer.produce(topic, b"alice", b"%d: one of many similar values" % number, lambda _: None)
    assert producer.flush(WITHIN_S) == 0
    producer.close(WITHIN_S)
    (segment,) = (broker.data_dir / "logs" / f"{topic}-0").glob("*.log")
    size = segment.stat().st_size
    assert size < bytes_most
    assert (size > 40_000) == bool(option)
