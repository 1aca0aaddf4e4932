"""The interface of the engine to a task, whether its rows are in a local table or in another store.

`engine.task.Task` implements it with local tables, `engine.adapted.AdaptedTask` with a `CustomTask`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from streamtable.base.deadletter import OutputRecord
from streamtable.base.event_time import InputTime
from streamtable.base.ports import Store, TopicInfo
from streamtable.base.types import Committed, Headers, NextOffset, RecordBatch, TopicPartition, Watermarks
from streamtable.engine.time.event_time import EventClock
from streamtable.errors import StoreCorrupted, StreamtableError
from streamtable.graph.custom_task import AT_ONCE, CommitDue, CustomTask
from streamtable.graph.group import Group
from streamtable.tables.kept import KeptRecord, tables_left
from streamtable.tables.position import TablePosition
from streamtable.tables.recovery import RecoveryPlan
from streamtable.tables.seen import SeenInputs

if TYPE_CHECKING:
    from streamtable.engine.firing.runner import DueRunner
    from streamtable.engine.waiting.join_wait import JoinWait

MOVED_SECONDS = 1.0
"""A position that has only passed transaction markers is committed with the next records, or after this time."""


@dataclass(frozen=True)
class Work:
    """The work that a task wants to commit, encoded, so that the commit cannot fail halfway for the task's own reasons."""

    task: "BaseTask"
    outputs: list[OutputRecord]
    changes: list[tuple[bytes, bytes | None]]  # of the group's table
    next_offsets: Mapping[str, NextOffset]
    dead_letters: Sequence[str]  # of each among the outputs, the topic that it was read from
    # Changes, by table name.
    named: Mapping[str, list[tuple[bytes, bytes | None]]] = field(default_factory=dict)
    repeats: Mapping[str, int] = field(default_factory=dict)  # events skipped as duplicates, by input
    tombstones: Mapping[str, int] = field(default_factory=dict)  # tombstones skipped, by input
    traced: bool = False  # whether the task can find the records of outputs that Kafka rejects
    times: Mapping[str, InputTime] = field(default_factory=dict)  # the event time, by input
    late: Mapping[str, int] = field(default_factory=dict)  # records that came too late, by named table
    offered: Mapping[str, int] = field(default_factory=dict)  # records of windows and joins, by named table
    marks: Sequence[OutputRecord] = ()  # the watermark for readers of the outputs; sent after all outputs


@dataclass(frozen=True)
class CommitServices:
    """The services of the member that a task may use while it finishes its work.

    Attributes:
        send_ahead: Sends records, with headers added, in the transaction of the next commit, and waits until Kafka has
            acknowledged them.
        watermarks: Returns watermarks, as `ports.Cluster` does.
        records_max: The maximum number of records to process for one commit; None: no limit.
    """

    send_ahead: Callable[[Sequence[OutputRecord], Headers], None]
    watermarks: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Watermarks]]
    records_max: int | None = None


@dataclass(frozen=True)
class Recovered:
    """A partition whose tables are complete, as its task begins with it.

    Attributes:
        partition: Its number.
        topics: All topics of the group as the broker describes them.
        stores: The complete stores, by table: the tables that the group keeps, and the tables that it joins.
        positions: The position of each of these tables.
        plan: How it was recovered: the next offset of each input, and what was committed with it.
        loaded_at: Joined tables are complete up to this time, in seconds since 1970.
        unread: The keys of handled rows that the copy of a joined table lacks, and the end that it was loaded to, by table.
        custom: Handles its records; None: handlers over local tables do.
    """

    partition: int
    topics: Mapping[str, TopicInfo]
    stores: Mapping[str, Store]
    positions: Mapping[str, int]
    plan: RecoveryPlan
    loaded_at: float = 0.0
    unread: Mapping[str, tuple[Iterable[bytes], int]] = field(default_factory=dict)
    custom: CustomTask | None = None


class Changed(NamedTuple):
    """The size of the work of a task since its last commit.

    Attributes:
        bytes: About how many bytes the commit will write.
        memory: About how many bytes of memory the changed rows take.
    """

    bytes: int = 0
    memory: int = 0


class BaseTask(ABC):
    """One partition of a group. Its work since the last commit can only be dropped as a whole.

    Args:
        group: The graph.
        recovered: The partition, with its tables complete.

    Attributes:
        changelog_position: The position of the group's table; 0 if it keeps none.
        uncommitted: Whether its offsets must be committed before its first record.
        failure: The error that makes a rebuild of a local store necessary, or None.
        named_positions: The position of each named table of the group, by its name.
        must_recover: Whether its state in another store may be ahead of Kafka, so that it must recover from the committed
            offsets.
        due: Fires rows that fall due; None: there are none. Its counts are read by other threads.
        event_clock: The event time of the partition; None: it is not followed. Read by other threads.
        join_wait: Which records wait for joined tables; None: none do.
        kept_records: For each input, the record of the tables that the group keeps and has kept.
        seen_before: The ids of the inputs that the group had read when the task started; see `SeenInputs.ids`.
        traced: The trace contexts of the work since the last commit.
        ends: The ends of its inputs that the client last received, by topic.
        committed_at: Monotonic time of its last commit, or of its start.
    """

    failure: StoreCorrupted | None = None
    must_recover = False
    due: "DueRunner | None" = None
    event_clock: EventClock | None = None
    join_wait: "JoinWait | None" = None

    def __init__(self, group: Group[Any, Any], recovered: Recovered) -> None:
        plan, positions = recovered.plan, recovered.positions
        self.group = group
        self.partition = recovered.partition
        self.stores = dict(recovered.stores)
        self.changelog_position = positions[group.table.name] if group.persist else 0
        self.named_positions = {name: positions[group.named_topic(name)] for name in group.named_tables}
        # A joined table is read on from the end of its copy.
        joined = {join.table.name: NextOffset(positions[join.table.name]) for join in group.joins}
        self.committed_offsets = {**plan.next_offsets, **joined}
        self._started_at = dict(self.committed_offsets)
        self.uncommitted, self.kept_records, self.seen_before = plan.uncommitted, plan.records, plan.seen
        self.traced: list[Headers] = []
        self.topic_ids = {name: recovered.topics[name].topic_id for name in group.input_topics}
        self.ends: dict[str, int] = {}
        self.committed_at = 0.0

    # ---- records in ------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def next_offsets(self) -> Mapping[str, NextOffset]:
        """The next offset of each input, after the records that were handled."""

    @abstractmethod
    def process(self, records: RecordBatch, since: float | None = None) -> int:
        """Take records of one topic.

        Args:
            records: Records of one topic.
            since: The monotonic time since when the oldest of them has waited. None: they have just arrived.

        Returns:
            The number of records that were taken. Pass the others again after a commit.

        Raises:
            RewindNeeded: Rewind, and read them again. `RetryLater`: the same after a pause.
            HandlerFailed: The process must stop, after a commit of the records that were handled.
        """

    @property
    def position(self) -> Hashable:
        """A value that changes whenever records were handled. Read by other threads while handlers run."""
        return None

    @abstractmethod
    def passed(self, topic: str, offset: int, now: float) -> None:
        """Record that only transaction markers are left to read in this input below the offset.

        Args:
            topic: The input.
            offset: The next offset to read.
            now: Monotonic time.
        """

    # ---- before the commit -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def dirty(self) -> bool:
        """Whether the task has something to commit."""

    @property
    def commit_due(self) -> CommitDue:
        """The time when a dirty task is committed without waiting for others."""
        return CommitDue(AT_ONCE)

    @property
    def must_commit(self) -> bool:
        """Whether a commit must come before the next record."""
        return False

    @property
    def changed(self) -> Changed:
        """The size of the work since the last commit."""
        return Changed()

    def last_work(self, services: CommitServices) -> Awaitable[None] | None:  # noqa: ARG002 - of those who have some
        """Return the awaitable that completes the commit, or None. Awaitables of several tasks run together.

        It raises `RewindNeeded` when its records are to be read again, and whatever else `Checkpoint.commit` does.
        """
        return None

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    @abstractmethod
    def work(self) -> Work:
        """Return the work to commit now. Raises `RewindNeeded` if its records must be read again."""

    def write_ahead(self, work: Work) -> None:  # noqa: B027 - not every kind has something to do here
        """Write what must be durable before Kafka commits. Raises like `Checkpoint.commit`."""

    def offsets(self, work: Work, position: TablePosition) -> dict[TopicPartition, Committed]:
        """Return the offsets of all inputs with metadata. `position`: the position of its tables after the commit."""
        seen, records = self._seen(work.next_offsets), self._records_at(work.next_offsets)
        return {
            TopicPartition(topic, self.partition): Committed(
                offset,
                self._metadata(
                    replace(
                        position,
                        seen=seen.get(topic),
                        time=work.times.get(topic),
                        record=records.get(topic) or KeptRecord(),
                    )
                ),
            )
            for topic, offset in work.next_offsets.items()
        }

    def _metadata(self, position: TablePosition) -> str:
        """Return the metadata of an offset."""
        return position.encode()

    def _records_at(self, next_offsets: Mapping[str, NextOffset]) -> Mapping[str, KeptRecord]:
        """Return the records of the group's tables, by topic, for the metadata of these offsets."""
        handled = next_offsets.keys() - self.group.only_joined
        moved = any(next_offsets[topic] != self._started_at[topic] for topic in handled)
        tables = tables_left(self.kept_records.values()) if moved else set()
        return {topic: record.with_lacks(tables) for topic, record in self.kept_records.items()}

    def _seen(self, next_offsets: Mapping[str, NextOffset]) -> Mapping[str, SeenInputs]:
        """Return the state of the inputs, by topic, for the metadata of these offsets."""
        ids = SeenInputs.ids_of(self.topic_ids, next_offsets, self.seen_before)
        return {
            topic: SeenInputs(max(self.ends.get(topic, 0), offset), ids)
            for topic, offset in next_offsets.items()
        }

    @abstractmethod
    def committed(self, work: Work, position: TablePosition) -> None:
        """Apply work that Kafka has committed. An error now is kept in `failure` or `must_recover`; the commit stands."""

    def refused(self, outputs: Sequence[int], error: StreamtableError) -> bool:  # noqa: ARG002 - of those who can
        """Record that Kafka has rejected records of the last work, which will be rewound.

        Args:
            outputs: Their indexes in `Work.outputs`, as far as they are known.
            error: The error that Kafka has returned.

        Returns:
            False if a retry would fail in the same way.
        """
        return False

    @property
    def preparing(self) -> bool:
        """Whether it has to commit before its first record, once or several times, until this is false."""
        return self.uncommitted

    @abstractmethod
    def rewind(self) -> Mapping[str, NextOffset]:
        """Drop everything since the last commit. Returns the next offset of each topic."""

    def leave(self) -> None:
        """Drop everything since the last commit for good: another task takes over the stores."""
        self.rewind()

    def save(self) -> None:  # noqa: B027 - not every kind has something to do here
        """Record in the local stores that they are current. Only called when nothing is dirty."""

    def cache(self, bytes_max: int) -> None:  # noqa: B027 - not every kind has something to do here
        """Set about how much memory decoded rows may take."""

    def close(self) -> None:
        """Close the stores, and drop uncommitted work."""
        self.leave()
        for store in self.stores.values():
            store.close()
