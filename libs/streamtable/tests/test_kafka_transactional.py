"""Transactions on a real broker: the visible records, the fenced producers, and the error that each failure raises."""

import os
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline, wait_until
from streamtable.base import ports
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.errors import Fenced, Migrated, OutcomeUnknown, RetryLater, RewindNeeded, SerializationError
from streamtable.kafka import Kafka
from streamtable.kafka.client_log import ClientLog
from streamtable.kafka.consumer import GroupMembership
from streamtable.kafka.transactional import KafkaTransactionalProducer

WITHIN_S = 30
Open = Callable[[str | None], KafkaTransactionalProducer]


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap_servers)


@pytest.fixture
def opened(kafka: Kafka) -> Iterator[Open]:
    """Make an outbox and open it."""
    outboxes: list[KafkaTransactionalProducer] = []

    def make(transactional_id: str | None) -> KafkaTransactionalProducer:
        outbox = kafka.transactional_producer(transactional_id)
        outboxes.append(outbox)
        outbox.open(WITHIN_S)
        return outbox

    yield make
    for outbox in outboxes:
        outbox.close()


def end_of(kafka: Kafka, place: TopicPartition) -> int | None:
    """None while the broker cannot say it: one that was frozen for longer than its session has to become leader again."""
    try:
        return kafka.cluster().watermarks([place])[place].high
    except RetryLater:
        return None


def visible(kafka: Kafka, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values that a `read_committed` consumer reads up to the end of the partition."""
    place = TopicPartition(topic, partition)
    deadline = Deadline(WITHIN_S)
    while (end := end_of(kafka, place)) is None:
        assert not deadline.passed()
        time.sleep(0.05)
    reader = kafka.table_reader("test")
    reader.assign({place: 0})
    values: list[bytes | None] = []
    while reader.position(place) < end:
        assert not deadline.passed()
        for batch in reader.poll(1000, 0.1):
            values += batch.values
    reader.close()
    return values


def test_flush_tells_the_offset_of_the_last_tracked_record_of_each_partition(
    kafka: Kafka, topics: Topics, opened: Open
) -> None:
    topic = topics.create("out", partitions=2)
    outbox = opened(topics.name("tx"))
    outbox.begin()
    for partition in (0, 0, 1):
        outbox.produce(topic, b"key", b"value", partition=partition, tracked=True)
    outbox.produce(topic, b"key", b"untracked", partition=1)
    assert outbox.flush(WITHIN_S) == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 0}
    outbox.commit(WITHIN_S)
    assert visible(kafka, topic, 1) == [b"value", b"untracked"]


def test_a_header_name_that_would_crash_the_client_is_refused(topics: Topics, opened: Open) -> None:
    outbox = opened(topics.name("tx"))
    outbox.begin()
    with pytest.raises(SerializationError, match="UTF-8"):
        outbox.produce(topics.create("out"), b"key", b"value", headers=[("\udcff", b"x")])


def test_records_of_an_aborted_transaction_are_never_visible(
    kafka: Kafka, topics: Topics, opened: Open
) -> None:
    topic = topics.create("out", partitions=1)
    outbox = opened(topics.name("tx"))
    for value, end in ((b"one", outbox.commit), (b"two", outbox.abort), (b"three", outbox.commit)):
        outbox.begin()
        outbox.produce(topic, b"key", value)
        outbox.flush(WITHIN_S)
        end(WITHIN_S)
    assert visible(kafka, topic) == [b"one", b"three"]


def test_a_zombie_is_fenced_by_the_next_one_to_open_and_leaves_nothing_behind(
    kafka: Kafka, topics: Topics, opened: Open
) -> None:
    topic = topics.create("out", partitions=1)
    zombie = opened(topics.name("tx"))
    zombie.begin()
    zombie.produce(topic, b"key", b"zombie")
    zombie.flush(WITHIN_S)
    owner = opened(topics.name("tx"))
    with pytest.raises(Fenced, match="instance id of its own, by STREAMTABLE_INSTANCE_ID"):
        zombie.commit(WITHIN_S)
    with pytest.raises(Fenced):
        zombie.begin()
    owner.begin()
    owner.produce(topic, b"key", b"owner")
    owner.commit(WITHIN_S)
    assert visible(kafka, topic) == [b"owner"]


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("before", [0, 1])
def test_a_fenced_producer_says_so_whatever_is_asked_of_it(
    topics: Topics, opened: Open, before: int, *, tracked: bool
) -> None:
    topic = topics.create("out", partitions=1)
    zombie = opened(topics.name("tx"))
    zombie.begin()
    for _ in range(before):
        zombie.produce(topic, b"key", b"first")
    zombie.flush(WITHIN_S)
    opened(topics.name("tx"))
    zombie.produce(topic, b"key", b"second", tracked=tracked)
    with pytest.raises(Fenced):
        zombie.flush(WITHIN_S)
    with pytest.raises(Fenced):
        zombie.abort(WITHIN_S)


def test_a_transaction_that_outlived_its_time_takes_a_new_producer(
    kafka: Kafka, topics: Topics, opened: Open
) -> None:
    topic = topics.create("out", partitions=1)
    outbox = opened(topics.name("tx"))
    outbox.begin()
    outbox.produce(topic, b"key", b"late")
    outbox.flush(WITHIN_S)
    # The broker aborts it after ten seconds: all that shows it is the marker.
    wait_until(lambda: end_of(kafka, TopicPartition(topic, 0)) == 2, 60)
    with pytest.raises(OutcomeUnknown, match=r"the transaction was \d\d\.\d s old"):
        outbox.commit(WITHIN_S)


@pytest.mark.parametrize("transactional_id", ["tx", None])
def test_a_record_larger_than_the_client_accepts_is_refused_at_once(
    transactional_id: str | None, topics: Topics, opened: Open
) -> None:
    topic = topics.create("out", partitions=1)
    outbox = opened(transactional_id and topics.name(transactional_id))
    outbox.begin()
    with pytest.raises(SerializationError):
        outbox.produce(topic, b"key", b"x" * (65 << 20))
    outbox.produce(topic, b"key", b"small")
    outbox.flush(WITHIN_S)
    outbox.commit(WITHIN_S)


def test_a_failed_record_without_a_report_fails_the_commit_and_ends_this_producer(
    kafka: Kafka, topics: Topics, opened: Open
) -> None:
    topic = topics.create("out", partitions=1, config={"max.message.bytes": "1000"})
    outbox = opened(topics.name("tx"))
    outbox.begin()
    outbox.produce(topic, b"key", os.urandom(5_000))
    outbox.flush(WITHIN_S)
    with pytest.raises(SerializationError):
        outbox.commit(WITHIN_S)
    with pytest.raises(OutcomeUnknown, match="new producer"):
        outbox.abort(WITHIN_S)
    successor = opened(topics.name("tx"))
    successor.begin()
    successor.produce(topic, b"key", b"small", tracked=True)
    assert len(successor.flush(WITHIN_S)) == 1
    successor.commit(WITHIN_S)
    assert visible(kafka, topic) == [b"small"]


def test_without_transactions_flush_reports_a_failed_record_that_was_not_tracked(
    topics: Topics, opened: Open
) -> None:
    topic = topics.create("out", partitions=1, config={"max.message.bytes": "1000"})
    outbox = opened(None)
    outbox.produce(topic, b"key", os.urandom(5_000))
    with pytest.raises(SerializationError) as caught:
        outbox.flush(WITHIN_S)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    outbox.produce(topic, b"key", b"small", tracked=True)
    assert outbox.flush(WITHIN_S) == {TopicPartition(topic, 0): 0}


def test_keys_go_to_the_partitions_that_java_gives_them(kafka: Kafka, topics: Topics, opened: Open) -> None:
    topic = topics.create("out", partitions=12)
    outbox = opened(None)
    expected = {b"alice": 9, b"bob": 6, b"carol": 2, b"user-1": 8, b"order-42": 0}
    for key in expected:
        outbox.produce(topic, key, key, tracked=True)
    outbox.flush(WITHIN_S)
    for key, partition in expected.items():
        assert key in visible(kafka, topic, partition)


def test_a_record_arrives_as_it_was_given(kafka: Kafka, topics: Topics, opened: Open) -> None:
    topic = topics.create("out", partitions=1, config={"retention.ms": "-1"})
    outbox = opened(None)
    outbox.produce(topic, None, None, headers=[("a", b"1"), ("a", None)], timestamp_ms=1234)
    outbox.flush(WITHIN_S)
    reader = kafka.table_reader("test")
    reader.assign({TopicPartition(topic, 0): 0})
    batches = reader.poll(10, WITHIN_S)
    assert batches[0].keys == [None]
    assert batches[0].values == [None]
    assert list(batches[0].headers(0)) == [("a", b"1"), ("a", None)]
    assert batches[0].timestamp(0) == 1234
    reader.close()


def test_offsets_of_someone_who_never_joined_are_not_sent(topics: Topics, opened: Open) -> None:
    outbox = opened(topics.name("tx"))
    outbox.begin()
    offsets = {TopicPartition(topics.create("in"), 0): Committed(NextOffset(1))}
    with pytest.raises(Migrated, match="joined"):
        outbox.send_offsets(offsets, GroupMembership(b"", ""))
    outbox.abort(WITHIN_S)


def test_offsets_of_a_member_that_left_are_refused(kafka: Kafka, topics: Topics, opened: Open) -> None:
    topic = topics.create("in", partitions=1)
    consumer = kafka.group_consumer(topics.name("g"), "1")
    consumer.subscribe([topic], Silent())
    deadline = Deadline(WITHIN_S)
    while not consumer.membership().member_id and not deadline.passed():
        consumer.poll(1, 0.05)
    membership = consumer.membership()
    consumer.close()
    outbox = opened(topics.name("tx"))
    outbox.begin()
    with pytest.raises(Migrated, match="moved on"):
        outbox.send_offsets({TopicPartition(topic, 0): Committed(NextOffset(1))}, membership)
    outbox.abort(WITHIN_S)
    outbox.begin()
    outbox.commit(WITHIN_S)


class Silent:
    def assigned(self, places: object) -> None: ...
    def revoked(self, places: object) -> None: ...
    def lost(self, places: object) -> None: ...


def open_when_answered(producer: ports.TransactionalProducer) -> None:
    """Open a producer as a processor does: again as long as the coordinator that was frozen is not ready."""
    deadline = Deadline(90)
    while True:
        try:
            producer.open(WITHIN_S)
        except RetryLater:
            assert not deadline.passed()
        else:
            return


def test_while_the_broker_is_frozen_every_step_ends_in_time_and_says_what_is_known(
    frozen_broker: Broker,
) -> None:
    broker = frozen_broker
    topics = Topics(broker.bootstrap_servers)
    topic = topics.create("out", partitions=1)
    kafka = Kafka(broker.bootstrap_servers)
    outbox = kafka.transactional_producer("tx")
    outbox.open(WITHIN_S)

    outbox.begin()
    outbox.produce(topic, b"key", b"in doubt", tracked=True)
    outbox.flush(WITHIN_S)
    broker.pause()
    deadline = Deadline(6)
    with pytest.raises(OutcomeUnknown):
        outbox.commit(1)
    with pytest.raises(OutcomeUnknown):
        outbox.abort(1)
    other = kafka.transactional_producer("other")
    with pytest.raises(RetryLater):
        other.open(1)
    plain = kafka.transactional_producer(None)
    plain.produce(topic, b"key", b"value")
    with pytest.raises(RewindNeeded):
        plain.flush(1)
    for each in (outbox, other, plain):
        each.close()
    assert not deadline.passed()

    broker.resume()
    successor = kafka.transactional_producer("tx")
    open_when_answered(successor)
    successor.begin()
    successor.produce(topic, b"key", b"after")
    successor.commit(WITHIN_S)
    successor.close()
    assert b"after" in visible(kafka, topic)


def test_a_full_queue_is_waited_for(broker: Broker, topics: Topics) -> None:
    topic = topics.create("out", partitions=1)
    outbox = Kafka(broker.bootstrap_servers, {"queue.buffering.max.messages": "10"}).transactional_producer(
        None
    )
    for _ in range(200):
        outbox.produce(topic, b"key", b"value", tracked=True)
    assert outbox.flush(WITHIN_S) == {TopicPartition(topic, 0): 199}
    outbox.close()


class Speechless:
    """A client as it is when its fatal error got lost between two of its own callbacks."""

    def __init__(self, reason: int) -> None:
        self.reason = reason

    def flush(self, _timeout: float) -> int:
        raise SystemError("returned NULL without setting an exception")

    def begin_transaction(self) -> None:
        raise KafkaException(KafkaError(self.reason))


@pytest.mark.parametrize(
    ("reason", "expected"), [(KafkaError._FENCED, Fenced), (KafkaError._STATE, OutcomeUnknown)]
)
def test_a_client_that_lost_its_reason_is_asked_again_and_done_for_in_any_case(
    reason: int, expected: type[Exception]
) -> None:
    client: Any = Speechless(reason)
    outbox = KafkaTransactionalProducer(client, ClientLog("test", "localhost:9092"), transactional=True)
    with pytest.raises(expected):
        outbox.flush(1)


class Forgetful:
    """A client that has missed that the coordinator is back: its answer comes when something else happens."""

    def __init__(self, answer: KafkaError | None) -> None:
        self.something = Event()
        self._answer = answer

    def send_offsets_to_transaction(self, _offsets: object, _group: object, _timeout: float) -> None:
        assert self.something.wait(WITHIN_S)
        if self._answer is not None:
            raise KafkaException(self._answer)


def test_offsets_that_the_client_has_forgotten_to_send_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamtable.kafka.transactional.OVERDUE_S", 0.05)
    client: Any = Forgetful(None)
    outbox = KafkaTransactionalProducer(
        client, ClientLog("test", "localhost:9092"), transactional=True, transaction_seconds=0.05
    )
    with pytest.raises(OutcomeUnknown, match="did not return"):
        outbox.send_offsets({}, GroupMembership(b"", "member"))
    client.something.set()


def test_what_the_client_says_to_offsets_is_raised_where_they_were_sent() -> None:
    client: Any = Forgetful(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
    client.something.set()
    outbox = KafkaTransactionalProducer(client, ClientLog("test", "localhost:9092"), transactional=True)
    with pytest.raises(Migrated):
        outbox.send_offsets({}, GroupMembership(b"", "member"))


class Unanswered:
    """A client whose broker does not answer a commit. To abort now may end the process when the answer comes."""

    def commit_transaction(self, _timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    def abort_transaction(self, _timeout: float) -> None:
        pytest.fail("it was asked to abort")


def test_a_transaction_whose_commit_was_not_answered_is_not_aborted_by_its_client() -> None:
    client: Any = Unanswered()
    outbox = KafkaTransactionalProducer(client, ClientLog("test", "localhost:9092"), transactional=True)
    with pytest.raises(OutcomeUnknown):
        outbox.commit(0.01)
    with pytest.raises(OutcomeUnknown, match="takes a new producer"):
        outbox.abort(0.01)
