"""A processor on a real Kafka, over a store in memory or a real Valkey."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from localstores.redis import RedisServer
from microbatch import Batch, BatchMetrics, BatchProcessor, MicroBatch, Rows, Send
from microbatch.stores.memory import MemoryDriver
from microbatch.stores.redis import RedisDriver
from streamtable import App, Emitter, Guarantee, Kafka, Long, Settings, Stream, String
from streamtable.base.types import TopicPartition
from streamtable.errors import ConfigurationError, RetryLater, StateLost

TOTALS = Rows("totals", value=Long())
PARTITIONS = 2


def add(batch: Batch, send: Send) -> None:
    totals = batch.rows(TOTALS)
    found = totals.get_many(record.key for record in batch.records)
    for record in batch.records:
        found[record.key] = found.get(record.key, 0) + record.value
    totals.put_many(found)


class Place:
    """A broker, topics and a group."""

    def __init__(self, broker: Broker, topics: Topics) -> None:
        self.kafka = Kafka(broker.bootstrap_servers)
        self.name = topics.name("g")
        self.events = Stream(topics.create("events", partitions=PARTITIONS), String(), Long())
        topics.create("g-retry", partitions=PARTITIONS)
        topics.create("g-dead-letters", partitions=PARTITIONS)

    def graph(self, max_wait: float = 0.05) -> MicroBatch:
        return MicroBatch(self.name, inputs=[self.events], process=add, rows=[TOTALS], max_wait=max_wait)

    def emit(self, *keys: str) -> None:
        with Emitter(self.events, self.kafka) as emitter:
            for key in keys:
                emitter.emit(key, 1)

    def handled(self) -> int:
        places = [TopicPartition(self.events.name, partition) for partition in range(PARTITIONS)]
        try:
            found = self.kafka.cluster().stable_offsets(self.name, places)
        except RetryLater:
            return -1  # the broker is slow, or a commit is under way
        return sum(each.next_offset for each in found.values() if each is not None)

    def wait(self, true: Callable[[], bool], what: str) -> None:
        wait_until(true, 60, what, every=0.05)


@pytest.fixture
def place(broker: Broker, topics: Topics) -> Place:
    return Place(broker, topics)


@contextmanager
def running(processor: BatchProcessor) -> Iterator[list[BaseException]]:
    """Runs the processor in a thread, and keeps the error that has ended it."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            processor.run()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        processor.stop()
        thread.join(60)


def test_a_process_handles_batches_over_a_real_store_and_updates_its_metrics(
    place: Place, tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    with RedisServer(tmp_path) as server:
        store = RedisDriver(server.url, tenant="t")
        metrics = BatchMetrics.register(registry)
        processor = BatchProcessor(place.graph(), place.kafka, store=store, batch_metrics=metrics)
        with running(processor) as errors:
            place.emit(*"aabab")
            place.wait(lambda: place.handled() == 5 or bool(errors), "five handled")
            place.emit("a")
            place.wait(lambda: place.handled() == 6 or bool(errors), "six handled")
        assert errors == []
        rows = RedisDriver(server.url, tenant="t").read([TOTALS.key("a"), TOTALS.key("b")], 5).rows
    assert len(rows) == 2
    labels = {"group": place.name}
    assert registry.get_sample_value("streamtable_microbatch_records_sum", labels) == 6
    for operation in ("read", "write"):
        labels["operation"] = operation
        assert (registry.get_sample_value("streamtable_central_store_keys_total", labels) or 0) > 2


def test_buffered_records_are_handled_when_the_process_stops(place: Place) -> None:
    processor = BatchProcessor(
        place.graph(max_wait=3_600), place.kafka, store=MemoryDriver(tenant="t"), instance_id="here"
    )
    with running(processor):
        place.wait(lambda: processor.ready, "the processor is ready")
        place.emit(*"abc")
        place.wait(lambda: buffered(processor) == 3, "three buffered")
        assert place.handled() <= 0
    place.wait(lambda: place.handled() == 3, "three handled")  # the markers come a moment after the commit


def buffered(processor: BatchProcessor) -> int:
    tasks: Any = processor.member.assignment.tasks.values() if processor.member else []
    return sum(len(task.task._buffer) for task in list(tasks))


def test_a_restart_with_an_empty_store_in_memory_is_an_error(place: Place) -> None:
    place.emit(*"abc")
    with running(BatchProcessor(place.graph(), place.kafka, store=MemoryDriver(tenant="t"))) as errors:
        place.wait(lambda: place.handled() == 3 or bool(errors), "three handled")
    with running(BatchProcessor(place.graph(), place.kafka, store=MemoryDriver(tenant="t"))) as errors:
        place.wait(lambda: bool(errors), "refused")
    assert isinstance(errors[0], StateLost)


def test_embedded_rows_outlive_the_process_and_its_disk(place: Place, topics: Topics, tmp_path: Path) -> None:
    topics.create("g-table", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    for life, (folder, keys) in enumerate([("one", "abc"), ("one", "abc"), ("two", "abc")], 1):
        processor = BatchProcessor(place.graph(), place.kafka, state_dir=tmp_path / folder)
        with running(processor) as errors:
            place.emit(*keys)
            place.wait(lambda life=life, e=errors: place.handled() == 3 * life or bool(e), "all handled")  # type: ignore[misc]
        assert errors == []
    with App(place.kafka, tmp_path).view(place.graph().table) as view:
        view.wait_ready(60)
        found = TOTALS.of(dict(view.iterate()))
    assert found == {"a": 3, "b": 3, "c": 3}


def test_rows_need_a_state_dir_or_a_store(place: Place) -> None:
    with pytest.raises(ConfigurationError, match="state_dir= for the embedded store, or store="):
        BatchProcessor(place.graph(), place.kafka)


def test_cluster_and_folder_may_be_given_as_text_as_to_an_app(tmp_path: Path) -> None:
    group = MicroBatch("g", inputs=[Stream("in", String(), Long())], process=add, rows=[TOTALS])
    processor = BatchProcessor(group, "127.0.0.1:1", state_dir=str(tmp_path))
    assert processor.group is group
    processor.close()


def test_a_service_rejects_a_store_in_memory(place: Place) -> None:
    settings = Settings(bootstrap_servers="127.0.0.1:1", store="memory:")
    with pytest.raises(ConfigurationError, match="use embedded: "):
        BatchProcessor.from_settings(place.graph(), settings, kafka=place.kafka)


def test_plain_rows_may_be_written_at_least_once(place: Place) -> None:
    store = MemoryDriver(tenant="t")
    processor = BatchProcessor(
        place.graph(), place.kafka, store=store, plain_writes=True, guarantee=Guarantee.AT_LEAST_ONCE
    )
    with running(processor) as errors:
        place.emit(*"aab")
        place.wait(lambda: place.handled() == 3 or bool(errors), "three handled")
    rows = store.read([TOTALS.key("a")], 1).rows
    assert rows[TOTALS.key("a")].data == Long().encode(2)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"guarantee": Guarantee.AT_LEAST_ONCE}, "need Kafka's transactions"),
        ({"store_attempt": 0.0}, "store_attempt"),
        ({"store_attempt": 11.0}, "store_attempt"),
        ({"instance_id": "a b"}, "instance_id"),
    ],
)
def test_contradictory_arguments_are_rejected(settings: dict[str, Any], says: str) -> None:
    graph = MicroBatch("g", inputs=[Stream("events", String(), Long())], process=add, rows=[TOTALS])
    with pytest.raises(ConfigurationError, match=says):
        BatchProcessor(graph, Kafka("127.0.0.1:1"), store=MemoryDriver(tenant="t"), **settings)
