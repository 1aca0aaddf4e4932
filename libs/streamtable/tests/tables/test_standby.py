from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streamtable.base.types import TopicPartition, Watermarks
from streamtable.errors import InputLost, RetryLater, StoreBroken, StoreCorrupted
from streamtable.store.memory import MemoryStore, MemoryStores
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.position import LocalPosition
from streamtable.tables.standby import Standby

TABLE = "counted-table"
HERE, THERE = TopicPartition(TABLE, 0), TopicPartition(TABLE, 1)


class Rig:
    """A process that owns partition 0 and not partition 1, both of five records and a marker."""

    def __init__(
        self, stores: MemoryStores, reader: Any, cluster: Any, clock: Any, topic: Any, record: Any
    ) -> None:
        self.stores, self.reader, self.cluster, self.clock, self.record = (
            stores,
            reader,
            cluster,
            clock,
            record,
        )
        self.reported: Mapping[TopicPartition, int] = {}
        self.changelogs = ChangelogReader(lambda: reader)
        self.standby = Standby(TABLE, [topic], cluster, self.changelogs, stores, clock, self.tell)
        self.standby.taken(0)
        for place in (HERE, THERE):
            self.write(place, 5)

    def tell(self, behind: Mapping[TopicPartition, int]) -> None:
        self.reported = behind

    def write(self, place: TopicPartition, records: int) -> None:
        """The log has this many records now, and a marker."""
        self.reader.logs[place] = [self.record(b"k%d" % n, b"%d" % n, n) for n in range(records)]
        self.reader.ends[place] = records + 1
        self.cluster.marks[place] = Watermarks(
            self.cluster.marks.get(place, Watermarks(0, 0)).low, records + 1
        )

    def work(self, seconds: float = 1.1, *, loading: bool = False) -> None:
        """A second or more of the background thread."""
        for _ in range(max(1, round(seconds / 1.1))):
            self.clock.sleep(1.1)
            self.standby.step(loading=loading)
            for _ in range(3):
                self.changelogs.step(0)

    def local(self) -> LocalPosition:
        """Return the checkpoint in the store of partition 1, which must be closed."""
        store = self.stores.open(TABLE, 1)
        try:
            return LocalPosition.decode(store.checkpoint() or b"")
        finally:
            store.close()

    def keep(self, position: int, age: float = 0.0) -> None:
        """The disk holds a copy of partition 1."""
        store = self.stores.open(TABLE, 1)
        store.write([(b"old", b"row")], LocalPosition(position, "id-1", self.clock.now() - age).encode())
        store.close()


@pytest.fixture
def rig(
    stores: MemoryStores,
    reader: Any,
    make_cluster: Any,
    clock: Any,
    topic_info: Callable[..., Any],
    record: Any,
) -> Rig:
    return Rig(stores, reader, make_cluster({}), clock, topic_info(TABLE, partitions=2), record)


def handed_over(rig: Rig) -> Any:
    """The store of the replica that is passed on; None if there is none."""
    replica = rig.standby.hand_over(TABLE, 1)
    return replica.store if replica else None


def test_what_is_not_ours_is_copied_after_a_pause_and_its_lag_is_reported(rig: Rig) -> None:
    rig.work(2.2)
    assert (rig.standby.positions, rig.standby.settled) == ({}, False)
    rig.work(2.2)
    assert (rig.standby.positions, rig.standby.settled) == ({THERE: 6}, True)
    rig.write(THERE, 9)
    rig.standby.step(loading=False)
    rig.clock.sleep(1.1)
    rig.standby.step(loading=False)
    assert (rig.reported, rig.standby.settled) == ({THERE: 4}, False)
    rig.work(2.2)
    assert (rig.reported, rig.standby.settled) == ({THERE: 0}, True)


def test_a_copy_on_disk_is_followed_from_where_it_stands(rig: Rig) -> None:
    rig.keep(3)
    rig.work(4.4)
    store = handed_over(rig)
    assert store is not None
    assert [store.get(key) for key in (b"old", b"k2", b"k3")] == [b"row", None, b"3"]


def test_what_is_handed_over_is_open_as_current_as_it_was_known_to_be_and_followed_no_more(rig: Rig) -> None:
    rig.work(4.4)
    looked_at = rig.clock.now()
    rig.clock.sleep(0.5)
    store = handed_over(rig)
    assert store is not None
    local = LocalPosition.decode(store.checkpoint() or b"")
    assert (local.changelog, local.current_at, local.whole) == (6, looked_at, True)
    rig.write(THERE, 9)
    rig.standby.taken(1)
    rig.work(11)
    assert (store.get(b"k8"), rig.standby.hand_over(TABLE, 1)) == (None, None)


def test_a_copy_that_is_behind_is_as_old_as_the_last_end_that_it_had_reached(rig: Rig) -> None:
    rig.work(4.4)
    reached_at = rig.clock.now()
    rig.reader.ends[THERE], rig.cluster.marks[THERE] = 6, Watermarks(0, 9)  # the rest does not come
    rig.work(5.5)
    rig.standby.close()
    store = rig.stores.open(TABLE, 1)
    assert LocalPosition.decode(store.checkpoint() or b"").current_at <= reached_at


def test_a_partition_that_leaves_is_copied_again_but_not_at_once(rig: Rig, stores: MemoryStores) -> None:
    rig.work(4.4)
    rig.standby.taken(1)
    store = handed_over(rig)
    assert store is not None
    store.close()
    rig.standby.left(1)
    rig.standby.step(loading=False)
    assert THERE not in rig.standby.positions
    rig.clock.sleep(0.6)
    rig.standby.step(loading=False)
    assert rig.standby.positions[THERE] == 6


class Chosen(Rig):
    """A process that is told which partitions to follow."""

    def __init__(self, rig: Rig) -> None:
        self.__dict__ |= rig.__dict__
        self.partitions: set[int] | None = set()
        topic = rig.standby._tables[TABLE]
        self.standby = Standby(
            TABLE, [topic], rig.cluster, rig.changelogs, rig.stores, rig.clock, rig.tell, choose=self.choose
        )

    def choose(self) -> set[int]:
        if self.partitions is None:
            raise RetryLater("the coordinator does not answer")
        return self.partitions


def test_only_chosen_partitions_are_followed_and_kept_on_disk(rig: Rig) -> None:
    chosen = Chosen(rig)
    chosen.work(4.4)
    assert chosen.standby.positions == {}
    chosen.partitions = {1}
    chosen.work(5.5)
    assert chosen.standby.positions == {THERE: 6}
    assert (chosen.standby.keeps(TABLE, 0), chosen.standby.keeps(TABLE, 1)) == (False, True)


def test_a_partition_that_is_chosen_no_more_is_followed_until_others_had_time_to_load_it(rig: Rig) -> None:
    chosen = Chosen(rig)
    chosen.partitions = {0, 1}
    chosen.work(5.5)
    chosen.partitions = {0}
    chosen.work(33)
    assert chosen.standby.positions == {HERE: 6, THERE: 6}
    chosen.work(44)
    assert chosen.standby.positions == {HERE: 6}


def test_while_nobody_says_what_to_choose_the_former_choice_holds(rig: Rig) -> None:
    chosen = Chosen(rig)
    chosen.partitions = {1}
    chosen.work(5.5)
    chosen.partitions = None
    chosen.work(99)
    assert chosen.standby.positions == {THERE: 6}


def test_a_partition_that_another_process_has_is_left_alone_and_looked_at_later(
    rig: Rig, stores: MemoryStores, logged: list[Any]
) -> None:
    holder = stores.open(TABLE, 1)
    rig.work(4.4)
    assert (rig.standby.positions, rig.standby.settled) == ({}, True)
    assert [line for line in logged if line["log_level"] != "debug"] == []
    holder.close()
    rig.work(11)
    assert rig.standby.positions == {THERE: 6}


def test_a_copy_that_another_process_needs_for_its_work_is_given_up(
    rig: Rig, stores: MemoryStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.work(4.4)
    monkeypatch.setattr(MemoryStore, "release_requested", True)
    rig.work()
    stores.open(TABLE, 1)  # it is free
    rig.work(5.5)
    assert rig.standby.positions == {}


def test_a_damaged_copy_is_loaded_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.work(4.4)
    write, damaged = MemoryStore.write, [True]

    def fail_once(self: Any, *args: Any, **kwargs: Any) -> None:
        if damaged:
            damaged.clear()
            raise StoreCorrupted("bit flip").at(TABLE, 1)
        write(self, *args, **kwargs)

    rig.write(THERE, 9)
    monkeypatch.setattr(MemoryStore, "write", fail_once)
    rig.work(4.4)
    assert (rig.standby.positions, damaged) == ({THERE: 10}, [])
    store = handed_over(rig)
    assert store is not None
    assert store.get(b"k0") == b"0"


def test_a_copy_too_damaged_to_note_its_age_is_handed_over_all_the_same(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.work(4.4)

    def fail(*_: Any, **__: Any) -> None:
        raise StoreCorrupted("bit flip").at(TABLE, 1)

    monkeypatch.setattr(MemoryStore, "write", fail)
    assert rig.standby.hand_over(TABLE, 1) is not None


@pytest.mark.parametrize("how", ["on disk", "in a process that stood still"])
def test_a_copy_older_than_tombstones_are_kept_is_thrown_away(how: str, rig: Rig) -> None:
    if how == "on disk":
        rig.keep(3, age=90_000)
    else:
        rig.keep(3)
        rig.work(4.4)
        rig.clock.sleep(90_000)
    rig.work(6.6)
    store = handed_over(rig)
    assert store is not None
    assert (store.get(b"old"), store.get(b"k0")) == (None, b"0")


def test_a_copy_beyond_the_end_of_its_topic_is_thrown_away(rig: Rig) -> None:
    rig.keep(60)
    rig.work(6.6)
    assert rig.standby.positions == {THERE: 6}


def test_a_table_whose_beginning_is_gone_is_not_copied_as_if_it_were_whole(rig: Rig) -> None:
    rig.cluster.marks[THERE] = Watermarks(2, 6)
    rig.work(6.6)
    assert rig.standby.positions == {}
    rig.keep(4)  # but this one has read it before
    rig.work(13.2)
    assert rig.standby.positions == {THERE: 6}


def test_copies_that_are_behind_rest_while_partitions_of_ours_load(rig: Rig) -> None:
    rig.work(2.2)
    rig.clock.sleep(1.1)
    rig.standby.step(loading=False)  # it is open now, and not read yet
    rig.work(3.3, loading=True)
    assert rig.standby.positions == {THERE: 0}
    rig.work()
    assert rig.standby.positions == {THERE: 6}
    rig.write(THERE, 9)
    rig.work(loading=True)
    assert rig.standby.positions == {THERE: 10}  # replicas that have caught up cost little


def test_a_broker_that_does_not_answer_is_asked_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise RetryLater("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(rig.cluster, "watermarks", fail)
        rig.work(4.4)
    rig.work(2.2)
    assert rig.standby.positions == {THERE: 6}


def test_a_copy_that_cannot_be_read_on_is_opened_again_later(rig: Rig, stores: MemoryStores) -> None:
    rig.work(4.4)
    rig.reader.errors = [InputLost("out of range", topic=TABLE, partition=1)]
    rig.work(2.2)
    stores.open(TABLE, 1).close()  # it is free
    rig.work(13.2)
    assert rig.standby.positions == {THERE: 6}


def test_a_disk_that_refuses_writes_ends_the_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.work(4.4)

    def fail(*_: Any, **__: Any) -> None:
        raise StoreBroken("no space left")

    monkeypatch.setattr(MemoryStore, "write", fail)
    rig.write(THERE, 9)
    with pytest.raises(StoreBroken):
        rig.work(2.2)


def test_a_quiet_copy_does_not_age_on_disk(rig: Rig) -> None:
    rig.work(66)
    noted_at = rig.clock.now()
    rig.standby.close()
    assert noted_at - rig.local().current_at < 10


def test_without_tables_there_is_nothing_to_do(rig: Rig, stores: MemoryStores) -> None:
    off = Standby(TABLE, [], rig.cluster, rig.changelogs, stores, rig.clock, rig.tell)
    rig.clock.sleep(10)
    off.step(loading=False)
    assert (off.settled, off.positions, off.keeps(TABLE, 1), rig.standby.keeps(TABLE, 1)) == (
        True, {}, False, True,
    )  # fmt: skip


def test_a_copy_of_another_table_does_not_keep_rows_whose_records_were_deleted(rig: Rig) -> None:
    topic = rig.standby._tables[TABLE]
    standby = Standby("own", [topic], rig.cluster, rig.changelogs, rig.stores, rig.clock, rig.tell)
    standby.taken(0)
    rig.standby = standby
    rig.work(4.4)
    assert standby.positions == {THERE: 6}
    rig.reader.logs[THERE] = rig.reader.logs[THERE][2:]
    rig.cluster.marks[THERE] = Watermarks(2, 6)
    rig.work(6.6)
    store = handed_over(rig)
    assert store is not None
    assert [store.get(b"k%d" % number) for number in range(5)] == [None, None, b"2", b"3", b"4"]
