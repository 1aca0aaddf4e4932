import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from localkafka.waiting import wait_until
from streamtable.base.keys import ListKey, after_prefix
from streamtable.base.partitioner import partition_for
from streamtable.base.ports import TopicInfo
from streamtable.base.topics import Table
from streamtable.base.types import Ack, BadToken, Committed, NextOffset, TopicPartition, Watermarks
from streamtable.codec.plain import Json, Long, String
from streamtable.errors import (
    ConfigurationError,
    DeserializationError,
    GraphError,
    NotReady,
    StoreCorrupted,
    TopicMismatch,
    UnreadableRow,
)
from streamtable.observe import Metrics
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import TablePosition
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View
from streamtable.views.watch import CopyReloaded
from streamtable_testing.tester import Tester

TABLE = Table("g-table", String(), Long())
COUNT = 4


class LogDouble:
    def __init__(self, cluster: Any, reader: Any) -> None:
        self._cluster, self._reader = cluster, reader

    def cluster(self) -> Any:
        return self._cluster

    def table_reader(self, name: str) -> Any:
        return self._reader


@pytest.fixture
def cluster(make_cluster: Any, topic_info: Callable[..., TopicInfo]) -> Any:
    return make_cluster({"g-table": topic_info("g-table", partitions=COUNT)})


@pytest.fixture
def write(cluster: Any, reader: Any, record: Any) -> Callable[..., None]:
    """Write rows into the table's log: `write(alice=1, bob=None)`."""

    def write(**rows: int | None) -> None:
        for key, value in rows.items():
            place = TopicPartition("g-table", partition_for(key.encode(), COUNT))
            log = reader.logs.setdefault(place, [])
            log.append(record(key.encode(), None if value is None else Long().encode(value), len(log)))
            cluster.marks[place] = Watermarks(0, len(log))

    return write


@pytest.fixture
def make(
    cluster: Any, reader: Any, stores: MemoryStores, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., View[str, int]]]:
    monkeypatch.setattr("streamtable.views.updater._STEP_SECONDS", 0.005)
    made: list[ViewUpdater] = []

    def make(table: Table[Any, Any] = TABLE, *, start: bool = True) -> View[Any, Any]:
        log: Any = LogDouble(cluster, reader)
        made.append(ViewUpdater(log, stores, clock, Metrics.register(CollectorRegistry()), "view"))
        view = View(table, made[-1])
        if start:
            made[-1].start()
        return view

    yield make
    for updater in made:
        updater.close()


@pytest.fixture
def view(make: Callable[..., View[str, int]], write: Callable[..., None]) -> View[str, int]:
    write(alice=1, bob=2, carol=3, dave=4, alan=5, al=6, deleted=None)
    view = make()
    view.wait_ready(60)
    return view


Make = Callable[..., View[str, int]]
Write = Callable[..., None]


def until(true: Callable[[], object]) -> None:
    wait_until(true, every=0.005)


def until_refused(ask: Callable[[], object], reason: str) -> None:
    """Ask until it is refused for this reason: before, it is not yet known what the group has committed."""

    def refused() -> bool:
        with pytest.raises(NotReady) as caught:
            ask()
        return re.search(reason, str(caught.value)) is not None

    until(refused)


def test_rows_are_found_wherever_their_partition_is(view: View[str, int]) -> None:
    assert [view.get(key) for key in ("alice", "bob", "carol", "zoe", "deleted")] == [1, 2, 3, None, None]
    assert view.get_many(["alice", "zoe", "bob"]) == {"alice": 1, "bob": 2}


def test_an_answer_says_where_it_comes_from_and_how_old_it_is(view: View[str, int], clock: Any) -> None:
    partition = partition_for(b"alice", COUNT)
    answer = view.answer("alice")
    assert (answer.value, answer.partition, answer.stale) == (1, partition, False)
    assert answer.offset == view.position()[partition].offset > 0


def test_ranges_are_half_open_and_in_key_order_over_all_partitions(view: View[str, int]) -> None:
    assert view.range("alan", "bob") == [("alan", 5), ("alice", 1)]
    assert [key for key, _ in view.range()] == ["al", "alan", "alice", "bob", "carol", "dave"]
    assert [key for key, _ in view.range(limit=2)] == ["al", "alan"]
    assert view.range(limit=0) == []
    assert view.range("x", "a") == []


def test_rows_can_be_walked_by_prefix_and_from_where_one_left_off(view: View[str, int]) -> None:
    assert [key for key, _ in view.iterate(prefix="al")] == ["al", "alan", "alice"]
    assert [key for key, _ in view.iterate(prefix="al", after="al")] == ["alan", "alice"]
    assert [key for key, _ in view.iterate(after="alice")] == ["bob", "carol", "dave"]
    assert [key for key, _ in view.iterate(after="alic")] == ["alice", "bob", "carol", "dave"]
    assert list(view.iterate(prefix="al", after="b")) == []
    assert list(view.iterate(prefix="zz")) == []


def test_a_walk_that_was_given_up_does_not_keep_the_view_from_closing(view: View[str, int]) -> None:
    rows = view.iterate()
    next(rows)
    view.close()
    with pytest.raises(NotReady, match="closed"):
        view.get("alice")


@given(st.binary(max_size=4), st.lists(st.binary(max_size=5)))
def test_the_bound_after_a_prefix_separates_exactly_the_keys_that_begin_with_it(
    prefix: bytes, keys: list[bytes]
) -> None:
    end = after_prefix(prefix)
    for key in [*keys, prefix, prefix + b"\xff" * 3]:
        assert key.startswith(prefix) == (key >= prefix and (end is None or key < end))


def test_nothing_is_answered_before_every_partition_is_ready(
    make: Make, write: Write, cluster: Any, reader: Any, clock: Any
) -> None:
    write(alice=1, bob=2)
    place = TopicPartition("g-table", partition_for(b"bob", COUNT))
    cluster.marks[place] = Watermarks(0, 2)  # a transaction of another producer is open
    view = make()
    until(lambda: view._replicas.missing() == "1 of 4 partitions are loading, 1 records to go")
    for ask in (
        lambda: view.get("alice"),
        lambda: view.get_many(["alice"]),
        lambda: view.answer("alice"),
        view.range,
        lambda: next(view.iterate()),
    ):
        with pytest.raises(NotReady, match="1 of 4 partitions are loading, 1 records to go"):
            ask()
    with pytest.raises(NotReady, match=r"not ready after 0\.01 s"):
        view.wait_ready(0.01)
    assert not view.ready
    reader.ends[place] = 2
    view.wait_ready(60)
    assert view.get("alice") == 1


def test_waiting_without_end_fails_when_the_view_is_closed(make: Make, write: Write, cluster: Any) -> None:
    cluster.marks[TopicPartition("g-table", 0)] = Watermarks(0, 5)
    view = make()
    soon = threading.Timer(0.05, view.close)
    soon.start()
    with pytest.raises(NotReady, match="not ready: it is closed"):
        view.wait_ready()
    soon.join()


def test_a_watch_hears_of_changes_after_the_view_answers_with_them(
    view: View[str, int], write: Write
) -> None:
    with view.watch("alice") as alice, view.watch(prefix="al") as al, view.watch() as everything:
        write(alice=10, bob=20)
        assert (change := alice.next(60)) is not None
        assert (change.key, change.value, view.get("alice")) == ("alice", 10, 10)
        assert (change := al.next(60)) is not None
        assert change.key == "alice"
        assert {c.key for c in (everything.next(60), everything.next(60)) if c} == {"alice", "bob"}
    write(alice=11)
    until(lambda: view.get("alice") == 11)
    assert alice.next(0) is None


def test_watches_end_when_the_view_is_closed_or_was(view: View[str, int]) -> None:
    watch = view.watch()
    soon = threading.Timer(0.05, view.close)
    soon.start()
    assert list(watch) == []
    soon.join()
    assert list(view.watch()) == []


def test_watches_end_and_questions_say_why_when_the_view_stops_for_good(
    view: View[str, int], cluster: Any, clock: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    watch = view.watch()
    cluster.infos["g-table"] = topic_info("g-table", partitions=COUNT + 1)
    clock.sleep(60)
    assert list(watch) == []
    with pytest.raises(TopicMismatch, match="had 4 partitions and has 5 now"):
        view.get("alice")
    with pytest.raises(TopicMismatch):
        view.wait_ready(1)


class _Picky(Long):
    """Cannot decode 13."""

    def decode(self, data: bytes) -> int:
        if (number := super().decode(data)) == 13:
            raise DeserializationError("13 is not a number")
        return number


@pytest.fixture
def picky(make: Make, write: Write) -> View[str, Any]:
    write(alice=1, bob=13, carol=3)
    view: View[str, Any] = make(Table("g-table", String(), _Picky()))
    view.wait_ready(60)
    return view


def test_asked_for_by_its_key_an_unreadable_row_is_an_error_that_says_where_and_why(
    picky: View[str, Any],
) -> None:
    for ask in (
        lambda: picky.get("bob"),
        lambda: picky.answer("bob"),
        lambda: picky.get_many(["alice", "bob"]),
        lambda: picky.answers(["bob"]),
    ):
        with pytest.raises(UnreadableRow, match=r"the row for key b'bob'.*13 is not a number") as raised:
            ask()
        assert (raised.value.topic, raised.value.partition) == ("g-table", partition_for(b"bob", COUNT))
    assert (picky.get("alice"), picky.get("zoe")) == (1, None)


def test_lists_leave_an_unreadable_row_out_and_count_it(picky: View[str, Any]) -> None:
    rows = picky.range()
    assert (rows, rows.unreadable) == ([("alice", 1), ("carol", 3)], 1)
    walk = picky.iterate()
    assert (dict(walk), walk.unreadable) == ({"alice": 1, "carol": 3}, 1)
    with picky.snapshot(partition_for(b"bob", COUNT)) as snapshot:
        assert ("bob" in dict(snapshot), snapshot.unreadable) == (False, 1)
    assert (picky.range("c").unreadable, picky.range(limit=1).unreadable) == (0, 0)
    assert picky.unreadable == 3


def test_a_reader_of_a_list_can_be_called_with_unreadable_rows_or_stop_at_them(picky: View[str, Any]) -> None:
    skipped: list[UnreadableRow] = []
    picky.range(on_unreadable=skipped.append)
    list(picky.iterate(on_unreadable=skipped.append))
    with picky.snapshot(partition_for(b"bob", COUNT), on_unreadable=skipped.append) as snapshot:
        list(snapshot)
    assert [error.key for error in skipped] == [b"bob"] * 3

    def stop(error: UnreadableRow) -> None:
        raise error

    with pytest.raises(UnreadableRow):
        picky.range(on_unreadable=stop)


def test_a_watch_leaves_an_unreadable_change_out_and_goes_on(picky: View[str, Any], write: Write) -> None:
    skipped: list[UnreadableRow] = []
    with picky.watch(on_unreadable=skipped.append) as watch:
        write(alice=13)
        until(lambda: picky.position()[partition_for(b"alice", COUNT)].offset == 2)
        write(alice=2)
        assert (change := watch.next(60)) is not None
        assert (change.key, change.value, watch.unreadable) == ("alice", 2, 1)
    assert [error.key for error in skipped] == [b"alice"]


def test_unreadable_rows_are_counted_in_a_metric(
    cluster: Any, reader: Any, stores: MemoryStores, clock: Any, write: Write
) -> None:
    registry = CollectorRegistry()
    log: Any = LogDouble(cluster, reader)
    write(bob=13)
    table = Table("g-table", String(), _Picky())
    updater = ViewUpdater(log, stores, clock, Metrics.register(registry), "view")
    updater.start()
    with closing(updater):
        view = View(table, updater)
        view.wait_ready(60)
        view.range()
        labels = {"group": "view", "topic": "g-table", "partition": str(partition_for(b"bob", COUNT))}
        assert registry.get_sample_value("streamtable_view_unreadable_rows_total", labels) == 1


def test_a_watch_ends_with_an_error_when_the_copy_is_loaded_again(
    view: View[str, int], write: Write, clock: Any
) -> None:
    watch = view.watch()
    place = partition_for(b"alice", COUNT)
    with pytest.raises(NotReady), view.snapshot(place):
        raise StoreCorrupted("bit flip", topic="g-table", partition=place)
    with pytest.raises(CopyReloaded, match="bit flip"):
        watch.next(60)
    clock.sleep(1)  # the next look at the log's end
    until(lambda: view.ready)
    with view.watch() as again:
        write(alice=10)
        assert (change := again.next(60)) is not None
        assert change.value == 10


def test_rows_of_a_topic_and_of_a_longer_one_of_the_same_name_are_mixed_for_a_second_at_most() -> None:
    def create(tester: Tester, name: str, count: int) -> None:
        tester.kafka.create_topic("t", 1, compacted=True)
        for number in range(count):
            tester.kafka.append("t", f"{name}{number}".encode(), Long().encode(number), partition=0)

    with Tester() as tester:
        create(tester, "old", 5)
        view = tester.view(Table("t", String(), Long()))
        tester.advance(2)
        watch = view.watch()
        tester.kafka.delete_topic("t")
        create(tester, "new", 8)
        tester.advance(2)
        assert [key for key, _ in view.range()] == [f"new{number}" for number in range(8)]
        with pytest.raises(CopyReloaded):
            watch.next(0)


@pytest.mark.parametrize("ask", [View.get, View.answer])
def test_an_answer_that_was_read_while_the_copy_was_replaced_is_not_given(
    ask: Callable[..., Any], view: View[str, int], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = partition_for(b"alice", COUNT)

    def replaced(key: bytes) -> bytes | None:
        """The copy is replaced between the check that it is ready and the read."""
        loads = view._replicas.loads
        view._replicas.damaged(StoreCorrupted("bit flip", topic="g-table", partition=place))
        until(lambda: view._replicas.loads > loads)
        clock.sleep(1)
        until(lambda: view.ready)
        return view._replicas.all()[place].store.get(key)

    monkeypatch.setattr(view._replicas.all()[place].store, "get", replaced)
    with pytest.raises(NotReady, match="loaded again"):
        ask(view, "alice")


@pytest.mark.parametrize("start", [True, False])
def test_a_view_can_be_closed_twice_and_before_it_was_started(start: bool, make: Make) -> None:  # noqa: FBT001 - a parameter
    view = make(start=start)
    view.close()
    view.close()


def test_many_answers_come_also_for_keys_without_a_row(view: View[str, int]) -> None:
    answers = view.answers(["alice", "zoe"])
    assert {key: answer.value for key, answer in answers.items()} == {"alice": 1, "zoe": None}
    assert answers["alice"] == view.answer("alice")


# ---- snapshots ---------------------------------------------------------------------------------------------------------


def test_keys_that_are_equal_in_python_and_have_a_row_each_are_not_asked_for_together() -> None:
    keys = Json()
    with Tester() as tester:
        tester.kafka.create_topic("t", 1, compacted=True)
        for key, row in ((1, 10), (True, 20), ([0.0], 30), ([-0.0], 40)):
            tester.kafka.append("t", keys.encode(key), Long().encode(row), partition=0)
        view = tester.view(Table("t", keys, Long()))
        assert view.get_many([1, [0.0], 1]) == {1: 10, ListKey([0.0]): 30}
        assert [view.get(key) for key in (1, True, [0.0], [-0.0])] == [10, 20, 30, 40]
        for two in ([1, True], [[0.0], [-0.0]]):
            for ask in (view.get_many, view.answers):
                with pytest.raises(ValueError, match="equals another key in Python"):
                    ask(two)


def test_a_snapshot_holds_the_rows_of_its_partition_as_they_were(view: View[str, int], write: Write) -> None:
    place = partition_for(b"alice", COUNT)
    with view.snapshot(place) as snapshot:
        before = view.position()[place].offset
        write(alice=10)
        until(lambda: view.get("alice") == 10)
        rows = dict(snapshot)
    assert (rows["alice"], snapshot.partition, snapshot.offset) == (1, place, before)
    assert all(partition_for(key.encode(), COUNT) == place for key in rows)
    with view.snapshot(place) as later:
        assert (dict(later)["alice"], later.offset) == (10, before + 1)


def test_a_snapshot_of_a_partition_that_is_not_there_is_refused(view: View[str, int]) -> None:
    for partition in (-1, COUNT):
        with pytest.raises(ConfigurationError, match="has 4 partitions"), view.snapshot(partition):
            pass


def test_no_snapshot_is_given_before_the_view_is_ready(make: Make, write: Write, cluster: Any) -> None:
    cluster.marks[TopicPartition("g-table", 0)] = Watermarks(0, 5)
    view = make()
    until(lambda: view._replicas.missing().startswith("1 of 4 partitions"))
    with pytest.raises(NotReady, match="1 of 4 partitions are loading"), view.snapshot(1):
        pass


def test_damage_that_a_snapshot_finds_is_mended(view: View[str, int], clock: Any) -> None:
    place = partition_for(b"alice", COUNT)
    loads = view._replicas.loads
    with pytest.raises(NotReady, match="damaged"), view.snapshot(place):
        raise StoreCorrupted("bit flip").at("g-table", place)
    until(lambda: view._replicas.loads > loads + 1)  # it was discarded, and is read again
    clock.sleep(1)  # the next look at the log's end
    until(lambda: view.ready)
    assert view.get("alice") == 1


# ---- reading one's own writes ------------------------------------------------------------------------------------------

OF_GROUP = Table("g-table", String(), Long(), group="g")


def committed(cluster: Any, partition: int, next_offset: int, metadata: str) -> None:
    cluster.committed[TopicPartition("in", partition)] = Committed(NextOffset(next_offset), metadata)


@pytest.fixture
def own(make: Make, write: Write) -> View[str, int]:
    write(alice=1)
    view = make(OF_GROUP)
    view.wait_ready(60)
    return view


def test_waiting_ends_when_the_effect_of_the_event_is_here(
    own: View[str, int], write: Write, cluster: Any
) -> None:
    place = partition_for(b"alice", COUNT)
    committed(cluster, place, 7, TablePosition(1, exact=True).encode())
    waiting = threading.Thread(target=lambda: own.wait_for(Ack("in", place, 7), 60))
    waiting.start()
    committed(cluster, place, 8, TablePosition(2, exact=True).encode())
    assert waiting.is_alive()
    write(alice=2)
    waiting.join(60)
    assert not waiting.is_alive()
    assert own.get("alice") == 2


def test_an_event_that_changed_nothing_is_waited_for_like_any_other(
    own: View[str, int], cluster: Any
) -> None:
    place = partition_for(b"alice", COUNT)
    committed(cluster, place, 8, TablePosition(1, exact=False).encode())
    own.wait_for(Ack("in", place, 7), 60)


def test_a_state_table_is_waited_for_to_its_own_position_not_to_that_of_the_groups_table(
    make: Make, cluster: Any, reader: Any, record: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    place = TopicPartition("g-stock", partition_for(b"alice", COUNT))
    cluster.infos["g-stock"] = topic_info("g-stock", partitions=COUNT)
    reader.logs[place] = [record(b"alice", Long().encode(1), 0)]
    cluster.marks[place] = Watermarks(0, 1)
    view = make(Table("g-stock", String(), Long(), group="g"))
    view.wait_ready(60)
    committed(cluster, place.partition, 8, TablePosition(0, exact=True, tables={"stock": 2}).encode())
    until_refused(
        lambda: view.wait_for(Ack("in", place.partition, 7), 0.05),
        r"at offset 2, and the view is at 1 after 0\.05 s",
    )
    reader.logs[place].append(record(b"alice", Long().encode(2), 1))
    view.wait_for(Ack("in", place.partition, 7), 60)
    assert view.get("alice") == 2


def test_a_table_that_the_group_had_not_yet_is_waited_for_to_its_end(
    make: Make, cluster: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    cluster.infos["g-stock"] = topic_info("g-stock", partitions=COUNT)
    view = make(Table("g-stock", String(), Long(), group="g"))
    view.wait_ready(60)
    committed(cluster, 0, 8, TablePosition(99, exact=True).encode())
    view.wait_for(Ack("in", 0, 7), 60)


def test_the_log_is_waited_for_to_its_end_if_the_offset_was_set_by_a_tool(
    own: View[str, int], cluster: Any, reader: Any
) -> None:
    place = partition_for(b"alice", COUNT)
    committed(cluster, place, 8, "")
    cluster.marks[TopicPartition("g-table", place)] = Watermarks(0, 3)
    until_refused(
        lambda: own.wait_for(Ack("in", place, 7), 0.05), r"at offset 3, and the view is at 1 after 0\.05 s"
    )
    reader.ends[TopicPartition("g-table", place)] = 3
    own.wait_for(Ack("in", place, 7), 60)


def test_a_group_that_is_behind_is_reported_when_the_time_is_over(own: View[str, int], cluster: Any) -> None:
    committed(cluster, 0, 7, TablePosition(0, exact=True).encode())
    until_refused(lambda: own.wait_for(Ack("in", 0, 7), 0.05), "is at offset 7")


def test_a_table_without_a_group_cannot_be_waited_for(make: Make) -> None:
    with pytest.raises(GraphError, match="does not say which group keeps it"):
        make().wait_for(Ack("in", 0, 7))


def test_an_event_that_can_have_no_effect_is_refused_at_once(own: View[str, int]) -> None:
    with pytest.raises(BadToken, match="no event in partition 4"):
        own.wait_for(Ack("in", COUNT, 7))


def test_a_waiting_reader_fails_when_the_view_is_closed_or_stops(
    own: View[str, int], cluster: Any, clock: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    committed(cluster, 0, 8, TablePosition(99, exact=True).encode())
    cluster.infos["g-table"] = topic_info("g-table", partitions=COUNT + 1)
    clock.sleep(60)
    with pytest.raises(TopicMismatch):
        own.wait_for(Ack("in", 0, 7), 60)
    own._updater.close()
    with pytest.raises(NotReady, match="closed"):
        own.wait_for(Ack("in", 0, 7), 60)


def test_a_coroutine_waits_for_the_effect_of_an_event_without_a_thread(
    own: View[str, int], write: Write, cluster: Any
) -> None:
    place = partition_for(b"alice", COUNT)

    async def wait() -> int | None:
        many = [asyncio.create_task(own.wait_for_async(Ack("in", place, 7), 60)) for _ in range(100)]
        await asyncio.sleep(0)
        committed(cluster, place, 8, TablePosition(2, exact=True).encode())
        write(alice=2)
        await asyncio.gather(*many)
        return own.get("alice")

    assert asyncio.run(wait()) == 2


def test_a_coroutine_learns_how_far_the_group_or_the_view_is_when_the_time_is_over(
    own: View[str, int], cluster: Any
) -> None:
    committed(cluster, 0, 7, TablePosition(0, exact=True).encode())
    until_refused(lambda: asyncio.run(own.wait_for_async(Ack("in", 0, 7), 0.05)), "is at offset 7")
    committed(cluster, 0, 8, TablePosition(9, exact=True).encode())
    until_refused(
        lambda: asyncio.run(own.wait_for_async(Ack("in", 0, 7), 0.05)), "at offset 9, and the view is at"
    )


def test_a_view_that_is_driven_by_turns_asks_once(make: Make, cluster: Any) -> None:
    view = make(OF_GROUP, start=False)
    view._updater.open()
    turns = view._updater.turns()
    for _ in range(3):
        next(turns)
    committed(cluster, 0, 8, TablePosition(0, exact=True).encode())
    view.wait_for(Ack("in", 0, 7))
    with pytest.raises(NotReady):
        view.wait_for(Ack("in", 0, 8))
    committed(cluster, 0, 8, TablePosition(9, exact=True).encode())
    with pytest.raises(NotReady, match="at offset 9, and the view is at 0"):
        view.wait_for(Ack("in", 0, 7))
