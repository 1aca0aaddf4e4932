"""Takes records out of a consumer: without waiting for a full batch, and split by partition at little cost."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, Message

from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.kafka.errors import cause, fatal

_CONSUMED_MAX = 1_000_000  # the client refuses to return more at once


class Records(Protocol):
    """The records of one consumer's partitions. `streamtable_native` has another implementation."""

    def attach(self, places: Iterable[TopicPartition]) -> None:
        """Include these partitions, which are about to be assigned."""

    def detach(self, places: Iterable[TopicPartition]) -> None:
        """Exclude these partitions, which are about to be unassigned."""

    def take(
        self, max_records: int, timeout: float, on_error: Callable[[Message], None]
    ) -> list[RecordBatch]:
        """Return the queued records; if there are none, those that have arrived with the next one.

        Args:
            max_records: The number of records, at most.
            timeout: The seconds to wait.
            on_error: Called for each error in place of a record.

        Returns:
            A batch for each partition, in the order of their first records.
        """

    def close(self) -> None:
        """Release the consumer, which is about to be closed."""


@dataclass(frozen=True, slots=True)
class ClientRecords:
    """`Records` by the client's own message objects, which take no part in an assignment."""

    consumer: Consumer

    def _nothing(self, *_: object, **__: object) -> None: ...

    attach = detach = close = _nothing

    def take(
        self, max_records: int, timeout: float, on_error: Callable[[Message], None]
    ) -> list[RecordBatch]:
        return split(fetch(self.consumer, max_records, timeout), on_error)


def fetch(consumer: Consumer, max_records: int, timeout: float) -> list[Message]:
    """Return the queued records; if there are none, those that have arrived with the next one.

    A single `consume(n, timeout)` would wait for all n or the whole timeout.
    """
    max_records = min(max_records, _CONSUMED_MAX)
    try:
        messages = consumer.consume(max_records, 0)
        if not messages and timeout > 0:
            messages = consumer.consume(1, timeout)
            if messages and max_records > 1:
                messages += consumer.consume(max_records - 1, 0)
    except KafkaException as error:
        raise fatal(cause(error), "reading") from error
    return messages


def split(messages: list[Message], on_error: Callable[[Message], None]) -> list[RecordBatch]:
    """Return one batch for each partition, in the order of their first records; error items go to `on_error`.

    Records come in long runs of one partition, so three C-level passes find the runs (65 ns a record).
    """
    if any(map(Message.error, messages)):
        healthy = []
        for message in messages:
            if message.error() is None:
                healthy.append(message)
            else:
                on_error(message)
        messages = healthy
    runs: dict[tuple[str | None, int | None], list[Message]] = {}
    for topic, of_topic in groupby(messages, Message.topic):
        for partition, run in groupby(of_topic, Message.partition):
            place = (topic, partition)
            if place in runs:
                runs[place].extend(run)
            else:
                runs[place] = list(run)
    return [RecordBatch(str(topic), int(partition or 0), run) for (topic, partition), run in runs.items()]
