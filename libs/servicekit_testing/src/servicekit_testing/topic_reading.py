"""Reads a topic once, from its beginning to its current end, without a consumer group."""

from collections.abc import Iterator
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from streamtable import Stream

K = TypeVar("K")
V = TypeVar("V")


def committed_records(
    bootstrap_servers: str, stream: Stream[K, V], patience: float
) -> Iterator[tuple[K, V | None]]:
    """Yield the keys and values of a stream, without those of open and aborted transactions.

    Args:
        bootstrap_servers: The addresses of the brokers.
        stream: The stream to read.
        patience: The seconds to wait for the broker; without a response the iteration ends.
    """
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "topic-reading",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(options)
    try:
        left = set(consumer.list_topics(stream.name, patience).topics[stream.name].partitions)
        consumer.assign([TopicPartition(stream.name, partition, OFFSET_BEGINNING) for partition in left])
        while left and (message := consumer.poll(patience)) is not None:
            if (error := message.error()) is None:
                data = message.value()
                yield (
                    stream.key.decode(message.key() or b""),
                    None if data is None else stream.value.decode(data),
                )
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                left.discard(message.partition() or 0)
    finally:
        consumer.close()
