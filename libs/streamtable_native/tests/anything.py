"""Topics with anything that a topic can hold, and readers of all their records; the tests of this folder share them."""

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

from localkafka.broker import Broker
from localkafka.waiting import Deadline
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.kafka import Kafka

WITHIN_S = 60
PATHS: Sequence[Any] = ("off", "required")
Row = tuple[Any, ...]
_NOW_MS = int(time.time() * 1000)


class Everything:
    """Lets the consumer read all its partitions from their beginnings."""

    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        self.places.update(places)

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self.places.difference_update(places)

    lost = revoked


def rows_of(batch: RecordBatch) -> list[Row]:
    return [
        (key, value, offset, time, list(headers or ()), list(batch.headers(index)), batch.timestamp(index))
        for index, (key, value, offset, time, headers) in enumerate(
            zip(
                batch.keys,
                batch.values,
                batch.offsets,
                batch.timestamps(),
                batch.each_headers(),
                strict=True,
            )
        )
    ]


MESSAGE_BYTES_MAX = 4 << 20
TOPIC = {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
"""The configuration of a topic for `write_anything`."""
_HUGE = 5 << 19
"""More than a fetch asks for of one partition."""


def random_bytes(source: random.Random) -> bytes | None:
    size = source.choice([None, 0, 1, 7, 100, 20_000])
    return None if size is None else source.randbytes(size)


def write_anything(broker: Broker, topic: str, partitions: int, source: random.Random) -> None:
    """Write batches of transactions that are committed or aborted, compressed or not, with and without headers, few of them huge."""
    for number in range(6):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": f"{topic}-{number}",
                "compression.type": source.choice(["none", "gzip", "lz4", "zstd", "snappy"]),
                "linger.ms": source.choice([0, 20]),
                "message.max.bytes": MESSAGE_BYTES_MAX,
            }
        )
        producer.init_transactions(WITHIN_S)
        for _ in range(3):
            producer.begin_transaction()
            for _ in range(source.randrange(1, 60)):
                names = source.choices(["a", "name", "with spaces", ""], k=source.choice([0, 0, 0, 1, 3]))
                producer.produce(
                    topic,
                    random_bytes(source),
                    bytes(_HUGE) if source.random() < 0.01 else random_bytes(source),
                    partition=source.randrange(partitions),
                    timestamp=_NOW_MS - source.randrange(86_400_000),
                    headers=[(name, random_bytes(source)) for name in names],
                )
            producer.flush(WITHIN_S)  # a transaction that the broker has not heard of cannot be aborted there
            (producer.commit_transaction if source.random() < 0.7 else producer.abort_transaction)(WITHIN_S)


def read_table(kafka: Kafka, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[Row]]:
    reader = kafka.table_reader("reader")
    found: dict[TopicPartition, list[Row]] = defaultdict(list)
    reader.assign(dict.fromkeys(ends, 0))
    deadline = Deadline(WITHIN_S)
    while any(reader.position(place) < end for place, end in ends.items()):
        assert not deadline.passed()
        for batch in reader.poll(500, 0.1):
            found[batch.place] += rows_of(batch)
    reader.close()
    return found


def read_group(
    kafka: Kafka, group: str, topic: str, counts: Mapping[TopicPartition, int], source: random.Random
) -> dict[TopicPartition, list[Row]]:
    """Read as a member of a group, with pauses and seeks back between polls."""
    listener = Everything()
    consumer = kafka.group_consumer(group, "1")
    consumer.subscribe([topic], listener)
    deadline = Deadline(WITHIN_S)
    while len(listener.places) < len(counts):
        assert not deadline.passed()
        assert not consumer.poll(10, 0.1)
    for place in sorted(listener.places):
        consumer.seek(place, 0)
    consumer.resume(listener.places)
    found: dict[TopicPartition, dict[int, Row]] = defaultdict(dict)
    while any(len(found[place]) < count for place, count in counts.items()):
        assert not deadline.passed()
        for batch in consumer.poll(source.choice([1, 10, 500]), 0.1):
            for offset, row in zip(batch.offsets, rows_of(batch), strict=True):
                assert found[batch.place].setdefault(offset, row) == row
        place = source.choice(sorted(listener.places))
        if source.random() < 0.2:
            consumer.pause([place])
            consumer.seek(place, source.randrange(max(found[place], default=0) + 1))
            consumer.resume([place])
    consumer.close()
    return {place: [rows[offset] for offset in sorted(rows)] for place, rows in found.items()}
