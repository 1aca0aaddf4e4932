import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from streamtable.errors import StoreInUse
from streamtable.ports import TopicInfo
from streamtable.store.memory import MemoryStore, MemoryStores
from streamtable.tables.position import LocalPosition
from streamtable.tables.replica import Replica, discard_store, open_store
from streamtable.types import RecordBatch

Make = Callable[..., RecordBatch]


@pytest.fixture
def topic(topic_info: Callable[..., TopicInfo]) -> TopicInfo:
    return topic_info("t", partitions=3)


@pytest.fixture
def store(stores: MemoryStores) -> MemoryStore:
    return stores.open("t", 2)


def local(store: MemoryStore) -> LocalPosition:
    return LocalPosition.decode(store.checkpoint() or b"")


def test_the_last_value_of_each_key_and_the_position_are_written_together(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    replica = Replica(topic, 2, store, clock)
    replica.apply(batch("t", [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None)], first=10, partition=2))
    assert (store.get(b"a"), store.get(b"b")) == (b"3", None)
    assert local(store) == LocalPosition(14, "id-1", clock.now(), partitions=3, whole=False)


def test_a_record_without_a_key_is_left_out_of_the_table(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    replica = Replica(topic, 2, store, clock)
    replica.apply(batch("t", [(None, b"1"), (b"a", b"2")]))
    assert (store.get(b"a"), replica.position) == (b"2", 2)


def test_a_replica_goes_on_where_its_store_stands(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    first = Replica(topic, 2, store, clock)
    first.apply(batch("t", [(b"a", b"1")], first=6))
    first.mark_whole(clock.now())
    second = Replica(topic, 2, store, clock)
    assert (second.position, second.whole) == (7, True)


def test_markers_move_the_position_on_but_never_back(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    replica = Replica(topic, 2, store, clock)
    replica.apply(batch("t", [(b"a", b"1")], first=6))
    replica.advance(9)
    replica.advance(3)
    assert replica.position == 9


def test_applying_records_does_not_make_a_copy_current(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    replica = Replica(topic, 2, store, clock)
    replica.mark_whole(clock.now())
    complete = clock.now()
    clock.sleep(80_000)
    late = Replica(
        topic, 2, store, clock
    )  # after a night of standing still, it reads a little and stops again
    late.apply(batch("t", [(b"a", b"1")]))
    assert local(store).current_at == complete
    late.save(clock.now())
    assert local(store).current_at == clock.now()


def test_a_load_that_takes_long_is_as_old_as_its_beginning(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    replica, began = Replica(topic, 2, store, clock), clock.now()
    clock.sleep(80_000)
    replica.apply(batch("t", [(b"a", b"1")]))
    assert local(store).current_at == began


def test_a_listener_hears_of_changes_after_they_are_in_the_store_and_only_once_whole(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    heard: list[Any] = []

    def listen(partition: int, rows: Any, offset: int) -> None:
        heard.append((partition, dict(rows), offset, store.get(b"a")))

    replica = Replica(topic, 2, store, clock, listen)
    replica.apply(batch("t", [(b"a", b"1")]))
    replica.mark_whole(clock.now())
    replica.apply(batch("t", [(b"a", b"2"), (b"b", None)], first=1))
    assert heard == [(2, {b"a": b"2", b"b": None}, 3, b"2")]


def test_a_kill_while_loading_leaves_a_prefix_that_says_so(
    topic: TopicInfo, stores: MemoryStores, store: MemoryStore, clock: Any, batch: Make
) -> None:
    replica = Replica(topic, 2, store, clock)
    replica.apply(batch("t", [(b"a", b"1")]))
    stores.crash()
    after = Replica(topic, 2, stores.open("t", 2), clock)
    assert (after.position, after.whole) == (0, False)


def test_a_new_store_has_no_position(stores: MemoryStores) -> None:
    assert open_store(stores, "t", 0)[1] is None


def test_a_store_with_an_unreadable_checkpoint_is_thrown_away_loudly(
    stores: MemoryStores, logged: list[Any]
) -> None:
    store = stores.open("t", 0)
    store.write([(b"a", b"1")], b"rubbish")
    store.close()
    opened, position = open_store(stores, "t", 0)
    assert (opened.get(b"a"), position) == (None, None)
    assert [line["event"] for line in logged] == ["local copy thrown away, loading it from the log"]


def test_a_store_that_somebody_else_holds_is_not_thrown_away(stores: MemoryStores) -> None:
    stores.open("t", 0).write([(b"a", b"1")], b"")
    with pytest.raises(StoreInUse):
        open_store(stores, "t", 0)
    with pytest.raises(StoreInUse):
        discard_store(stores, "t", 0, "because")


def test_the_position_never_says_more_than_the_rows_hold(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = Replica(topic, 2, store, clock)
    write, seen = store.write, []

    def watched(*args: Any, **given: Any) -> None:
        seen.append(replica.position)
        write(*args, **given)
        seen.append(replica.position)

    monkeypatch.setattr(store, "write", watched)
    replica.apply(batch("t", [(b"a", b"1")], first=6))
    assert (seen, replica.position, local(store).changelog) == ([0, 0], 7, 7)


def test_what_is_scanned_while_it_stands_still_is_exactly_of_its_position(
    topic: TopicInfo, store: MemoryStore, clock: Any, batch: Make
) -> None:
    """Each row holds the offset after its batch, and a batch is written in the middle of every look."""
    replica = Replica(topic, 2, store, clock)
    stop = threading.Event()

    def write() -> None:
        offset = 0
        while not stop.is_set():
            replica.apply(
                batch("t", [(b"a", b"%d" % (offset + 2)), (b"b", b"%d" % (offset + 2))], first=offset)
            )
            offset += 2

    writer = threading.Thread(target=write)
    writer.start()
    looks: set[int] = set()
    try:
        while len(looks) < 200:
            with ExitStack() as held:
                with replica.still() as position:
                    rows = held.enter_context(store.scan())
                if position:
                    looks.add(position)
                    assert list(rows) == [(b"a", b"%d" % position), (b"b", b"%d" % position)]
    finally:
        stop.set()
        writer.join()
