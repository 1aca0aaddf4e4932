"""The interface of a target: four methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from streamtable import Codec
from streamtable.errors import Migrated, RetryLater


@dataclass(frozen=True)
class SinkSource:
    """The source of a sink, as its target sees it.

    Attributes:
        sink: The name of the sink.
        topic: The name of the topic.
        is_table: Whether a change is the last value of its key, and None deletes. Otherwise each change is an event of its own.
        key: The codec of the keys.
        value: The codec of the values.
    """

    sink: str
    topic: str
    is_table: bool
    key: Codec[Any]
    value: Codec[Any]


class BatchTooSlow(RetryLater):
    """A batch takes the target longer than it may: the next attempt is at half of it. A single record is never too large."""


class SinkPartition(NamedTuple):
    """A partition whose position a target keeps. `topic_id` changes when the topic is deleted and created again."""

    sink: str
    topic: str
    topic_id: str
    partition: int


class SinkChange(NamedTuple):
    """A decoded record of the source.

    Attributes:
        key: The key, as its codec decodes it. None: a stream's record without a key.
        value: The value. None: of a table, the row of the key is deleted; of a stream, a value such as JSON's `null`.
        offset: The offset of the record in the source. Offsets rise within a batch, but for replayed dead letters.
        timestamp_ms: The timestamp of the record, milliseconds since 1970; -1: not known.
    """

    key: Any
    value: Any
    offset: int
    timestamp_ms: int


Changes = Sequence[SinkChange]
"""Changes in the order of their offsets."""


class TakenPartition(NamedTuple):
    """The answer to `SinkTarget.take`.

    Attributes:
        epoch: The new epoch of the partition, higher than all before.
        position: The next offset that the target lacks; None if it has none of this partition.
        topic_id: The id of the topic that the position belongs to.
        owner: The process that has taken the partition before; "" if none has.
    """

    epoch: int
    position: int | None
    topic_id: str
    owner: str


class TargetOfOneSink:
    """The base of targets that `open` sets up for one source: sinks that run at the same time need one each.

    Attributes:
        replaces_rows: Whether a record of a stream may replace the row of an earlier one, as with a key: then no dead letter is
            replayed, as the row may have changed since. Of a table that is so for every target.
    """

    replaces_rows = False

    def claim(self, sink: str) -> str:
        """Return the sink that has it: this one, unless another one has claimed it before and not released it."""
        owner: str = vars(self).setdefault("_claimed_by", sink)
        return owner

    def release(self) -> None:
        """Give it up."""
        vars(self).pop("_claimed_by", None)


@dataclass(frozen=True)
class TargetPosition:
    """The position that a target keeps of a partition.

    Attributes:
        position: The next offset that the target lacks; None if it was never set.
    """

    epoch: int = 0
    position: int | None = None
    topic_id: str = ""
    owner: str = ""

    def check(self, epoch: int, start: int | None) -> None:
        """Raise `Migrated` unless these are its epoch, and its position, if there is one."""
        if self.epoch != epoch or (start is not None and self.position != start):
            raise Migrated(
                f"the target has position {self.position} under epoch {self.epoch} of {self.owner}, not {start} under {epoch}: "
                "another process has taken the partition"
            )


class SinkTarget(Protocol):
    """A place that takes the changes of a sink, and keeps its position in each partition beside them.

    Two comparisons make it exactly once. The target keeps a position (the next offset it lacks) and an epoch for each
    partition, and `write` compares both and changes the position *in the same atomic step* as the rows:

    - A batch is applied once or not at all, since it is applied only at the position where it starts, and moves the position
      to its end. After a crash, or an answer that was lost, the position says which of the two it was. The offset that
      Kafka has committed only follows it, for the lag.
    - A process that no longer owns the partition changes nothing. The owner first commits in Kafka, which only the owner can,
      and then takes a higher epoch from the target. A frozen process that wakes up still has the old one. Should it have been
      frozen between its commit and its `take`, it takes an epoch after the owner did: the next batch of the owner is refused
      with `Migrated`, the owner proves itself in Kafka again and takes a higher epoch, and the other one cannot do that.

    A target that cannot apply rows and position in one step can be idempotent instead: then it has the same rows whether a
    batch is applied once or twice. The conformance suite in `streamtable_sinks.testing` shows whether a target keeps this.

    A target with `replaces_rows = True` gets no replayed dead letters, see `TargetOfOneSink`.

    All methods are called by one thread at a time. They raise, beside their own errors:
        RetryLater: The target does not answer. Whether a write has happened is not known: the partition is taken again.
            `BatchTooSlow`, which is one, of a write: half of the batch is tried next.
        ConfigurationError: The target does not fit, and repeating the call cannot help. The process stops.
    """

    def open(self, source: SinkSource) -> None:
        """Connect, and compare the target with the source, or create it. Called once, before all others.

        Raises:
            ConfigurationError: The target lacks a part that the source needs, such as a column; the message names it.
        """

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        """Raise the epoch of a partition, durably, and return it with the position.

        Args:
            place: The partition.
            owner: The name of this process, for messages.
        """

    def write(self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Changes) -> None:
        """Apply changes and move the position from `start` to `end`, all or nothing.

        Args:
            place: The partition.
            epoch: The epoch that `take` returned.
            start: The position that the target must have. None: any, since an operator has reset the sink; its topic is
                `place.topic_id` from now on.
            end: The position after the write.
            changes: The changes in the order of their offsets. Of a table each key once, with its last change.

        Raises:
            Migrated: Position or epoch are others: another process has taken the partition. Nothing was written.
            Rejected: A change does not fit the target; with its offset if it is known which. Nothing was written.
        """

    def close(self) -> None:
        """Disconnect. May be called more than once."""
