"""The clicks that are counted, and topics full of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from confluent_kafka import Producer

from contracts.records import (
    USER_CLICK,
    USER_STATUS,
    UserClick,
    UserStatus,
    UserStatusUpdate,
)
from streamtable import Avro

_CHUNK = 100_000
ONE = Avro("long").encode(1)
STATUS = Avro(USER_STATUS).encode(
    UserStatus(status="at lunch", at=1_700_000_000_000, id="0d5c9c0e-3e0a-4d1f-9f63-6b1f3a6c2f10", clicks=1)
)
UPDATE = UserStatusUpdate(
    id="0d5c9c0e-3e0a-4d1f-9f63-6b1f3a6c2f10", user_id="?", status="at lunch", at=1_700_000_000_000
)
"""What a user says. Updates differ in their key only."""


@dataclass(frozen=True)
class Clicks:
    """What a topic holds.

    Attributes:
        records: number of clicks.
        keys: number of users.
        skew: exponent of Zipf's law; 0: all users alike.
        partitions: of the topic.
        once: each user clicks once, in order; `records` equals `keys`.
    """

    records: int
    keys: int = 100_000
    skew: float = 0.0
    partitions: int = 4
    once: bool = False

    @property
    def topic(self) -> str:
        kind = "once" if self.once else f"zipf{self.skew:g}" if self.skew else "uniform"
        return f"clicks-{kind}-{self.records}-of-{self.keys}-in-{self.partitions}"


def click(user: str) -> UserClick:
    """A click of 86 bytes or so. They differ only in their user: what else is in them makes no difference here."""
    return {
        "id": "0d5c9c0e-3e0a-4d1f-9f63-6b1f3a6c2f10",
        "user_id": user,
        "url": "https://example.org/",
        "at": 1_700_000_000_000,
    }


class Encoder:
    """Encodes clicks by putting the user between the two ends of a template: ten times as fast as any codec."""

    def __init__(self) -> None:
        template = Avro(USER_CLICK).encode(click("?"))
        self._head, self._tail = template.split(b"\x02?")

    def encode(self, user: bytes) -> bytes:
        """What the codec makes of `click(user)`, for users of 1 to 63 bytes."""
        return self._head + bytes((2 * len(user),)) + user + self._tail


def users(clicks: Clicks) -> Iterator[list[int]]:
    """The users' numbers in the order of their clicks, in chunks; always the same."""
    random = Random(1)
    numbers = range(clicks.keys)
    weights = list(accumulate(1 / n**clicks.skew for n in range(1, clicks.keys + 1))) if clicks.skew else None
    for start in range(0, clicks.records, _CHUNK):
        size = min(_CHUNK, clicks.records - start)
        yield (
            list(range(start, start + size))
            if clicks.once
            else random.choices(numbers, cum_weights=weights, k=size)
        )


def fill(broker: str, clicks: Clicks, topic: str = "") -> None:
    """Write the clicks to a topic that exists: their own unless told otherwise."""
    encode = Encoder().encode
    producer = filler(broker)
    for chunk in users(clicks):
        for number in chunk:
            user = b"user-%d" % number
            put(producer, topic or clicks.topic, user, encode(user))
    producer.flush()


def fill_table(broker: str, topic: str, keys: int, row: bytes) -> None:
    """Write the same row for each user to a table's topic, which exists and is empty."""
    producer = filler(broker)
    for number in range(keys):
        put(producer, topic, b"user-%d" % number, row)
    producer.flush()


def filler(broker: str) -> Producer:
    """A producer that is fast; whoever uses it looks at the topic's end afterwards."""
    return Producer(
        {
            "bootstrap.servers": broker,
            "log_level": 0,
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
    )


def put(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
    """Queue a record, waiting while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.1)
        else:
            return
