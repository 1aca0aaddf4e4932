"""Hostile records for every topic of the reference services, and the services' processors as processes."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.hostile import codec_fuzz
from tests.hostile.raw_records import RawProducer, RawRecord

from click_count.topics import by_count
from contracts import records
from contracts.schema import RecordSchema
from exactavro import Schema
from inventory.flow import inventory
from localkafka.broker import Broker
from localkafka.reading import read_to_end
from localkafka.topics import create_topics
from localkafka.waiting import Deadline
from messaging.commands import ROLES
from messaging.groups import GROUPS
from servicekit_testing import Process
from streamtable import Avro, Group, Kafka
from streamtable.base.deadletter import (
    ATTEMPT,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP,
    ORIGIN_TOPIC,
)
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater, SerializationError
from streamtable.graph.topic_check import required_topics
from tweet_reach.stages import authors_stage, urls_stage
from user_status.topics import statuses

PARTITIONS: Final = 2
SECONDS_MAX: Final = 120.0
RECORD_BYTES_MAX: Final = 1_000_000  # with its framing, just below a topic's default of 1 MiB
RUNNING: Final[Sequence[Group[Any, Any]]] = (
    by_count("click-count"),
    statuses("user-status"),
    *GROUPS.values(),
    authors_stage("tweet-reach"),
    urls_stage("tweet-reach"),
    *inventory().flow.groups,
)
PROCESSORS: Final[Sequence[tuple[str, ...]]] = (
    ("click_count.main", "processor"),
    ("user_status.main", "processor"),
    *(("messaging.main", role) for role in ROLES),
    ("tweet_reach.main", "processor", "--stage", "authors"),
    ("tweet_reach.main", "processor", "--stage", "urls"),
    ("inventory.main", "processor"),
)
SCHEMAS: Final = [each for each in vars(records).values() if isinstance(each, RecordSchema)]
BY_NAME: Final = {each.name: each for each in SCHEMAS}

Place = tuple[str, int, int]
"""Topic, partition, offset of a record."""


@dataclass(frozen=True)
class Hostile:
    """One hostile record.

    Attributes:
        topic: The topic that it is written to.
        record: The record.
        readable: Its key and value decode, so that a handler sees it. If not, it can only be a dead letter.
    """

    topic: str
    record: RawRecord
    readable: bool


def input_topics() -> dict[str, list[Group[Any, Any]]]:
    """Every topic that a group consumes, with the groups that do."""
    found: dict[str, list[Group[Any, Any]]] = {}
    for group in RUNNING:
        for topic in group.input_topics:
            found.setdefault(topic, []).append(group)
    return found


def hostile_records(random: Random, each: int) -> Iterator[Hostile]:
    """Yield this many hostile records for each topic that a group consumes: inputs, loops, retries, visits, joined tables."""
    streams = {edge.stream.name: edge.stream for group in RUNNING for edge in group.inputs}
    for topic in sorted(input_topics()):
        stream = streams.get(topic)
        schema = BY_NAME[stream.value.schema.name] if stream and isinstance(stream.value, Avro) else None
        for _ in range(each):
            yield _hostile(random, topic, schema)


def _hostile(random: Random, topic: str, schema: Any) -> Hostile:
    make = random.choice(
        [_bytes, _unknown_fingerprint, _null, _bad_key, _large, _forged, _another_schema, _odd_event]
    )
    return make(random, topic, schema)


def _key(random: Random) -> bytes:
    return random.choice([b"alice", b"\x00", b"\x00alice\x00", "é😀".encode(), b"k" * 3_000, b"user-1"])


def _headers(random: Random) -> list[tuple[bytes, bytes | None]]:
    names = [b"", b"\xff\xfe", b"traceparent", b"streamtable-error", b"x" * 300, ORIGIN_OFFSET.encode()]
    return [
        (random.choice(names), random.choice([None, b"", b"\x00\xff", b"-1"]))
        for _ in range(random.randrange(3))
    ]


def _bytes(random: Random, topic: str, _: Any) -> Hostile:
    value = random.choice(
        [b"", b"\x00", b"\xc3\x01", b"\xff" * 9, random.randbytes(random.randrange(1, 200))]
    )
    return Hostile(topic, RawRecord(_key(random), value, _headers(random)), readable=False)


def _unknown_fingerprint(random: Random, topic: str, _: Any) -> Hostile:
    value = b"\xc3\x01" + random.randbytes(8) + random.randbytes(random.randrange(40))
    return Hostile(topic, RawRecord(_key(random), value, _headers(random)), readable=False)


def _null(random: Random, topic: str, _: Any) -> Hostile:
    return Hostile(topic, RawRecord(_key(random), None, _headers(random)), readable=topic.endswith("-table"))


def _bad_key(random: Random, topic: str, _: Any) -> Hostile:
    keys = [b"\xff", b"\xc3\x28", b"\xed\xa0\x80"]
    if not topic.endswith("-table"):  # a compacted topic refuses records without a key
        keys.append(b"")
    key = random.choice(keys) or None
    return Hostile(topic, RawRecord(key, b"\xff", _headers(random)), readable=False)


def _large(random: Random, topic: str, _: Any) -> Hostile:
    size = random.choice([600_000, RECORD_BYTES_MAX])
    return Hostile(topic, RawRecord(_key(random), b"\xff" * size), readable=False)


def _forged(random: Random, topic: str, _: Any) -> Hostile:
    """A record with the headers of a dead letter that is sent again, whose origin was never there."""
    origin = random.choice([topic, "user-clicks", "no-such-topic", "", "x" * 249, "\x00"])
    headers: list[tuple[bytes, bytes | None]] = [
        (ORIGIN_TOPIC.encode(), origin.encode()),
        (ORIGIN_PARTITION.encode(), random.choice([b"0", b"1", b"-1", b"999999999999", b"\xff", b""])),
        (ORIGIN_OFFSET.encode(), random.choice([b"0", str(2**63 - 1).encode(), b"9" * 400, b"nan", b""])),
        (ORIGIN_TIMESTAMP.encode(), random.choice([b"0", b"-1", str(2**63).encode()])),
        (ATTEMPT.encode(), random.choice([b"1", b"-1", b"9" * 99, b"\xff"])),
    ]
    return Hostile(topic, RawRecord(_key(random), random.randbytes(20), headers), readable=False)


def _another_schema(random: Random, topic: str, schema: Any) -> Hostile:
    """A sound value of a schema that belongs to other topics."""
    other = random.choice([each for each in SCHEMAS if each is not schema])
    value = Avro[Any](other).encode(codec_fuzz.value(random, Schema.load(other.schema).tree))
    return Hostile(topic, RawRecord(_key(random), value, _headers(random)), readable=False)


def _odd_event(random: Random, topic: str, schema: Any) -> Hostile:
    """An event of the right schema, with values of the ends of their types, a megabyte of text among them."""
    if schema is None:
        return _bytes(random, topic, schema)
    event = codec_fuzz.value(random, Schema.load(schema.schema).tree)
    texts = (
        [name for name, value in event.items() if isinstance(value, str)] if isinstance(event, dict) else []
    )
    if texts and random.random() < 0.5:
        event[random.choice(texts)] = random.choice(["\x00", "a" * 600_000, "\u202e" * 1_000, "😀" * 200_000])
    try:
        value = Avro[Any](schema).encode(event)
    except (OverflowError, SerializationError):  # an enum takes no other text
        return _bytes(random, topic, schema)
    if len(value) > RECORD_BYTES_MAX - 4_000:
        return _bytes(random, topic, schema)
    return Hostile(topic, RawRecord(_key(random), value, _headers(random)), readable=True)


class Stack:
    """The processors of all scenarios as processes, with their topics on a broker of their own."""

    def __init__(self, broker: Broker, folder: Path, running: ExitStack) -> None:
        self.servers = broker.bootstrap_servers
        self.sent: Counter[str] = Counter()
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self._create_topics()
        kafka = Kafka(self.servers, admin_timeout=30)
        self._cluster = kafka.cluster()
        running.callback(self._cluster.close)
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "bootstrap.servers": self.servers,
                "log_level": 0,
                "partitioner": "murmur2_random",
            }
        )
        self.processes: list[tuple[str, Process]] = []
        for number, (module, *arguments) in enumerate(PROCESSORS):
            process = Process(
                module,
                arguments,
                {
                    "STREAMTABLE_BOOTSTRAP_SERVERS": self.servers,
                    "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:0",
                    "STREAMTABLE_INSTANCE_ID": f"hostile-{number}",
                    "STREAMTABLE_STATE_DIR": str(folder / str(number)),
                    "STREAMTABLE_LOG_FORMAT": "json",
                    "TWEET_REACH_BATCH_SECONDS": "0.2",
                },
            )
            running.callback(process.close)
            self.processes.append((" ".join([module, *arguments]), process))

    def _create_topics(self) -> None:
        outputs = {edge.stream.name for group in RUNNING for edge in group.outputs}
        tables = {table for group in RUNNING for table in group.tables} | {"tweet-reach-table"}
        names = (
            {name for group in RUNNING for name in required_topics(group)}
            | outputs
            | tables
            | {"streamtable-status"}
        )
        compacted = {"cleanup.policy": "compact"}
        made = [
            NewTopic(name, PARTITIONS, config=compacted if name in tables else {}) for name in sorted(names)
        ]
        create_topics(self._admin, made)

    def check_alive(self) -> None:
        """Raise `AssertionError` with the last lines of a processor that has ended."""
        for name, process in self.processes:
            code = process.process.poll()
            assert code is None, f"{name} has ended with {code}: {''.join(process.output[-20:])}"

    def produce(self, topic: str, key: str, value: bytes) -> None:
        """Send an honest record; see `flush`."""
        self._producer.produce(topic, value, key)

    def flush(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0

    def attack(self, random: Random, each: int) -> list[tuple[Hostile, Place]]:
        """Write hostile records to every topic. Returns them with their places."""
        connections: dict[tuple[str, int], RawProducer] = {}
        with ExitStack() as opened:
            sent = []
            for hostile in hostile_records(random, each):
                partition = random.randrange(PARTITIONS)
                at = hostile.topic, partition
                if at not in connections:
                    connections[at] = opened.enter_context(RawProducer(self.servers, *at))
                sent.append((hostile, (*at, connections[at].send(hostile.record))))
            return sent

    def wait_handled(self) -> None:
        """Wait until every group has consumed all of its inputs, also what its own loops have brought.

        Raises:
            AssertionError: A processor has ended, or some lag remains.
        """
        deadline = Deadline(SECONDS_MAX)
        while behind := self.behind():
            self.check_alive()
            assert not deadline.passed(), f"lag remains: {behind}"
            time.sleep(
                0.5
            )  # to look costs CPU time: nine groups, and readers of what they have not committed

    def behind(self) -> dict[str, int]:
        """The partitions, as `group topic[partition]`, that have committed records left to read, and how many."""
        found = {}
        for group in RUNNING:
            places = [
                TopicPartition(topic, number) for topic in group.input_topics for number in range(PARTITIONS)
            ]
            try:
                committed = self._cluster.stable_offsets(group.name, places)
            except RetryLater:  # its coordinator does not know yet how pending transactions end
                found[group.name] = 1
                continue
            for place in places:
                offset = committed[place]
                left = self._left(place, offset.next_offset if offset else 0)
                if left:
                    found[f"{group.name} {place.topic}[{place.partition}]"] = left
        return found

    def _left(self, place: TopicPartition, start: int) -> int:
        high = self._cluster.watermarks([place])[place].high
        return 0 if start >= high else len(self.read(place.topic, place.partition, start))

    def read(self, topic: str, partition: int, start: int = 0) -> list[Any]:
        """The committed records of a partition from an offset on."""
        return read_to_end(self.servers, [Partition(topic, partition, start)], SECONDS_MAX)

    def dead_letters(self, group: Group[Any, Any]) -> Counter[Place]:
        """Return how often each record is among the dead letters of a group, by its origin."""
        found: Counter[Place] = Counter()
        for partition in range(PARTITIONS):
            for letter in self.read(group.dead_letters, partition):
                headers = dict(letter.headers() or ())
                found[
                    headers[ORIGIN_TOPIC].decode(),
                    int(headers[ORIGIN_PARTITION]),
                    int(headers[ORIGIN_OFFSET]),
                ] += 1
        return found

    def rows(self, table: str) -> dict[bytes, bytes]:
        """The rows that the changelog of a table holds."""
        rows: dict[bytes, bytes | None] = {}
        for partition in range(PARTITIONS):
            rows |= {each.key(): each.value() for each in self.read(table, partition)}
        return {key: value for key, value in rows.items() if value is not None}
