"""The common part of the system tests: a group with its topics on a real broker, its processor in a thread, and reads of
the topics afterwards.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Producer
from confluent_kafka import TopicPartition as Partition
from prometheus_client import CollectorRegistry

from localkafka.fixtures import Topics
from localkafka.reading import read_to_end
from localkafka.waiting import Deadline, pause_after
from streamtable import App, Kafka, View
from streamtable.base.clock import Clock, SystemClock
from streamtable.base.failpoint import Failpoint, no_failpoint
from streamtable.base.ports import Log, TopicDescription
from streamtable.base.topics import Stream
from streamtable.base.types import Committed, Headers, NextOffset, TopicPartition
from streamtable.codec.plain import Long, String
from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.errors import RetryLater
from streamtable.graph.group import Group, Input, Persist
from streamtable.graph.topic_check import required_topics
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.rocksdb import RocksStores
from streamtable.views.lookup import LookupTables

SECONDS_MAX = 60.0


def until(true: Callable[[], object], what: str, seconds: float = SECONDS_MAX) -> None:
    """Wait for a condition. Raises `AssertionError` that names it when `seconds` have passed."""
    deadline = Deadline(seconds)
    while not _true(true):
        assert not deadline.passed(), f"after {seconds:g} s still not: {what}"
        time.sleep(pause_after(deadline.elapsed(), 0.02))


def _true(ask: Callable[[], object]) -> bool:
    try:
        return bool(ask())
    except RetryLater:
        return False


class Found(NamedTuple):
    """A committed record."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]


class Running:
    """A processor in a thread."""

    def __init__(self, processor: GroupProcessor) -> None:
        self.processor = processor
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="processor")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.processor.run()
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self.error = error

    def failure(self) -> BaseException:
        """Return the error that has ended it, or ends it soon."""
        until(lambda: not self._thread.is_alive(), "the processor has ended")
        assert self.error is not None, "it ended without an error"
        return self.error

    def stop(self) -> None:
        """Stop it in order. Raises what had ended it before."""
        self.end()
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        self.processor.stop()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "the processor does not stop"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()
        if error is None and self.error is not None:
            raise self.error


def count(ctx: Any, event: str) -> None:
    """Counts the events of a key; "delete" takes the row away."""
    if event == "delete":
        ctx.delete()
    else:
        ctx.set((ctx.value or 0) + 1)


class Bench:
    """One test's group of topics.

    Args:
        bootstrap_servers: The broker's bootstrap servers.
        topics: Makes topic names of this test's own.
        folder: The folder for state.
        admin_timeout: seconds that each answer about topics may take; long, as a busy machine is no failure.
    """

    def __init__(
        self, bootstrap_servers: str, topics: Topics, folder: Path, *, admin_timeout: float = 30.0
    ) -> None:
        self.kafka = Kafka(bootstrap_servers, admin_timeout=admin_timeout)
        self.folder = folder
        self.cluster = self.kafka.cluster()
        self.name = topics.name
        self._stack = ExitStack()
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "bootstrap.servers": bootstrap_servers,
                "log_level": 0,
                "linger.ms": 1,
            }
        )

    # ---- making --------------------------------------------------------------------------------------------------------

    def stream(self, name: str = "in") -> Stream[str, str]:
        return Stream(self.name(name), String(), String())

    def counting(self, **changes: Any) -> Group[str, int]:
        """A group that counts, with its topics, of one partition."""
        group: Group[str, int] = Group(self.name("g"), Input(self.stream(), count), Persist(Long()))
        self.create(group, **changes)
        return group

    def create(
        self,
        group: Group[Any, Any],
        partitions: int = 1,
        config: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Create what the group needs and is not there; `config` by the name's last part: in, table, retry, ..."""
        descriptions = []
        for name in required_topics(group):
            given = next((dict(c) for end, c in (config or {}).items() if name.endswith(f"-{end}")), {})
            if name in group.tables:
                given = {"cleanup.policy": "compact"} | given
            descriptions.append(TopicDescription(name, partitions, 1, given))

        def created() -> bool:
            self.cluster.create_topics(descriptions)
            return len(self.cluster.topics(required_topics(group))) == len(descriptions)

        until(created, "topics exist")

    def processor(
        self,
        group: Group[Any, Any],
        *,
        log: Log | None = None,
        state: str = "state",
        clock: Clock | None = None,
        failpoint: Failpoint = no_failpoint,
        metrics: Metrics | None = None,
        **settings: Any,
    ) -> GroupProcessor:
        log, clock = log or self.kafka, clock or SystemClock()
        metrics = metrics or Metrics.register(CollectorRegistry())
        lookups = None
        if group.lookups:
            stores = RocksStores(self.folder / f"{state}-lookups", memory_bytes=8 << 20)
            lookups = LookupTables(log, stores, clock, metrics, group.name)
        return GroupProcessor(
            group,
            log,
            RocksStores(self.folder / state, memory_bytes=8 << 20),
            replace(ProcessorSettings("i", commit_interval=0.05), **settings),
            clock,
            metrics,
            SilentProgress(),
            failpoint,
            lookups,
        )

    def run(self, group: Group[Any, Any], **given: Any) -> Running:
        """A processor in a thread; it is ended with the test at the latest."""
        running = Running(self.processor(group, **given))
        self._stack.callback(running.end)
        return running

    def work_off(self, group: Group[Any, Any], **given: Any) -> None:
        """Run a processor until everything in the inputs is handled, and stop it."""
        with self.run(group, **given) as running:
            self.wait_handled(group, running)

    def view(self, group: Group[str, int], **given: Any) -> View[str, int]:
        """A view, closed with the test at the latest."""
        view = App(self.kafka, self.folder / "views").view(group.table, **given)
        self._stack.callback(view.close)
        return view

    def close(self) -> None:
        self._stack.close()
        self.cluster.close()

    # ---- writing -------------------------------------------------------------------------------------------------------

    def send(self, topic: str, *records: tuple[Any, ...], partition: int = 0, timestamp_ms: int = 0) -> None:
        """Send (key, value) or (key, value, headers), as bytes or text, to a partition, and wait for the answers."""
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        for key, value, *headers in records:
            made: Headers = headers[0] if headers else ()
            self._producer.produce(
                topic, value, key, partition, report, headers=list(made), timestamp=timestamp_ms
            )
        assert self._producer.flush(SECONDS_MAX) == 0
        assert failed == []

    def transaction(self, name: str) -> Producer:
        """A foreign transactional producer, in a transaction."""
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "transactional.id": self.name(name),
                "log_level": 0,
            }
        )
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        return producer

    # ---- looking -------------------------------------------------------------------------------------------------------

    def wait_handled(self, group: Group[Any, Any], running: Running | None = None) -> None:
        """Wait until it is ready and the group's committed offsets are at the ends of its inputs."""

        def handled() -> bool:
            if running is not None:
                if running.error is not None:
                    raise running.error
                if not running.processor.ready:
                    return False
            return self.committed(group).items() >= self.ends(group).items()

        until(handled, "all input is handled and committed")

    def places(self, group: Group[Any, Any]) -> list[TopicPartition]:
        infos = self.cluster.topics(group.input_topics)
        return [TopicPartition(t, p) for t in group.input_topics for p in range(infos[t].partitions)]

    def ends(self, group: Group[Any, Any]) -> dict[TopicPartition, int]:
        return {place: marks.high for place, marks in self.cluster.watermarks(self.places(group)).items()}

    def committed(self, group: Group[Any, Any]) -> dict[TopicPartition, NextOffset]:
        return {place: found.next_offset for place, found in self.commits(group).items()}

    def commits(self, group: Group[Any, Any]) -> dict[TopicPartition, Committed]:
        """Waits for an answer."""
        found: dict[TopicPartition, Committed | None] = {}

        def answered() -> bool:
            found.update(self.cluster.stable_offsets(group.name, self.places(group)))
            return True

        until(answered, "the broker tells the committed offsets")
        return {place: each for place, each in found.items() if each is not None}

    def read(self, topic: str) -> list[Found]:
        """All committed records, partition by partition."""
        until(lambda: self.cluster.topics([topic]), "the broker tells the partitions")
        partitions = self.cluster.topics([topic])[topic].partitions
        starts = [Partition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)]
        messages = read_to_end(self.kafka.bootstrap_servers, starts, SECONDS_MAX)
        return [
            Found(
                message.offset() or 0,
                _bytes(message.key()),
                _bytes(message.value()),
                dict(_headers(message.headers())),
            )
            for message in sorted(messages, key=lambda each: (each.partition() or 0, each.offset() or 0))
        ]

    def table(self, group: Group[Any, Any]) -> dict[str, int]:
        """The counts that the changelog says."""
        rows = {record.key: record.value for record in self.read(group.table.name)}
        return {
            key.decode(): Long().decode(value)
            for key, value in rows.items()
            if key is not None and value is not None
        }

    def rows(self, group: Group[Any, Any], state: str = "state", partition: int = 0) -> dict[str, int]:
        """The counts on disk, after the processor has stopped."""
        stores = RocksStores(self.folder / state, memory_bytes=8 << 20)
        try:
            with stores.open(group.table.name, partition).scan() as rows:
                return {key.decode(): Long().decode(value) for key, value in rows}
        finally:
            stores.close()

    def letters(self, group: Group[Any, Any]) -> list[Found]:
        return self.read(group.dead_letters)


def _headers(headers: Any) -> Iterable[tuple[str, bytes | None]]:
    return headers or ()


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def events(*keys: str, times: int = 1) -> Sequence[tuple[str, str]]:
    """One event for each key, so many times."""
    return [(key, "x") for key in keys] * times
