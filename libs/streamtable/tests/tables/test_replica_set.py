import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localkafka.waiting import wait_until
from streamtable.base.ports import TopicInfo
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.errors import InputLost, RetryLater, StoreCorrupted, TopicMismatch
from streamtable.observe import Metrics
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import LocalPosition
from streamtable.tables.replica import PartitionReplica
from streamtable.tables.replica_set import ReplicaSet
from streamtable.views.updater import ViewUpdater

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class LogDouble:
    known: Any
    reader: Any

    def cluster(self) -> Any:
        return self.known

    def table_reader(self, name: str) -> Any:
        self.reader.positions.clear()
        return self.reader


@dataclass
class Rig:
    """ReplicaSet of a table with two partitions, on doubles, in a thread of their own as in life."""

    log: Any
    stores: MemoryStores
    clock: Any
    failed: threading.Event
    heard: list[Any]
    discarded: list[tuple[int, str]] = field(default_factory=list)
    copies: Any = None
    host: Any = None

    def start(self) -> "Rig":
        metrics = Metrics.register(CollectorRegistry())
        self.copies = ReplicaSet(
            "t",
            self.stores,
            self.clock,
            partial(
                PartitionReplica,
                self.stores,
                "t",
                clock=self.clock,
                listener=lambda *it: self.heard.append(it),
            ),
            metrics,
            "view",
            self.failed.set,
            lambda *it: self.discarded.append(it),
        )
        self.host = ViewUpdater(self.log, self.stores, self.clock, metrics, "view")
        self.host.add(self.copies)
        self.host.start()
        return self

    def until(self, true: Callable[[], object]) -> None:
        """Let time pass until it is true."""
        wait_until(lambda: true() or self.clock.sleep(0.5), every=0.005)

    def row(self, place: TopicPartition, key: bytes) -> bytes | None:
        """None also in the moment when a store is replaced."""
        try:
            found: bytes | None = self.copies.all()[place.partition].store.get(key)
        except (RetryLater, IndexError):
            return None
        return found

    def local(self, place: TopicPartition) -> LocalPosition:
        return LocalPosition.decode(self.copies.all()[place.partition].store.checkpoint())


@pytest.fixture
def rig(
    reader: Any, clock: Any, stores: MemoryStores, record: Any, make_cluster: Any,
    topic_info: Callable[..., TopicInfo], monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Rig]:  # fmt: skip
    monkeypatch.setattr("streamtable.views.updater._STEP_SECONDS", 0.005)
    monkeypatch.setattr("streamtable.tables.replica_set._WAKE_SECONDS", 0.005)
    cluster = make_cluster({"t": topic_info("t", partitions=2)})
    reader.logs = {P0: [record(b"a", b"1", 0), record(b"b", b"2", 1)], P1: [record(b"c", b"3", 0)]}
    cluster.marks = {P0: Watermarks(0, 2), P1: Watermarks(0, 1)}
    made = Rig(LogDouble(cluster, reader), stores, clock, threading.Event(), [])
    yield made
    if made.host is not None:
        made.host.close()


def on_disk(stores: MemoryStores, clock: Any, count: int, changelog: int = 0, **changes: Any) -> None:
    """Leave a whole copy behind, as a view that ran before does."""
    for partition in range(count):
        store = stores.open("t", partition)
        given: dict[str, Any] = {"topic_id": "id-1", "current_at": clock.now(), "partitions": count}
        store.write([(b"old", b"0")], LocalPosition(changelog, **given | changes).encode())
        store.close()


# ---- all of them -------------------------------------------------------------------------------------------------------


def test_they_are_ready_when_each_has_reached_the_end(rig: Rig) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    assert [rig.row(P0, b"a"), rig.row(P0, b"b"), rig.row(P1, b"c")] == [b"1", b"2", b"3"]
    assert rig.local(P0).whole


def test_one_partition_that_lags_keeps_the_whole_from_being_whole(rig: Rig) -> None:
    rig.log.known.marks[P1] = Watermarks(0, 2)  # an open transaction: the reader gets no further
    rig.start()
    rig.until(lambda: rig.copies.all() and rig.copies.all()[0].complete)
    assert not rig.copies.ready
    assert rig.copies.missing() == "1 of 2 partitions are loading, 1 records to go"
    rig.log.reader.ends[P1] = 2
    rig.until(lambda: rig.copies.ready)


def test_changes_are_heard_of_once_the_partition_is_ready(rig: Rig, record: Any) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    assert rig.heard == []
    rig.log.reader.logs[P1].append(record(b"c", None, 1))
    rig.until(lambda: rig.heard)
    assert rig.heard == [(1, {b"c": None}, 2)]


@pytest.mark.parametrize("question", ["topics", "watermarks"])
def test_a_copy_that_was_whole_is_not_ready_before_the_broker_has_named_an_end(
    question: str, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: Any) -> Any:
        raise RetryLater("no answer in 5 s")

    on_disk(rig.stores, rig.clock, 2)
    with monkeypatch.context() as away:
        away.setattr(rig.log.known, question, silent)
        rig.start()
        rig.clock.sleep(3_600)
        rig.until(lambda: rig.copies.missing() == "Kafka does not answer (no answer in 5 s)")
        assert (rig.copies.ready, rig.copies.complete) == (False, True)
        assert rig.row(P0, b"old") == b"0"
    rig.until(lambda: rig.copies.ready)
    assert rig.row(P0, b"b") == b"2"


def test_a_copy_that_was_whole_is_caught_up_before_it_answers(rig: Rig) -> None:
    on_disk(rig.stores, rig.clock, 2)
    rig.start()
    rig.until(lambda: rig.copies.ready)
    assert rig.row(P0, b"b") == b"2"


@pytest.mark.parametrize(
    ("count", "changes"),
    [(0, {}), (1, {"partitions": 2}), (2, {"whole": False}), (3, {"partitions": 2})],
    ids=["none", "one is missing", "never whole", "one too many"],
)
def test_a_copy_that_is_not_surely_all_of_the_table_waits_for_the_broker(
    count: int, changes: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(rig.stores, rig.clock, count, **changes)
    with monkeypatch.context() as away:
        asked = threading.Event()

        def silent(_: Any) -> Any:
            asked.set()
            raise RetryLater("no answer")

        away.setattr(rig.log.known, "topics", silent)
        assert not rig.start().copies.ready
        assert asked.wait(60)
    rig.until(lambda: rig.copies.ready)
    assert set(rig.stores.present()) == {("t", 0), ("t", 1)}


def test_a_topic_of_fewer_partitions_leaves_nothing_of_the_former_one(rig: Rig) -> None:
    on_disk(rig.stores, rig.clock, 4, topic_id="id-0")
    rig.start()
    rig.until(lambda: rig.row(P0, b"old") is None and rig.copies.ready)
    rig.host.close()
    assert sorted(rig.stores.present()) == [("t", 0), ("t", 1)]


def test_a_table_that_got_more_partitions_is_refused_with_both_numbers(rig: Rig) -> None:
    on_disk(rig.stores, rig.clock, 1)
    rig.start()
    assert rig.failed.wait(60)
    with pytest.raises(TopicMismatch, match="had 1 partitions and has 2 now"):
        _ = rig.copies.ready
    assert rig.copies.ended


def test_a_table_that_gets_more_partitions_while_it_is_followed_is_refused_with_both_numbers(
    rig: Rig, topic_info: Callable[..., TopicInfo]
) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    rig.log.known.infos["t"] = topic_info("t", partitions=3)
    rig.until(rig.failed.is_set)
    with pytest.raises(TopicMismatch, match="had 2 partitions and has 3 now"):
        rig.copies.wait_ready(1)


@pytest.mark.parametrize("longer", [False, True])
def test_a_topic_that_is_created_again_while_it_is_followed_is_loaded_again(
    longer: bool, rig: Rig, record: Any, topic_info: Callable[..., TopicInfo]  # noqa: FBT001 - a parameter
) -> None:  # fmt: skip
    rig.start()
    rig.until(lambda: rig.copies.ready)
    count = 10 if longer else 1
    rig.log.reader.logs = {P0: [record(b"new", b"9", n) for n in range(count)], P1: []}
    rig.log.known.infos["t"] = topic_info("t", partitions=2, topic_id="id-2")
    rig.log.known.marks = {P0: Watermarks(0, count), P1: Watermarks(0, 0)}
    rig.until(lambda: rig.copies.ready and rig.row(P0, b"new") == b"9" and rig.local(P0).topic_id == "id-2")
    assert [rig.row(P0, b"a"), rig.row(P1, b"c")] == [None, None]


@pytest.mark.parametrize("silent", [True, False], ids=["no answer", "no topic"])
def test_a_copy_ages_while_it_is_not_known_whether_the_topic_is_still_the_same(
    silent: bool, rig: Rig, monkeypatch: pytest.MonkeyPatch  # noqa: FBT001 - a parameter
) -> None:  # fmt: skip
    rig.start()
    rig.until(lambda: rig.copies.ready)
    current_at: list[float] = []

    def answer(_: Any) -> Any:
        current_at.append(rig.copies.all()[0].current_at)
        if silent:
            raise RetryLater("no answer")
        return {}

    with monkeypatch.context() as away:
        away.setattr(rig.log.known, "topic_ids", answer)
        rig.until(lambda: len(current_at) > 3)
    assert len(set(current_at[1:])) == 1
    rig.until(lambda: rig.copies.all()[0].current_at > current_at[-1])


def test_a_reader_refused_by_a_topic_that_was_created_again_loads_it_again(
    rig: Rig, topic_info: Callable[..., TopicInfo]
) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    rig.log.known.infos["t"] = topic_info("t", partitions=2, topic_id="id-2")
    rig.log.reader.errors.append(InputLost("out of range", topic="t", partition=0))
    rig.until(lambda: rig.copies.ready and rig.local(P0).topic_id == "id-2")


@pytest.mark.parametrize("silent", [True, False], ids=["no answer", "no topic"])
def test_a_reader_that_is_refused_for_an_unknown_reason_asks_again(
    silent: bool, rig: Rig, topic_info: Callable[..., TopicInfo], monkeypatch: pytest.MonkeyPatch  # noqa: FBT001 - a parameter
) -> None:  # fmt: skip
    rig.start()
    rig.until(lambda: rig.copies.ready)
    asked = threading.Event()

    def answer(_: Any) -> Any:
        asked.set()
        if silent:
            raise RetryLater("no answer")
        return {}

    with monkeypatch.context() as away:
        away.setattr(rig.log.known, "topic_ids", answer)
        rig.log.reader.errors.append(InputLost("out of range", topic="t", partition=0))
        assert asked.wait(60)
        assert not rig.failed.is_set()
        rig.log.known.infos["t"] = topic_info("t", partitions=2, topic_id="id-2")
    rig.until(lambda: rig.copies.ready and rig.local(P0).topic_id == "id-2")


def delete_until(rig: Rig, low: int, *left: Any) -> None:
    """Delete the records of the first partition below `low`, as retention and DeleteRecords do; these are left."""
    rig.log.reader.logs[P0] = list(left)
    rig.log.known.marks[P0] = Watermarks(low, low + len(left))


@pytest.mark.parametrize("low", [2, 4], ids=["behind its position", "beyond it"])
def test_a_restarted_copy_does_not_keep_rows_whose_records_were_deleted(
    low: int, rig: Rig, record: Any
) -> None:
    on_disk(rig.stores, rig.clock, 2, changelog=2, begins=0)
    rig.log.known.marks[P1] = Watermarks(0, 2)
    rig.log.reader.ends[P1] = 2
    delete_until(rig, low, record(b"x", b"9", low))
    rig.start()
    rig.until(lambda: rig.copies.ready)
    assert [rig.row(P0, key) for key in (b"old", b"a", b"b", b"x")] == [None, None, None, b"9"]
    assert rig.row(P1, b"old") == b"0"
    assert rig.local(P0).begins == low
    assert [partition for partition, _ in rig.discarded] == [0]


def test_a_copy_that_was_loaded_from_a_topic_without_its_beginning_is_not_loaded_again(
    rig: Rig, record: Any
) -> None:
    on_disk(rig.stores, rig.clock, 2, changelog=5, begins=4)
    rig.log.known.marks = {P0: Watermarks(4, 6), P1: Watermarks(4, 5)}
    rig.log.reader.logs = {P0: [record(b"x", b"9", 5)], P1: []}
    rig.log.reader.ends[P1] = 5
    rig.start()
    rig.until(lambda: rig.copies.ready)
    assert [rig.row(P0, b"old"), rig.row(P0, b"x"), rig.row(P1, b"old")] == [b"0", b"9", b"0"]
    assert rig.discarded == []


def test_a_running_copy_does_not_keep_rows_whose_records_were_deleted(rig: Rig, record: Any) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    delete_until(rig, 2, record(b"x", b"9", 2))
    rig.until(lambda: rig.copies.ready and rig.row(P0, b"x") == b"9")
    rig.until(lambda: rig.discarded)
    rig.until(lambda: rig.copies.ready and rig.row(P0, b"x") == b"9")
    assert [rig.row(P0, b"a"), rig.row(P1, b"c")] == [None, b"3"]
    assert [partition for partition, _ in rig.discarded] == [0]


def test_a_reader_behind_the_start_of_the_same_topic_loads_what_is_left(rig: Rig, record: Any) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    delete_until(rig, 3, record(b"x", b"9", 3))
    rig.log.reader.errors.append(InputLost("out of range", topic="t", partition=0))
    rig.until(lambda: rig.copies.ready and rig.row(P0, b"x") == b"9" and rig.row(P0, b"a") is None)
    assert not rig.failed.is_set()


def test_a_damaged_copy_is_loaded_again_and_answers_no_reader_meanwhile(
    rig: Rig, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    bad = rig.copies.all()[0].store

    def fail(*_: Any, **__: Any) -> None:
        raise StoreCorrupted("bit flip")

    rig.log.known.marks[P0] = Watermarks(0, 4)
    monkeypatch.setattr(bad, "write", fail)
    rig.log.reader.logs[P0].append(record(b"d", b"4", 2))
    rig.until(lambda: rig.copies.all()[0].store is not bad)
    assert not rig.copies.ready
    rig.log.reader.ends[P0] = 4
    rig.until(lambda: rig.copies.ready)
    assert (rig.row(P0, b"a"), rig.row(P0, b"d")) == (b"1", b"4")


def test_a_broker_that_is_away_lets_the_copies_grow_older(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    asked = threading.Event()

    def silent(_: Any) -> Any:
        asked.set()
        raise RetryLater("no answer")

    monkeypatch.setattr(rig.log.known, "watermarks", silent)
    rig.until(asked.is_set)
    before = rig.copies.all()[0].current_at
    rig.clock.sleep(100)
    rig.until(lambda: rig.copies.ready)
    assert rig.copies.all()[0].current_at == before


def test_a_process_that_stood_still_for_longer_than_tombstones_are_kept_loads_again(
    rig: Rig, record: Any
) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    # While it stood still, "a" was deleted, and the topic has forgotten both.
    rig.log.reader.logs[P0] = [record(b"b", b"2", 1), record(b"e", b"5", 3)]
    rig.log.known.marks[P0] = Watermarks(0, 4)
    rig.clock.sleep(90_000)
    # The copy before it may still have taken in the last record.
    rig.until(lambda: rig.copies.ready and rig.row(P0, b"e") is not None and rig.row(P0, b"a") is None)
    assert rig.row(P0, b"b") == b"2"


def test_copies_that_do_not_change_are_noted_as_current_all_the_same(rig: Rig) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    began = rig.clock.now()
    rig.clock.sleep(100)
    rig.until(lambda: rig.local(P0).current_at > began)


def test_damage_that_a_copy_shows_when_it_is_noted_as_current_is_mended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.start()
    rig.until(lambda: rig.copies.ready)
    bad = rig.copies.all()[0].store

    def fail(*_: Any, **__: Any) -> None:
        raise StoreCorrupted("bit flip")

    monkeypatch.setattr(bad, "write", fail)
    rig.clock.sleep(100)
    rig.until(lambda: rig.copies.all()[0].store is not bad and rig.copies.ready)
    assert rig.row(P0, b"a") == b"1"


def test_a_copy_that_was_damaged_while_kafka_was_away_is_loaded_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: Any) -> Any:
        raise RetryLater("no answer")

    def fail() -> None:
        raise StoreCorrupted("bit flip")

    on_disk(rig.stores, rig.clock, 2)
    with monkeypatch.context() as away:
        away.setattr(rig.log.known, "topics", silent)
        rig.start()
        bad = rig.copies.all()[0].store
        monkeypatch.setattr(bad, "checkpoint", fail)
    rig.until(lambda: rig.copies.all()[0].store is not bad and rig.copies.ready)
    assert (rig.row(P0, b"a"), rig.row(P0, b"old")) == (b"1", None)


def test_a_missing_topic_stops_it_with_what_to_do(rig: Rig) -> None:
    rig.log.known.infos.clear()
    rig.start()
    assert rig.failed.wait(60)
    with pytest.raises(TopicMismatch, match=r"topics\.yaml"):
        rig.copies.wait_ready(60)


def test_waiting_ends_when_it_is_closed(rig: Rig) -> None:
    rig.log.known.marks[P0] = Watermarks(0, 1_000)
    rig.start()
    closing = threading.Timer(0.05, rig.host.close)
    closing.start()
    assert not rig.copies.wait_ready(None)
    closing.join()
    assert rig.copies.missing() == "it is closed"
