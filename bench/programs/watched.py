"""A Kafka client for the library that prints marks when the first and the last record are received.

It costs two more calls per poll, which is not measurable.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from bench.programs.marks import mark

from streamtable import Kafka
from streamtable.base.partitioner import Partitioner
from streamtable.base.ports import (
    ClusterClient,
    GroupConsumer,
    Log,
    Producer,
    RebalanceListener,
    TableReader,
    TransactionalProducer,
)
from streamtable.base.types import RecordBatch, TopicPartition


class _Listening:
    """A listener that reports its first assignment."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener
        self._told = False

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        if places and not self._told:
            self._told = True
            mark("assigned")
        self._listener.assigned(places)

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self._listener.revoked(places)

    def lost(self, places: Sequence[TopicPartition]) -> None:
        self._listener.lost(places)


class Pauses:
    """The pauses between the polls of a loop.

    Attributes:
        longest: Seconds, since `begin`.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._returned_at = time.monotonic()

    def begin(self) -> None:
        self.longest = 0.0

    def called(self) -> None:
        self.longest = max(self.longest, time.monotonic() - self._returned_at)

    def returned(self) -> None:
        self._returned_at = time.monotonic()


class _Polled:
    """A consumer that counts the records it returns and otherwise delegates."""

    def __init__(self, client: Any, seen: Callable[[list[RecordBatch]], None], pauses: Pauses) -> None:
        self._client = client
        self._seen = seen
        self._pauses = pauses

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        self._pauses.called()
        batches: list[RecordBatch] = self._client.poll(max_records, timeout)
        self._pauses.returned()
        if batches:
            self._seen(batches)
        return batches

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._client.subscribe(topics, _Listening(listener))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Watched(Log):
    """Marks `assigned` for the first partitions, `first` and `last` for the input, `restoring` for the first record of a
    changelog.

    Args:
        kafka: The cluster.
        topics: The input topics, without joined tables.
        records: The number of input records.
        done: Called when the last one is returned.

    Attributes:
        pauses: The pauses between polls of the group's consumer, from its last input record on.
    """

    def __init__(self, kafka: Kafka, topics: Collection[str], records: int, done: Callable[[], None]) -> None:
        self._kafka = kafka
        self._topics = topics
        self._records = records
        self._done = done
        self._seen = 0
        self._restoring = False
        self.pauses = Pauses()

    def cluster(self) -> ClusterClient:
        return self._kafka.cluster()

    def group_consumer(self, group: str, instance_id: str) -> GroupConsumer:
        return cast(
            "GroupConsumer", _Polled(self._kafka.group_consumer(group, instance_id), self._read, self.pauses)
        )

    def transactional_producer(
        self, transactional_id: str | None, batch_bytes: int = 1_000_000, transaction_seconds: float = 10.0
    ) -> TransactionalProducer:
        return self._kafka.transactional_producer(transactional_id, batch_bytes, transaction_seconds)

    def producer(self, partitioner: Partitioner = "murmur2", delivery_timeout: float = 120.0) -> Producer:
        return self._kafka.producer(partitioner, delivery_timeout)

    def table_reader(self, name: str) -> TableReader:
        return cast("TableReader", _Polled(self._kafka.table_reader(name), self._restored, Pauses()))

    def _read(self, batches: list[RecordBatch]) -> None:
        count = sum(len(batch) for batch in batches if batch.topic in self._topics)
        if count and not self._seen:
            mark("first")
        self._seen += count
        if self._seen - count < self._records <= self._seen:
            mark("last")
            self.pauses.begin()
            self._done()

    def _restored(self, _: list[RecordBatch]) -> None:
        if not self._restoring:
            self._restoring = True
            mark("restoring")
