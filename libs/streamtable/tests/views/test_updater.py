import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from localkafka.waiting import wait_until
from streamtable import App
from streamtable.base.ports import TopicInfo
from streamtable.base.topics import Table
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.errors import (
    AuthenticationFailed,
    AuthorizationError,
    Fatal,
    InputLost,
    NotReady,
    StoreInUse,
    TopicMismatch,
)
from streamtable.observe import Metrics
from streamtable.store.memory import MemoryStores
from streamtable.tables.position import LocalPosition
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View
from streamtable_testing.clock import VirtualClock
from streamtable_testing.log import VirtualKafka
from streamtable_testing.reader import VirtualTableReader

A, B = Table("a", String(), Long()), Table("b", String(), Long())


@dataclass
class LogDouble:
    """Counts the clients that it makes."""

    known: Any
    reader: Any
    made: list[str] = field(default_factory=list)

    def cluster(self) -> Any:
        self.made.append("cluster")
        return self.known

    def table_reader(self, name: str) -> Any:
        self.made.append("reader")
        self.reader.positions.clear()
        return self.reader


@pytest.fixture
def log(reader: Any, record: Any, make_cluster: Any, topic_info: Callable[..., TopicInfo]) -> LogDouble:
    cluster = make_cluster({name: topic_info(name) for name in "abc"})
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        reader.logs[TopicPartition(name, 0)] = [record(b"k", Long().encode(value), 0)]
        cluster.marks[TopicPartition(name, 0)] = Watermarks(0, 1)
    return LogDouble(cluster, reader)


class Views:
    """Views of one updater."""

    def __init__(self, updater: ViewUpdater) -> None:
        self.updater = updater

    def view(self, table: Table[Any, Any]) -> View[Any, Any]:
        return View(table, self.updater)

    def __enter__(self) -> None:
        self.updater.start()

    def __exit__(self, *_: object) -> None:
        self.updater.close()


@pytest.fixture
def views(
    log: LogDouble, stores: MemoryStores, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Views]:
    monkeypatch.setattr("streamtable.views.updater._STEP_SECONDS", 0.005)
    given: Any = log
    made = ViewUpdater(given, stores, clock, Metrics.register(CollectorRegistry()), "views")
    yield Views(made)
    made.close()


def until(true: Callable[[], object], each: Callable[[], object] = lambda: None) -> None:
    wait_until(lambda: true() or (each() and False), every=0.005)


def failure(view: View[Any, Any]) -> BaseException | None:
    try:
        view.get("k")
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error
    return None


def test_views_share_one_consumer_one_client_and_one_thread(views: Views, log: LogDouble) -> None:
    before = set(threading.enumerate())
    with views:
        a, b = views.view(A), views.view(B)
        a.wait_ready(60)
        b.wait_ready(60)
        assert (a.get("k"), b.get("k")) == (1, 2)
        assert sorted(log.made) == ["cluster", "reader"]
        assert len(set(threading.enumerate()) - before) == 1
    assert log.reader.closed


@pytest.mark.parametrize("method", ["cluster", "table_reader"])
def test_views_wait_while_there_is_no_token_to_log_in_with(
    views: Views, log: LogDouble, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    asked = threading.Event()

    def without_a_token(*_: object) -> None:
        asked.set()
        raise AuthenticationFailed("gave no token")

    with monkeypatch.context() as patch:
        patch.setattr(log, method, without_a_token)
        with views:
            view = views.view(A)
            assert asked.wait(60)
            with pytest.raises(NotReady):
                view.get("k")
            patch.undo()
            view.wait_ready(60)
            assert view.get("k") == 1


def test_a_view_that_is_asked_for_later_follows_too(views: Views) -> None:
    with views:
        views.view(A).wait_ready(60)
        later = views.view(B)
        later.wait_ready(60)
        assert later.get("k") == 2


def test_a_table_that_fails_does_not_stop_the_others(
    views: Views, log: LogDouble, record: Any, clock: Any
) -> None:
    with views:
        missing, a, b = views.view(Table("nowhere", String(), Long())), views.view(A), views.view(B)
        for view in (a, b):
            view.wait_ready(60)
        assert isinstance(failure(missing), TopicMismatch)
        log.reader.errors.append(InputLost("out of range", topic="a", partition=0))  # it is loaded again
        log.reader.logs[TopicPartition("b", 0)].append(record(b"k", Long().encode(20), 1))
        until(lambda: b.get("k") == 20)
        with pytest.raises(TopicMismatch):
            missing.wait_ready(60)
        with pytest.raises(TopicMismatch):
            views.updater.check()


def test_a_view_comes_after_all_others_have_failed(views: Views) -> None:
    with views:
        missing = views.view(Table("nowhere", String(), Long()))
        until(lambda: isinstance(failure(missing), TopicMismatch))
        views.view(A).wait_ready(60)


def test_a_consumer_that_cannot_go_on_ends_all_of_them(views: Views, log: LogDouble) -> None:
    with views:
        a, b = views.view(A), views.view(B)
        for view in (a, b):
            view.wait_ready(60)
        log.reader.errors.append(Fatal("the client is dead"))
        until(lambda: isinstance(failure(a), Fatal) and isinstance(failure(b), Fatal))
        assert list(a.watch()) == []


def test_a_topic_that_is_created_again_is_loaded_again_while_the_others_stay(
    views: Views, log: LogDouble, record: Any, clock: Any, topic_info: Callable[..., TopicInfo]
) -> None:
    with views:
        a, b = views.view(A), views.view(B)
        for view in (a, b):
            view.wait_ready(60)
        log.known.infos["a"] = topic_info("a", topic_id="id-2")
        log.reader.logs[TopicPartition("a", 0)] = []
        log.known.marks[TopicPartition("a", 0)] = Watermarks(0, 0)
        until(lambda: a.ready and a.get("k") is None, each=lambda: clock.sleep(0.5))
        assert b.get("k") == 2


@pytest.mark.parametrize("compacted", [True, False])
def test_a_view_of_a_topic_that_is_not_compacted_is_served_with_a_warning(
    views: Views, log: LogDouble, topic_info: Callable[..., TopicInfo], *, compacted: bool
) -> None:
    log.known.infos["a"] = topic_info("a", compacted=compacted)
    with views, capture_logs() as lines:
        view = views.view(A)
        view.wait_ready(60)
        assert view.get("k") == 1
    warned = [line["table"] for line in lines if "cleanup.policy=compact" in line["event"]]
    assert warned == ([] if compacted else ["a"])


def test_a_view_that_is_closed_leaves_the_others_at_work_and_its_store_free(
    views: Views, stores: MemoryStores
) -> None:
    with views:
        a, b = views.view(A), views.view(B)
        for view in (a, b):
            view.wait_ready(60)
        watch = a.watch()
        a.close()
        assert (list(watch), b.get("k")) == ([], 2)
        stores.open("a", 0).close()  # it is free
        again = views.view(A)
        again.wait_ready(60)
        assert again.get("k") == 1
    with pytest.raises(NotReady, match="closed"):
        again.get("k")
    with pytest.raises(NotReady, match="closed"):
        views.view(B).get("k")


def test_a_turn_at_a_time_needs_no_thread(views: Views) -> None:
    view = views.view(A)
    views.updater.open()
    before = set(threading.enumerate())
    assert (views.updater.step(0), views.updater.step(0)) == (1, 0)
    assert view.get("k") == 1
    assert set(threading.enumerate()) <= before


def test_a_view_that_may_not_be_read_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    kafka = VirtualKafka(clock)
    for topic in "ab":
        kafka.create_topic(topic, 1, compacted=True)
    kafka.append("a", b"k", Long().encode(1))
    poll = VirtualTableReader.poll

    def refused(reader: Any, most: int, timeout: float) -> Any:
        if any(place.topic == "b" for place in reader._positions):
            raise AuthorizationError(user="u", operation="READ", resource="topic", name="b", reason="denied")
        return poll(reader, most, timeout)

    monkeypatch.setattr(VirtualTableReader, "poll", refused)
    updater = ViewUpdater(kafka, MemoryStores(), clock, Metrics.register(CollectorRegistry()), "v")
    allowed, denied = View(A, updater), View(B, updater)
    updater.open()
    for _ in range(5):
        updater.step(0)
        clock.advance(1)
    assert allowed.get("k") == 1
    with pytest.raises(AuthorizationError, match="READ on topic 'b'"):
        denied.get("k")
    updater.close()


def test_a_view_that_was_refused_as_another_process_holds_a_partition_can_be_opened_later(
    tmp_path: Path,
) -> None:
    kafka = VirtualKafka(VirtualClock())
    kafka.create_topic("a", 2, compacted=True)
    stores = MemoryStores()
    for partition in (0, 1):
        store = stores.open("a", partition)
        store.write([], LocalPosition(0, "x", 0.0, partitions=2).encode())
        store.close()
    with App(kafka, tmp_path, stores=lambda _: stores) as app:
        held = stores.open("a", 1)
        with pytest.raises(StoreInUse):
            app.view(A)
        held.close()
        app.view(A).close()
