"""All that a topic holds, for tests that look at it."""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from localkafka.waiting import Deadline

_AT_ONCE: Final = 10_000


def read_to_end(
    bootstrap_servers: str, starts: Sequence[TopicPartition], seconds: float = 60.0
) -> list[Message]:
    """Return the committed records of partitions from these offsets to their ends; those of each partition in their order.

    The end is in front of the first transaction that is still open.

    Args:
        bootstrap_servers: The broker's bootstrap servers.
        starts: The partitions, each with the offset to begin at.
        seconds: How long it may take on an idle machine.

    Raises:
        AssertionError: It took too long.
        KafkaException: The broker refuses, for example because there is no such offset.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reads-to-the-end",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
            # The broker answers at the end of all partitions only after so long, by default after half a second.
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found: list[Message] = []
    left = {(start.topic, start.partition) for start in starts}
    deadline = Deadline(seconds)
    try:
        consumer.assign(list(starts))
        while left:
            if deadline.passed():
                raise AssertionError(f"{sorted(left)} could not be read to their ends within {seconds:g} s")
            # `consume` waits out its time unless it has found all that it is asked for.
            first = consumer.poll(0.1)
            for message in [first, *consumer.consume(_AT_ONCE, 0)] if first is not None else []:
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    left.discard((message.topic() or "", message.partition() or 0))
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found
