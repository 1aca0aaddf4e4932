"""The seam for tasks whose rows are not in a local table: eight methods, and the services that the engine provides.

The engine polls, recovers, commits, rebalances, fences and counts. A `CustomTask` says what becomes of the records of one
partition, and when; `CustomTasks` makes one for each partition that comes to the process. Micro-batches are made of it.

The life of a task, all in the main thread except `recover`:

    recover -> rewind -> (feed | due)* -> prepare -> write -> applied -> feed ...
                  ^                          |         |
                  +-- the commit failed -----+---------+

A commit that fails is followed by `rewind`. If `write` has failed, or has written something ahead, it is not known here
what of it counts: the task is dropped, and `recover` makes a new one from what Kafka has committed.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from streamtable.base.topics import Stream
from streamtable.base.types import Committed, Headers, NextOffset, RecordBatch, TopicPartition, Watermarks
from streamtable.errors import StreamtableError

AT_ONCE = float("-inf")


class CommitDue(NamedTuple):
    """The time when a task must be committed.

    Attributes:
        at: The monotonic time in seconds; `AT_ONCE`: now. A rebalance or a stop commits earlier.
        alone: The task is committed in a commit of its own, and the next such task only after a poll, so that they fall
            due at different times. For work that cannot be awaited concurrently: if all of it were due at the same time,
            the last task would always be late.
    """

    at: float
    alone: bool = False


class Outputs(Protocol):
    """The records that are sent with the next commit."""

    def emit(
        self, stream: Stream[Any, Any], key: Any, value: Any, headers: Headers, timestamp_ms: int
    ) -> None:
        """Send to one of the group's outputs. Raises `GraphError`, `SerializationError`."""

    def set_aside(self, records: RecordBatch, index: int, error: StreamtableError) -> None:
        """Send a record to the dead letters."""

    def forget(self) -> None:
        """Drop the records that were not sent ahead."""


@dataclass(frozen=True)
class TaskServices:
    """The services that a task may use while it prepares a commit.

    Attributes:
        outputs: The records that are sent with the commit.
        send_ahead: Sends the records of `outputs` in the commit's transaction, with these headers added, and waits until
            Kafka has acknowledged them. Only an abort undoes that.
        get: Returns the committed row of a key in the group's own table.
        row_bytes_max: The maximum size of a key and its row together, in bytes; None if the group keeps no table.
        watermarks: Returns watermarks, as `ports.Cluster` does.
        topic_ids: The id of each input, which changes when the topic is deleted and created again.
        passed: The next offset of each input after all records that were fed: behind the last record and the transaction
            markers that follow it.
        records_max: The maximum number of records to process for one commit; None: no limit.
    """

    outputs: Outputs
    send_ahead: Callable[[Headers], None]
    get: Callable[[bytes], bytes | None]
    row_bytes_max: int | None
    watermarks: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, Watermarks]]
    topic_ids: Mapping[str, str]
    passed: Mapping[str, NextOffset]
    records_max: int | None = None


@dataclass(frozen=True)
class Prepared:
    """The offsets and rows that are committed together with the outputs.

    Attributes:
        next_offsets: The next offset of each input.
        changes: The changed rows of the group's own table, in the order of their keys; None deletes a row.
        traced: The trace context of the work, if it has one.
    """

    next_offsets: Mapping[str, NextOffset]
    changes: Sequence[tuple[bytes, bytes | None]] = ()
    traced: Headers = ()


class Written(NamedTuple):
    """The result of the writes that a task has made ahead of the commit.

    Attributes:
        metadata: Committed with each offset, as JSON, for the next `recover`.
        ahead: Whether something was written that is valid only if the commit succeeds. If it fails, the task must recover.
    """

    metadata: Mapping[str, Any]
    ahead: bool


class CustomTask(Protocol):
    """The work of one partition."""

    def feed(self, records: RecordBatch, arrived: float) -> None:
        """Take records of one input, in the order of their offsets. Records that were fed before are dropped.

        Args:
            records: Records of one topic.
            arrived: Monotonic time of the arrival of the oldest.
        """

    def due(self) -> CommitDue | None:
        """Return the time when the task must be committed; None if it has nothing to commit. Called often."""

    def prepare(self, services: TaskServices) -> Prepared | Awaitable[Prepared] | None:
        """Do the work of the next commit; None if there is none. Awaitables of several tasks run concurrently.

        Raises:
            RewindNeeded: Its records must be fed again. `RetryLater`: the same after a pause.
            Migrated: The partition belongs to another process: the task must recover.
            StoreCorrupted: `services.get` has raised it.
            HandlerFailed: The process is to stop.
        """

    def write(self) -> Written | None:
        """Write the state that must be durable before Kafka commits the work that was prepared last, if there is any.

        Called for each commit, also without prepared work. An error fails the commit, as in `prepare`.

        Returns:
            The writes that become valid with the commit. None: rows of the group's own table, which the engine writes.
        """

    def applied(self, next_offsets: Mapping[str, NextOffset]) -> bool:
        """Note that Kafka has committed these offsets and the prepared work. Returns False to recover again."""

    def rewind(self, next_offsets: Mapping[str, NextOffset]) -> None:
        """Drop everything that was fed and not committed; it is fed again from these offsets. Also called first of all.

        Raises:
            InputLost: The first time: the inputs do not begin where they must.
        """


class CustomTasks(Protocol):
    """Makes the tasks of a process."""

    def recover(self, partition: int, committed: Mapping[str, Committed | None]) -> CustomTask:
        """Make the task of a partition, and recover state that is neither in Kafka nor in local stores.

        In the background thread. May be called again before the task is used, which is dropped then.

        Args:
            partition: The number of the partition.
            committed: Stable offsets of its inputs.

        Raises:
            RetryLater: Ask for the offsets again after a pause, and try again.
            Fatal: The state cannot be recovered.
        """

    def close(self) -> None:
        """Close everything: the process ends."""
