"""What the engine asks of a task started, whatever its records become: rows of a local table, or of another store.

`engine.task.Task` is the one with local tables, `engine.adapted.AdaptedTask` the one around a `CustomTask`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamtable.custom_task import AT_ONCE
from streamtable.deadletter import OutputRecord
from streamtable.engine.deferral import DEFERRED_MAX, Deferral
from streamtable.engine.event_time import ObservedEnds
from streamtable.errors import StoreCorrupted, StreamtableError
from streamtable.event_time import InputTime
from streamtable.graph import Group
from streamtable.ports import Store
from streamtable.tables.position import TablePosition
from streamtable.tables.seen import SeenInputs
from streamtable.types import Committed, Headers, NextOffset, RecordBatch, TopicPartition, Watermarks

MOVED_SECONDS = 1.0
"""A position that has only passed transaction markers is committed with the next records, or after this time."""


@dataclass(frozen=True)
class Work:
    """What a task wants committed: encoded, so that committing it cannot fail halfway for a reason of its own."""

    task: "BaseTask"
    outputs: list[OutputRecord]
    changes: list[tuple[bytes, bytes | None]]  # of the group's table
    next_offsets: Mapping[str, NextOffset]
    dead_letters: int  # among the outputs
    named: Mapping[str, list[tuple[bytes, bytes | None]]] = field(
        default_factory=dict
    )  # changes, by table name
    repeats: Mapping[str, int] = field(default_factory=dict)  # events left out as repeated, by input
    traced: bool = (
        False  # the task knows which record has made which output: find out which ones Kafka refuses
    )
    times: Mapping[str, InputTime] = field(default_factory=dict)  # the event time, by input
    late: Mapping[str, int] = field(default_factory=dict)  # records that came too late, by named table
    marks: Sequence[OutputRecord] = ()  # the watermark, for those who read the outputs; behind all of these


@dataclass(frozen=True)
class CommitServices:
    """What a task may ask of the member while it finishes its work.

    Attributes:
        send_ahead: Send records in the coming commit's transaction, and wait until Kafka has them.
        watermarks: Returns watermarks, as `ports.Cluster` does.
        records_max: So many records at most should be processed for one commit.
    """

    send_ahead: Callable[[Sequence[OutputRecord]], None]
    watermarks: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Watermarks]]
    records_max: int | None = None


class BaseTask(ABC):
    """One partition of a group. What it did since the last commit can be dropped as a whole, and only as a whole.

    Args:
        group: The graph.
        partition: Its number.
        stores: The stores, by table.
        changelog_position: The position of the group's table.
        next_offsets: The next offset of each input.
        uncommitted: Its offsets must be committed before its first record.
        topic_ids: The ids of its input topics, by name.

    Attributes:
        failure: A local store must be rebuilt.
        named_positions: The position of each named table of the group, by its name.
        must_recover: What it keeps elsewhere may be ahead of Kafka: to go on, it recovers from the committed offsets.
        traced: Contexts of the work since the last commit, as far as it is traced.
        ends: The ends of its inputs as the client last heard of them, by topic.
        committed_at: Monotonic time of its last commit, or of its start.
    """

    failure: StoreCorrupted | None = None
    must_recover = False

    def __init__(
        self,
        group: Group[Any, Any],
        partition: int,
        *,
        stores: Mapping[str, Store],
        changelog_position: int,
        next_offsets: Mapping[str, NextOffset],
        uncommitted: bool,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        self.group = group
        self.partition = partition
        self.stores = dict(stores)
        self.changelog_position = changelog_position
        self.committed_offsets = dict(next_offsets)
        self.uncommitted = uncommitted
        self.named_positions: dict[str, int] = {}
        self.traced: list[Headers] = []
        self.topic_ids = dict(topic_ids or {})
        self.ends: dict[str, int] = {}
        self.committed_at = 0.0

    # ---- records in ------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def next_offsets(self) -> Mapping[str, NextOffset]:
        """Where each input goes on, after what was handled."""

    @abstractmethod
    def process(self, records: RecordBatch, since: float | None = None, room: int = DEFERRED_MAX) -> int:
        """Take records of one topic.

        Args:
            records: Records of one topic.
            since: Monotonic time; they have waited since then at the longest. None: they come right now.
            room: How many calls may be deferred before a commit.

        Returns:
            How many were taken. The others must be handed over again after a commit.

        Raises:
            RewindNeeded: Rewind, and read them again. `RetryLater`: the same after a pause.
            HandlerFailed: The process is to stop, after a commit of what was handled.
        """

    @property
    def position(self) -> Hashable:
        """Differs from an earlier one if records were handled since. Read by other threads while handlers run."""
        return None

    @abstractmethod
    def passed(self, topic: str, offset: int, now: float) -> None:
        """Nothing is left to read of this input below the offset: beyond the last record are only transaction markers.

        Args:
            topic: The input.
            offset: Where reading goes on.
            now: Monotonic time.
        """

    def observe_ends(self, observed: ObservedEnds) -> None:  # noqa: B027 - only of use where event time is followed
        """Take note of where the inputs end, once all that was read before has been handled."""

    @property
    def watermark_ms(self) -> int | None:
        """The watermark; `NO_TIME` if there is none yet, None if event time is not followed. Read by other threads."""
        return None

    @property
    def due_behind_ms(self) -> int | None:
        """How far rows that fall due are behind their clock; None if there are none ever. Read by other threads."""
        return None

    def first_held(self, records: RecordBatch, waited_to: int) -> int | None:  # noqa: ARG002 - of those who wait
        """The index of the first record that has to wait for a joined table; None if there is none."""
        return None

    def joined_until_ms(self) -> int:
        """Records up to this time need not wait for joined tables. Only asked of a task that has held a record."""
        return 0

    # ---- what falls due without a record -----------------------------------------------------------------------------

    @property
    def firing(self) -> bool:
        """No record is taken before `run_due` has come to its end."""
        return False

    def run_due(self) -> bool:
        """Do a slice of what has fallen due without a record. Returns whether there was something. Raises as `process`."""
        return False

    @property
    def wakes_at(self) -> float | None:
        """The wall time, in seconds since 1970, from which on `run_due` has something to do without more records.

        None: nothing ever. As the last `run_due` has left it.
        """
        return None

    # ---- before the commit -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def dirty(self) -> bool:
        """Has something to commit."""

    @property
    def due_at(self) -> float:
        """Monotonic time from which on a dirty task may be committed by itself; a rebalance or a stop does not wait."""
        return AT_ONCE

    @property
    def must_commit(self) -> bool:
        """A commit must come before the next record."""
        return False

    @property
    def alone(self) -> bool:
        """When due it is committed by itself, and the next such task only after a look at Kafka: they fall due apart then.

        For work that cannot be awaited together. If all of it were due at once, the last would always be late.
        """
        return False

    @property
    def pending_bytes(self) -> int:
        """About how many bytes the next commit will write."""
        return 0

    @property
    def deferred(self) -> int:
        """So many results are waited for before the next commit."""
        return 0

    def take_deferred(self) -> list[Deferral]:
        """Hand out what is to be awaited; each must come back by `finish`, in this order."""
        return []

    def finish(self, deferral: Deferral, result: Any) -> None:  # noqa: B027 - not every kind has something to do here
        """Handle the result, or the exception, of a deferred awaitable. Raises as `process`."""

    def last_work(self, reach: CommitServices) -> Awaitable[None] | None:  # noqa: ARG002 - of those who have some
        """What is still to be done for the commit; that of several tasks is awaited together. None: nothing.

        It raises `RewindNeeded` when its records are to be read again, and whatever else `Checkpoint.commit` does.
        """
        return None

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    @abstractmethod
    def work(self) -> Work:
        """What to commit now. Raises `RewindNeeded`: its records must be read again."""

    def write_ahead(self, work: Work) -> None:  # noqa: B027 - not every kind has something to do here
        """Write what must be there before Kafka commits. Raises as `Checkpoint.commit`."""

    @abstractmethod
    def offsets(self, work: Work, position: TablePosition) -> dict[TopicPartition, Committed]:
        """What the group commits for this work: all inputs, with metadata. `position`: of its tables, after it."""

    def seen(self, next_offsets: Mapping[str, NextOffset]) -> Mapping[str, SeenInputs]:
        """What is known of the inputs, by topic, for the metadata of these offsets."""
        if not self.topic_ids:
            return {}
        ids = SeenInputs.ids_of(self.topic_ids, next_offsets)
        return {
            topic: SeenInputs(max(self.ends.get(topic, 0), offset), ids)
            for topic, offset in next_offsets.items()
        }

    @abstractmethod
    def committed(self, work: Work, position: TablePosition) -> None:
        """Kafka has committed the work. What fails now is noted as `failure` or `must_recover`; the commit stands."""

    def refused(self, outputs: Sequence[int], error: StreamtableError) -> bool:  # noqa: ARG002 - of those who can
        """Kafka has refused records of its last work; it will be rewound.

        Args:
            outputs: Their indexes in `Work.outputs`, as far as they are known.
            error: What Kafka has said.

        Returns:
            False if trying again would end as it did.
        """
        return False

    @property
    def preparing(self) -> bool:
        """It has to commit something before its first record, in one commit after the other until this is false."""
        return self.uncommitted

    @abstractmethod
    def rewind(self) -> Mapping[str, NextOffset]:
        """Drop everything since the last commit. Returns where to read on, by topic."""

    def save(self) -> None:  # noqa: B027 - not every kind has something to do here
        """Note in the local stores that they are current. Only when nothing is dirty."""

    def cache(self, bytes_max: int) -> None:  # noqa: B027 - not every kind has something to do here
        """About so much memory may be taken by decoded rows."""

    def close(self) -> None:
        """Close the stores, and drop what was not committed."""
        self.rewind()
        for store in self.stores.values():
            store.close()


class Tasks(Protocol):
    """Makes the tasks of a process."""

    def recover(
        self, partition: int, committed: Mapping[str, Committed | None]
    ) -> Mapping[str, Committed | None]:
        """Bring up to date what is neither in Kafka nor in local stores. In the background thread.

        Args:
            partition: Its number.
            committed: Stable offsets of its inputs.

        Returns:
            What is to count as committed.

        Raises:
            RetryLater: Ask for the offsets again after a pause, and try again.
            Fatal: As it says.
        """
        ...

    def make(self, recovered: Any) -> BaseTask:
        """The task of a partition whose recovery is done, an `engine.restore.Restore`. In the main thread."""
        ...

    def close(self) -> None: ...
