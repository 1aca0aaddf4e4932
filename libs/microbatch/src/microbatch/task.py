"""The task of a micro-batch's partition: records are buffered, and when a batch is due, `process` runs on it.

The store is written before Kafka commits, under the number that the same commit makes count (docs/explanation/
micro-batch.md). Between its write and its commit the task is ahead of Kafka: if the commit does not come, it must recover,
which takes a new epoch.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import structlog

from microbatch.batch import Batch, Record, Send
from microbatch.buffer import Buffer, Chunk, PoisonBisector
from microbatch.committed_state import encode
from microbatch.graph import MicroBatch
from microbatch.metrics import BatchMetrics
from microbatch.rows import StoredRows, Written, written
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import Ledger, ledger_key
from streamtable.clock import Clock
from streamtable.deadletter import Origin
from streamtable.engine.basetask import AT_ONCE, MOVED_SECONDS, BaseTask, CommitServices, Work
from streamtable.engine.output import OutputBuffer
from streamtable.errors import (
    ConfigurationError,
    Fatal,
    HandlerFailed,
    Migrated,
    OutcomeUnknown,
    PoisonRecord,
    RetryLater,
    RewindNeeded,
    StreamtableError,
    Unencodable,
)
from streamtable.failpoint import Failpoint
from streamtable.graph import OnError
from streamtable.ports import Store, TopicInfo
from streamtable.tables.position import TablePosition
from streamtable.tracing import UNTRACED, Tracer, carrying
from streamtable.types import Committed, Headers, NextOffset, RecordBatch, TopicPartition

log = structlog.get_logger()

_NOT_THE_RECORDS_FAULT = (Fatal, ConfigurationError, RetryLater, Migrated, RewindNeeded, OutcomeUnknown)


class _SmallerBatch(Exception):
    """The batch has failed, and a smaller one can be tried at once."""


class Rejected(StreamtableError):
    """`Batch.reject`: the handler refuses the record."""


@dataclass(frozen=True)
class Cut:
    """A batch: what it was cut from, what of it is fit, and where reading goes on."""

    chunks: Sequence[Chunk]
    records: Sequence[Record[Any, Any]]
    next_offsets: Mapping[str, NextOffset]


@dataclass(frozen=True)
class Done:
    """A batch that was processed: what is to be written and committed."""

    cut: Cut
    written: Written


@dataclass(frozen=True)
class Surroundings:
    """The parts that all tasks of a process share."""

    group: MicroBatch
    store: RemoteStore | None  # None: the rows are embedded
    clock: Clock
    metrics: BatchMetrics
    failpoint: Failpoint
    tracer: Tracer = UNTRACED


class BatchTask(BaseTask):
    """The task of one partition of a `MicroBatch`.

    Args:
        around: The parts that all tasks of the process share.
        topics: The topics of the group, as the broker describes them.
        partition: its number.
        next_offsets: The next offset of each input.
        ledger: The partition's ledger, under an epoch that was never used; None if rows are plain.
        uncommitted: its offsets must be committed before its first record; always with a ledger: that is the proof.
        bisector: The bisector of the partition.
        stores: The open local stores, by table.
        changelog_position: The changelog position of the group's own table, if it has one.
    """

    def __init__(
        self,
        around: Surroundings,
        topics: Mapping[str, TopicInfo],
        partition: int,
        *,
        next_offsets: Mapping[str, NextOffset],
        ledger: Ledger | None,
        uncommitted: bool,
        bisector: PoisonBisector,
        stores: Mapping[str, Store] | None = None,
        changelog_position: int = 0,
    ) -> None:
        super().__init__(
            around.group,
            partition,
            stores=stores or {},
            changelog_position=changelog_position,
            next_offsets=next_offsets,
            uncommitted=uncommitted,
            topic_ids={name: topics[name].topic_id for name in around.group.input_topics if name in topics},
        )
        self._moved_at = 0.0  # when a position passed markers for the first time since the last commit
        self._graph = around.group
        self._around = around
        self._ledger = ledger
        self._bisector = bisector
        self._outgoing = OutputBuffer(around.group, topics, around.clock)
        self._buffer = Buffer(around.group.limits, next_offsets)
        self._done: Done | None = None
        self._sent_ahead = (
            False  # the batch that is being processed has sent something: only an abort undoes that
        )
        self._context: Headers = ()  # of the batch that is being processed, if it is traced

    # ---- records in ------------------------------------------------------------------------------------------------

    @property
    def next_offsets(self) -> Mapping[str, NextOffset]:
        """The next offset of each input after the last batch; records buffered for the next one are not handled yet."""
        return self.committed_offsets

    def process(
        self,
        records: RecordBatch,
        since: float | None = None,
        room: int = 0,  # noqa: ARG002 - nothing can be deferred here
    ) -> int:
        self._buffer.add(records, self._around.clock.monotonic() if since is None else since)
        return len(records)

    def passed(self, topic: str, offset: int, now: float) -> None:
        if not self._moved:
            self._moved_at = now
        self._buffer.passed(topic, offset)

    @property
    def dirty(self) -> bool:
        return not self.must_recover and (self.uncommitted or len(self._buffer) > 0 or self._moved)

    @property
    def _moved(self) -> bool:
        """Positions have passed transaction markers, and nothing waits for a batch."""
        return not len(self._buffer) and self._buffer.next_offsets != self.committed_offsets

    @property
    def due_at(self) -> float:
        if self.uncommitted or self._buffer.full or self._bisector.records_max is not None:
            return AT_ONCE
        if not len(self._buffer):
            return self._moved_at + MOVED_SECONDS
        return self._buffer.first_arrival + self._graph.limits.seconds

    @property
    def alone(self) -> bool:
        # What is `async` waits for its answers together with the other partitions; a plain function only holds them up.
        return self.due_at != AT_ONCE and not self._graph.awaits

    # ---- a batch ---------------------------------------------------------------------------------------------------

    def last_work(self, reach: CommitServices) -> Awaitable[None] | None:
        """Process the next batch; what is `async` of it is to be awaited."""
        while len(self._buffer):
            try:
                return self._next_batch(reach)
            except _SmallerBatch:
                continue  # nothing of it has left this process
        return None

    def _next_batch(self, reach: CommitServices) -> Awaitable[None] | None:
        self._sent_ahead = False
        cut = self._cut(reach.records_max)
        stored = self._stored_rows()
        if not cut.records:
            self._done = Done(cut, Written({}, None, {}))
            return None
        batch = Batch(
            self.partition,
            cut.records,
            cut.next_offsets,
            self._graph.rows,
            stored,
            self._reject,
            reach.watermarks,
        )
        began = time.perf_counter()
        with self._blamed(cut), nullcontext() if self._graph.awaits else self._traced(cut):
            answer = self._graph.process(batch, Send(self._outgoing.emit, lambda: self._send_ahead(reach)))
            if not inspect.isawaitable(answer):
                self._end(cut, batch, stored, began)
                return None
        return self._awaited(reach, answer, cut, batch, stored, began)

    async def _awaited(
        self,
        reach: CommitServices,
        answer: Awaitable[None],
        cut: Cut,
        batch: Batch,
        stored: StoredRows,
        began: float,
    ) -> None:
        try:
            with self._blamed(cut), self._traced(cut):
                await answer
                self._end(cut, batch, stored, began)
        except _SmallerBatch:
            again = self.last_work(reach)
            if again is not None:
                await again

    def _end(self, cut: Cut, batch: Batch, stored: StoredRows, began: float) -> None:
        if stored.failure is not None:
            raise stored.failure  # process has caught it; results made without these rows must not count
        self._done = Done(cut, self._written(batch, stored))
        self._around.metrics.seconds.labels(self.group.name).observe(time.perf_counter() - began)

    def _stored_rows(self) -> StoredRows:
        return StoredRows(self._server, self.partition, self._ledger)

    def _written(self, batch: Batch, stored: StoredRows) -> Written:
        """Return the rows that the batch writes to the store. Raises what `written` does."""
        return written(batch.used_rows, stored, self._ledger)

    @property
    def _server(self) -> RemoteStore:
        assert self._around.store is not None, "rows are embedded"
        return self._around.store

    def _cut(self, records_max: int | None) -> Cut:
        bounds = [each for each in (self._bisector.records_max, records_max) if each is not None]
        chunks = self._buffer.cut(min(bounds, default=None))
        ends = {chunk.records.topic: NextOffset(chunk.records.last_offset + 1) for chunk in chunks}
        if not len(self._buffer):
            ends = self._buffer.next_offsets  # which may be beyond the last records
        return Cut(chunks, self._decoded(chunks), {**self.committed_offsets, **ends})

    @contextmanager
    def _blamed(self, cut: Cut) -> Iterator[None]:
        """Whatever is raised within becomes what the engine is to do about it."""
        try:
            yield
        except _NOT_THE_RECORDS_FAULT as error:
            self._around.metrics.failures.labels(self.group.name, type(error).__name__).inc()
            self.must_recover |= isinstance(error, Migrated)
            if error.topic is None:
                error.at(_topics(cut.chunks), self.partition)
            raise
        except (Exception, asyncio.CancelledError) as error:
            failed = self._failed(error, cut)
            if isinstance(failed, RewindNeeded) and not self._sent_ahead:
                self._outgoing.forget()
                self._buffer.put_back(cut.chunks)
                raise _SmallerBatch from error
            raise failed from error

    @contextmanager
    def _traced(self, cut: Cut) -> Iterator[None]:
        """Within, the batch is processed."""
        with self._around.tracer.process(self.group.name, [chunk.records for chunk in cut.chunks]) as span:
            self._context = span.headers
            try:
                yield
            finally:
                self._context = ()
        self.traced += [span.headers] if span.headers else []

    def _send_ahead(self, reach: CommitServices) -> None:
        self._sent_ahead = True
        records, letters = self._outgoing.records, self._outgoing.dead_letters
        self._outgoing.forget()
        self._outgoing.dead_letters = letters
        if self._context:
            records = [each._replace(headers=carrying(each.headers, self._context)) for each in records]
        reach.send_ahead(records)

    def _reject(self, record: Record[Any, Any], reason: str) -> None:
        self._outgoing.set_aside(record.raw, record.index, Rejected(reason))

    # ---- records that are unfit ------------------------------------------------------------------------------------

    def _decoded(self, chunks: Sequence[Chunk]) -> list[Record[Any, Any]]:
        found: list[Record[Any, Any]] = []
        for chunk in chunks:
            if chunk.records.topic != self.group.retry:
                found += self._good(chunk.records, chunk.records.topic)
                continue
            for index in range(len(chunk.records)):
                record = chunk.records.part(index, index + 1)
                origin = Origin.read(record.headers(0))
                if origin is None or origin.topic not in self._graph.streams:
                    reason = f"its headers name no input of {self.group.name!r}"
                elif origin.partition != self.partition:
                    reason = f"it comes from partition {origin.partition}: its rows belong to that one"
                else:
                    found += self._good(origin.dated(record), origin.topic)
                    continue
                error = PoisonRecord(f"a record in the retry topic cannot be handled: {reason}")
                self._outgoing.set_aside(record, 0, error)
        return found

    def _good(self, records: RecordBatch, stream: str) -> list[Record[Any, Any]]:
        codecs = self._graph.streams[stream]
        keys, values = codecs.key.decode_many(records.keys), codecs.value.decode_many(records.values)
        bad: dict[int, StreamtableError] = {**values.poison, **keys.poison}
        for raw, what in ((records.values, "value: a tombstone is no event"), (records.keys, "key")):
            if None in raw:
                bad.update(
                    (index, PoisonRecord(f"the record has no {what}"))
                    for index, data in enumerate(raw)
                    if data is None
                )
        poison = self._bisector.found
        if poison:
            at = enumerate((records.topic, offset) for offset in records.offsets)
            bad.update((index, poison[place]) for index, place in at if place in poison)
        for index, error in sorted(bad.items()):
            if isinstance(error, HandlerFailed) and self._graph.on_error is OnError.SKIP:
                log.warning("record is skipped", group=self.group.name, error=str(error))
            else:
                self._outgoing.set_aside(records, index, error)
        return [
            Record(key, value, stream, records, index)
            for index, (key, value) in enumerate(zip(keys.values, values.values, strict=True))
            if index not in bad
        ]

    def _failed(self, error: BaseException, cut: Cut) -> StreamtableError:
        """Return the error to raise, after noting which records the bisector tries next."""
        self._around.metrics.failures.labels(self.group.name, type(error).__name__).inc()
        chunks, records = cut.chunks, cut.records
        first = records[0]
        failed = HandlerFailed(
            f"process of micro-batch {self.group.name!r} raised {type(error).__name__}: {error}; its batch of "
            f"{len(records)} records was {_places(chunks)}",
            topic=first.topic if len(records) == 1 else _topics(chunks),
            partition=self.partition,
            offset=first.offset if len(records) == 1 else None,
        )
        failed.__cause__ = error
        if self._graph.on_error is OnError.STOP:
            return failed
        if len(records) == 1:
            self._bisector.isolated(first.topic, first.offset, failed)
        else:
            self._bisector.halve(sum(len(chunk.records) for chunk in chunks), cut.next_offsets)
        log.warning("batch failed, a part of it is tried next", error=str(failed), exc_info=error)
        return RewindNeeded("process failed", topic=failed.topic, partition=self.partition)

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def work(self) -> Work:
        done = self._done
        if done is not None:
            self._around.failpoint("batch-processed")
        return Work(
            self,
            self._outgoing.records,
            [],
            done.cut.next_offsets if done else self._idle_offsets(),
            self._outgoing.dead_letters,
        )

    def _idle_offsets(self) -> Mapping[str, NextOffset]:
        return dict(self._buffer.next_offsets if self._moved else self.committed_offsets)

    def write_ahead(self, work: Work) -> None:
        del work
        done = self._done
        if done is None or not done.written.rows:
            return
        self.must_recover = self._ledger is not None
        try:
            self._server.put_many(done.written.rows, done.written.number, done.written.fields)
        except Unencodable as error:
            raise self._failed(error, done.cut) from error
        self._around.failpoint("rows-written")

    def offsets(self, work: Work, position: TablePosition) -> dict[TopicPartition, Committed]:
        del position
        ledger, seen = self._next_ledger(), self.seen(work.next_offsets)
        committed_state = ledger.committed_state if ledger is not None else None
        return {
            TopicPartition(topic, self.partition): Committed(
                offset, encode(committed_state, work.next_offsets, seen.get(topic))
            )
            for topic, offset in work.next_offsets.items()
        }

    def committed(self, work: Work, position: TablePosition) -> None:
        del position
        self._ledger = self._next_ledger()
        self.must_recover = False
        if self.uncommitted and self._ledger is not None:
            self._write_ledger(self._ledger)
        self.uncommitted = False
        self.committed_offsets = dict(work.next_offsets)
        if self._done is not None:
            self._measure(self._done)
            self._bisector.passed(self.committed_offsets)
        self._done = None
        self._outgoing.forget()

    def rewind(self) -> Mapping[str, NextOffset]:
        self._done = None
        self._outgoing.forget()
        self._buffer.clear(self.committed_offsets)
        return self.committed_offsets

    def _next_ledger(self) -> Ledger | None:
        """After the commit to come."""
        if self._ledger is not None and self._done is not None and self._done.written.rows:
            return self._ledger.committed()
        return self._ledger

    def _write_ledger(self, ledger: Ledger) -> None:
        """Write the ledger's row after the commit that proved the epoch.

        Until then the metadata have the one end that the row lacks.
        """
        try:
            self._server.put_many({ledger_key(self.partition): ledger.encode()}, ledger.opening)
        except (RetryLater, Migrated) as error:
            log.warning(
                "ledger not written: the partition recovers again",
                partition=self.partition,
                reason=str(error),
            )
            self.must_recover = True
        self._around.failpoint("ledger-written")

    def _measure(self, done: Done) -> None:
        metrics, name = self._around.metrics, self.group.name
        chunks = done.cut.chunks
        metrics.records.labels(name).observe(sum(len(chunk.records) for chunk in chunks))
        age = self._around.clock.monotonic() - chunks[0].arrived
        metrics.age_seconds.labels(name).observe(age)


def _topics(chunks: Sequence[Chunk]) -> str:
    return ", ".join(dict.fromkeys(chunk.records.topic for chunk in chunks))


def _places(chunks: Sequence[Chunk]) -> str:
    """`tweets[3]@100..250, follows[3]@7..9`."""
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for chunk in chunks:
        first, _ = ends.get(chunk.records.place, (chunk.records.first_offset, 0))
        ends[chunk.records.place] = first, chunk.records.last_offset
    return ", ".join(f"{place}@{first}..{last}" for place, (first, last) in ends.items())
