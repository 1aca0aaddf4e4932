"""A hand-written counter, as a careful engineer would write it: at least once, with state on disk and in a changelog.

Every second, changes are written to the changelog and every delivery is checked, then they are written to RocksDB with
the input's offset, then the offsets are committed. Omitted, though a service needs them: restoring lost state from the
changelog, poison records, waiting for an unreachable broker, metrics.
"""

import os
import struct
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import orjson
from bench.job import Job
from bench.programs.client import BATCH, WAIT_SECONDS, consumer
from bench.programs.marks import mark
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from rocksdict import Options, Rdict, WriteBatch

from contracts.records import USER_CLICK

NUMBER = struct.Struct(">q")
HEAD = b"\xc3\x01" + USER_CLICK.fingerprint.to_bytes(8, "little")
OFFSET = b"\0offset"


class Partition:
    """The counts of one partition: a dictionary in front of a store."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.counts: dict[bytes, int] = {}
        self.changed: set[bytes] = set()
        self._store = Rdict(str(folder / str(number)), Options(raw_mode=True))

    def stored(self, user: bytes) -> int:
        found = self._store.get(user)
        return NUMBER.unpack(found)[0] if found is not None else 0

    def changes(self) -> list[tuple[bytes, bytes]]:
        return [(user, NUMBER.pack(self.counts[user])) for user in self.changed]

    def save(self, changes: list[tuple[bytes, bytes]], offset: int) -> None:
        batch = WriteBatch(raw_mode=True)
        for user, count in changes:
            batch.put(user, count)
        batch.put(OFFSET, NUMBER.pack(offset))
        self._store.write(batch)
        self.changed.clear()

    def close(self) -> None:
        self._store.close()


class Counter:
    """The loop and its resources."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._changelog = f"{job.group}-changelog"
        self._schema = fastavro.parse_schema(orjson.loads(USER_CLICK.schema))
        self._partitions: dict[int, Partition] = {}
        self._failed: list[KafkaError] = []
        self._consumer = consumer(job)
        self._producer = Producer(
            {
                "bootstrap.servers": job.broker,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: self._failed.append(error),
            }
        )
        self._consumer.subscribe([job.topic], on_assign=self._assigned, on_revoke=self._revoked)

    def run(self) -> None:
        """Process the job's records."""
        seen, due = 0, time.monotonic() + self._job.commit_ms / 1000
        while seen < self._job.records:
            messages = self._consumer.consume(BATCH, WAIT_SECONDS)
            if messages and not seen:
                mark("first")
            self._count(messages)
            seen += len(messages)
            if time.monotonic() >= due:
                self._commit()
                due = time.monotonic() + self._job.commit_ms / 1000
        mark("last")
        self._commit()
        self._consumer.close()

    def _count(self, messages: list[Any]) -> None:
        partitions, schema, decode = self._partitions, self._schema, fastavro.schemaless_reader
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            value = message.value()
            if value[:10] != HEAD:
                raise ValueError(f"not a click at offset {message.offset()}")
            decode(BytesIO(value[10:]), schema, None)
            partition = partitions[message.partition()]
            user = message.key()
            count = partition.counts.get(user)
            if count is None:
                count = partition.stored(user)
            partition.counts[user] = count + 1
            partition.changed.add(user)

    def _commit(self) -> None:
        changes = {each.number: each.changes() for each in self._partitions.values()}
        for number, rows in changes.items():
            for user, count in rows:
                self._produce(user, count, number)
        self._producer.flush()
        if self._failed:
            raise RuntimeError(f"{len(self._failed)} records are missing in the changelog: {self._failed[0]}")
        positions = [
            place for place in self._consumer.position(self._consumer.assignment()) if place.offset >= 0
        ]
        for place in positions:
            self._partitions[place.partition].save(changes[place.partition], place.offset)
        if positions:
            self._consumer.commit(offsets=positions, asynchronous=False)

    def _produce(self, user: bytes, count: bytes, partition: int) -> None:
        while True:
            try:
                self._producer.produce(self._changelog, count, user, partition)
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def _assigned(self, client: Consumer, places: list[TopicPartition]) -> None:
        for place in places:
            self._partitions[place.partition] = Partition(place.partition, Path(self._job.state_dir))

    def _revoked(self, client: Consumer, places: list[TopicPartition]) -> None:
        self._commit()
        for place in places:
            self._partitions.pop(place.partition).close()


if __name__ == "__main__":
    Counter(Job.from_environment(os.environ)).run()
