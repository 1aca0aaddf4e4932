"""Write rows into the changelog of a table: each partition in one transaction, so that it is visible whole or not at all.

The transactional ids are made of the table and the partition's number. A producer fences all earlier ones with its id:
a second try of a task its first, a second run of the job its first, and the job, when all is written, every task that
may still be under way somewhere. So nothing is written after the offsets that the new group begins with.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

from streamtable import errors
from streamtable.base.ports import TransactionalProducer
from streamtable_spark.errors import Fenced, RetryLater
from streamtable_spark.jobs.kafka import Kafka

TRANSACTION_S: Final = 600.0  # of a whole partition; the brokers' default maximum is 900
_ANSWER_S: Final = 60.0
# A queue of five requests. With the client's usual 200,000 records each of Spark's workers takes 33 MB more, and is done no sooner.
_TUNING: Final = {"linger.ms": "20", "compression.type": "lz4", "queue.buffering.max.messages": "50000"}


class Written(NamedTuple):
    """The result of writing a partition. `error` is the reason why it was not written."""

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
                self._producer(partition).close()
            except errors.StreamtableError as error:
                raise _raised(error, f"fencing {self.topic}[{partition}]") from error

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
            except errors.StreamtableError as error:
                yield Written(partition, error=_raised(error, f"writing {self.topic}[{partition}]"))
                return

    def _partition(self, partition: int, records: Iterable[Any]) -> Written:
        producer = self._producer(partition)
        try:
            producer.begin()
            written = deleted = 0
            for record in records:
                key, value = bytes(record["key"]), record["value"]
                producer.produce(
                    self.topic, key, None if value is None else bytes(value), partition=partition
                )
                written, deleted = written + (value is not None), deleted + (value is None)
            producer.flush(TRANSACTION_S)  # its error for an undeliverable record says more than the commit's
            producer.commit(TRANSACTION_S)
        finally:
            producer.close()
        return Written(partition, written, deleted)

    def _producer(self, partition: int) -> TransactionalProducer:
        """Open a producer, which fences all earlier ones with its transactional id."""
        transactional_id = f"streamtable-rebuild-{self.topic}-{partition}"
        client = Kafka(self.bootstrap_servers).client(_TUNING)
        producer = client.transactional_producer(transactional_id, transaction_seconds=TRANSACTION_S)
        producer.open(_ANSWER_S)
        return producer


def _raised(error: errors.StreamtableError, doing: str) -> Fenced | RetryLater:
    if isinstance(error, errors.Fenced):
        return Fenced(
            f"{doing}: another rebuild of this table has begun meanwhile, and goes on in place of this one"
        )
    return RetryLater(f"{doing} failed ({error}); run this again, it goes on where it was")
