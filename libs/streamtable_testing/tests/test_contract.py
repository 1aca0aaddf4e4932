"""The ports' promises, asked of the virtual Kafka and of a real one by the same tests: the copy must not drift."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient

from localkafka.fixtures import Topics
from localkafka.waiting import Deadline, wait_until
from streamtable.base.ports import GroupConsumer, Log, TableReader, TransactionalProducer
from streamtable.base.types import Ack, Committed, NextOffset, RecordBatch, TopicPartition
from streamtable.errors import (
    Fenced,
    InputLost,
    Migrated,
    OutcomeUnknown,
    RetryLater,
    RewindNeeded,
    SerializationError,
    StreamtableError,
)
from streamtable.kafka import Kafka
from streamtable_testing.clock import VirtualClock
from streamtable_testing.log import VirtualKafka

WITHIN_S = 30.0


@dataclass
class Place:
    """A log, real or not, with names of this test's own."""

    log: Log
    name: Callable[[str], str]
    create: Callable[..., str]
    delete_records: Callable[[TopicPartition, int], None]
    stack: ExitStack

    def transactional_producer(self, transactional_id: str | None) -> TransactionalProducer:
        made = self.log.transactional_producer(transactional_id and self.name(transactional_id))
        self.stack.callback(made.close)
        made.open(WITHIN_S)
        return made

    def reader(self) -> TableReader:
        made = self.log.table_reader("test")
        self.stack.callback(made.close)
        return made

    def end(self, place: TopicPartition) -> int:
        return self.log.cluster().watermarks([place])[place].high

    def fill(self, topic: str, count: int, partition: int = 0) -> None:
        outbox = self.transactional_producer(None)
        for index in range(count):
            outbox.produce(topic, b"key", b"%d" % index, partition=partition)
        outbox.flush(WITHIN_S)

    def visible(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Return the values that a `read_committed` consumer reads up to the end of the partition."""
        place = TopicPartition(topic, partition)
        reader = self.reader()
        reader.assign({place: 0})
        return [value for batch in read_to(reader, place, self.end(place)) for value in batch.values]

    def join(self, topics: Sequence[str], *, wait: bool = True) -> "Member":
        member = Member(self, list(topics))
        if wait:
            until(lambda: bool(member.owned), member)
        return member

    def stable(self, place: TopicPartition) -> Committed | None:
        """The committed offset, as soon as it is not pending."""
        deadline = Deadline(WITHIN_S)
        while True:
            try:
                return self.log.cluster().stable_offsets(self.name("g"), [place])[place]
            except RetryLater:
                assert not deadline.passed()


class Member:
    """A member of the group "g" that records the callbacks of its listener; `on_...` run in the callbacks."""

    def __init__(self, place: Place, topics: list[str]) -> None:
        self.owned: set[TopicPartition] = set()
        self.on_assigned: Callable[[], None] = lambda: None
        self.on_revoked: Callable[[Sequence[TopicPartition]], None] = lambda _: None
        self.consumer: GroupConsumer = place.log.group_consumer(place.name("g"), "1")
        place.stack.callback(self.consumer.close)
        self.consumer.subscribe(topics, self)

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        self.owned.update(places)
        self.on_assigned()

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self.on_revoked(places)
        self.owned.difference_update(places)

    def lost(self, places: Sequence[TopicPartition]) -> None:
        self.owned.difference_update(places)

    def start(self, offset: int = 0) -> None:
        for place in self.owned:
            self.consumer.seek(place, offset)
        self.consumer.resume(self.owned)

    def take(self, count: int) -> list[RecordBatch]:
        """Poll until this many records are here."""
        taken: list[RecordBatch] = []
        deadline = Deadline(WITHIN_S)
        while sum(map(len, taken)) < count:
            assert not deadline.passed()
            taken += self.consumer.poll(1000, 0.1)
        return taken


def until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = Deadline(WITHIN_S)
    while not condition():
        assert not deadline.passed(), [member.owned for member in members]
        for member in members:
            member.consumer.poll(100, 0.05)


def read_to(reader: TableReader, place: TopicPartition, target: int) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    deadline = Deadline(WITHIN_S)
    while reader.position(place) < target:
        assert not deadline.passed(), reader.position(place)
        batches += reader.poll(1000, 0.1)
    return batches


def virtual_place(stack: ExitStack) -> Place:
    kafka = VirtualKafka(VirtualClock())

    def create(name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        given = config or {}
        kafka.create_topic(
            name,
            partitions,
            compacted=given.get("cleanup.policy") == "compact",
            max_message_bytes=int(given.get("max.message.bytes", 1_048_588)),
        )
        return name

    return Place(kafka, str, create, kafka.delete_records, stack)


def real_place(stack: ExitStack, topics: Topics, bootstrap_servers: str) -> Place:
    def create(name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return topics.create(name, partitions=partitions, config=config)

    def delete_records(place: TopicPartition, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        for deleted in admin.delete_records([Partition(*place, before)]).values():
            deleted.result(WITHIN_S)

    return Place(Kafka(bootstrap_servers), topics.name, create, delete_records, stack)


@pytest.fixture(params=["virtual", pytest.param("real", marks=pytest.mark.broker)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "virtual":
            yield virtual_place(stack)
        else:
            topics = request.getfixturevalue("topics")
            yield real_place(stack, topics, request.getfixturevalue("broker").bootstrap_servers)
            stack.close()  # before the topics are deleted


# ---- members ---------------------------------------------------------------------------------------------------------


def test_assigned_partitions_stay_silent_until_resumed_and_then_start_exactly_at_the_seek(
    place: Place,
) -> None:
    topic = place.create("in", partitions=2)
    for partition in range(2):
        place.fill(topic, 10, partition)
    member = place.join([topic])
    assert member.consumer.poll(100, 0.3) == []
    member.start(4)
    taken = member.take(12)
    offsets = {
        each: [o for batch in taken if batch.place == each for o in batch.offsets] for each in member.owned
    }
    assert offsets == {each: [4, 5, 6, 7, 8, 9] for each in member.owned}


def test_a_poll_returns_no_more_records_than_it_may(place: Place) -> None:
    topic = place.create("in")
    place.fill(topic, 10)
    member = place.join([topic])
    member.start()
    member.take(1)
    member.consumer.seek(TopicPartition(topic, 0), 0)
    sizes = [sum(map(len, member.consumer.poll(4, 0.5))) for _ in range(4)]
    assert max(sizes) <= 4


def test_a_paused_partition_is_silent_and_goes_on_where_it_was(place: Place) -> None:
    topic = place.create("in")
    place.fill(topic, 3)
    member = place.join([topic])
    member.start()
    member.take(3)
    member.consumer.pause(member.owned)
    place.fill(topic, 2)
    assert member.consumer.poll(100, 0.3) == []
    member.consumer.resume(member.owned)
    assert member.take(2)[0].first_offset == 3


def test_a_seek_back_delivers_again(place: Place) -> None:
    topic = place.create("in")
    place.fill(topic, 100)
    member = place.join([topic])
    member.start()
    member.take(1)
    member.consumer.seek(TopicPartition(topic, 0), 7)
    assert member.take(93)[0].first_offset == 7


def test_a_partition_resumed_before_any_seek_is_a_mistake(place: Place) -> None:
    member = place.join([place.create("in")])
    with pytest.raises(AssertionError, match="resumed before a seek"):
        member.consumer.resume(member.owned)


def test_a_seek_elsewhere_says_that_the_partition_is_not_ours(place: Place) -> None:
    topic = place.create("in")
    member = place.join([topic])
    with pytest.raises(Migrated):
        member.consumer.seek(TopicPartition(topic, 5), 0)


def test_two_members_own_the_same_partition_numbers_of_both_topics(place: Place) -> None:
    names = [place.create("a", partitions=5), place.create("b", partitions=5)]
    first = place.join(names)
    until(lambda: len(first.owned) == 10, first)
    second = place.join(names, wait=False)
    until(lambda: len(first.owned) < 10 and len(first.owned) + len(second.owned) == 10, first, second)
    for member in (first, second):
        numbers = [{each.partition for each in member.owned if each.topic == name} for name in names]
        assert numbers[0] == numbers[1]
        assert len(numbers[0]) in {2, 3}
    assert not first.owned & second.owned


def test_a_revoked_partition_can_still_be_committed_in_a_transaction(place: Place) -> None:
    topic = place.create("in", partitions=2)
    member = place.join([topic])
    until(lambda: len(member.owned) == 2, member)
    outbox = place.transactional_producer("tx")

    def commit(places: Sequence[TopicPartition]) -> None:
        outbox.begin()
        offsets = {each: Committed(NextOffset(5), "from the callback") for each in places}
        outbox.send_offsets(offsets, member.consumer.membership())
        outbox.commit(WITHIN_S)

    member.on_revoked = commit
    other = place.join([topic], wait=False)
    until(lambda: len(member.owned) == len(other.owned) == 1, member, other)
    member.on_revoked = lambda _: None
    (moved,) = other.owned
    assert place.stable(moved) == Committed(NextOffset(5), "from the callback")


def test_what_a_member_leaves_goes_to_the_other(place: Place) -> None:
    topic = place.create("in", partitions=2)
    first = place.join([topic])
    second = place.join([topic], wait=False)
    until(lambda: len(first.owned) == len(second.owned) == 1, first, second)
    first.consumer.close()
    assert first.owned == set()
    until(lambda: len(second.owned) == 2, second)


def test_an_exception_in_the_listener_comes_out_of_every_later_poll(place: Place) -> None:
    member = Member(place, [place.create("in")])

    def fail() -> None:
        raise ZeroDivisionError

    member.on_assigned = fail
    with pytest.raises(ZeroDivisionError):
        until(lambda: False, member)
    with pytest.raises(ZeroDivisionError):
        member.consumer.poll(10, 0.1)
    with pytest.raises(ZeroDivisionError):
        member.consumer.close()


def test_a_position_that_the_topic_does_not_hold_is_lost_input(place: Place) -> None:
    topic = place.create("in")
    member = place.join([topic])

    def read() -> None:
        member.start(
            99
        )  # on a busy machine the client has stopped the partition by then, and the seek shows it
        member.take(1)

    with pytest.raises(InputLost) as caught:
        read()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 99)


def test_deleted_input_is_lost_input(place: Place) -> None:
    topic = place.create("in")
    place.fill(topic, 10)
    place.delete_records(TopicPartition(topic, 0), 5)
    assert place.log.cluster().watermarks([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): (5, 10)}
    member = place.join([topic])
    member.start(4)
    with pytest.raises(InputLost) as caught:
        member.take(1)
    assert caught.value.offset == 4


def test_a_member_may_commit_also_what_is_anothers(place: Place) -> None:
    topic = place.create("in", partitions=2)
    first = place.join([topic])
    second = place.join([topic], wait=False)
    until(lambda: len(first.owned) == len(second.owned) == 1, first, second)
    (others,) = second.owned
    first.consumer.commit({others: Committed(NextOffset(7))})
    assert place.stable(others) == Committed(NextOffset(7))


def test_a_membership_of_before_a_rebalance_is_stale(place: Place) -> None:
    topic = place.create("in", partitions=2)
    first = place.join([topic])
    until(lambda: len(first.owned) == 2, first)
    before = first.consumer.membership()
    second = place.join([topic], wait=False)
    until(lambda: len(first.owned) == len(second.owned) == 1, first, second)
    outbox = place.transactional_producer("tx")
    outbox.begin()
    with pytest.raises(Migrated, match="moved on"):
        outbox.send_offsets({each: Committed(NextOffset(1)) for each in second.owned}, before)
    outbox.abort(WITHIN_S)
    outbox.begin()
    mine = {each: Committed(NextOffset(1)) for each in first.owned}
    outbox.send_offsets(mine, first.consumer.membership())
    outbox.commit(WITHIN_S)
    assert {each: place.stable(each) for each in first.owned} == mine


def test_committed_offsets_come_back_with_their_metadata(place: Place) -> None:
    topic = place.create("in", partitions=2)
    consumer = place.join([topic]).consumer
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.commit({one: Committed(NextOffset(3), "17")})
    found = place.log.cluster().stable_offsets(place.name("g"), [one, other])
    assert found == {one: Committed(NextOffset(3), "17"), other: None}


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_in_an_open_transaction_are_neither_old_nor_none_but_ask_again(
    commit: bool,  # noqa: FBT001 - a parameter of the test
    place: Place,
) -> None:
    topic = place.create("in")
    consumer = place.join([topic]).consumer
    one = TopicPartition(topic, 0)
    consumer.commit({one: Committed(NextOffset(3))})
    outbox = place.transactional_producer("tx")
    outbox.begin()
    outbox.send_offsets({one: Committed(NextOffset(4))}, consumer.membership())
    with pytest.raises(RetryLater):
        place.log.cluster().stable_offsets(place.name("g"), [one])
    (outbox.commit if commit else outbox.abort)(WITHIN_S)
    assert place.stable(one) == Committed(NextOffset(4 if commit else 3))


def test_a_successor_ends_what_its_predecessor_left_pending(place: Place) -> None:
    topic = place.create("in")
    consumer = place.join([topic]).consumer
    one = TopicPartition(topic, 0)
    zombie = place.transactional_producer("tx")
    zombie.begin()
    zombie.send_offsets({one: Committed(NextOffset(4))}, consumer.membership())
    place.transactional_producer("tx")
    assert place.stable(one) is None


def test_offsets_whose_metadata_have_more_than_4095_characters_are_refused(place: Place) -> None:
    topic = place.create("in")
    member = place.join([topic])
    at = TopicPartition(topic, 0)
    fits, exceeds = Committed(NextOffset(1), "ä" * 4095), Committed(NextOffset(2), "x" * 4096)
    member.consumer.commit({at: fits})
    with pytest.raises(RetryLater):
        member.consumer.commit({at: exceeds})
    outbox = place.transactional_producer("tx")
    outbox.begin()
    with pytest.raises(RewindNeeded):
        outbox.send_offsets({at: exceeds}, member.consumer.membership())
    with pytest.raises(OutcomeUnknown):
        outbox.abort(WITHIN_S)
    assert place.stable(at) == fits


def test_nothing_is_committed_before_the_group_was_joined(place: Place) -> None:
    topic = place.create("in")
    member = Member(place, [topic])
    outside = member.consumer.membership()
    assert outside.member_id == ""
    with pytest.raises(Migrated):
        member.consumer.commit({TopicPartition(topic, 0): Committed(NextOffset(3))})
    outbox = place.transactional_producer("tx")
    outbox.begin()
    with pytest.raises(Migrated, match="joined"):
        outbox.send_offsets({TopicPartition(topic, 0): Committed(NextOffset(1))}, outside)
    outbox.abort(WITHIN_S)
    # librdkafka was seen to wait for ever when it is closed while its first assignment arrives.
    until(lambda: bool(member.owned), member)


def test_offsets_of_a_member_that_left_are_refused_and_the_producer_goes_on(place: Place) -> None:
    topic = place.create("in")
    member = place.join([topic])
    membership = member.consumer.membership()
    member.consumer.close()
    outbox = place.transactional_producer("tx")
    outbox.begin()
    with pytest.raises(Migrated, match="moved on"):
        outbox.send_offsets({TopicPartition(topic, 0): Committed(NextOffset(1))}, membership)
    outbox.abort(WITHIN_S)
    outbox.begin()
    outbox.commit(WITHIN_S)


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_flush_tells_the_offset_of_the_last_tracked_record_of_each_partition(place: Place) -> None:
    topic = place.create("out", partitions=2)
    outbox = place.transactional_producer("tx")
    outbox.begin()
    for partition in (0, 0, 1):
        outbox.produce(topic, b"key", b"value", partition=partition, tracked=True)
    outbox.produce(topic, b"key", b"untracked", partition=1)
    assert outbox.flush(WITHIN_S) == {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 0}
    outbox.commit(WITHIN_S)
    assert place.visible(topic, 1) == [b"value", b"untracked"]


def test_records_of_an_aborted_transaction_are_never_visible_but_take_offsets(place: Place) -> None:
    topic = place.create("out")
    outbox = place.transactional_producer("tx")
    for value, end in ((b"one", outbox.commit), (b"two", outbox.abort), (b"three", outbox.commit)):
        outbox.begin()
        outbox.produce(topic, b"key", value)
        outbox.flush(WITHIN_S)
        end(WITHIN_S)
    assert place.visible(topic) == [b"one", b"three"]
    assert place.end(TopicPartition(topic, 0)) == 6


def test_the_end_counts_what_is_not_committed_yet(place: Place) -> None:
    topic = place.create("out")
    outbox = place.transactional_producer("tx")
    outbox.begin()
    outbox.produce(topic, b"key", b"open")
    outbox.flush(WITHIN_S)
    assert place.end(TopicPartition(topic, 0)) == 1


def test_a_zombie_is_fenced_by_the_next_one_to_open_and_leaves_nothing_behind(place: Place) -> None:
    topic = place.create("out")
    zombie = place.transactional_producer("tx")
    zombie.begin()
    zombie.produce(topic, b"key", b"zombie")
    zombie.flush(WITHIN_S)
    owner = place.transactional_producer("tx")
    with pytest.raises(Fenced, match="instance id of its own"):
        zombie.commit(WITHIN_S)
    with pytest.raises(Fenced):
        zombie.begin()
    owner.begin()
    owner.produce(topic, b"key", b"owner")
    owner.commit(WITHIN_S)
    assert place.visible(topic) == [b"owner"]


def test_a_fenced_producer_says_so_whatever_is_asked_of_it(place: Place) -> None:
    topic = place.create("out")
    zombie = place.transactional_producer("tx")
    zombie.begin()
    zombie.produce(topic, b"key", b"first")
    zombie.flush(WITHIN_S)
    place.transactional_producer("tx")
    zombie.produce(topic, b"key", b"second")
    with pytest.raises(Fenced):
        zombie.flush(WITHIN_S)
    with pytest.raises(Fenced):
        zombie.abort(WITHIN_S)


@pytest.mark.parametrize("transactional_id", ["tx", None])
def test_a_record_larger_than_the_client_accepts_is_refused_at_once(
    transactional_id: str | None, place: Place
) -> None:
    topic = place.create("out")
    outbox = place.transactional_producer(transactional_id)
    outbox.begin()
    with pytest.raises(SerializationError):
        outbox.produce(topic, b"key", b"x" * (65 << 20))
    outbox.produce(topic, b"key", b"small")
    outbox.flush(WITHIN_S)
    outbox.commit(WITHIN_S)


def test_a_failed_record_without_a_report_fails_the_commit_and_ends_this_producer(place: Place) -> None:
    topic = place.create("out", config={"max.message.bytes": "1000"})
    outbox = place.transactional_producer("tx")
    outbox.begin()
    outbox.produce(topic, b"key", os.urandom(5_000))
    outbox.flush(WITHIN_S)
    with pytest.raises(SerializationError):
        outbox.commit(WITHIN_S)
    with pytest.raises(OutcomeUnknown, match="new producer"):
        outbox.abort(WITHIN_S)
    successor = place.transactional_producer("tx")
    successor.begin()
    successor.produce(topic, b"key", b"small", tracked=True)
    assert len(successor.flush(WITHIN_S)) == 1
    successor.commit(WITHIN_S)
    assert place.visible(topic) == [b"small"]


def test_without_transactions_flush_reports_a_failed_record_that_was_not_tracked(place: Place) -> None:
    topic = place.create("out", config={"max.message.bytes": "1000"})
    outbox = place.transactional_producer(None)
    outbox.produce(topic, b"key", os.urandom(5_000))
    with pytest.raises(SerializationError) as caught:
        outbox.flush(WITHIN_S)
    assert (caught.value.topic, caught.value.partition) == (topic, 0)
    outbox.produce(topic, b"key", b"small", tracked=True)
    assert outbox.flush(WITHIN_S) == {TopicPartition(topic, 0): 0}


def test_keys_go_to_the_partitions_that_java_gives_them(place: Place) -> None:
    topic = place.create("out", partitions=12)
    outbox = place.transactional_producer(None)
    expected = {b"alice": 9, b"bob": 6, b"carol": 2, b"user-1": 8, b"order-42": 0}
    for key in expected:
        outbox.produce(topic, key, key, tracked=True)
    assert {each.partition for each in outbox.flush(WITHIN_S)} == set(expected.values())
    assert place.visible(topic, 9) == [b"alice"]


def test_a_record_arrives_as_it_was_given(place: Place) -> None:
    topic = place.create("out", config={"retention.ms": "-1"})
    outbox = place.transactional_producer(None)
    outbox.produce(topic, None, None, headers=[("a", b"1"), ("a", None)], timestamp_ms=1234)
    outbox.produce(topic, b"", b"", partition=0)
    outbox.flush(WITHIN_S)
    reader = place.reader()
    reader.assign({TopicPartition(topic, 0): 0})
    first, second = (
        batch.part(index, index + 1)
        for batch in read_to(reader, TopicPartition(topic, 0), 2)
        for index in range(len(batch))
    )
    assert (first.keys, first.values, second.keys, second.values) == ([None], [None], [b""], [b""])
    assert list(first.headers(0)) == [("a", b"1"), ("a", None)]
    assert list(second.headers(0)) == []
    assert first.timestamp(0) == 1234
    assert second.timestamp(0) > 1_000_000_000_000


# ---- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_the_position_passes_the_markers_at_the_end(
    commit: bool,  # noqa: FBT001 - a parameter of the test
    place: Place,
) -> None:
    topic = place.create("table")
    one = TopicPartition(topic, 0)
    outbox = place.transactional_producer("tx")
    for values, end in (([b"a", b"b"], outbox.commit), ([b"c"], outbox.commit if commit else outbox.abort)):
        outbox.begin()
        for value in values:
            outbox.produce(topic, value, value)
        outbox.flush(WITHIN_S)
        end(WITHIN_S)
    # The coordinator answers before the marker is written.
    wait_until(lambda: place.end(one) == 5, what="the marker of the second transaction")
    reader = place.reader()
    reader.assign({one: 0})
    found = [value for batch in read_to(reader, one, 5) for value in batch.values]
    assert found == ([b"a", b"b", b"c"] if commit else [b"a", b"b"])
    assert reader.position(one) == 5


def test_nothing_of_an_open_transaction_is_shown_or_passed(place: Place) -> None:
    topic = place.create("table")
    one = TopicPartition(topic, 0)
    outbox = place.transactional_producer("tx")
    outbox.begin()
    outbox.produce(topic, b"k", b"open")
    outbox.flush(WITHIN_S)
    place.fill(topic, 1)  # behind it, so not to be seen either
    reader = place.reader()
    reader.assign({one: 0})
    assert reader.poll(10, 1) == []
    assert reader.position(one) == 0
    outbox.commit(WITHIN_S)
    assert [value for batch in read_to(reader, one, 3) for value in batch.values] == [b"open", b"0"]


def test_a_partition_added_later_starts_at_its_own_offset_and_one_given_back_is_silent(place: Place) -> None:
    topic = place.create("table", partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in (0, 1):
        place.fill(topic, 5, partition)
    reader = place.reader()
    reader.assign({first: 0})
    read_to(reader, first, 5)
    reader.assign({second: 3})
    assert [batch.values for batch in read_to(reader, second, 5)] == [[b"3", b"4"]]
    reader.unassign([first])
    place.fill(topic, 1)
    assert reader.poll(10, 0.5) == []
    with pytest.raises(KeyError):
        reader.position(first)
    reader.assign({first: 2})
    assert read_to(reader, first, 6)[0].first_offset == 2
    with pytest.raises(AssertionError, match="already read"):
        reader.assign({first: 0})


def test_an_offset_outside_of_the_changelog_is_reported_with_its_place(place: Place) -> None:
    one = TopicPartition(place.create("table"), 0)
    reader = place.reader()
    reader.assign({one: 99})
    with pytest.raises(InputLost) as caught:
        read_to(reader, one, 100)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (*one, 99)


# ---- questions, single records ---------------------------------------------------------------------------------------


def test_topics_are_described_and_unknown_ones_left_out(place: Place) -> None:
    topic = place.create(
        "table", partitions=3, config={"cleanup.policy": "compact", "max.message.bytes": "5000"}
    )
    other = place.create("other")
    found = place.log.cluster().topics([topic, other, place.name("unknown")])
    assert found.keys() == {topic, other}
    assert (found[topic].partitions, found[topic].compacted, found[topic].max_message_bytes) == (
        3,
        True,
        5000,
    )
    assert not found[other].compacted
    assert found[topic].delete_retention_ms == found[other].delete_retention_ms == 86_400_000
    assert found[other].max_message_bytes == 1_048_588
    assert found[topic].topic_id != found[other].topic_id


def test_the_ends_of_a_partition_that_is_not_there_are_asked_again(place: Place) -> None:
    with pytest.raises(RetryLater):
        place.log.cluster().watermarks([TopicPartition(place.name("unknown"), 0)])


def test_each_single_record_is_answered(place: Place) -> None:
    topic = place.create("events", partitions=12, config={"max.message.bytes": "1000", "retention.ms": "-1"})
    producer = place.log.producer()
    answers: list[Any] = []
    producer.produce(topic, b"alice", b"1", answers.append, headers=[("h", b"x")], timestamp_ms=77)
    producer.produce(topic, b"alice", None, answers.append)
    assert producer.flush(WITHIN_S) == 0
    producer.produce(topic, b"alice", os.urandom(2_000), answers.append)
    producer.close(WITHIN_S)
    assert answers[:2] == [Ack(topic, 9, 0), Ack(topic, 9, 1)]
    assert isinstance(answers[2], SerializationError)
    assert isinstance(answers[2], StreamtableError)
    assert place.visible(topic, 9) == [b"1", None]
