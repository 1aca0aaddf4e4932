import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamtable.base.ports import TopicInfo
from streamtable.base.types import RecordBatch
from streamtable.errors import InputLost, StoreCorrupted, StoreInUse
from streamtable.store.memory import MemoryStore, MemoryStores
from streamtable.tables.position import LocalPosition
from streamtable.tables.replica import PartitionReplica, ReplicaState

Make = Callable[..., RecordBatch]
Open = Callable[..., PartitionReplica]


@pytest.fixture
def topic(topic_info: Callable[..., TopicInfo]) -> TopicInfo:
    return topic_info("t", partitions=3)


@pytest.fixture
def reopen(stores: MemoryStores, topic: TopicInfo, clock: Any) -> Open:
    """Give the replica of partition 2 as a process that starts finds it; `open` only, or followed."""
    opened: list[PartitionReplica] = []

    def reopen(*, follow: bool = True, **given: Any) -> PartitionReplica:
        while opened:
            opened.pop().close()
        made = PartitionReplica(stores, "t", 2, clock, **given)
        opened.append(made)
        if follow:
            made.follow(topic, 0)
        return made

    return reopen


@pytest.fixture
def replica(reopen: Open) -> PartitionReplica:
    return reopen()


def local(replica: PartitionReplica) -> LocalPosition:
    found = replica.local()
    assert found is not None
    return found


# ---- the stored values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [("", "id"), ("id", ""), ("id", "other")])
def test_rows_are_loaded_again_where_the_header_of_their_prefixes_is_another_one(
    first: str, second: str, reopen: Open, batch: Make, topic: TopicInfo
) -> None:
    before = reopen(prefix_header=first)
    before.apply(batch("t", [(b"a", b"1")]))
    assert before.mark_current(1.0)
    assert local(reopen(prefix_header=first)).prefix_header == first
    after = reopen(follow=False, prefix_header=second)
    assert (after.local(), after.complete, after.store.get(b"a")) == (None, False, None)
    after.follow(topic, 0)
    after.apply(batch("t", [(b"a", b"1")]))
    assert local(after).prefix_header == second


# ---- states ----------------------------------------------------------------------------------------------------------


def test_a_new_replica_loads_until_it_reaches_an_end_that_the_changelog_had(
    reopen: Open, topic: TopicInfo
) -> None:
    replica = reopen(follow=False)
    assert (replica.state, replica.local()) == (ReplicaState.OPENING, None)
    replica.follow(topic, 0)
    assert not replica.observe_end(10.0, 0, 5)
    assert not replica.advance(4)
    assert (replica.state, replica.lag, replica.complete) == (ReplicaState.LOADING, 1, False)
    assert replica.advance(5)
    assert (replica.state, replica.complete, replica.current_at) == (ReplicaState.CURRENT, True, 10.0)
    assert (local(replica).whole, local(replica).current_at) == (True, 10.0)


def test_one_that_was_complete_is_stale_until_it_has_caught_up_in_this_life(
    replica: PartitionReplica, reopen: Open, clock: Any
) -> None:
    replica.mark_current(clock.now())
    again = reopen()
    assert (again.state, again.complete) == (ReplicaState.STALE, True)
    again.observe_end(clock.now(), 0, 3)
    again.advance(3)
    assert again.state is ReplicaState.CURRENT


def test_a_current_replica_stays_so_when_the_changelog_grows(replica: PartitionReplica) -> None:
    replica.observe_end(10.0, 0, 0)
    replica.observe_end(11.0, 0, 50)
    assert (replica.state, replica.lag, replica.current_at) == (ReplicaState.CURRENT, 50, 10.0)


def test_it_fails_with_its_reason_and_is_opened_again_empty_when_it_is_discarded(
    replica: PartitionReplica, topic: TopicInfo, batch: Make, clock: Any, logged: list[Any]
) -> None:
    replica.apply(batch("t", [(b"a", b"1")]))
    replica.mark_current(clock.now())
    replica.fail(InputLost("gone"))
    assert replica.state is ReplicaState.FAILED
    replica.discard("gone")
    assert (replica.state, replica.failure, replica.position) == (ReplicaState.OPENING, None, 0)
    assert (replica.complete, replica.store.get(b"a"), replica.local()) == (False, None, None)
    replica.follow(topic, 7)
    assert (replica.state, replica.position, replica.begins) == (ReplicaState.LOADING, 7, 7)
    assert [line["event"] for line in logged] == ["local copy discarded, loading it from the changelog"]


def test_when_it_is_stopped_only_what_is_in_the_store_counts(
    replica: PartitionReplica, batch: Make, clock: Any
) -> None:
    replica.apply(batch("t", [(b"a", b"1")]))
    replica.mark_current(clock.now())
    replica.advance(9)
    found = replica.stop()
    assert found is not None
    assert (found.changelog, replica.position, replica.state) == (1, 1, ReplicaState.OPENING)


def test_a_store_that_cannot_note_that_it_is_complete_has_failed(
    replica: PartitionReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StoreCorrupted("bit flip")

    monkeypatch.setattr(replica.store, "write", fail)
    assert not replica.observe_end(10.0, 0, 0)
    assert replica.state is ReplicaState.FAILED
    assert isinstance(replica.failure, StoreCorrupted)


# ---- its age ---------------------------------------------------------------------------------------------------------


def test_its_age_counts_from_the_last_end_that_it_has_reached(replica: PartitionReplica) -> None:
    for now, end in ((10.0, 5), (11.0, 9), (12.0, 30)):
        replica.observe_end(now, 0, end)
    replica.advance(20)
    assert replica.current_at == 11.0


def test_ends_are_forgotten_when_it_is_discarded(replica: PartitionReplica, topic: TopicInfo) -> None:
    replica.observe_end(10.0, 0, 1_000)
    replica.discard("because")
    replica.follow(topic, 0)
    assert replica.observe_end(
        20.0, 0, 0
    )  # the log has become empty: so is the replica, and that is all there is


def test_a_log_that_grows_faster_than_it_is_read_fills_no_memory(replica: PartitionReplica) -> None:
    for second in range(10_000):
        replica.observe_end(second, 0, 1_000_000 + second)
    assert len(replica._ends) <= 120


def test_applying_records_does_not_make_a_replica_current(
    replica: PartitionReplica, reopen: Open, clock: Any, batch: Make
) -> None:
    replica.mark_current(clock.now())
    complete = clock.now()
    clock.sleep(80_000)
    late = reopen()  # after a night of standing still, it reads a little and stops again
    late.apply(batch("t", [(b"a", b"1")]))
    assert local(late).current_at == complete
    late.save(clock.now())
    assert local(late).current_at == clock.now()


def test_a_load_that_takes_long_is_as_old_as_its_beginning(
    replica: PartitionReplica, clock: Any, batch: Make
) -> None:
    began = clock.now()
    clock.sleep(80_000)
    replica.apply(batch("t", [(b"a", b"1")]))
    assert local(replica).current_at == began


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_the_last_value_of_each_key_and_the_position_are_written_together(
    replica: PartitionReplica, clock: Any, batch: Make
) -> None:
    replica.apply(batch("t", [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)], first=10, partition=2))
    assert (replica.store.get(b"a"), replica.store.get(b"b")) == (b"3", None)
    assert local(replica) == LocalPosition(14, "id-1", clock.now(), partitions=3, whole=False, begins=0)


def test_a_record_without_a_key_is_left_out_of_the_table(replica: PartitionReplica, batch: Make) -> None:
    replica.apply(batch("t", [(None, b"1"), (b"a", b"2")]))
    assert (replica.store.get(b"a"), replica.position) == (b"2", 2)


def test_records_from_its_limit_on_are_left_out(reopen: Open, topic: TopicInfo, batch: Make) -> None:
    replica = reopen(follow=False)
    replica.follow(topic, 0, limit=2)
    replica.apply(batch("t", [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]))
    replica.advance(9)
    assert (replica.store.get(b"b"), replica.store.get(b"c"), replica.position) == (b"2", None, 2)


def test_a_replica_goes_on_where_its_store_stands(
    replica: PartitionReplica, reopen: Open, clock: Any, batch: Make
) -> None:
    replica.apply(batch("t", [(b"a", b"1")], first=6))
    replica.mark_current(clock.now())
    again = reopen()
    assert (again.position, again.complete) == (7, True)


def test_markers_move_the_position_on_but_never_back(replica: PartitionReplica, batch: Make) -> None:
    replica.apply(batch("t", [(b"a", b"1")], first=6))
    replica.advance(9)
    replica.advance(3)
    assert replica.position == 9


def test_a_listener_hears_of_changes_after_they_are_in_the_store_and_only_once_complete(
    reopen: Open, clock: Any, batch: Make
) -> None:
    heard: list[Any] = []

    def listen(partition: int, rows: Any, offset: int) -> None:
        heard.append((partition, dict(rows), offset, listened.store.get(b"a")))

    listened = reopen(listener=listen)
    listened.apply(batch("t", [(b"a", b"1")]))
    listened.mark_current(clock.now())
    listened.apply(batch("t", [(b"a", b"2"), (b"b", None)], first=1))
    assert heard == [(2, {b"a": b"2", b"b": None}, 3, b"2")]


def test_the_position_never_says_more_than_the_rows_hold(
    replica: PartitionReplica, batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, seen = replica.store.write, []

    def watched(*args: Any, **given: Any) -> None:
        seen.append(replica.position)
        write(*args, **given)
        seen.append(replica.position)

    monkeypatch.setattr(replica.store, "write", watched)
    replica.apply(batch("t", [(b"a", b"1")], first=6))
    assert (seen, replica.position, local(replica).changelog) == ([0, 0], 7, 7)


def test_pinned_rows_are_exactly_of_their_position(replica: PartitionReplica, batch: Make) -> None:
    """Each row holds the offset after its batch, and a batch is written in the middle of every look."""
    stop = threading.Event()

    def write() -> None:
        offset = 0
        while not stop.is_set():
            value = b"%d" % (offset + 2)
            replica.apply(batch("t", [(b"a", value), (b"b", value)], first=offset))
            offset += 2

    writer = threading.Thread(target=write)
    writer.start()
    looks: set[int] = set()
    try:
        while len(looks) < 200:
            with replica.pinned() as (position, rows):
                if position:
                    looks.add(position)
                    assert list(rows) == [(b"a", b"%d" % position), (b"b", b"%d" % position)]
    finally:
        stop.set()
        writer.join()


# ---- disks -----------------------------------------------------------------------------------------------------------


def test_a_kill_while_loading_leaves_a_prefix_that_says_so(
    replica: PartitionReplica, stores: MemoryStores, reopen: Open, batch: Make
) -> None:
    replica.apply(batch("t", [(b"a", b"1")]))
    stores.crash()
    after = reopen()
    assert (after.position, after.complete) == (0, False)


def test_a_store_with_an_unreadable_checkpoint_is_discarded_loudly(
    stores: MemoryStores, reopen: Open, logged: list[Any]
) -> None:
    store = stores.open("t", 2)
    store.write([(b"a", b"1")], b"rubbish")
    store.close()
    replica = reopen(follow=False)
    assert (replica.store.get(b"a"), replica.local()) == (None, None)
    assert [line["event"] for line in logged] == ["local copy discarded, loading it from the changelog"]


def test_a_store_that_cannot_be_opened_is_discarded(
    stores: MemoryStores, reopen: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_, damaged = stores.open, [True]

    def fail_once(*args: Any, **given: Any) -> MemoryStore:
        if damaged:
            damaged.clear()
            raise StoreCorrupted("bit flip")
        return open_(*args, **given)

    monkeypatch.setattr(stores, "open", fail_once)
    assert reopen(follow=False).state is ReplicaState.OPENING


def test_a_store_that_another_process_holds_is_not_discarded(
    stores: MemoryStores, replica: PartitionReplica, clock: Any
) -> None:
    with pytest.raises(StoreInUse):
        PartitionReplica(stores, "t", 2, clock)
    replica.close()
    other = stores.open("t", 2)
    other.write([(b"a", b"1")], b"")
    with pytest.raises(StoreInUse):
        replica.discard("because")
    assert other.get(b"a") == b"1"
