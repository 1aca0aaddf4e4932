"""Members that send no heartbeats, and the callbacks they get; the rest is in test_contract.py."""

from collections.abc import Sequence

import pytest

from streamtable import Count, Group, Input, Long, Persist, Stream, String
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.errors import Migrated
from streamtable_testing import Tester
from streamtable_testing.clock import VirtualClock
from streamtable_testing.faults import Fault, Faults
from streamtable_testing.log import VirtualKafka

OFFSETS = {TopicPartition("in", 0): Committed(NextOffset(1))}


class Listener:
    def __init__(self) -> None:
        self.callbacks: list[tuple[str, list[int]]] = []

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        self.callbacks.append(("assigned", [place.partition for place in places]))

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self.callbacks.append(("revoked", [place.partition for place in places]))

    def lost(self, places: Sequence[TopicPartition]) -> None:
        self.callbacks.append(("lost", [place.partition for place in places]))


class Member:
    def __init__(self, kafka: VirtualKafka, name: str) -> None:
        self.listener = Listener()
        self.consumer = kafka.process(name).group_consumer("g", name)
        self.consumer.subscribe(["in"], self.listener)

    def poll(self, times: int = 1) -> list[tuple[str, list[int]]]:
        """Step the member, and return the callbacks it got meanwhile."""
        for _ in range(times):
            self.consumer.poll(100, 0.01)
        callbacks, self.listener.callbacks = self.listener.callbacks, []
        return callbacks


class Adversary(Faults):
    """Loses the partitions that `losing` names; reports removals as `as_revocation` says."""

    as_revocation = False

    def __init__(self) -> None:
        self.losing: dict[tuple[str, str], Fault] = {}

    def before(self, process: str, call: str) -> Fault | None:
        return self.losing.get((process, call))

    def removal_told_as_revocation(self, process: str) -> bool:
        return self.as_revocation


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def faults() -> Adversary:
    return Adversary()


@pytest.fixture
def kafka(clock: VirtualClock, faults: Adversary) -> VirtualKafka:
    made = VirtualKafka(clock, faults, session_timeout=6.0)
    made.create_topic("in", 4)
    return made


def test_a_partition_goes_to_its_new_owner_only_after_the_old_one_has_given_it_up(
    kafka: VirtualKafka,
) -> None:
    first, second = Member(kafka, "first"), Member(kafka, "second")
    assert first.poll() == [("assigned", [0, 1, 2, 3])]
    assert second.poll(3) == []
    assert first.poll() == [("revoked", [2, 3])]
    assert second.poll(3) == []
    first.poll()
    assert second.poll() == [("assigned", [2, 3])]


def test_a_poll_may_return_records_of_a_partition_that_its_callback_has_taken_away(
    kafka: VirtualKafka,
) -> None:
    first, second = Member(kafka, "first"), Member(kafka, "second")
    first.poll()
    place = TopicPartition("in", 3)
    first.consumer.seek(place, 0)
    first.consumer.resume([place])
    second.poll()
    kafka.append("in", b"k", b"v", partition=3)
    assert [batch.place for batch in first.consumer.poll(10, 0)] == [place]
    assert first.poll(0) == [("revoked", [2, 3])]
    with pytest.raises(Migrated):
        first.consumer.seek(place, 0)


@pytest.mark.parametrize("as_revocation", [False, True])
def test_a_member_that_was_not_stepped_is_removed_and_refused_and_its_next_poll_reports_the_loss(
    as_revocation: bool,  # noqa: FBT001 - a parameter of the test
    kafka: VirtualKafka,
    clock: VirtualClock,
    faults: Adversary,
) -> None:
    faults.as_revocation = as_revocation
    zombie, other = Member(kafka, "zombie"), Member(kafka, "other")
    zombie.poll()
    clock.advance(6)
    assert other.poll(2) == [("assigned", [0, 1, 2, 3])]
    with pytest.raises(Migrated):
        zombie.consumer.commit(OFFSETS)
    outbox = kafka.transactional_producer("tx")
    outbox.open(1)
    outbox.begin()
    with pytest.raises(Migrated):
        outbox.send_offsets(OFFSETS, zombie.consumer.membership())
    assert zombie.poll() == [("revoked" if as_revocation else "lost", [0, 1, 2, 3])]
    assert zombie.consumer.membership().member_id == ""
    zombie.poll()
    other.poll(2)
    assert zombie.poll() == [("assigned", [2, 3])]


def test_a_membership_of_before_a_rebalance_is_stale(kafka: VirtualKafka) -> None:
    first, second = Member(kafka, "first"), Member(kafka, "second")
    first.poll()
    before = first.consumer.membership()
    second.poll()
    first.poll(2)
    outbox = kafka.transactional_producer("tx")
    outbox.open(1)
    outbox.begin()
    with pytest.raises(Migrated, match="moved on"):
        outbox.send_offsets(OFFSETS, before)
    outbox.abort(1)
    outbox.begin()
    outbox.send_offsets(OFFSETS, first.consumer.membership())
    outbox.commit(1)
    assert kafka.committed("g") == OFFSETS


def test_a_member_whose_heartbeats_are_lost_reads_on_as_a_zombie(
    kafka: VirtualKafka, clock: VirtualClock, faults: Adversary
) -> None:
    zombie, other = Member(kafka, "zombie"), Member(kafka, "other")
    zombie.poll()
    place = TopicPartition("in", 0)
    zombie.consumer.seek(place, 0)
    zombie.consumer.resume([place])
    faults.losing["zombie", "heartbeat"] = Fault.REQUEST_LOST
    clock.advance(6)
    other.poll(2)
    kafka.append("in", b"k", b"v", partition=0)
    assert len(zombie.consumer.poll(10, 0)) == 1
    with pytest.raises(Migrated):
        zombie.consumer.commit(OFFSETS)


def test_an_assignment_whose_answer_was_lost_comes_again(kafka: VirtualKafka, faults: Adversary) -> None:
    first, second = Member(kafka, "first"), Member(kafka, "second")
    faults.losing["first", "heartbeat"] = Fault.ANSWER_LOST
    assert first.poll() == []
    faults.losing.clear()
    assert second.poll() == []
    assert first.poll() == [("assigned", [2, 3])]  # it has rejoined, behind the other
    assert second.poll() == [("assigned", [0, 1])]


def test_a_late_heartbeat_gives_nothing_up_that_was_given_meanwhile(
    kafka: VirtualKafka, faults: Adversary
) -> None:
    first, second = Member(kafka, "first"), Member(kafka, "second")
    faults.losing["first", "heartbeat"] = Fault.LATE
    assert first.poll() == []
    faults.losing.clear()
    assert first.poll() == [("assigned", [0, 1, 2, 3])]
    kafka.deliver_late()
    assert second.poll(2) == []
    assert first.poll(2) == [("revoked", [2, 3])]


def test_a_late_fetch_of_a_revoked_partition_is_harmless(kafka: VirtualKafka, faults: Adversary) -> None:
    first, second = Member(kafka, "first"), Member(kafka, "second")
    first.poll()
    place = TopicPartition("in", 3)
    first.consumer.seek(place, 0)
    first.consumer.resume([place])
    second.poll()
    faults.losing["first", "fetch"] = Fault.LATE
    assert first.poll() == [("revoked", [2, 3])]
    kafka.deliver_late()


def test_a_member_that_cannot_say_goodbye_is_removed_when_its_session_ends(
    kafka: VirtualKafka, clock: VirtualClock, faults: Adversary
) -> None:
    first, second = Member(kafka, "first"), Member(kafka, "second")
    first.poll()
    faults.losing["first", "leave"] = Fault.REQUEST_LOST
    first.consumer.close()
    assert first.poll(0) == [("revoked", [0, 1, 2, 3])]
    assert second.poll() == []
    clock.advance(6)
    assert second.poll(2) == [("assigned", [0, 1, 2, 3])]


def test_a_group_starts_while_another_one_has_a_transaction_open(tester: Tester) -> None:
    """Its name begins as the other's, so its start asks which topics the other owns, as of before the transaction."""
    orders = Stream[str, str]("orders", String(), String())
    shop, shop_more = (
        Group[str, int](name, Input(orders, aggregate=Count()), Persist(Long()))
        for name in ("shop", "shop-more")
    )
    tester.run(shop)
    tester.crash(shop, "offsets-sent")
    tester.emit(orders, "a", "order")
    tester.run(shop_more)
    assert tester.table(shop_more) == {"a": 1}
