"""The clicks that are counted, and topics full of them."""

from collections.abc import Iterator, Mapping
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
_ID = "0d5c9c0e-3e0a-4d1f-9f63-6b1f3a6c2f10"
ONE = Avro("long").encode(1)
STATUS = Avro(USER_STATUS).encode(UserStatus(status="at lunch", at=1_700_000_000_000, id=_ID, clicks=1))
UPDATE = UserStatusUpdate(id=_ID, user_id="?", status="at lunch", at=1_700_000_000_000)
"""The status update of a user. Updates differ only in their key."""


@dataclass(frozen=True)
class Clicks:
    """The contents of a topic of clicks.

    Attributes:
        records: The number of clicks.
        keys: The number of users.
        skew: The exponent of Zipf's law; 0: uniform.
        partitions: The number of partitions of the topic.
        once: Each user clicks once, in order; `records` equals `keys`.
        ids: Each click has an id of its own, for deduplication.
    """

    records: int
    keys: int = 100_000
    skew: float = 0.0
    partitions: int = 4
    once: bool = False
    ids: bool = False

    @property
    def topic(self) -> str:
        kind = "once" if self.once else f"zipf{self.skew:g}" if self.skew else "uniform"
        kind += "-ids" if self.ids else ""
        return f"clicks-{kind}-{self.records}-of-{self.keys}-in-{self.partitions}"


def click(user: str, id: str = _ID) -> UserClick:  # noqa: A002 - as the field
    """Return a click of about 86 bytes. Clicks differ only in their user, and in their id if it is given."""
    return {
        "id": id,
        "user_id": user,
        "url": "https://example.org/",
        "at": 1_700_000_000_000,
    }


class Encoder:
    """Encodes clicks by putting the user between the two ends of a template: ten times as fast as any codec."""

    def __init__(self) -> None:
        template = Avro(USER_CLICK).encode(click("?"))
        self._head, rest = template.split(_ID.encode())
        _, self._tail = rest.split(b"\x02?")

    def encode(self, user: bytes, id: bytes = _ID.encode()) -> bytes:  # noqa: A002 - as the field
        """Return the codec's encoding of `click(user, id)`, for users of 1 to 63 bytes and ids of 36."""
        return self._head + id + bytes((2 * len(user),)) + user + self._tail


def users(clicks: Clicks) -> Iterator[list[int]]:
    """Yield the users' numbers in the order of their clicks, in chunks; always the same."""
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
    """Write the clicks to an existing topic: their own by default."""
    producer = filler(broker)
    _produce(producer, clicks, topic or clicks.topic)


def fill_unseen(broker: str, clicks: Clicks, topic: str) -> Producer:
    """Fill the topic in one transaction: consumers of committed records see all of them at once when it commits."""
    producer = filler(broker, {"transactional.id": f"fill-{topic}"})
    producer.init_transactions()
    producer.begin_transaction()
    _produce(producer, clicks, topic)
    return producer


def _produce(producer: Producer, clicks: Clicks, topic: str) -> None:
    encode, own_ids = Encoder().encode, ids()
    for chunk in users(clicks):
        for number in chunk:
            user = b"user-%d" % number
            put(producer, topic, user, encode(user, next(own_ids)) if clicks.ids else encode(user))
    producer.flush()


def ids() -> Iterator[bytes]:
    """Yield unique ids of 36 characters for clicks; always the same."""
    random = Random(2)
    while True:
        yield b"%036x" % random.getrandbits(144)


def fill_table(broker: str, topic: str, keys: int, row: bytes) -> None:
    """Write the same row for each user to a table's existing, empty topic."""
    producer = filler(broker)
    for number in range(keys):
        put(producer, topic, b"user-%d" % number, row)
    producer.flush()


def filler(broker: str, more: Mapping[str, str] | None = None) -> Producer:
    """Return a producer tuned for throughput; its callers check the topic's end offsets afterwards."""
    return Producer(
        {
            "enable.idempotence": True,
            "bootstrap.servers": broker,
            "log_level": 0,
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            **(more or {}),
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
