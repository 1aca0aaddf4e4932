"""The committed records of topics that killed processes have written to."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import TopicPartition as Partition
from tests.faults.patience import patiently

from localkafka import waiting
from localkafka.reading import read_to_end
from streamtable.base.ports import ClusterClient
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater

_TRANSACTION_SECONDS = 60.0
"""A broker looks every 10 s for transactions that have lasted longer than their 10 s."""


@dataclass(frozen=True)
class Change:
    """A committed record. `time` is in seconds since 1970, of its sending."""

    offset: int
    key: bytes
    value: bytes | None
    time: float


def committed_records(cluster: ClusterClient, places: Sequence[TopicPartition]) -> dict[int, list[Change]]:
    """Return the committed records of these partitions of one topic, by partition, in their order.

    A process that was killed within a transaction leaves it open, and a consumer of committed records reports the
    end of the partition in front of it, although committed records follow. So the transactions are waited for.
    """
    _wait_stable(cluster, places)
    lows = patiently(lambda: cluster.watermarks(places))
    starts = [Partition(*place, marks.low) for place, marks in lows.items()]
    found: dict[int, list[Change]] = {place.partition: [] for place in places}
    for message in read_to_end(cluster.servers, starts):
        key = message.key()
        assert isinstance(key, bytes)
        change = Change(message.offset() or 0, key, message.value(), message.timestamp()[1] / 1000)
        found[message.partition() or 0].append(change)
    return found


def _wait_stable(cluster: ClusterClient, places: Sequence[TopicPartition]) -> None:
    """Wait until every transaction that has written to the partitions so far has ended."""
    ends = patiently(lambda: cluster.watermarks(places))

    left: object = None

    def stable() -> bool:
        nonlocal left
        try:
            found = cluster.stable_ends(places)
        except RetryLater as error:  # a broker that has just started
            left = error
            return False
        left = {
            place: (found[place], marks.high) for place, marks in ends.items() if found[place] < marks.high
        }
        return not left

    try:
        waiting.wait_until(stable, _TRANSACTION_SECONDS, "no transaction is open", every=0.05)
    except AssertionError as error:
        error.add_note(f"stable ends below ends: {left}")
        raise
