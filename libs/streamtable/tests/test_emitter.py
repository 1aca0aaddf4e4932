import os
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import pytest
from confluent_kafka import Consumer

from localkafka.broker import Broker
from localkafka.fixtures import OwnBroker, Topics
from streamtable.base.partitioner import Partitioner, partition_for
from streamtable.base.ports import Log
from streamtable.base.topics import Stream
from streamtable.base.types import Ack, Headers, TopicPartition
from streamtable.codec.plain import Bytes, Long, String
from streamtable.emitter import Emitter
from streamtable.errors import (
    AuthorizationError,
    Fenced,
    QueueFull,
    RetryLater,
    SerializationError,
    StreamtableError,
)
from streamtable.flow import Windowed, WindowedKey
from streamtable.kafka import Kafka


def read_all(broker: Broker, topic: str, count: int) -> dict[TopicPartition, list[Any]]:
    """The records of a topic by partition, as soon as there are `count` of them."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: dict[TopicPartition, list[Any]] = {}
    while sum(map(len, found.values())) < count:
        messages = consumer.consume(count, timeout=20)
        assert messages, f"only {found} arrived"
        for message in messages:
            assert message.error() is None
            place = TopicPartition(topic, message.partition() or 0)
            found.setdefault(place, []).append(message)
    consumer.close()
    return found


def test_acknowledged_records_are_those_that_a_consumer_reads(broker: Broker, topics: Topics) -> None:
    stream = Stream(topics.create("clicks", partitions=6), key=String(), value=Long())
    with Emitter(stream, Kafka(broker.bootstrap_servers)) as emitter:
        futures = {n: emitter.emit(f"user-{n % 50}", n) for n in range(2000)}
    assert all(future.done() for future in futures.values())
    acknowledged = {future.result(): n for n, future in futures.items()}
    assert len(acknowledged) == 2000
    read = read_all(broker, stream.name, 2000)
    for place, messages in read.items():
        for message in messages:
            n = acknowledged.pop(Ack(place.topic, place.partition, message.offset()))
            key = f"user-{n % 50}".encode()
            assert (message.key(), Long().decode(message.value())) == (key, n)
            assert place.partition == partition_for(key, 6)
    assert acknowledged == {}


def test_keys_of_a_stream_shared_with_goka_go_where_goka_looks_for_them(
    broker: Broker, topics: Topics
) -> None:
    stream = Stream(topics.create("clicks", partitions=6), String(), Long(), partitioner="fnv1a")
    # The hash of the last one is the signed number that has no positive counterpart.
    keys = [*(f"user-{n}" for n in range(100)), "~kkwsA"]
    with Emitter(stream, Kafka(broker.bootstrap_servers)) as emitter:
        acks = {key: emitter.emit(key, 1) for key in keys}
    assert {key: ack.result().partition for key, ack in acks.items()} == {
        key: partition_for(key.encode(), 6, "fnv1a") for key in keys
    }


def test_a_record_keeps_its_headers_time_and_null_value(broker: Broker, topics: Topics) -> None:
    topic = topics.create("status", partitions=1, config={"retention.ms": "-1"})
    stream = Stream(topic, key=String(), value=String())
    with Emitter(stream, Kafka(broker.bootstrap_servers)) as emitter:
        ack = emitter.emit_now(
            "alice", None, headers=[("id", b"\xff"), ("id", None)], timestamp_ms=1_700_000_000_000
        )
    assert ack == Ack(stream.name, 0, 0)
    ((message,),) = read_all(broker, stream.name, 1).values()
    assert message.value() is None
    assert message.headers() == [("id", b"\xff"), ("id", None)]
    assert message.timestamp()[1] == 1_700_000_000_000


def test_a_record_that_is_too_large_fails_alone_as_unencodable(broker: Broker, topics: Topics) -> None:
    stream = Stream(topics.create("large"), key=String(), value=Bytes())
    with Emitter(stream, Kafka(broker.bootstrap_servers)) as emitter:
        too_large = emitter.emit("alice", os.urandom(5_000_000))  # compressed, it would fit
        small = emitter.emit("alice", b"x")
        assert small.result(20).offset >= 0
        assert isinstance(too_large.exception(20), SerializationError)


def test_a_broker_that_is_gone_means_retry_later_for_every_unacknowledged_record(
    own_broker: OwnBroker,
) -> None:
    broker = own_broker()
    topics = Topics(broker.bootstrap_servers)
    stream = Stream(topics.create("clicks"), key=String(), value=Long())
    emitter = Emitter(stream, Kafka(broker.bootstrap_servers))
    assert emitter.emit_now("alice", 1).offset == 0
    broker.kill()
    lost = [emitter.emit("alice", n) for n in range(100)]
    with pytest.raises(RetryLater, match="100 records are not acknowledged"):
        emitter.flush(0.2)
    with pytest.raises(RetryLater, match="100 records failed") as failed:
        emitter.close(0.2)
    assert failed.value.topic == stream.name
    assert all(isinstance(future.exception(0), RetryLater) for future in lost)


def test_a_flush_without_a_timeout_waits_until_each_record_is_acknowledged_or_has_failed(
    frozen_broker: Broker,
) -> None:
    broker = frozen_broker
    stream = Stream(Topics(broker.bootstrap_servers).create("clicks"), key=String(), value=Long())
    with Emitter(stream, Kafka(broker.bootstrap_servers), delivery_timeout=2) as emitter:
        acknowledged = emitter.emit("alice", 1)
        emitter.flush()
        assert acknowledged.done()
        broker.pause()
        lost = emitter.emit("alice", 2)
        with pytest.raises(RetryLater, match="1 records failed"):
            emitter.flush()
        assert isinstance(lost.exception(0), RetryLater)


def test_a_broker_that_answers_again_acknowledges_what_was_emitted_meanwhile(frozen_broker: Broker) -> None:
    broker = frozen_broker
    topics = Topics(broker.bootstrap_servers)
    stream = Stream(topics.create("clicks", partitions=1), key=String(), value=Long())
    with Emitter(stream, Kafka(broker.bootstrap_servers), close_timeout=60) as emitter:
        emitter.emit_now("alice", 0)
        broker.pause()
        futures = [emitter.emit("alice", n) for n in range(1, 50)]
        assert wait(futures, timeout=0.5).done == set()
        broker.resume()
    assert [future.result().offset for future in futures] == list(range(1, 50))


# ---- what no broker produces on demand ------------------------------------------------------------------------------


class HeldProducer:
    """A producer that answers when the test says so."""

    full = False

    def __init__(self) -> None:
        self.waiting: list[Callable[[Ack | StreamtableError], None]] = []
        self.closed_with: list[float] = []

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        done: Callable[[Ack | StreamtableError], None],
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        if self.full:
            raise QueueFull("no room", topic=topic)
        self.waiting.append(done)

    def answer(self, answer: Ack | StreamtableError) -> None:
        self.waiting.pop(0)(answer)

    def flush(self, timeout: float) -> int:
        return len(self.waiting)

    def close(self, timeout: float) -> None:
        self.closed_with.append(timeout)
        while self.waiting:
            self.answer(RetryLater("not acknowledged in time"))


class HeldLog:
    def __init__(self) -> None:
        self.held = HeldProducer()

    def producer(self, partitioner: Partitioner, delivery_timeout: float) -> HeldProducer:
        del partitioner, delivery_timeout  # what they are for is tested with a broker
        return self.held

    def __getattr__(self, name: str) -> Any:  # the rest of the port is not for emitters
        raise AttributeError(name)


CLICKS = Stream("user-clicks", key=String(), value=Long())


@pytest.fixture
def log() -> HeldLog:
    return HeldLog()


@pytest.fixture
def emitter(log: HeldLog) -> Iterator[Emitter[str, int]]:
    made: Emitter[str, int] = Emitter(CLICKS, as_log(log))
    yield made
    try:
        made.close()
    except RetryLater:
        assert log.held.closed_with, "what a test left unanswered fails here, not later"


def as_log(log: Any) -> Log:
    known: Log = log
    return known


def test_a_value_that_does_not_fit_its_codec_is_refused_before_anything_is_queued(
    log: HeldLog, emitter: Emitter[str, Any]
) -> None:
    with pytest.raises(SerializationError) as refused:
        emitter.emit("alice", "not a number")
    assert refused.value.topic == "user-clicks"
    assert log.held.waiting == []


def test_a_record_without_a_key_is_refused(log: HeldLog, emitter: Emitter[Any, int]) -> None:
    with pytest.raises(SerializationError, match="key"):
        emitter.emit(None, 1)
    assert log.held.waiting == []


@pytest.mark.parametrize("time", [-5, -1, 1 << 63, 1.5, 0.0, "now", True])
def test_a_timestamp_that_is_none_is_refused_before_anything_is_queued(
    log: HeldLog, emitter: Emitter[str, int], time: Any
) -> None:
    """Kafka would write a negative one as no timestamp at all."""
    with pytest.raises(SerializationError, match="milliseconds since 1970"):
        emitter.emit("k", 1, timestamp_ms=time)
    assert log.held.waiting == []


def test_a_failure_that_was_looked_at_does_not_come_again_from_flush(
    log: HeldLog, emitter: Emitter[str, int]
) -> None:
    future = emitter.emit("alice", 1)
    log.held.answer(RetryLater("no answer"))
    with pytest.raises(RetryLater):
        future.result(0)
    assert isinstance(future.exception(0), RetryLater)
    emitter.flush(1)
    emitter.close()


def test_a_failure_that_a_callback_saw_does_not_come_again_from_flush(
    log: HeldLog, emitter: Emitter[str, int]
) -> None:
    seen: list[BaseException | None] = []
    emitter.emit("alice", 1).add_done_callback(lambda future: seen.append(future.exception()))
    log.held.answer(RetryLater("no answer"))
    emitter.flush(1)
    assert len(seen) == 1


def test_a_failure_whose_future_was_not_read_comes_once_from_flush_with_its_kind(
    log: HeldLog, emitter: Emitter[str, int]
) -> None:
    unseen = emitter.emit("alice", 1)
    seen = emitter.emit("bob", 2)
    log.held.answer(Fenced("another producer"))
    log.held.answer(RetryLater("no answer"))
    seen.exception(0)
    with pytest.raises(Fenced, match="1 records failed: another producer"):
        emitter.flush(1)
    emitter.flush(1)
    unseen.exception(0)
    emitter.emit("carol", 3)
    log.held.answer(RetryLater("no answer"))
    with pytest.raises(RetryLater, match="1 records failed"):
        emitter.flush(1)


def test_a_right_that_the_user_lacks_is_raised_as_such_when_the_emitter_closes(
    log: HeldLog, emitter: Emitter[str, int]
) -> None:
    emitter.emit("alice", 1)
    log.held.answer(
        AuthorizationError(
            user="ann", operation="WRITE", resource="topic", name="user-clicks", reason="denied"
        )
    )
    with pytest.raises(
        AuthorizationError, match="1 records failed: user 'ann' lacks the right WRITE"
    ) as failed:
        emitter.close()
    assert (failed.value.operation, failed.value.topic) == ("WRITE", "user-clicks")


def test_leaving_the_block_closes_and_tells_of_failures_unless_another_error_is_on_its_way(
    log: HeldLog,
) -> None:
    with (
        pytest.raises(RetryLater, match="1 records failed"),
        Emitter(CLICKS, as_log(log), close_timeout=7) as emitter,
    ):
        emitter.emit("alice", 1)
    assert log.held.closed_with == [7]
    other = Emitter(CLICKS, as_log(log))
    other.emit("alice", 1)
    with pytest.raises(ZeroDivisionError), other:
        other.emit("bob", 1 // 0)
    assert len(log.held.closed_with) == 2


def test_a_closed_emitter_takes_no_more_records_and_closes_once(
    log: HeldLog, emitter: Emitter[str, int]
) -> None:
    emitter.close(3)
    emitter.close()
    assert log.held.closed_with == [3]
    with pytest.raises(RetryLater, match="closed"):
        emitter.emit("alice", 1)


def test_a_key_in_a_window_goes_where_the_records_of_its_key_are(broker: Broker, topics: Topics) -> None:
    stream = Stream(topics.create("counts", partitions=8), key=WindowedKey(String(), 60_000), value=Long())
    with Emitter(stream, Kafka(broker.bootstrap_servers)) as emitter:
        acks = {
            (key, start): emitter.emit(Windowed(key, start, start + 60_000), 1)
            for key in "abc"
            for start in (0, 60_000)
        }
    assert {key: ack.result().partition for (key, _), ack in acks.items()} == {
        key: partition_for(key.encode(), 8) for key in "abc"
    }
    missing = Stream(topics.name("none"), key=WindowedKey(String(), 60_000), value=Long())
    with (
        Emitter(missing, Kafka(broker.bootstrap_servers)) as emitter,
        pytest.raises(RetryLater, match="topics apply"),
    ):
        emitter.emit(Windowed("a", 0, 60_000), 1)


def test_a_record_on_its_way_cannot_be_cancelled(log: HeldLog, emitter: Emitter[str, int]) -> None:
    future = emitter.emit("alice", 1)
    assert not future.cancel()
    log.held.answer(Ack("user-clicks", 0, 5))
    assert future.result(0).offset == 5


def test_a_record_that_finds_no_room_fails_by_its_future_and_counts_as_a_failure(
    log: HeldLog, emitter: Emitter[str, int]
) -> None:
    log.held.full = True
    future = emitter.emit("alice", 1)
    with pytest.raises(QueueFull):
        emitter.flush(1)
    assert isinstance(future.exception(0), QueueFull)
