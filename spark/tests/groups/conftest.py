"""A real Kafka with the topics of click counting, its processors as processes, and the expected counts of the sent clicks."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from pyspark.sql import SparkSession
from spark.tests.groups.jobs import Jobs

from contracts.records import USER_CLICK, UserClick
from localkafka.broker import Broker
from localkafka.reading import read_to_end
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from servicekit_testing import Process
from streamtable import Avro
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.positions import Place

PARTITIONS = 3
CLICKS = Avro(USER_CLICK)
COUNTS = Avro("long")
Table = dict[bytes, bytes]


class Stage:
    """Kafka with the topics of click counting.

    Attributes:
        servers: The addresses of the brokers.
        truth: The expected count of each user: committed, readable clicks.
        ids: A sequence of click ids, so that no click is sent twice.
    """

    def __init__(self, servers: str, folder: Path, stack: ExitStack) -> None:
        self.servers = servers
        self.truth: Counter[bytes] = Counter()
        self.folder = folder
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._stack = stack
        self._random = Random(7)
        self._sent = 0
        self.lock = threading.Lock()

    def create(self, *names: str, compacted: bool = False, **more: str) -> None:
        config = {"cleanup.policy": "compact"} if compacted else {}
        config |= {name.replace("_", "."): value for name, value in more.items()}
        create_topics(self._admin, [NewTopic(name, PARTITIONS, config=config) for name in names])
        self._stack.callback(self._delete, names)

    def _delete(self, names: tuple[str, ...]) -> None:
        delete_topics(self._admin, names)

    def recreate(self, name: str) -> None:
        """Delete a topic and create it again, empty."""
        self._delete((name,))
        create_topics(self._admin, [NewTopic(name, PARTITIONS)])

    def group(self, name: str, **table: str) -> str:
        self.create(f"{name}-table", compacted=True, **table)
        self.create(f"{name}-dead-letters", f"{name}-retry")
        self.create(f"{name}-ids", compacted=True)  # of the groups that have one
        return name

    def click(self, user: str | None = None) -> tuple[bytes, bytes]:
        self._sent += 1
        user = user or f"user-{self._random.randrange(40)}"
        click = UserClick(id=f"click-{self._sent}", user_id=user, url="https://example.org/ä", at=self._sent)
        return user.encode(), CLICKS.encode(click)

    def clicks(self, count: int = 0, *, committed: bool = True, users: Sequence[str] = ()) -> None:
        """Send clicks in one transaction: `count` of 40 users, and one of each user in `users`."""
        with self.transaction(committed=committed) as producer, self.lock:
            sent = [self.click() for _ in range(count)] + [self.click(user) for user in users]
            for key, value in sent:
                producer.produce("user-clicks", value, key)
        if committed:
            with self.lock:
                self.truth.update(key for key, _ in sent)

    @contextmanager
    def transaction(self, *, committed: bool = True) -> Iterator[Producer]:
        producer = self.producer({"transactional.id": f"stage-{os.getpid()}-{threading.get_ident()}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        yield producer
        producer.flush(60)
        if committed:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """The broker checks for topics to compact all the time, and not every 15 seconds."""
        (broker,) = self._admin.list_topics(timeout=30).brokers
        name = "log.cleaner.backoff.ms"

        def alter(operation: AlterConfigOpType) -> None:
            entry = ConfigEntry(name, "100", incremental_operation=operation)
            resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
            for done in self._admin.incremental_alter_configs([resource]).values():
                done.result(30)

        alter(AlterConfigOpType.SET)
        try:
            yield
        finally:
            alter(AlterConfigOpType.DELETE)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Clicks arrive all the time."""
        stopped = threading.Event()

        def keep_sending() -> None:
            while not stopped.wait(0.3):
                self.clicks(5)

        sender = threading.Thread(target=keep_sending)
        sender.start()
        try:
            yield
        finally:
            stopped.set()
            sender.join()

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int = 0, **more: Any
    ) -> None:
        producer = self.producer({})
        producer.produce(topic, value, key, partition, **more)
        assert producer.flush(60) == 0

    @contextmanager
    def member(self, group: str) -> Iterator[Callable[[], None]]:
        """A consumer that joins the group when the returned function is called."""
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": group,
            "client.id": "other-client",
            "log_level": 0,
        }
        consumer = Consumer(settings)

        def join() -> None:
            consumer.subscribe(["user-clicks"])
            self.wait(lambda: (consumer.poll(0.2), bool(consumer.assignment()))[1])

        try:
            yield join
        finally:
            consumer.close()

    def commit(self, group: str, topic: str) -> None:
        """Commit offset 1 in all partitions, as a processor that continues, or a tool, would."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            offsets = [TopicPartition(topic, number, 1) for number in range(PARTITIONS)]
            assert all(
                each.error is None for each in consumer.commit(offsets=offsets, asynchronous=False) or []
            )
        finally:
            consumer.close()

    def delete_records(self, topic: str, before: Mapping[int, int] | None = None) -> None:
        """Delete the records before these offsets, like retention; by default all that are there now."""
        ends = before or dict.fromkeys(range(PARTITIONS), OFFSET_END)
        places = [TopicPartition(topic, number, end) for number, end in ends.items()]
        for done in self._admin.delete_records(places).values():
            done.result(30)

    def producer(self, config: Mapping[str, Any]) -> Producer:
        return Producer(
            {
                "enable.idempotence": True,
                "bootstrap.servers": self.servers,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
                **config,
            }
        )

    def processor(self, group: str, service: str = "click_count", *arguments: str, **more: str) -> Process:
        """The service itself, as a process; `more` is of its environment."""
        environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": self.servers,
            "STREAMTABLE_STATE_DIR": str(self.folder / group),
            "STREAMTABLE_INSTANCE_ID": f"{group}-1",
            "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_LOG_FORMAT": "json",
            f"{service.upper()}_GROUP": group,
            **more,
        }
        process = Process(f"{service}.main", ("processor", *arguments), environment)
        self._stack.callback(process.close)
        return process

    def wait_handled(self, group: str, *topics: str) -> None:
        """Wait until the group has committed the offset after the present last record of each partition."""
        last = {
            (topic, record.partition()): record.offset() for topic in topics for record in self._read(topic)
        }
        with Cluster(self.servers) as cluster:

            def handled() -> bool:
                committed = cluster.committed(group, dict.fromkeys(topics, PARTITIONS))
                return all(
                    (at := committed[Place(*place)]) and at.next_offset > offset
                    for place, offset in last.items()
                )

            self.wait(handled)

    def records(self, topic: str) -> list[tuple[Any, Any, Any]]:
        """Return all committed records: partition, key, value."""
        return [(record.partition(), record.key(), record.value()) for record in self._read(topic)]

    def offsets(self, topic: str) -> list[tuple[int, int, Any]]:
        """Return the positions of all committed records: partition, offset, key."""
        return [(record.partition(), record.offset(), record.key()) for record in self._read(topic)]

    def _read(self, topic: str) -> list[Any]:
        starts = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        return read_to_end(self.servers, starts)

    def table(self, group: str, codec: Any = COUNTS) -> dict[bytes, Any]:
        """Return the rows that the table's topic holds."""
        rows: dict[bytes, bytes | None] = {key: value for _, key, value in self.records(f"{group}-table")}
        return {key: codec.decode(value) for key, value in rows.items() if value is not None}

    def wait(self, condition: Callable[[], bool], seconds: float = 90.0) -> None:
        wait_until(condition, seconds, every=0.1)  # most conditions read a whole topic


@pytest.fixture
def stage(broker: Broker, tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        made = Stage(broker.bootstrap_servers, tmp_path, stack)
        made.create("user-clicks")
        made.group("click-count")
        yield made


@pytest.fixture
def jobs(spark: SparkSession, stage: Stage) -> Jobs:
    return Jobs(spark, stage)
