"""One topic of a sink's partition: its records, and the target's position in it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import structlog

from microbatch.buffer import Buffer, Chunk
from microbatch.limits import Limits
from streamtable.base.clock import Clock
from streamtable.base.deadletter import Origin
from streamtable.base.failpoint import Failpoint
from streamtable.base.message import prefix_header, with_prefixes
from streamtable.base.types import NextOffset, RecordBatch, TopicPartition
from streamtable.errors import (
    DeserializationError,
    HandlerFailed,
    InputLost,
    Migrated,
    Rejected,
    RetryLater,
    StateLost,
    StreamtableError,
)
from streamtable.graph.custom_task import AT_ONCE, CommitDue, TaskServices
from streamtable.graph.edge import OnError
from streamtable_sinks.decoded import DecodedChanges, decoded
from streamtable_sinks.mark import Position, Unknown
from streamtable_sinks.target import (
    BatchTooSlow,
    SinkChange,
    SinkPartition,
    SinkSource,
    SinkTarget,
    TakenPartition,
)

log = structlog.get_logger()

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
_FAR: Final = 100_000  # records that are read and dropped rather than passed by a recovery


class LaneStage(Enum):
    """The next step of a lane."""

    PROVE = "prove"  # commit in Kafka, which only the owner can
    TAKE = "take"  # take the partition from the target
    SETTLE = "settle"  # commit where the target stands, before the first batch
    MOVE = "move"  # commit another offset than the next, and recover from it
    WORK = "work"


@dataclass(frozen=True)
class SinkParts:
    """The parts that all tasks of a process share."""

    source: SinkSource
    target: SinkTarget
    limits: Limits
    on_error: OnError
    clock: Clock
    failpoint: Failpoint
    owner: str


@dataclass
class TargetPauses:
    """The pauses between attempts at a target that does not answer. They outlive the task.

    Attributes:
        until: The monotonic time of the next attempt.
        reason: Why the last one failed.
    """

    pause: float = 0.0
    until: float = 0.0
    reason: str = ""

    def failed(self, error: RetryLater, now: float) -> None:
        """Make the next pause twice as long."""
        self.pause = min(max(_FIRST_PAUSE_S, 2 * self.pause), _LONGEST_PAUSE_S)
        self.until, self.reason = now + self.pause, error.message

    def check(self, now: float) -> None:
        """Raise `RetryLater` if it is too early."""
        if now < self.until:
            raise RetryLater(
                f"the target does not answer, next attempt in {self.until - now:.1f} s: {self.reason}"
            )

    def over(self) -> None:
        """Begin again with the shortest pause."""
        self.pause = self.until = 0.0


@dataclass
class Split:
    """Halves a batch that the target refuses until the record at fault is alone, or that takes it too long. Then batches grow again.

    Attributes:
        records_max: The size of the next batch; None: the usual one.
        until: The end of the batch that was halved.
    """

    records_max: int | None = None
    until: int = 0

    def halve(self, records: int, end: int) -> None:
        self.records_max, self.until = max(1, records // 2), max(end, self.until)

    def passed(self, next_offset: int) -> None:
        if self.records_max is not None:
            self.records_max = None if next_offset >= self.until else 2 * self.records_max


class Lane:
    """A topic of one partition.

    Args:
        around: The parts that all tasks of the process share.
        place: The partition of the topic.
        mark: The target's position when the offset in Kafka was committed.
        waiting: The pauses of the process.
        retries: Whether it is the topic of replayed dead letters.
    """

    def __init__(
        self,
        around: SinkParts,
        place: TopicPartition,
        mark: Position,
        waiting: TargetPauses,
        *,
        retries: bool,
    ) -> None:
        self._around, self._place = around, place
        self.mark = self._committed_mark = mark
        self._waiting, self._retries = waiting, retries
        self._stage = LaneStage.PROVE
        self._epoch, self._proof_is_old = 0, False
        self._kafka = NextOffset(0)  # the next offset that Kafka has committed
        self._buffer = Buffer(around.limits, {place.topic: NextOffset(0)})
        self._split = Split()
        self._refused: dict[int, StreamtableError] = {}

    # ---- records in ------------------------------------------------------------------------------------------------

    def feed(self, records: RecordBatch, arrived: float) -> None:
        """Buffer records; those that the target has are dropped."""
        self._buffer.add(records, arrived)

    def due(self) -> CommitDue | None:
        """Return when it must be committed."""
        if self._stage is not LaneStage.WORK:
            idle = self._retries and self._stage is LaneStage.PROVE and not len(self._buffer)
            return None if idle else CommitDue(AT_ONCE)
        if not len(self._buffer):
            return None
        if self._buffer.full or self._split.records_max is not None:
            return CommitDue(AT_ONCE)
        return CommitDue(self._buffer.first_arrival + self._around.limits.seconds)

    # ---- the next step ---------------------------------------------------------------------------------------------

    def prepare(self, services: TaskServices) -> NextOffset | None:
        """Do the next step, and return the offset to commit in Kafka; None: nothing is to be committed."""
        if self.due() is None:
            return None
        if self._stage is LaneStage.PROVE:
            return self._kafka
        self._waiting.check(self._around.clock.monotonic())
        try:
            offset = self._settled(services) if self._stage is not LaneStage.WORK else None
            if self._stage is LaneStage.WORK:
                offset = self._batch(services)
        except (RetryLater, Migrated) as error:
            if isinstance(error, RetryLater):
                self._waiting.failed(error, self._around.clock.monotonic())
            if isinstance(error, RetryLater) and self._stage is LaneStage.TAKE:
                # Without a commit until it answers: one would count as progress, and the sink as ready.
                self._proof_is_old = True
            else:
                # The outcome is not known, or another process has taken it: take the partition again.
                self._stage = LaneStage.PROVE
            raise error.at(*self._place) from error
        self._waiting.over()
        return offset

    def applied(self, next_offset: NextOffset) -> bool:
        """Note that Kafka has committed. Returns False if the task must recover, from another offset."""
        written, self._kafka, self._committed_mark = next_offset > self._kafka, next_offset, self.mark
        if self._stage is LaneStage.MOVE:
            return False
        if self._stage is LaneStage.PROVE and (not self._retries or len(self._buffer)):
            self._stage = LaneStage.TAKE
        elif self._stage is LaneStage.SETTLE:
            self._stage = LaneStage.WORK
        if written:  # a commit before a batch leaves its size
            self._split.passed(next_offset)
        self._refused = {offset: error for offset, error in self._refused.items() if offset >= next_offset}
        return True

    def rewind(self, next_offset: NextOffset) -> None:
        """Drop the buffered records; they are fed again from this offset."""
        self._kafka = next_offset
        if self._stage in (LaneStage.MOVE, LaneStage.SETTLE):
            # Its mark belongs to an offset that was not committed: with another one it would pass over records.
            self._stage, self.mark = LaneStage.PROVE, self._committed_mark
        known = self._stage is LaneStage.WORK and isinstance(self.mark, int)
        self._buffer.clear({self._place.topic: NextOffset(max(next_offset, self._position if known else 0))})

    @property
    def _position(self) -> int:
        assert isinstance(self.mark, int), "known since the partition was taken"
        return self.mark

    # ---- taking the partition --------------------------------------------------------------------------------------

    def _settled(self, services: TaskServices) -> NextOffset | None:
        """Take the partition and compare positions. Returns the offset to commit before the first batch, if any."""
        around = self._around
        place = SinkPartition(around.source.sink, *self._topic(services), self._place.partition)
        around.failpoint("ledger-read")
        taken = around.target.take(place, around.owner)
        self._epoch, before = taken.epoch, self.mark
        around.failpoint("ledger-written")
        if self._proof_is_old:
            self._proof_is_old, self._stage = False, LaneStage.PROVE
            return self._kafka
        if before is Unknown.RESET or (before is Unknown.NEW and taken.position is None):
            around.target.write(place, self._epoch, None, self._kafka, ())
            log.info("position of the target set", sink=place.sink, to=self._kafka, **self._place._asdict())
            return self._at(LaneStage.SETTLE, self._kafka, self._kafka)
        self._check(place, taken)
        assert taken.position is not None, "checked"
        if taken.position != before or taken.position > self._kafka:
            self._check_readable(taken.position, services)
        if taken.position == before or self._kafka <= taken.position < self._kafka + _FAR:
            self._drop_below(taken.position)
            self._at(LaneStage.WORK, taken.position, self._kafka)
            return None
        behind = "target is behind, its records are written again"
        ahead = "target is ahead, its records are passed"
        fields = {"position": taken.position, "committed": self._kafka, **self._place._asdict()}
        log.warning(behind if taken.position < self._kafka else ahead, sink=place.sink, **fields)
        return self._at(LaneStage.MOVE, taken.position, taken.position)

    def _topic(self, services: TaskServices) -> tuple[str, str]:
        return self._place.topic, services.topic_ids.get(self._place.topic, "")

    def _at(self, stage: LaneStage, position: int, offset: int) -> NextOffset:
        self._stage, self.mark = stage, position
        return NextOffset(offset)

    def _check(self, place: SinkPartition, taken: TakenPartition) -> None:
        name = self._around.source.sink
        if taken.position is None:
            raise StateLost(
                f"the group has committed offset {self._kafka}, but the target has no position of sink {name!r} here: it is "
                "another target, or its positions were deleted. Restore it, or set the group's offset "
                f"('streamtable group reset {name} --to ...'), from where the target is then written"
            ).at(*self._place, self._kafka)
        if taken.topic_id != place.topic_id:
            raise InputLost(
                f"the target's position {taken.position} belongs to a topic with the id {taken.topic_id}, written last by "
                f"{taken.owner}, and the topic has the id {place.topic_id}: it was deleted and created again, or a sink of "
                "another cluster has the same name and target. Give one of the two another name, or set the group's "
                f"offset ('streamtable group reset {name} --to earliest') to go on with this topic"
            ).at(*self._place, taken.position)

    def _check_readable(self, position: int, services: TaskServices) -> None:
        """Check that the topic goes on at the target's position. Raises `StateLost`."""
        marks = services.watermarks([self._place])[self._place]
        if position > marks.high:
            raise StateLost(
                f"the target's position {position} is behind the end of the topic, {marks.high}: the topic has lost its end"
            ).at(*self._place, position)
        if position < marks.low:
            raise StateLost(
                f"the target lacks the records from {position} to {marks.low - 1}, and the topic begins at {marks.low}: it was "
                "restored from a backup that is older than the topic keeps records. Restore a later backup, or set the "
                f"group's offset ('streamtable group reset {self._around.source.sink} --to earliest') to go on without them"
            ).at(*self._place, position)

    def _drop_below(self, position: int) -> None:
        """Drop buffered records that the target has."""
        fed: list[Chunk] = []
        while len(self._buffer):
            fed += self._buffer.cut()
        self._buffer.clear({self._place.topic: NextOffset(max(position, self._kafka))})
        for chunk in fed:
            self._buffer.add(chunk.records, chunk.arrived)

    # ---- a batch ---------------------------------------------------------------------------------------------------

    def _batch(self, services: TaskServices) -> NextOffset | None:
        """Write the next batch, or send the bad records that come next to the dead letters.

        Never both: a dead letter exists only when Kafka has committed, and the target's position must not be past it before.
        """
        bounds = [each for each in (self._split.records_max, services.records_max) if each is not None]
        records_max = min(bounds, default=None)
        while len(self._buffer):
            chunks = self._buffer.cut(records_max)
            found = self._decoded(chunks)
            if not found.bad:
                end = self._end(chunks, services)
                if self._written(chunks, found, end, services):
                    return end
                records_max = self._split.records_max
            elif found.good:
                self._buffer.put_back(chunks)
                records_max = found.good
            else:
                self._buffer.put_back(chunks)
                return self._set_aside(found.bad, services)
        return None

    def _decoded(self, chunks: list[Chunk]) -> DecodedChanges:
        if not self._retries:
            return decoded(self._around.source, chunks, self._refused)
        header = prefix_header(self._around.source.value)
        # One by one, since each may come from another place.
        chunks_of_one = [
            Chunk(with_prefixes(chunk.records.part(index, index + 1), header), chunk.arrived, 0)
            for chunk in chunks
            for index in range(len(chunk.records))
        ]
        for good, chunk in enumerate(chunks_of_one):
            if (reason := self._unfit(chunk.records)) is not None:
                before = decoded(self._around.source, chunks_of_one[:good], self._refused)
                return before if before.bad else DecodedChanges((), good, [DeserializationError(reason)])
        found = decoded(self._around.source, chunks_of_one, self._refused)
        return replace(found, changes=list(map(_as_first, found.changes, chunks_of_one)))

    def _unfit(self, record: RecordBatch) -> str | None:
        """Return why a replayed dead letter cannot be written; None if it can."""
        origin = Origin.read(record.headers(0))
        source = self._around.source
        if origin is None or origin.topic != source.topic or origin.partition != self._place.partition:
            return f"a record in the retry topic cannot be handled: it does not come from this partition of {source.topic!r}"
        if source.is_table or getattr(self._around.target, "replaces_rows", False):
            return (
                "a change of a row is not replayed, since the row may have changed since: after the target is corrected, "
                f"write the source again ('streamtable group reset {source.sink} --to earliest')"
            )
        return None

    def _end(self, chunks: list[Chunk], services: TaskServices) -> NextOffset:
        if len(self._buffer):
            return NextOffset(chunks[-1].records.last_offset + 1)
        return services.passed[self._place.topic]  # may be behind the last record

    def _written(
        self, chunks: list[Chunk], found: DecodedChanges, end: NextOffset, services: TaskServices
    ) -> bool:
        """Write a batch. Returns False if a smaller one is to be tried."""
        around = self._around
        place = SinkPartition(around.source.sink, *self._topic(services), self._place.partition)
        around.failpoint("batch-processed")
        try:
            around.target.write(place, self._epoch, self._position, end, found.changes)
        except BatchTooSlow:
            if found.good > 1:
                self._split.halve(found.good, chunks[-1].records.last_offset + 1)
            raise
        except Rejected as error:
            self._buffer.put_back(chunks)
            offsets = [change.offset for change in found.changes]
            if error.offset in offsets:
                at = offsets.index(error.offset)
                read = [each for chunk in chunks for each in chunk.records.offsets]
                self._refused[read[at] if self._retries else offsets[at]] = error
            elif found.good == 1:
                self._refused[chunks[0].records.first_offset] = error
            else:
                self._split.halve(found.good, chunks[-1].records.last_offset + 1)
            log.warning("batch refused", sink=around.source.sink, records=found.good, reason=error.message)
            return False
        self.mark = end
        around.failpoint("rows-written")
        return True

    def _set_aside(self, errors: Sequence[StreamtableError], services: TaskServices) -> NextOffset:
        """Take the first records of the buffer out: they cannot be written. Returns the offset behind them."""
        chunks = self._buffer.cut(len(errors))
        records = [(chunk.records, index) for chunk in chunks for index in range(len(chunk.records))]
        for (batch, index), error in zip(records, errors, strict=False):
            self._blame(batch, index, error, services)
        self._split.passed(chunks[-1].records.last_offset + 1)
        return self._end(chunks, services)

    def _blame(self, batch: RecordBatch, index: int, error: StreamtableError, services: TaskServices) -> None:
        around, offset = self._around, batch.offsets[index]
        rejected = isinstance(error, Rejected)
        if rejected and around.on_error is OnError.STOP:
            failed = HandlerFailed(f"sink {around.source.sink!r} cannot write a record: {error.message}")
            raise failed.at(batch.topic, batch.partition, offset) from error
        if rejected and around.on_error is OnError.SKIP:
            fields = {**self._place._asdict(), "offset": offset, "reason": error.message}
            log.warning("record is skipped", sink=around.source.sink, **fields)
            return
        services.outputs.set_aside(batch, index, error)


def _as_first(change: SinkChange, replayed: Chunk) -> SinkChange:
    """Return the change of a replayed record with the offset and the time that it had in the source."""
    origin = Origin.read(replayed.records.headers(0))
    assert origin is not None, "checked"
    return change._replace(offset=origin.offset, timestamp_ms=origin.timestamp_ms)
