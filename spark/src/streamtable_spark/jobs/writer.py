"""Rows into the changelog of a table: each partition in one transaction, so that it is there whole or not at all.

The transactional ids are made of the table and the partition's number. Who begins with one fences all who had it before:
a second try of a task its first, a second run of the job its first, and the job, when all is written, every task that
may still be under way somewhere. So nothing is written behind the offsets that the new group begins with.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streamtable_spark.errors import Fenced, RetryLater
from streamtable_spark.jobs.kafka import Kafka

TRANSACTION_TIMEOUT_MS: Final = 600_000  # of a whole partition; the brokers' default maximum is 900,000
_ANSWER_S: Final = 60.0
_FULL_S: Final = 0.5
_FENCED: Final = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}  # noqa: SLF001 - a code


class Written(NamedTuple):
    """The result of writing a partition. `error` is why it was not written."""

    partition: int
    written: int = 0
    deleted: int = 0
    error: Fenced | RetryLater | None = None


@dataclass(frozen=True)
class ChangelogWriter:
    """Writes a table's changelog. Goes to Spark's workers, so it holds no client.

    Attributes:
        bootstrap_servers: The addresses of the brokers, as Kafka clients take them.
        topic: The changelog topic.
    """

    bootstrap_servers: str
    topic: str

    def fence(self, partitions: int) -> None:
        """Fence earlier writers: their open transactions are aborted, and they can no longer commit.

        Raises:
            RetryLater: Kafka does not answer.
        """
        for partition in range(partitions):
            try:
                self._producer(partition)
            except KafkaException as exception:
                raise _raised(exception, f"fencing {self.topic}[{partition}]") from exception

    def write(self, rows: Iterable[Any]) -> Iterator[Written]:
        """Write the records of some partitions.

        Args:
            rows: The rows to write, with `partition`, `key`, `value`, grouped by partition.

        Returns:
            One result for each partition. An error is returned in it and not raised, or Spark would wrap it in its own.
        """
        for partition, records in groupby(rows, key=lambda row: row["partition"]):
            try:
                yield self._partition(partition, records)
            except KafkaException as exception:
                yield Written(partition, error=_raised(exception, f"writing {self.topic}[{partition}]"))
                return

    def _partition(self, partition: int, records: Iterable[Any]) -> Written:
        failed: list[KafkaError] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None and not failed:
                failed.append(error)

        producer = self._producer(partition)
        producer.begin_transaction()
        written = deleted = 0
        for record in records:
            key, value = bytes(record["key"]), record["value"]
            _produce(producer, self.topic, partition, key, None if value is None else bytes(value), report)
            written, deleted = written + (value is not None), deleted + (value is None)
        deadline = time.monotonic() + TRANSACTION_TIMEOUT_MS / 1000
        while True:
            try:
                producer.commit_transaction(_ANSWER_S)
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    # The report of the record that could not be delivered says more than the commit.
                    raise (KafkaException(failed[0]) if failed else exception) from None
            else:
                return Written(partition, written, deleted)

    def _producer(self, partition: int) -> Producer:
        producer = Producer(
            {
                **Kafka(self.bootstrap_servers).client(),
                "transactional.id": f"streamtable-rebuild-{self.topic}-{partition}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS - 1_000,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.kbytes": 32_768,
                "message.max.bytes": 64 << 20,  # the topic's own limit is the one that counts
            }
        )
        producer.init_transactions(_ANSWER_S)
        return producer


def _produce(
    producer: Producer, topic: str, partition: int, key: bytes, value: bytes | None, report: Any
) -> None:
    while True:
        try:
            producer.produce(topic, value=value, key=key, partition=partition, on_delivery=report)
        except BufferError:  # as much is under way as may be
            producer.poll(_FULL_S)
        else:
            producer.poll(0)
            return


def _raised(exception: KafkaException, doing: str) -> Fenced | RetryLater:
    error: KafkaError = exception.args[0]
    if error.code() in _FENCED:
        return Fenced(
            f"{doing}: another rebuild of this table has begun meanwhile, and goes on in place of this one"
        )
    return RetryLater(
        f"{doing} failed ({error.name()}: {error.str()}); run this again, it goes on where it was"
    )
