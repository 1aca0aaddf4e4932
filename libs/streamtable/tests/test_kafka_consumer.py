"""Members of a group on a real broker, under both group protocols."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Partition

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline, wait_until
from streamtable.base.types import Committed, NextOffset, RecordBatch, TopicPartition
from streamtable.errors import InputLost, Migrated, RetryLater, TransactionPending
from streamtable.kafka import Kafka
from streamtable.kafka.cluster import KafkaCluster
from streamtable.kafka.consumer import KafkaGroupConsumer, membership_of

WITHIN_S = 30
Protocol = Literal["consumer", "classic"]
both_protocols = pytest.mark.parametrize("protocol", ["consumer", "classic"])


class Listener:
    """Keeps the callbacks that it got; `on_revoked` runs in the callback."""

    def __init__(self, on_assigned: Callable[[], None] = lambda: None) -> None:
        self.owned: set[TopicPartition] = set()
        self.on_assigned = on_assigned
        self.on_revoked: Callable[[Sequence[TopicPartition]], None] = lambda _: None

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        self.owned.update(places)
        self.on_assigned()

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self.on_revoked(places)
        self.owned.difference_update(places)

    def lost(self, places: Sequence[TopicPartition]) -> None:
        self.owned.difference_update(places)


class Member:
    def __init__(self, kafka: Kafka, group: str, topics: list[str], instance: str = "1") -> None:
        self.listener = Listener()
        self.consumer: KafkaGroupConsumer = kafka.group_consumer(group, instance)
        self.consumer.subscribe(topics, self.listener)

    @property
    def owned(self) -> set[TopicPartition]:
        return self.listener.owned

    def start(self, offset: int = 0) -> None:
        for place in self.owned:
            self.consumer.seek(place, offset)
        self.consumer.resume(self.owned)

    def take(self, count: int) -> list[RecordBatch]:
        """Poll until this many records are here."""
        taken: list[RecordBatch] = []
        deadline = Deadline(WITHIN_S)
        while sum(map(len, taken)) < count and not deadline.passed():
            taken += self.consumer.poll(1000, 0.1)
        return taken


Join = Callable[..., Member]


@pytest.fixture
def join(broker: Broker) -> Iterator[Join]:
    """Start a member and poll it until it owns something."""
    members: list[Member] = []

    def start(protocol: Protocol, group: str, topics: list[str], *, wait: bool = True) -> Member:
        kafka = Kafka(broker.bootstrap_servers, group_protocol=protocol)
        member = Member(kafka, group, topics, str(len(members)))
        members.append(member)
        if wait:
            until(lambda: bool(member.owned), member)
        return member

    yield start
    for member in members:
        member.consumer.close()


def until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = Deadline(WITHIN_S)
    while not condition():
        assert not deadline.passed(), [member.owned for member in members]
        for member in members:
            member.consumer.poll(100, 0.05)


def fill(kafka: Kafka, topic: str, partition: int, count: int) -> None:
    outbox = kafka.transactional_producer(None)
    for index in range(count):
        outbox.produce(topic, b"key", b"%d" % index, partition=partition)
    outbox.flush(WITHIN_S)
    outbox.close()


@both_protocols
def test_assigned_partitions_stay_silent_until_resumed_and_then_start_exactly_at_the_seek(
    protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=2)
    for partition in range(2):
        fill(Kafka(broker.bootstrap_servers), topic, partition, 10)
    member = join(protocol, topics.name("g"), [topic])
    assert member.consumer.poll(100, 0.3) == []
    member.start(4)
    taken = member.take(12)
    offsets = {
        place: [o for batch in taken if batch.place == place for o in batch.offsets] for place in member.owned
    }
    assert offsets == {place: [4, 5, 6, 7, 8, 9] for place in member.owned}


@both_protocols
@pytest.mark.parametrize("offset", [0, 3])
def test_a_resumed_partition_delivers_without_the_fetchers_pause_of_a_second(
    offset: int, protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=1)
    fill(Kafka(broker.bootstrap_servers), topic, 0, 10)
    member = join(protocol, topics.name("g"), [topic])

    def seconds_of_a_turn() -> float:
        member.start(offset)
        began = time.monotonic()
        member.take(10 - offset)
        waited = time.monotonic() - began
        member.consumer.pause(member.owned)
        member.consumer.poll(10, 0.2)
        return waited

    wait_until(
        lambda: seconds_of_a_turn() < 0.6
    )  # a busy machine may take longer now and then, the pause comes each time


def test_new_partitions_that_are_resumed_together_do_not_wait_for_one_answer_after_the_other(
    broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=48)
    member = join("consumer", topics.name("g"), [topic])
    until(lambda: len(member.owned) == 48, member)

    def seconds_of_a_start() -> float:
        began = time.monotonic()
        member.start(0)
        return time.monotonic() - began

    wait_until(
        lambda: seconds_of_a_start() < 0.5
    )  # with an answer for each it takes 5 s, also on a fast machine


def test_an_empty_partition_that_is_resumed_is_read_without_an_error(
    broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=1)
    member = join("consumer", topics.name("g"), [topic])
    for _ in range(20):
        member.start(0)
        assert member.consumer.poll(10, 0.05) == []
        member.consumer.pause(member.owned)
    fill(Kafka(broker.bootstrap_servers), topic, 0, 3)
    member.start(0)
    assert sum(len(batch) for batch in member.take(3)) == 3


def test_a_seek_throws_away_what_was_fetched_ahead(broker: Broker, topics: Topics, join: Join) -> None:
    topic = topics.create("in", partitions=1)
    fill(Kafka(broker.bootstrap_servers), topic, 0, 100)
    member = join("consumer", topics.name("g"), [topic])
    member.start()
    member.take(1)
    member.consumer.seek(TopicPartition(topic, 0), 7)
    assert member.take(93)[0].first_offset == 7


def test_a_partition_resumed_before_any_seek_is_a_mistake(broker: Broker, topics: Topics, join: Join) -> None:
    member = join("consumer", topics.name("g"), [topics.create("in")])
    with pytest.raises(AssertionError, match="resumed before a seek"):
        member.consumer.resume(member.owned)


def test_a_seek_elsewhere_says_that_the_partition_is_not_ours(
    broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=1)
    member = join("consumer", topics.name("g"), [topic])
    with pytest.raises(Migrated):
        member.consumer.seek(TopicPartition(topic, 5), 0)


@both_protocols
def test_two_members_own_the_same_partition_numbers_of_both_topics(
    protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    names = [topics.create("a", partitions=4), topics.create("b", partitions=4)]
    first = join(protocol, topics.name("g"), names)
    second = join(protocol, topics.name("g"), names, wait=False)
    until(lambda: len(first.owned) == len(second.owned) == 4, first, second)
    for member in (first, second):
        numbers = [{place.partition for place in member.owned if place.topic == name} for name in names]
        assert numbers[0] == numbers[1]
    assert not first.owned & second.owned


@both_protocols
def test_a_revoked_partition_can_still_be_committed_in_a_transaction(
    protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=2)
    member = join(protocol, topics.name("g"), [topic])
    outbox = Kafka(broker.bootstrap_servers).transactional_producer(topics.name("tx"))
    outbox.open(WITHIN_S)

    def commit(places: Sequence[TopicPartition]) -> None:
        outbox.begin()
        offsets = {place: Committed(NextOffset(5), "from the callback") for place in places}
        outbox.send_offsets(offsets, member.consumer.membership())
        outbox.commit(WITHIN_S)

    member.listener.on_revoked = commit
    other = join(protocol, topics.name("g"), [topic], wait=False)
    until(lambda: len(member.owned) == len(other.owned) == 1, member, other)
    member.listener.on_revoked = lambda _: None
    (moved,) = other.owned
    assert stable(Kafka(broker.bootstrap_servers).cluster(), topics.name("g"), moved) == Committed(
        NextOffset(5), "from the callback"
    )
    outbox.close()


@both_protocols
def test_an_exception_in_the_listener_comes_out_of_every_later_poll(
    protocol: Protocol, broker: Broker, topics: Topics
) -> None:
    topic = topics.create("in", partitions=1)
    fill(Kafka(broker.bootstrap_servers), topic, 0, 10)
    consumer = Kafka(broker.bootstrap_servers, group_protocol=protocol).group_consumer(topics.name("g"), "1")

    def fail() -> None:
        raise ZeroDivisionError

    def poll_on() -> None:
        deadline = Deadline(WITHIN_S)
        while not deadline.passed():
            consumer.poll(10, 0.1)

    consumer.subscribe([topic], Listener(fail))
    with pytest.raises(ZeroDivisionError):
        poll_on()
    with pytest.raises(ZeroDivisionError):
        consumer.poll(10, 0.1)
    with pytest.raises(ZeroDivisionError):
        consumer.close()


def test_a_position_that_the_topic_does_not_hold_is_lost_input(
    broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=1)
    member = join("consumer", topics.name("g"), [topic])
    member.start(99)
    with pytest.raises(InputLost) as caught:
        member.take(1)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 99)


@both_protocols
def test_a_seek_after_the_position_was_lost_unseen_is_lost_input(
    protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=1)
    fill(Kafka(broker.bootstrap_servers), topic, 0, 3)
    member = join(protocol, topics.name("g"), [topic])
    member.start(99)

    def go_back() -> None:
        member.consumer.seek(TopicPartition(topic, 0), 98)
        member.consumer.resume(member.owned)

    # As after a frozen process, or a long commit: the client has found out and stopped the partition, and the error
    # that says so waits for a poll when the engine goes back to its committed offset.
    with pytest.raises(InputLost, match="holds 0 to 3") as caught:
        wait_until(go_back, WITHIN_S, "the loss")
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 98)


@both_protocols
def test_a_partition_that_an_error_of_its_former_assignment_has_stopped_is_read_after_joining_again(
    protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=1)
    fill(Kafka(broker.bootstrap_servers), topic, 0, 3)
    member = join(protocol, topics.name("g"), [topic])
    client = member.consumer._consumer
    # A process that was frozen while its input was purged gets the answer to its last request after the partition has
    # been assigned to it again. That moment is hit rarely, so the assignment itself is out of range here.
    beyond = [Partition(topic, 0, 99)]
    if protocol == "consumer":
        client.incremental_unassign(beyond)
        client.incremental_assign(beyond)
    else:
        client.assign(beyond)
    client.resume(beyond)

    errors: list[Message] = []

    def stopped() -> bool:
        member.consumer._records.take(10, 0.1, errors.append)
        return bool(errors)

    wait_until(stopped, WITHIN_S, "the client has stopped the partition")
    member.start()
    until(lambda: not member.owned, member)
    until(lambda: bool(member.owned), member)
    member.start()
    assert [offset for batch in member.take(3) for offset in batch.offsets] == [0, 1, 2]


@both_protocols
def test_a_member_that_joins_again_loses_its_partitions_and_gets_them_as_a_new_member(
    protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    member = join(protocol, topics.name("g"), [topics.create("in", partitions=2)])
    before = member.consumer.membership().member_id
    member.consumer.join_again()
    until(lambda: not member.owned, member)
    until(lambda: len(member.owned) == 2, member)
    assert member.consumer.membership().member_id not in {"", before}


@both_protocols
def test_committed_offsets_come_back_with_their_metadata(
    protocol: Protocol, broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=2)
    consumer = join(protocol, topics.name("g"), [topic]).consumer
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.commit({place: Committed(NextOffset(3), "17")})
    found = Kafka(broker.bootstrap_servers).cluster().stable_offsets(topics.name("g"), [place, other])
    assert found == {place: Committed(NextOffset(3), "17"), other: None}


def test_offsets_in_an_open_transaction_are_neither_old_nor_none_but_ask_again(
    broker: Broker, topics: Topics, join: Join
) -> None:
    topic = topics.create("in", partitions=1)
    consumer = join("consumer", topics.name("g"), [topic]).consumer
    place = TopicPartition(topic, 0)
    consumer.commit({place: Committed(NextOffset(3))})
    outbox = Kafka(broker.bootstrap_servers).transactional_producer(topics.name("tx"))
    outbox.open(WITHIN_S)
    outbox.begin()
    outbox.send_offsets({place: Committed(NextOffset(4))}, consumer.membership())
    cluster = Kafka(broker.bootstrap_servers).cluster()
    deadline = Deadline(WITHIN_S)
    while (error := unanswered(cluster, topics.name("g"), place)) is not TransactionPending:
        assert error is RetryLater  # not connected yet
        assert not deadline.passed()
    outbox.commit(WITHIN_S)
    assert stable(cluster, topics.name("g"), place) == Committed(NextOffset(4))
    outbox.close()


def test_nothing_is_committed_before_the_group_was_joined(broker: Broker, topics: Topics) -> None:
    topic = topics.create("in", partitions=1)
    consumer = Kafka(broker.bootstrap_servers).group_consumer(topics.name("g"), "1")
    assert consumer.membership().member_id == ""
    with pytest.raises(Migrated):
        consumer.commit({TopicPartition(topic, 0): Committed(NextOffset(3))})
    consumer.close()


def test_a_member_leaves_soon_and_may_be_closed_twice(broker: Broker, topics: Topics, join: Join) -> None:
    consumer = join("consumer", topics.name("g"), [topics.create("in", partitions=1)]).consumer
    end = Deadline(3)
    consumer.close()
    consumer.close()
    assert not end.passed()


def test_an_unknown_form_of_group_metadata_is_refused() -> None:
    with pytest.raises(AssertionError, match="unknown form"):
        membership_of(b"CGMDv3:", "me")


def unanswered(cluster: KafkaCluster, group: str, place: TopicPartition) -> type[Exception]:
    with pytest.raises(RetryLater) as caught:
        cluster.stable_offsets(group, [place])
    return caught.type


def stable(cluster: KafkaCluster, group: str, place: TopicPartition) -> Committed | None:
    """The committed offset, as soon as the markers of the transaction are written."""
    deadline = Deadline(WITHIN_S)
    while True:
        try:
            return cluster.stable_offsets(group, [place])[place]
        except RetryLater:
            assert not deadline.passed()


def test_a_static_member_waits_until_the_session_of_its_instance_id_has_ended(
    broker: Broker, topics: Topics
) -> None:
    topic = topics.create("in", partitions=1)
    kafka = Kafka(broker.bootstrap_servers, static_membership=True)
    first = Member(kafka, topics.name("g"), [topic], "same")
    until(lambda: bool(first.owned), first)
    second = Member(kafka, topics.name("g"), [topic], "same")
    refused_until = time.monotonic() + 2.5
    until(lambda: time.monotonic() > refused_until, second)
    assert second.owned == set()
    first.consumer.close()
    until(lambda: bool(second.owned), second)
    second.consumer.close()


@both_protocols
def test_an_error_of_a_former_assignment_is_not_one_of_the_next(
    broker: Broker, topics: Topics, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that wakes after its session gets its partitions again, and the answer to what it had asked before."""
    place = TopicPartition(topics.create("in", partitions=1), 0)
    member = Member(Kafka(broker.bootstrap_servers, group_protocol=protocol), topics.name("g"), [place.topic])
    wait_until(lambda: bool(member.consumer.poll(10, 0.1)) or member.owned == {place}, WITHIN_S)
    late = Message(topic=place.topic, partition=0, offset=7, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))

    def take(_count: int, _timeout: float, on_error: Callable[[Message], None]) -> list[RecordBatch]:
        on_error(late)
        return []

    monkeypatch.setattr(member.consumer._records, "take", take)
    assert member.consumer.poll(10, 0.1) == []
    member.start()
    with pytest.raises(InputLost):
        member.consumer.poll(10, 0.1)
    member.consumer.close()
