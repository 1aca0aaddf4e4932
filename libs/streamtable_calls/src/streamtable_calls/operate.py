"""The pending calls of a group, as its changelog has them, and commands to the group. Works beside it, or while it is stopped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from streamtable.base.deadletter import OutputRecord
from streamtable.base.ports import TransactionalProducer
from streamtable.base.types import Committed, TopicPartition
from streamtable.errors import StreamtableError
from streamtable.graph.companion import CALLS
from streamtable.handlers.timers import PendingTimer, payload_of
from streamtable_admin.cluster import Cluster
from streamtable_admin.errors import Refused
from streamtable_admin.offsets import TablePosition
from streamtable_admin.reading import read_to
from streamtable_admin.records import records_of
from streamtable_calls.commands_to_group import CallCommand, command_record
from streamtable_calls.pending import OWN, CallState, PendingCall

TRANSACTIONAL_ID: Final = "{group}.streamtable-calls-commands"
_BATCH_RECORDS = 1_000
_OPEN_SECONDS, _COMMIT_SECONDS = 30.0, 9.0


@dataclass(frozen=True)
class ListedCall:
    """A pending call.

    Attributes:
        group: The group that has made it.
        partition: The partition of its row.
        row_key: The key of its row.
        call: The name of the call.
        number: Its number in the partition; larger numbers were made later.
        key: The encoded key of the record that has made it.
        pending: Its row.
    """

    group: str
    partition: int
    row_key: bytes
    call: str
    number: int
    key: bytes
    pending: PendingCall

    @property
    def id(self) -> str:
        """Its `call_id()`."""
        return f"{self.group}/{self.partition}/{self.number}"

    def age_seconds(self, now: float) -> float | None:
        """Return its age by the event time of the record that has made it, in seconds; None: the record has none."""
        return max(0.0, now - self.pending.made_ms / 1000) if self.pending.made_ms else None

    def waits_seconds(self, now: float) -> float:
        """Return the seconds until its next attempt; 0: none is waited for."""
        waiting = self.pending.state is CallState.WAITING and self.pending.next_ms
        return max(0.0, self.pending.next_ms / 1000 - now) if waiting else 0.0


def changelog_of(group: str) -> str:
    """Return the topic of the pending calls of a group."""
    return f"{group}-{CALLS}"


def listed(
    cluster: Cluster, group: str, selected: Callable[[ListedCall], bool] = lambda _: True
) -> list[ListedCall]:
    """Return the pending calls of a group, by partition and number, as of its last commits.

    Args:
        cluster: The cluster.
        group: The group.
        selected: Whether a call is returned.

    Raises:
        NoSuchTopic: The group makes no calls.
        RetryLater: The broker has stopped answering.
    """
    marks = cluster.admin.watermarks(cluster.partitions(changelog_of(group)))
    starts, ends = ({p: m.low for p, m in marks.items()}, {p: m.high for p, m in marks.items()})
    rows: dict[tuple[int, bytes], bytes] = {}
    for batch in read_to(cluster, starts, ends):
        for record in records_of(batch):
            if record.key is None or record.key.startswith(OWN):
                continue
            if record.value is None:
                rows.pop((record.place.partition, record.key), None)
            else:
                rows[record.place.partition, record.key] = record.value
    found = (_listed(group, partition, key, data) for (partition, key), data in rows.items())
    return sorted(filter(selected, found), key=lambda each: (each.partition, each.number))


def _listed(group: str, partition: int, row_key: bytes, data: bytes) -> ListedCall:
    timer = PendingTimer.decode(row_key)
    pending = PendingCall.decode(payload_of(data))
    return ListedCall(group, partition, row_key, timer.name, int(timer.id, 16), timer.raw_key, pending)


def send(cluster: Cluster, group: str, command: CallCommand, calls: Sequence[ListedCall]) -> None:
    """Ask a group to do something with pending calls: at once if it runs, else when it is started.

    Args:
        cluster: The cluster.
        group: The group.
        command: The command.
        calls: The calls; one that is done by then stays done.

    Raises:
        NoSuchTopic: The group has no retry topic.
        StreamtableError: Kafka failed. Some may have been sent; sending all again is safe.
    """
    cluster.partitions(f"{group}-retry")
    _produce(cluster, group, (command_record(group, command, each.partition, each.row_key) for each in calls))


def drop_stopped(cluster: Cluster, group: str, calls: Sequence[ListedCall]) -> None:
    """Delete pending calls of a group that does not run.

    Their rows are deleted first, then the group's committed position in its changelog is moved behind that: a copy of the table
    reads at least up to there. After a failure in between, repeat it.

    Args:
        cluster: The cluster.
        group: The group.
        calls: The calls.

    Raises:
        Refused: The group has members.
        StreamtableError: Kafka failed.
    """
    topic = changelog_of(group)
    refuse_members(cluster, group)
    _produce(
        cluster, group, (OutputRecord(topic, each.row_key, None, partition=each.partition) for each in calls)
    )
    dropped = {TopicPartition(topic, each.partition) for each in calls}
    ends = {place.partition: mark.high for place, mark in cluster.admin.watermarks(dropped).items()}
    moved = {}
    for place, committed in cluster.committed(group).items():
        position = TablePosition.decode(committed.metadata)
        if position is not None and CALLS in position.tables and place.partition in ends:
            tables = {**position.tables, CALLS: ends[place.partition]}
            moved[place] = Committed(committed.next_offset, replace(position, tables=tables).encode())
    cluster.admin.set_offsets(group, moved)


def refuse_members(cluster: Cluster, group: str) -> None:
    """Raise `Refused` if a group has members."""
    found = cluster.describe_groups([group]).get(group)
    if found is not None and found.members:
        hosts = ", ".join(each.host for each in found.members)
        raise Refused(f"group {group!r} runs, on {hosts}: stop it first")


def _produce(cluster: Cluster, group: str, records: Iterable[OutputRecord]) -> None:
    producer = cluster.kafka.transactional_producer(TRANSACTIONAL_ID.format(group=group))
    try:
        producer.open(_OPEN_SECONDS)
        left = iter(records)
        while batch := list(islice(left, _BATCH_RECORDS)):
            _commit(producer, batch)
    finally:
        producer.close()


def _commit(producer: TransactionalProducer, records: Sequence[OutputRecord]) -> None:
    producer.begin()
    try:
        producer.produce_records(records)
        producer.flush(_COMMIT_SECONDS)
    except StreamtableError:
        producer.abort(_COMMIT_SECONDS)
        raise
    producer.commit(_COMMIT_SECONDS)


def documents(
    calls: Iterable[ListedCall], key: Callable[[bytes], Any], now: float
) -> Iterator[dict[str, Any]]:
    """Yield calls as JSON can express them.

    Args:
        calls: The calls.
        key: Returns a key as JSON can express it.
        now: Seconds since 1970.
    """
    for each in calls:
        yield {
            "id": each.id,
            "call": each.call,
            "key": key(each.key),
            "state": each.pending.state.name.lower(),
            "attempts": each.pending.attempts,
            "next_attempt_ms": each.pending.next_ms or None,
            "error": each.pending.error.strip() or None,
            "age_seconds": each.age_seconds(now),
        }
