"""A Kafka cluster under administration: its clients, how long to wait for it, and who observes long reads."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from streamtable import Kafka
from streamtable.base.types import Committed, TopicPartition
from streamtable.errors import RetryLater, TransactionPending
from streamtable.kafka import BrokerAddress, GroupDescription, GroupMember
from streamtable_admin.errors import NoSuchTopic
from streamtable_admin.rights import UserAdmin

__all__ = ["BrokerAddress", "Cluster", "GroupDescription", "GroupMember", "ReadObserver", "connect"]

T = TypeVar("T")
INTERNAL_PREFIX = "__"
"""Topics whose names begin with this belong to Kafka itself."""
_RETRY_S = 0.1
_PENDING_S = 2.0


class ReadObserver:
    """Observes reads, for example to draw a progress bar; by itself it does nothing."""

    def reading(self, offsets: int) -> AbstractContextManager[Callable[[int], None]]:  # noqa: ARG002 - overridden
        """Open a context for a read of this many offsets; its function receives how many are done."""
        return nullcontext(lambda _: None)

    def held_back(self, place: TopicPartition, position: int, end: int) -> None:
        """Report that a read stopped at `position` because an open transaction holds the records before `end`."""


UNOBSERVED = ReadObserver()


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster with an open admin client.

    Attributes:
        kafka: Makes producers and readers.
        admin: Answers questions about topics, groups and ACLs, and changes them.
        timeout: Seconds to retry a question that the cluster cannot answer yet.
        client_name: Names the readers in the logs of the brokers.
        observer: Observes long reads.
    """

    kafka: Kafka
    admin: UserAdmin
    timeout: float = 2.5
    client_name: str = "streamtable-admin"
    observer: ReadObserver = UNOBSERVED

    def retried(self, ask: Callable[[], T]) -> T:
        """Return the answer to a question, repeating it until the timeout. Raises the last `RetryLater`."""
        began = time.monotonic()
        while True:
            try:
                return ask()
            except RetryLater as error:
                # Brokers may be slow to answer. That a transaction is pending is an answer: most end within moments.
                pending = isinstance(error, TransactionPending)
                if time.monotonic() - began > (min(_PENDING_S, self.timeout) if pending else self.timeout):
                    raise
                time.sleep(_RETRY_S)

    def partitions(self, topic: str, only: Iterable[int] = ()) -> list[TopicPartition]:
        """Return the partitions of a topic, all or some of them.

        Raises:
            NoSuchTopic: The topic or the partition does not exist. The message suggests a close name.
        """
        known = self.admin.topic_partitions()
        count = known.get(topic, 0)
        if not count:
            close = f"; there is {topic}-table" if f"{topic}-table" in known else ""
            raise NoSuchTopic(f"there is no topic {topic!r}{close}")
        numbers = sorted(set(only)) or range(count)
        for number in numbers:
            if not 0 <= number < count:
                raise NoSuchTopic(f"topic {topic!r} has no partition {number}: it has 0 to {count - 1}")
        return [TopicPartition(topic, number) for number in numbers]

    def describe_groups(self, names: Iterable[str]) -> Mapping[str, GroupDescription]:
        """Describe the groups that exist; a coordinator that is moving is asked again."""
        names = list(names)
        return self.retried(lambda: self.admin.describe_groups(names))

    def latest(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return the committed offsets of a group, in all topics that exist; a pending transaction does not count."""
        try:
            return self.committed(group)
        except TransactionPending as pending:
            if not pending.latest:
                raise
            return {place: each for place, each in sorted(pending.latest.items()) if each is not None}

    def committed(self, group: str) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of a group, in all topics that exist; waits for pending transactions."""
        places = [
            TopicPartition(topic, number)
            for topic, partitions in self.admin.topic_partitions().items()
            if not topic.startswith(INTERNAL_PREFIX)
            for number in range(partitions)
        ]
        if not places:
            return {}
        found = self.retried(lambda: self.admin.stable_offsets(group, places))
        return {place: committed for place, committed in sorted(found.items()) if committed is not None}


@contextmanager
def connect(
    kafka: Kafka,
    *,
    timeout: float = 2.5,
    client_name: str = "streamtable-admin",
    observer: ReadObserver = UNOBSERVED,
) -> Iterator[Cluster]:
    """Open an admin client for a cluster, and close it at the end. No broker is asked yet."""
    admin = kafka.admin_of(UserAdmin)
    try:
        yield Cluster(kafka, admin, timeout, client_name, observer)
    finally:
        admin.close()
