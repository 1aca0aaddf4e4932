"""Reads all records of a topic, for assertions of tests."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from localkafka.waiting import Deadline

_AT_ONCE: Final = 10_000
_MARKERS_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 10.0


def read_to_end(
    bootstrap_servers: str, starts: Sequence[TopicPartition], seconds: float = 60.0
) -> list[Message]:
    """Return the committed records of partitions, from these offsets to their ends, in order within each partition.

    The end is the last stable offset: records of open transactions, and those after them, are not returned. Transactions that
    have been committed are waited for, since their markers come a moment after the answer to the commit.

    Args:
        bootstrap_servers: The broker's bootstrap servers.
        starts: The partitions, each with the offset to begin at.
        seconds: The time limit, on an idle machine.

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
            # At the end of all partitions, the broker answers only after this time; the default is half a second.
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    _wait_for_markers(bootstrap_servers, starts)
    found: list[Message] = []
    left = {(start.topic, start.partition) for start in starts}
    deadline = Deadline(seconds)
    try:
        consumer.assign(list(starts))
        while left:
            if deadline.passed():
                raise AssertionError(f"{sorted(left)} could not be read to their ends within {seconds:g} s")
            # `consume` waits for its whole timeout unless it gets the full number of messages.
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


def _wait_for_markers(bootstrap_servers: str, places: Sequence[TopicPartition]) -> None:
    """Wait until no transaction is open in the partitions, but not long: one may be left open on purpose."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline = Deadline(_MARKERS_SECONDS)
    while not deadline.passed():
        written = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
        stable = _ends(admin, places, IsolationLevel.READ_COMMITTED)
        if written and stable and all(stable[place] >= end for place, end in written.items()):
            return
        time.sleep(0.02)


def _ends(
    admin: AdminClient, places: Sequence[TopicPartition], level: IsolationLevel
) -> dict[tuple[str, int], int] | None:
    """Return the ends of partitions; None if they are not known now."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the client's
    asked = {TopicPartition(place.topic, place.partition): latest for place in places}
    try:
        answers = admin.list_offsets(asked, isolation_level=level, request_timeout=_ANSWER_SECONDS)
        return {
            (place.topic, place.partition): answer.result(_ANSWER_SECONDS + 1).offset
            for place, answer in answers.items()
        }
    except (KafkaException, TimeoutError):
        return None
