"""Topics with everything that occurs in topics: transactions, aborted ones, repeated events, records that cannot be read."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from contracts.records import USER_CLICK, USER_STATUS_UPDATE, UserClick, UserStatusUpdate
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from streamtable import Avro
from streamtable.errors import DeserializationError

PARTITIONS = 3
DAY_MS = 86_400_000
CLICK, UPDATE = Avro(USER_CLICK), Avro(USER_STATUS_UPDATE)
Place = tuple[int, int]
Pair = tuple[bytes | None, bytes | None]


class Stage:
    """Two topics in Kafka, and the records that a reader of committed records gets.

    Attributes:
        servers: The addresses of the brokers.
        clicks: The topic of clicks.
        updates: The topic of status updates.
    """

    def __init__(self, servers: str) -> None:
        self.servers = servers
        name = uuid.uuid4().hex[:8]
        self.clicks, self.updates = f"{name}-clicks", f"{name}-updates"
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self.create(self.clicks, self.updates)
        self._random = Random(11)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": name,
                "partitioner": "murmur2_random",
                "log_level": 0,
            }
        )
        self._producer.init_transactions(60)

    @property
    def arguments(self) -> list[str]:
        """The topics as the jobs' `--topics` arguments."""
        return [f"user-clicks={self.clicks}", f"user-status-updates={self.updates}"]

    def create(self, *names: str) -> None:
        create_topics(self.admin, [NewTopic(name, PARTITIONS) for name in names])

    def delete(self, *names: str) -> None:
        delete_topics(self.admin, names)

    def wait(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        wait_until(condition, seconds, every=0.05)

    def send(self, count: int) -> None:
        """Send `count` clicks, a fifth as many updates, poison between them; every fourth transaction is aborted."""
        for number in range(8):
            self._producer.begin_transaction()
            for _ in range(count // 8):
                self._send_one()
            self._producer.flush(60)
            if number % 4 == 2:
                self._producer.abort_transaction(60)
            else:
                self._producer.commit_transaction(60)

    def _send_one(self) -> None:
        random = self._random
        user, event = f"user-{random.randrange(20)}", str(uuid.UUID(int=random.getrandbits(128)))
        at = 1_700_000_000_000 + random.randrange(3 * DAY_MS)
        click = CLICK.encode(UserClick(id=event, user_id=user, url="/ä", at=at))
        for _ in range(random.choice([1, 1, 1, 1, 2])):
            self._producer.produce(self.clicks, key=user, value=click)
        if random.random() < 0.2:
            status = UserStatusUpdate(id=event, user_id=user, status=random.choice("abc"), at=at)
            self._producer.produce(self.updates, key=user, value=UPDATE.encode(status))
        if random.random() < 0.05:
            poison: list[Pair] = [
                (b"u", click[:-1]),
                (b"u", None),
                (b"u", b"junk"),
                (b"\xff", click),
                (None, click),
            ]
            key, value = random.choice(poison)
            self._producer.produce(self.clicks, key=key, value=value)

    def committed(self, topic: str) -> dict[Place, Pair]:
        """Return key and value of every committed record, by partition and offset, in their order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        found: dict[Place, Pair] = {}
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, f"nothing came from {topic} for a minute"
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            if message.error() is not None:
                ended.add(partition)
                continue
            assert offset is not None
            key: Any = message.key()  # bytes: no deserializer was given
            value: Any = message.value()
            found[partition, offset] = (key, value)
        consumer.close()
        return found

    def readable(self, topic: str) -> dict[Place, UserClick]:
        """Return the committed clicks that the services' codec can read."""
        found = {}
        for place, (key, value) in self.committed(topic).items():
            if value is not None and key not in (None, b"\xff"):
                with suppress(DeserializationError):
                    found[place] = CLICK.decode(value)
        return found
