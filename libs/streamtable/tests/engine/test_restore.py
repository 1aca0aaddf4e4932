import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamtable.base.failpoint import no_failpoint
from streamtable.base.ports import TopicInfo
from streamtable.base.topics import Stream, Table
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.recovery.restore import Restore, Restorer, Stage
from streamtable.errors import NotReady, RetryLater, StateLost, StoreCorrupted, StoreInUse, TopicMismatch
from streamtable.graph.group import Changes, Group, Input, Join, Persist
from streamtable.store.memory import MemoryStore, MemoryStores
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.position import LocalPosition
from streamtable.tables.standby import Standby

TABLE = TopicPartition("counted-table", 0)
EVENTS = TopicPartition("events", 0)
RETRY = TopicPartition("counted-retry", 0)


@pytest.fixture
def cluster(
    make_cluster: Any,
    counted: Group[str, int],
    topic_infos: Callable[..., Any],
    metadata_of: Callable[..., str],
) -> Any:
    """Of a group that has committed input offset 5 and changelog offset 4; a marker follows."""
    made = make_cluster(topic_infos(counted))
    made.committed = {
        place: Committed(NextOffset(at), metadata_of(counted, place.topic, 4))
        for place, at in ((EVENTS, 5), (RETRY, 0))
    }
    made.marks = {EVENTS: Watermarks(0, 9), TABLE: Watermarks(0, 6)}
    return made


@pytest.fixture
def restorer(
    counted: Group[str, int], cluster: Any, reader: Any, stores: MemoryStores, clock: Any, record: Any
) -> Restorer:
    reader.logs[TABLE] = [record(b"k%d" % n, b"%d" % n, n) for n in (0, 1, 2, 3, 5)]
    changelogs = ChangelogReader(lambda: reader)
    standby = Standby("", [], cluster, changelogs, stores, clock, lambda _: None)
    return Restorer(
        counted, cluster, changelogs, standby, stores, clock, exactly_once=True, failpoint=no_failpoint
    )


def run(restorer: Restorer, restore: Restore) -> Restore:
    for _ in range(20):
        restorer.step(0)
        if restore.stage not in {Stage.ASKING, Stage.LOADING}:
            return restore
    raise AssertionError(f"still {restore.stage}")


def test_a_partition_is_ready_when_its_copy_is_where_the_offsets_say(
    restorer: Restorer, stores: MemoryStores
) -> None:
    restore = run(restorer, restorer.begin(0))
    assert restore.stage is Stage.READY
    assert restore.plan is not None
    assert restore.plan.next_offsets == {"events": 5, "counted-retry": 0}
    assert restore.stores[TABLE.topic].get(b"k3") == b"3"
    assert LocalPosition.decode(restore.stores[TABLE.topic].checkpoint() or b"").whole


def test_offsets_are_asked_for_before_ends(restorer: Restorer, cluster: Any) -> None:
    run(restorer, restorer.begin(0))
    assert cluster.asked == ["topics", "offsets", "watermarks"]


def test_the_copy_on_disk_is_read_on_from_where_it_stands(
    restorer: Restorer, stores: MemoryStores, reader: Any, clock: Any
) -> None:
    store = stores.open("counted-table", 0)
    store.write([(b"k0", b"0")], LocalPosition(3, "id-1", clock.now(), partitions=1).encode())
    store.close()
    restore = run(restorer, restorer.begin(0))
    assert (
        restore.stores[TABLE.topic].get(b"k0"),
        restore.stores[TABLE.topic].get(b"k1"),
        restore.stores[TABLE.topic].get(b"k3"),
    ) == (
        b"0",
        None,
        b"3",
    )


def test_a_copy_that_must_not_be_used_is_replaced_and_its_rows_do_not_come_back(
    restorer: Restorer, stores: MemoryStores, clock: Any, logged: list[Any]
) -> None:
    store = stores.open("counted-table", 0)
    store.write([(b"deleted long ago", b"1")], LocalPosition(3, "id-1", clock.now() - 90_000).encode())
    store.close()
    restore = run(restorer, restorer.begin(0))
    assert (restore.stores[TABLE.topic].get(b"deleted long ago"), restore.stores[TABLE.topic].get(b"k0")) == (
        None,
        b"0",
    )
    assert any("deleted keys would come back" in str(line.get("reason")) for line in logged)


@pytest.mark.parametrize("silent", [RetryLater("no answer"), NotReady("unstable")])
def test_a_broker_that_does_not_answer_is_asked_again_after_a_moment(
    silent: RetryLater, restorer: Restorer, cluster: Any, clock: Any
) -> None:
    cluster.errors = [silent, silent]
    restore = restorer.begin(0)
    for _ in range(5):
        restorer.step(0)
    assert (restore.stage, cluster.asked.count("offsets")) == (Stage.ASKING, 1)
    for _ in range(2):
        clock.sleep(0.3)
        restorer.step(0)
    assert run(restorer, restore).stage is Stage.READY


def test_partitions_that_are_assigned_together_are_asked_about_in_one_question(
    restorer: Restorer, cluster: Any
) -> None:
    cluster.committed = {}
    cluster.marks = {}
    restores = [restorer.begin(partition) for partition in range(5)]
    restorer.step(0)
    assert [restore.stage for restore in restores] == [Stage.READY] * 5
    assert cluster.asked == ["topics", "offsets", "watermarks"]


def test_a_partition_whose_offsets_are_pending_does_not_delay_the_others(
    restorer: Restorer, cluster: Any
) -> None:
    cluster.committed = {}
    cluster.marks = {}
    pending = RetryLater("a transaction with committed offsets has not ended")
    cluster.errors = [pending, pending]  # for all, then for the first alone
    restores = [restorer.begin(partition) for partition in range(3)]
    restorer.step(0)
    assert [restore.stage for restore in restores] == [Stage.ASKING, Stage.READY, Stage.READY]


def test_a_state_that_is_lost_fails_with_its_reason(restorer: Restorer, cluster: Any) -> None:
    cluster.committed = {}
    restore = run(restorer, restorer.begin(0))
    assert restore.stage is Stage.FAILED
    assert isinstance(restore.failure, StateLost)


def test_topics_that_do_not_fit_any_more_fail_with_their_reason(
    restorer: Restorer, cluster: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    cluster.infos["events"] = topic_info("events", partitions=2)
    restore = run(restorer, restorer.begin(0))
    assert isinstance(restore.failure, TopicMismatch)


def test_a_folder_that_a_former_owner_still_closes_is_waited_for(
    restorer: Restorer, stores: MemoryStores, clock: Any
) -> None:
    owner = stores.open("counted-table", 0)
    restore = restorer.begin(0)
    restorer.step(0)
    assert restore.stage is Stage.ASKING
    owner.close()
    clock.sleep(1.5)
    assert run(restorer, restore).stage is Stage.READY


def test_a_folder_that_is_held_for_long_fails_and_names_the_trouble(
    restorer: Restorer, stores: MemoryStores, clock: Any
) -> None:
    stores.open("counted-table", 0)
    restore = restorer.begin(0)
    for _ in range(40):
        restorer.step(0)
        clock.sleep(1.1)
    assert restore.stage is Stage.FAILED
    assert isinstance(restore.failure, StoreInUse)


def test_a_copy_that_turns_out_damaged_while_loading_is_loaded_again(
    restorer: Restorer, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = restorer.begin(0)
    write = MemoryStore.write
    damaged = [True]

    def fail_once(self: Any, *args: Any, **kwargs: Any) -> None:
        if damaged:
            damaged.clear()
            raise StoreCorrupted("bit flip")
        write(self, *args, **kwargs)

    monkeypatch.setattr("streamtable.store.memory.MemoryStore.write", fail_once)
    for _ in range(5):
        restorer.step(0)
        clock.sleep(0.3)
    assert (restore.stage, damaged) == (Stage.READY, [])
    assert restore.stores[TABLE.topic].get(b"k3") == b"3"


def test_a_store_that_is_open_already_is_kept_for_a_recovery_after_an_unknown_outcome(
    restorer: Restorer, stores: MemoryStores, clock: Any
) -> None:
    store = stores.open("counted-table", 0)
    store.write([(b"k0", b"0")], LocalPosition(1, "id-1", clock.now(), partitions=1).encode())
    restore = run(restorer, restorer.begin(0, {TABLE.topic: store}))
    assert restore.stores[TABLE.topic] is store
    assert store.get(b"k3") == b"3"


@pytest.mark.parametrize("steps_before", [0, 1, 2, 3, 4])
def test_nothing_holds_or_touches_a_store_after_its_recovery_was_cancelled(
    steps_before: int, restorer: Restorer, stores: MemoryStores
) -> None:
    restore = restorer.begin(0)
    for _ in range(steps_before):
        restorer.step(0)
    restorer.cancel(restore)
    reopened = stores.open("counted-table", 0)  # it is free
    before = reopened.checkpoint()
    for _ in range(3):
        restorer.step(0)
    assert reopened.checkpoint() == before


def test_a_partition_that_goes_and_comes_back_at_once_recovers_with_the_later_request(
    restorer: Restorer,
) -> None:
    first = restorer.begin(0)
    restorer.step(0)
    restorer.cancel(first)
    assert run(restorer, restorer.begin(0)).stage is Stage.READY


def test_cancelling_at_any_moment_leaves_the_store_to_the_next_task(
    restorer: Restorer, stores: MemoryStores
) -> None:
    failures: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set():
                restorer.step(0.001)
        except BaseException as error:  # noqa: BLE001 - shown by the test's thread
            failures.append(error)

    background = threading.Thread(target=work)
    background.start()
    try:
        for _ in range(300):
            restore = restorer.begin(0)
            while restore.stage is Stage.ASKING and not failures:
                pass
            restorer.cancel(restore)
            with pytest.raises(RetryLater):
                restore.stores[TABLE.topic].get(b"k")  # it was opened before it became LOADING
    finally:
        stop.set()
        background.join()
    assert failures == []


def test_what_is_left_to_read_is_reported_while_loading(restorer: Restorer, reader: Any) -> None:
    reader.logs[TABLE], log = reader.logs[TABLE][:2], reader.logs[TABLE]
    restore = restorer.begin(0)
    restorer.step(0)
    restorer.step(0)
    assert (restore.stage, restore.remaining) == (Stage.LOADING, 2)
    reader.logs[TABLE] = log
    assert run(restorer, restore).remaining == 0


# ---- several tables --------------------------------------------------------------------------------------------------

USERS, CITIES = Table("users", String(), Long()), Table("cities", String(), String())


@pytest.fixture
def joining(
    make_cluster: Any,
    topic_infos: Callable[..., Any],
    reader: Any,
    stores: MemoryStores,
    clock: Any,
    record: Any,
) -> Callable[..., tuple[Restorer, Any]]:
    """`joining(*edges)`: a restorer, and its cluster, of a group that joins; each table holds records 0 to 5."""

    def make(*edges: Any, at: int | None = 4) -> tuple[Restorer, Any]:
        events = Stream("events", String(), String())
        group: Group[str, int] = Group("g", Input(events, lambda ctx, _: None), *edges)
        cluster = make_cluster(topic_infos(group))
        for topic in group.input_topics:
            cluster.marks[TopicPartition(topic, 0)] = Watermarks(0, 9)
            if at is not None or topic not in {"users", "cities"}:
                offset = 0 if at is None else at
                cluster.committed[TopicPartition(topic, 0)] = Committed(NextOffset(offset), "")
        for name in ("users", "cities", "g-table"):
            place = TopicPartition(name, 0)
            reader.logs[place] = [record(b"k%d" % n, b"%s%d" % (name.encode(), n), n) for n in range(6)]
            cluster.marks[place] = Watermarks(0, 6)
        changelogs = ChangelogReader(lambda: reader)
        standby = Standby("", [], cluster, changelogs, stores, clock, lambda _: None)
        made = Restorer(
            group, cluster, changelogs, standby, stores, clock, exactly_once=True, failpoint=no_failpoint
        )
        return made, cluster

    return make


def test_a_partition_is_ready_when_all_its_tables_are_loaded(joining: Any) -> None:
    restorer, _ = joining(Join(USERS), Join(CITIES), Persist(Long()))
    restore = run(restorer, restorer.begin(0))
    assert {name: store.get(b"k5") for name, store in restore.stores.items()} == {
        "users": b"users5",
        "cities": b"cities5",
        "g-table": b"g-table5",
    }
    assert restore.recovered.plan.next_offsets == {"events": 4, "g-retry": 4}
    assert restore.recovered.positions == {"users": 6, "cities": 6, "g-table": 6}


def test_a_table_whose_changes_are_handled_ends_where_the_group_goes_on(joining: Any) -> None:
    restorer, _ = joining(Changes(USERS, lambda ctx, _: None), Join(CITIES))
    restore = run(restorer, restorer.begin(0))
    users = restore.stores["users"]
    assert (users.get(b"k3"), users.get(b"k4")) == (b"users3", None)
    assert LocalPosition.decode(users.checkpoint() or b"").changelog == 4
    assert restore.recovered.positions == {"users": 4, "cities": 6, "g-handled": 0}


@pytest.mark.parametrize(("at", "uncommitted"), [(None, True), (4, True), (6, False)])
def test_where_a_joined_table_was_loaded_to_is_committed_if_it_is_not(
    at: int | None,
    uncommitted: bool,  # noqa: FBT001 - a parameter of the test
    joining: Any,
) -> None:
    restorer, _ = joining(Join(USERS), at=at)
    restore = run(restorer, restorer.begin(0))
    assert restore.plan is not None
    assert restore.plan.uncommitted is uncommitted


def test_of_several_tables_only_the_damaged_one_is_thrown_away(
    joining: Any, stores: MemoryStores, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    restorer, _ = joining(Join(USERS), Join(CITIES))
    first = run(restorer, restorer.begin(0))
    for store in first.stores.values():
        store.close()
    destroyed: list[str] = []
    destroy, open_ = stores.destroy, stores.open
    damaged = ["users"]

    def open_damaged(table: str, partition: int, **changes: Any) -> MemoryStore:
        if table in damaged:
            damaged.remove(table)
            raise StoreCorrupted("bit flip").at(table, partition)
        return open_(table, partition, **changes)

    monkeypatch.setattr(stores, "open", open_damaged)

    def note_destroyed(table: str, partition: int) -> None:
        destroyed.append(table)
        destroy(table, partition)

    monkeypatch.setattr(stores, "destroy", note_destroyed)
    again = run(restorer, restorer.begin(0))
    assert destroyed == ["users"]
    assert [again.stores[name].get(b"k5") for name in ("users", "cities")] == [b"users5", b"cities5"]


def test_cancelling_closes_the_stores_of_all_tables(joining: Any, stores: MemoryStores) -> None:
    restorer, _ = joining(Join(USERS), Join(CITIES), Persist(Long()))
    restore = restorer.begin(0)
    restorer.step(0)
    restorer.cancel(restore)
    for table in ("users", "cities", "g-table"):
        stores.open(table, 0).close()
    for _ in range(3):
        restorer.step(0)
    assert restore.stage is Stage.CANCELLED
