from collections.abc import Callable
from typing import Any

import pytest

from streamtable.base.ports import TopicInfo
from streamtable.base.types import TopicPartition
from streamtable.errors import Fatal, InputLost, StoreCorrupted
from streamtable.store.memory import MemoryStores
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.replica import PartitionReplica


@pytest.fixture
def advanced() -> list[tuple[int, int]]:
    return []


def noted(advanced: list[tuple[int, int]]) -> Callable[[PartitionReplica], None]:
    return lambda replica: advanced.append((replica.partition, replica.position))


@pytest.fixture
def changelogs(reader: Any) -> ChangelogReader:
    return ChangelogReader(lambda: reader)


@pytest.fixture
def replica(
    stores: MemoryStores, clock: Any, topic_info: Callable[..., TopicInfo]
) -> Callable[..., PartitionReplica]:
    def make(partition: int, start: int = 0) -> PartitionReplica:
        made = PartitionReplica(stores, "t", partition, clock)
        made.follow(topic_info("t"), start)
        return made

    return make


@pytest.fixture(autouse=True)
def logs(reader: Any, record: Any) -> None:
    for partition in (0, 1):
        reader.logs[TopicPartition("t", partition)] = [record(b"k", b"%d" % n, n) for n in (0, 1, 2)]
        reader.ends[TopicPartition("t", partition)] = 4  # a transaction's marker is the last


Make = Callable[..., PartitionReplica]


def test_replicas_are_followed_from_their_start_and_past_markers(
    changelogs: ChangelogReader, replica: Make, advanced: list[tuple[int, int]]
) -> None:
    first, second = replica(0), replica(1, 2)
    changelogs.add(first, noted(advanced))
    changelogs.add(second, noted(advanced))
    assert changelogs.step(0) == 4
    assert changelogs.step(0) == 0
    assert advanced == [(0, 3), (1, 3), (0, 4), (1, 4)]
    assert first.store.get(b"k") == b"2"


def test_a_replica_that_was_removed_is_not_touched_any_more(
    changelogs: ChangelogReader, replica: Make, reader: Any, advanced: list[tuple[int, int]]
) -> None:
    one = replica(0)
    changelogs.add(one, noted(advanced))
    reader.during_poll = lambda: changelogs.remove(one)  # by another thread, while records are on their way
    changelogs.step(0)
    assert (one.store.get(b"k"), advanced) == (None, [])
    idle = [changelogs.idle]
    changelogs.step(0)
    assert [*idle, changelogs.idle] == [False, True]
    assert reader.positions == {}


def test_records_on_their_way_for_a_former_replica_never_reach_a_new_one(
    changelogs: ChangelogReader, replica: Make, reader: Any, stores: MemoryStores
) -> None:
    old = replica(0, 2)
    changelogs.add(old)
    made: list[PartitionReplica] = []

    def exchange() -> None:
        if not made:
            changelogs.remove(old)
            old.store.close()
            stores.destroy("t", 0)
            made.append(replica(0))
            changelogs.add(made[0])

    reader.during_poll = exchange
    changelogs.step(0)
    assert made[0].position == 0
    changelogs.step(0)
    assert made[0].position == 3


def test_one_that_is_removed_before_it_was_ever_read_leaves_nothing_behind(
    changelogs: ChangelogReader, replica: Make, reader: Any
) -> None:
    one = replica(0)
    changelogs.add(one)
    changelogs.remove(one)
    assert changelogs.idle
    changelogs.step(0)
    assert reader.positions == {}


def test_a_damaged_store_stops_its_own_replica_only(
    changelogs: ChangelogReader, replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = replica(0), replica(1)

    def fail(*_: Any, **__: Any) -> None:
        raise StoreCorrupted("bit flip")

    monkeypatch.setattr(bad.store, "write", fail)
    changelogs.add(bad)
    changelogs.add(good)
    changelogs.step(0)
    changelogs.step(0)
    assert isinstance(bad.failure, StoreCorrupted)
    assert (good.failure, good.position) == (None, 4)


def test_a_log_whose_records_are_gone_fails_the_replica_that_needs_them(
    changelogs: ChangelogReader, replica: Make, reader: Any
) -> None:
    bad, good = replica(0), replica(1)
    changelogs.add(bad)
    changelogs.add(good)
    changelogs.step(0)
    reader.errors.append(InputLost("gone", topic="t", partition=0))
    changelogs.step(0)
    changelogs.step(0)
    assert isinstance(bad.failure, InputLost)
    assert good.failure is None


def test_what_the_reader_cannot_get_over_is_raised(
    changelogs: ChangelogReader, replica: Make, reader: Any
) -> None:
    changelogs.add(replica(0))
    reader.errors.append(Fatal("the client is dead"))
    with pytest.raises(Fatal):
        changelogs.step(0)


def test_each_replica_can_have_a_listener_of_its_own(reader: Any, replica: Make) -> None:
    changelogs = ChangelogReader(lambda: reader)
    called: list[str] = []
    changelogs.add(replica(0), lambda _: called.append("first"))
    changelogs.add(replica(1), lambda _: called.append("second"))
    changelogs.step(0)
    assert called == ["first", "second"]


def test_what_was_lost_to_a_former_replica_does_not_fail_a_new_one(
    changelogs: ChangelogReader, replica: Make, reader: Any, stores: MemoryStores
) -> None:
    old = replica(0)
    changelogs.add(old)
    changelogs.step(0)
    changelogs.remove(old)
    old.close()
    stores.destroy("t", 0)
    new = replica(0)
    changelogs.add(new)
    reader.errors.append(InputLost("where the former one stood", topic="t", partition=0, offset=3))
    changelogs.step(0)
    assert new.failure is None
    changelogs.step(0)
    assert new.position == 3
    reader.errors.append(InputLost("gone", topic="t", partition=0, offset=3))
    changelogs.step(0)
    assert isinstance(new.failure, InputLost)


def test_a_topic_that_was_created_again_is_read_by_a_new_client_which_goes_on_with_the_others(
    reader: Any, stores: MemoryStores, clock: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    made: list[Any] = []

    def connect() -> Any:
        made.append(type(reader)())
        made[-1].logs = reader.logs
        return made[-1]

    def copy(table: str, topic_id: str) -> PartitionReplica:
        replica = PartitionReplica(stores, table, 0, clock)
        replica.follow(topic_info(table, topic_id=topic_id), replica.position)
        return replica

    reader.logs[TopicPartition("other", 0)] = reader.logs[TopicPartition("t", 0)]
    changelogs = ChangelogReader(connect)
    old, other = copy("t", "first"), copy("other", "other")
    changelogs.add(old)
    changelogs.add(other)
    changelogs.step(0)
    for topic_id, clients in (("first", 1), ("second", 2), ("second", 2)):
        changelogs.remove(old)
        old.discard("to be loaded again")
        old.follow(topic_info("t", topic_id=topic_id), 0)
        changelogs.add(old)
        changelogs.step(0)
        assert (old.position, other.position, len(made)) == (3, 3, clients)
    assert (made[0].closed, made[1].closed) == (True, False)
    assert made[1].positions == {old.place: 3, other.place: 3}
