"""Lag trends between two snapshots: which partitions, by how much, and which member owns them."""

from collections.abc import Mapping

from streamtable.base.types import TopicPartition
from streamtable.kafka.admin import GroupDescription, GroupMember
from streamtable_admin.findings import Finding, Level
from streamtable_admin.lag_trend import LagSnapshot, PartitionLag, compare_snapshots

MEMBERS = ("one", "two")
SERVERS = "kafka:9092"


def look(at: float, places: Mapping[int, PartitionLag], members: tuple[str, ...] = MEMBERS) -> LagSnapshot:
    """Even partitions are the first member's, odd ones the second's."""
    made = tuple(
        GroupMember(
            name,
            f"client-{name}",
            "10.0.0.1",
            "",
            tuple(TopicPartition("in", n) for n in places if n % 2 == side),
        )
        for side, name in enumerate(members)
    )
    description = GroupDescription("g", "stable", "consumer", members=made)
    return LagSnapshot(at, description, {TopicPartition("in", n): place for n, place in places.items()})


def place(committed: int, end: int) -> PartitionLag:
    return PartitionLag(committed, end, end, end - committed)


def between(
    before: Mapping[int, PartitionLag], after: Mapping[int, PartitionLag], members: tuple[str, ...] = MEMBERS
) -> list[Finding]:
    return list(compare_snapshots(look(0, before, members), look(10, after, members), SERVERS))


def test_a_group_that_keeps_up_is_not_mentioned() -> None:
    assert between({0: place(0, 500), 1: place(0, 0)}, {0: place(900, 1400), 1: place(50, 90)}) == []
    assert between({0: place(0, 0)}, {0: place(0, 7)}) == []  # there was nothing to do at the first look


def test_partitions_whose_lag_grows_are_reported_by_process() -> None:
    before = {n: place(0, 1000) for n in range(4)}
    after = {n: place(500, 3000) for n in range(4)}
    first, second = between(before, after)
    assert first.level is Level.WARNING
    assert first.fact == "in 0,2: lag grows, 2000 to 5000 in 10 s; assigned to client-one at 10.0.0.1"
    assert second.fact.startswith("in 1,3: ")
    assert first.advice.endswith("start more processes, 2 of at most 4 run")


def test_one_partition_that_falls_behind_alone_hints_at_its_key_or_machine() -> None:
    before = {n: place(0, 10) for n in range(4)}
    after = {n: place(5000, 5010) for n in range(4)} | {3: place(50, 5000)}
    (found,) = between(before, after)
    assert found.fact.startswith("in 3: lag grows, 10 to 4950")
    assert "one key" in found.advice


def test_a_process_for_each_partition_that_does_not_suffice_calls_for_a_faster_handler() -> None:
    before, after = ({n: place(done, end) for n in range(2)} for done, end in ((0, 1000), (10, 5000)))
    assert all("make the handler faster" in each.advice for each in between(before, after))


def test_a_partition_that_stands_and_has_no_owner_is_reported_so() -> None:
    (found,) = list(
        compare_snapshots(
            look(0, {0: place(5, 9)}),
            LagSnapshot(10, look(10, {1: place(5, 9)}).group, look(0, {0: place(5, 9)}).places),
            SERVERS,
        )
    )
    assert found.fact == "in 0: 4 records to do, and nothing committed for 10 s; assigned to no member"
    assert "describe" in found.advice
