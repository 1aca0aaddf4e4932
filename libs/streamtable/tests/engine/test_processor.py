import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localkafka.waiting import wait_until
from streamtable.base.clock import SystemClock
from streamtable.base.topics import Stream, Table
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.codec.plain import Long, String
from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.errors import ConfigurationError, HandlerFailed, RetryLater, StateLost, TopicMismatch
from streamtable.graph.group import Group, Input, Lookup
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.memory import MemoryStores
from streamtable.views.lookup import LookupTables

PLACES = [TopicPartition("events", 0), TopicPartition("counted-retry", 0)]


class LogDouble:
    """Clients that a test keeps hold of. The consumer is assigned its partition by its first poll."""

    def __init__(self, consumer: Any, reader: Any, outbox: Any, cluster: Any) -> None:
        self.parts = {
            "group_consumer": consumer,
            "table_reader": reader,
            "transactional_producer": outbox,
            "cluster": cluster,
        }
        poll, subscribe, close = consumer.poll, consumer.subscribe, consumer.close

        def first_poll(*args: Any) -> Any:
            consumer.poll = poll
            consumer.listener.assigned(PLACES)
            return []

        def join(*args: Any) -> None:
            subscribe(*args)
            consumer.poll = first_poll

        def leave() -> None:
            close()
            consumer.listener.revoked(PLACES)

        consumer.subscribe, consumer.close = join, leave

    def __getattr__(self, name: str) -> Callable[..., Any]:
        part = self.parts[name]
        return lambda *_: part


@pytest.fixture
def cluster(
    make_cluster: Any,
    counted: Group[str, int],
    topic_infos: Callable[..., Any],
    metadata_of: Callable[..., str],
) -> Any:
    made = make_cluster(topic_infos(counted))
    for place in PLACES:
        made.committed[place] = Committed(NextOffset(0), metadata_of(counted, place.topic, 0))
    made.marks[PLACES[0]] = Watermarks(0, 10)
    return made


@pytest.fixture
def make(
    consumer: Any, reader: Any, outbox: Any, cluster: Any, counted: Group[str, int], stores: MemoryStores
) -> Callable[..., GroupProcessor]:
    def make(*, failpoint: Callable[[str], None] = lambda name: None, **settings: Any) -> GroupProcessor:
        return GroupProcessor(
            counted,
            LogDouble(consumer, reader, outbox, cluster),
            stores,
            ProcessorSettings("i", **settings),
            SystemClock(),
            Metrics.register(CollectorRegistry()),
            SilentProgress(),
            failpoint,
        )

    return make


Make = Callable[..., GroupProcessor]


class Running:
    def __init__(self, processor: GroupProcessor) -> None:
        self.processor = processor
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.processor.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def ended(self) -> BaseException | None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.error


@pytest.fixture
def run() -> Iterator[Callable[[GroupProcessor], Running]]:
    started: list[Running] = []

    def run(processor: GroupProcessor) -> Running:
        started.append(Running(processor))
        return started[-1]

    yield run
    for each in started:
        each.processor.stop()
        each.ended()


def until(true: Callable[[], object]) -> None:
    wait_until(true, every=0.01)


def test_it_works_until_it_is_stopped_and_commits_what_it_has_handled(
    make: Make, run: Any, consumer: Any, outbox: Any, batch: Any, stores: MemoryStores
) -> None:
    processor = make(commit_interval=60.0)
    running = run(processor)
    until(lambda: processor.ready)
    consumer.batches.append([batch("events", [(b"a", b"x")])])
    until(lambda: not consumer.batches)
    processor.stop()
    assert running.ended() is None
    assert outbox.offsets[PLACES[0]].next_offset == 1
    assert stores.open("counted-table", 0).get(b"a") is not None
    assert not processor.ready


def test_missing_topics_stop_it_before_it_joins(
    make: Make, cluster: Any, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamtable.engine.processor._NEW_TOPIC_SECONDS", 0.1)
    del cluster.infos["counted-table"]
    with pytest.raises(ConfigurationError, match="counted-table"):
        make().run()
    assert steps.taken == []


def test_topics_that_were_just_made_are_waited_for(
    make: Make, cluster: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, topics = cluster.infos.pop("counted-table"), cluster.topics
    asked = 0

    def known_at_the_third_time(names: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 3:
            cluster.infos["counted-table"] = table
        return topics(names)

    monkeypatch.setattr(cluster, "topics", known_at_the_third_time)
    processor = make()
    running = run(processor)
    until(lambda: processor.member is not None)
    processor.stop()
    assert running.ended() is None


def test_it_waits_for_the_broker_no_longer_than_its_timeout(
    make: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(names: Any) -> Any:
        raise RetryLater("no answer")

    monkeypatch.setattr(cluster, "topics", silent)
    with pytest.raises(RetryLater):
        make(start_timeout=0.3).run()


def test_it_can_be_stopped_while_it_waits_for_the_broker(
    make: Make, cluster: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def silent(names: Any) -> Any:
        asked.set()
        raise RetryLater("no answer")

    monkeypatch.setattr(cluster, "topics", silent)
    processor = make()
    running = run(processor)
    assert asked.wait(60)
    processor.stop()
    assert running.ended() is None


def test_it_is_not_ready_while_kafka_is_silent_and_ready_again_when_kafka_answers(
    make: Make, cluster: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamtable.engine.processor._SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr("streamtable.engine.processor._SILENCE_SECONDS_MAX", 0.5)
    processor = make()
    run(processor)
    until(lambda: processor.ready)

    def silent(places: Any) -> Any:
        raise RetryLater("no answer")

    with monkeypatch.context() as away:
        away.setattr(cluster, "watermarks", silent)
        until(lambda: not processor.ready)
    until(lambda: processor.ready)


def test_what_fails_in_the_background_ends_it(make: Make, cluster: Any, run: Any) -> None:
    cluster.committed = {}
    cluster.marks[TopicPartition("counted-table", 0)] = Watermarks(0, 5)
    assert isinstance(run(make()).ended(), StateLost)


def test_an_unexpected_error_of_the_background_is_not_swallowed(
    make: Make, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = make()
    running = run(processor)
    until(lambda: processor.ready)

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    assert processor.member is not None
    monkeypatch.setattr(processor.member.restorer, "step", fail)
    assert isinstance(running.ended(), ZeroDivisionError)


def test_after_a_handler_failed_nothing_of_it_is_committed_on_the_way_out(
    make: Make, consumer: Any, run: Any, batch: Any, steps: Any, stores: MemoryStores
) -> None:
    processor = make(commit_interval=60.0)
    running = run(processor)
    until(lambda: processor.ready)
    consumer.batches.append([batch("events", [(b"a", b"x")])])
    until(lambda: not consumer.batches)
    rubbish = batch("events", [(b"a", b"x")], first=1)
    rubbish.messages[0].value_ = object()  # the codec itself fails: nothing that `on_error` knows
    consumer.batches.append([rubbish])
    assert running.ended() is not None
    assert not isinstance(running.error, HandlerFailed)
    assert "begin" not in steps.taken
    assert stores.open("counted-table", 0).get(b"a") is None


def test_topics_that_change_while_it_runs_stop_it(
    make: Make, cluster: Any, run: Any, topic_info: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamtable.engine.processor._CHECK_TOPICS_SECONDS", 0.1)
    processor = make()
    running = run(processor)
    until(lambda: processor.ready)
    cluster.infos["events"] = topic_info("events", partitions=2)
    error = running.ended()
    assert isinstance(error, TopicMismatch)


def test_all_is_closed_in_order(make: Make, run: Any, steps: Any, stores: MemoryStores, reader: Any) -> None:
    processor = make(failpoint=steps)
    running = run(processor)
    until(lambda: processor.ready)
    processor.stop()
    running.ended()
    assert [s for s in steps.taken if "clos" in s] == [
        "closing", "close consumer", "close outbox", "store-closed",
    ]  # fmt: skip
    assert reader.closed


def test_what_is_still_to_read_can_be_asked_at_any_time(make: Make) -> None:
    assert make().recovering == {}


def test_its_life_can_be_lived_turn_by_turn_without_a_thread(
    make: Make, consumer: Any, outbox: Any, batch: Any
) -> None:
    before = set(threading.enumerate())
    processor = make(commit_interval=60.0)
    processor.start()
    for _ in range(3):
        processor.step()
        processor.step_background(0)
    assert processor.ready
    consumer.batches.append([batch("events", [(b"a", b"x")])])
    processor.step()
    assert outbox.offsets == {}
    processor.commit()
    assert outbox.offsets[PLACES[0]].next_offset == 1
    processor.close()
    assert processor.member is None
    assert set(threading.enumerate()) <= before


def test_nothing_is_committed_after_a_turn_that_failed(
    make: Make, consumer: Any, batch: Any, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = make(commit_interval=60.0)
    processor.start()
    for _ in range(3):
        processor.step()
        processor.step_background(0)
    consumer.batches.append([batch("events", [(b"a", b"x")])])
    processor.step()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(consumer, "poll", fail)
    with pytest.raises(ZeroDivisionError):
        processor.step()
    processor.close()
    assert "begin" not in steps.taken


# ---- lookups -----------------------------------------------------------------------------------------------------------

LOOKED_UP = Table("t", String(), Long())
ASKING: Group[str, int] = Group(
    "asking", Input(Stream("events", String(), String()), lambda ctx, _: None), Lookup(LOOKED_UP)
)


class Clients:
    """A table reader of its own for each caller."""

    tracer = None

    def __init__(self, make_reader: Callable[[], Any], **parts: Any) -> None:
        self.parts = parts
        self.readers: list[Any] = []
        self._make = make_reader

    def table_reader(self, name: str) -> Any:
        self.readers.append(self._make())
        return self.readers[-1]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: self.parts[name]


@pytest.fixture
def asking(
    consumer: Any, reader: Any, outbox: Any, make_cluster: Any, topic_infos: Any, topic_info: Any, stores: MemoryStores
) -> Any:  # fmt: skip
    """A processor that looks up rows, its registry, and the broker's answers."""
    known = make_cluster(topic_infos(ASKING) | {"t": topic_info("t", compacted=True)})
    known.marks[TopicPartition("t", 0)] = Watermarks(0, 2)
    registry = CollectorRegistry()
    log = Clients(type(reader), group_consumer=consumer, transactional_producer=outbox, cluster=known)
    given: Any = log
    metrics = Metrics.register(registry)
    lookups = LookupTables(given, MemoryStores(), SystemClock(), metrics, "asking")
    settings = ProcessorSettings("i")
    made = GroupProcessor(
        ASKING, given, stores, settings, SystemClock(), metrics, SilentProgress(), lookups=lookups
    )
    return made, registry, known, log


def test_a_group_that_looks_up_tables_needs_what_follows_them(stores: MemoryStores) -> None:
    metrics = Metrics.register(CollectorRegistry())
    log: Any = None
    with pytest.raises(ConfigurationError, match="group 'asking' looks up 't': give what follows its tables"):
        GroupProcessor(ASKING, log, stores, ProcessorSettings("i"), SystemClock(), metrics, SilentProgress())


def test_tables_that_are_looked_up_are_followed_in_the_background_and_shown(asking: Any, record: Any) -> None:
    processor, registry, _, log = asking
    assert processor.lookups == {}
    processor.start()
    mine = processor.lookups["t"]
    processor.step_background(0)
    log.readers[-1].logs[TopicPartition("t", 0)] = [record(b"a", Long().encode(5), 0)]
    processor.step_background(0)
    assert not mine.ready
    log.readers[-1].logs[TopicPartition("t", 0)].append(record(b"b", Long().encode(6), 1))
    processor.step_background(0)
    assert (mine.ready, mine.get("a"), mine.get("b")) == (True, 5, 6)
    labels = {"group": "asking", "topic": "t", "partition": "0"}
    assert registry.get_sample_value("streamtable_view_age_seconds", labels) is not None
    processor.close()
    assert [reader.closed for reader in log.readers] == [True, True]


def test_a_lookup_that_stops_for_good_stops_it(asking: Any) -> None:
    processor, _, cluster, _ = asking
    processor.start()
    del cluster.infos["t"]
    with pytest.raises(TopicMismatch, match="there is no topic 't' to view"):
        processor.step_background(0)
    processor.close()
