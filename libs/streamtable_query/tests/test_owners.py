"""Which process has a partition, as the coordinator says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from streamtable import Group, Input, Json, Kafka, Persist, Stream, String
from streamtable.base.types import TopicPartition
from streamtable.errors import ConfigurationError, NotReady
from streamtable.graph.group import Changes
from streamtable.kafka import GroupDescription, GroupMember
from streamtable_query import Query, QueryAddress
from streamtable_query.owners import PartitionOwners

DEADLINE = 1_000.0


@dataclass
class HandClock:
    seconds: float = 100.0

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Coordinator:
    """Says what a test sets, which a broker says only after a rebalance."""

    def __init__(self) -> None:
        self.clients: dict[int, str] = {}
        self.known = True
        self.asked = 0

    def describe_groups(self, names: Iterable[str]) -> Mapping[str, GroupDescription]:
        self.asked += 1
        members = tuple(
            GroupMember(
                "m", client, "10.0.0.9", "", (TopicPartition("in", partition), TopicPartition("other", 7))
            )
            for partition, client in self.clients.items()
        )
        group = GroupDescription("g", "stable", "consumer", "range", "broker:9092", members)
        return dict.fromkeys(names, group) if self.known else {}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def owners(coordinator: Coordinator, clock: HandClock) -> PartitionOwners:
    return PartitionOwners("g", "in", lambda: coordinator, clock)


def test_an_answer_of_the_coordinator_is_used_for_as_long_as_the_caller_allows(
    owners: PartitionOwners, coordinator: Coordinator, clock: HandClock
) -> None:
    coordinator.clients = {0: "streamtable-query@a:1"}
    assert owners.owner(0, since=clock.seconds - 5, deadline=DEADLINE).address == QueryAddress("a", 1)
    coordinator.clients = {0: "streamtable-query@b:1"}
    clock.seconds += 5
    assert owners.owner(0, since=clock.seconds - 5, deadline=DEADLINE).address == QueryAddress("a", 1)
    clock.seconds += 0.1
    found = owners.owner(0, since=clock.seconds - 5, deadline=DEADLINE)
    assert (found.address, found.confirmed_at) == (QueryAddress("b", 1), clock.seconds)
    assert coordinator.asked == 2


def test_the_time_of_confirmation_is_when_the_question_was_asked_not_when_it_was_answered(
    coordinator: Coordinator, clock: HandClock
) -> None:
    coordinator.clients = {0: "streamtable-query@a:1"}

    def slow() -> Coordinator:
        clock.seconds += 3
        return coordinator

    asked_at = clock.seconds
    assert (
        PartitionOwners("g", "in", slow, clock).owner(0, since=asked_at, deadline=DEADLINE).confirmed_at
        == asked_at
    )


def test_a_partition_of_another_topic_counts_for_nothing(
    owners: PartitionOwners, coordinator: Coordinator
) -> None:
    coordinator.clients = {0: "streamtable-query@a:1"}
    with pytest.raises(NotReady, match="has partition 7 at the moment: the group is stable"):
        owners.owner(7, since=0, deadline=DEADLINE)


def test_a_group_that_kafka_does_not_know_is_said_to_be_unknown(
    owners: PartitionOwners, coordinator: Coordinator
) -> None:
    coordinator.known = False
    with pytest.raises(NotReady, match="not known to Kafka: does it run"):
        owners.owner(0, since=0, deadline=DEADLINE)


def test_a_member_without_an_address_is_named(owners: PartitionOwners, coordinator: Coordinator) -> None:
    coordinator.clients = {0: "g.worker-1"}
    with pytest.raises(ConfigurationError, match=r"'g.worker-1' at 10.0.0.9"):
        owners.owner(0, since=0, deadline=DEADLINE)


def test_the_table_of_a_group_that_handles_changes_of_another_table_alone_can_be_asked() -> None:
    stream = Stream("in", String(), Json())
    first: Group[str, Any] = Group("first", Input(stream, lambda ctx, event: ctx.set(event)), Persist(Json()))
    changes: Changes[str, Any, Any] = Changes(first.table, lambda ctx, change: ctx.set(change.new))
    second: Group[str, Any] = Group("second", changes, Persist(Json()))
    with Query(Kafka("127.0.0.1:9"), second, second.table, timeout=0.1) as query, pytest.raises(NotReady):
        query.get("k")
