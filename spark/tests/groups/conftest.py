"""A real Kafka with the topics of click counting, its processors as processes, and the truth about what was sent."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from contracts.records import USER_CLICK, UserClick
from localkafka.broker import Broker
from servicekit.testing import Process
from streamtable import Avro

PARTITIONS = 3
CLICKS = Avro(USER_CLICK)
COUNTS = Avro("long")
Table = dict[bytes, bytes]


class Stage:
    """Kafka with the topics of click counting.

    Attributes:
        servers: where it is.
        truth: how often each user was counted, if all is well: committed, readable clicks.
        ids: the same click is never sent twice.
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

    def create(self, *names: str, compacted: bool = False) -> None:
        config = {"cleanup.policy": "compact"} if compacted else {}
        for made in self._admin.create_topics(
            [NewTopic(name, PARTITIONS, config=config) for name in names]
        ).values():
            made.result(30)
        self.wait(lambda: set(names) <= set(self._admin.list_topics(timeout=30).topics))
        self._stack.callback(self._delete, names)

    def _delete(self, names: tuple[str, ...]) -> None:
        for gone in self._admin.delete_topics(list(names)).values():
            gone.result(30)
        self.wait(lambda: not set(names) & set(self._admin.list_topics(timeout=30).topics))

    def group(self, name: str) -> str:
        self.create(f"{name}-table", compacted=True)
        self.create(f"{name}-dead-letters", f"{name}-retry")
        return name

    def click(self) -> tuple[bytes, bytes]:
        self._sent += 1
        user = f"user-{self._random.randrange(40)}"
        click = UserClick(id=f"click-{self._sent}", user_id=user, url="https://example.org/ä", at=self._sent)
        return user.encode(), CLICKS.encode(click)

    def clicks(self, count: int, *, committed: bool = True) -> None:
        """Send clicks in one transaction."""
        producer = self.producer({"transactional.id": f"stage-{os.getpid()}-{threading.get_ident()}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        with self.lock:
            sent = [self.click() for _ in range(count)]
        for key, value in sent:
            producer.produce("user-clicks", value, key)
        producer.flush(60)
        if committed:
            producer.commit_transaction(60)
            with self.lock:
                self.truth.update(key for key, _ in sent)
        else:
            producer.abort_transaction(60)

    def produce(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int = 0, **more: Any
    ) -> None:
        producer = self.producer({})
        producer.produce(topic, value, key, partition, **more)
        assert producer.flush(60) == 0

    def delete_records(self, topic: str) -> None:
        """As retention does with all that is there now."""
        places = [TopicPartition(topic, number, OFFSET_END) for number in range(PARTITIONS)]
        for done in self._admin.delete_records(places).values():
            done.result(30)

    def producer(self, config: Mapping[str, Any]) -> Producer:
        return Producer(
            {"bootstrap.servers": self.servers, "partitioner": "murmur2_random", "log_level": 0, **config}
        )

    def processor(self, group: str, service: str = "click_count") -> Process:
        """The service itself, as a process."""
        environment = {
            "STREAMTABLE_BOOTSTRAP_SERVERS": self.servers,
            "STREAMTABLE_STATE_DIR": str(self.folder / group),
            "STREAMTABLE_INSTANCE_ID": f"{group}-1",
            "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
            "STREAMTABLE_LOG_FORMAT": "json",
            f"{service.upper()}_GROUP": group,
        }
        process = Process(f"{service}.main", ("processor",), environment)
        self._stack.callback(process.close)
        return process

    def records(self, topic: str) -> list[tuple[Any, Any, Any]]:
        """All committed records: partition, key, value."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            found: list[tuple[Any, Any, Any]] = []
            ended = 0
            while ended < PARTITIONS:
                for message in consumer.consume(1000, 1):
                    if message.error():
                        ended += 1
                    else:
                        found.append((message.partition(), message.key(), message.value()))
            return found
        finally:
            consumer.close()

    def table(self, group: str, codec: Any = COUNTS) -> dict[bytes, Any]:
        """The rows that the table's topic holds."""
        rows: dict[bytes, bytes | None] = {key: value for _, key, value in self.records(f"{group}-table")}
        return {key: codec.decode(value) for key, value in rows.items() if value is not None}

    def wait(self, condition: Callable[[], bool], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.05)


@pytest.fixture
def stage(broker: Broker, tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        made = Stage(broker.bootstrap_servers, tmp_path, stack)
        made.create("user-clicks")
        made.group("click-count")
        yield made
