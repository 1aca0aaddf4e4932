"""The task of a micro-batch's partition: it buffers records and runs `process` on each complete batch.

It is a `streamtable.graph.custom_task.CustomTask`. The store is written before the Kafka commit, with a number that becomes
valid by that commit (docs/explanation/micro-batch.md). Between write and commit the task is ahead of Kafka: if the
commit fails, it must recover, under a new epoch.
"""

import asyncio
import inspect
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from microbatch.batch import Batch, Send
from microbatch.beginnings import Beginnings
from microbatch.buffer import Buffer, Chunk, PoisonBisector
from microbatch.declaration import DeclaredBatch
from microbatch.metrics import BatchMetrics
from microbatch.partition_rows import PartitionRows
from microbatch.record import Record
from microbatch.rows import NO_WRITES, BatchWrites
from streamtable.base.clock import Clock
from streamtable.base.deadletter import Origin
from streamtable.base.failpoint import Failpoint
from streamtable.base.mapped import check_results
from streamtable.base.message import prefix_header, with_prefixes
from streamtable.base.tracing import UNTRACED, Tracer
from streamtable.base.types import Headers, NextOffset, RecordBatch, TopicPartition
from streamtable.errors import (
    ConfigurationError,
    DeserializationError,
    Fatal,
    HandlerFailed,
    Migrated,
    OutcomeUnknown,
    Rejected,
    RetryLater,
    RewindNeeded,
    SerializationError,
    StoreCorrupted,
    StreamtableError,
)
from streamtable.graph.custom_task import AT_ONCE, CommitDue, Outputs, Prepared, TaskServices, Written
from streamtable.graph.group import OnError

log = structlog.get_logger()

_NOT_THE_RECORDS_FAULT = (
    Fatal, ConfigurationError, RetryLater, Migrated, RewindNeeded, OutcomeUnknown, StoreCorrupted
)  # fmt: skip


class _SmallerBatch(Exception):
    """The batch has failed, and a smaller one can be tried at once."""


@dataclass(frozen=True)
class DecodedBatch:
    """A batch: the chunks it was cut from, its valid records, and the next offsets."""

    chunks: Sequence[Chunk]
    records: Sequence[Record[Any, Any]]
    next_offsets: Mapping[str, NextOffset]


@dataclass(frozen=True)
class Done:
    """A processed batch: the rows to write and the records and offsets to commit."""

    cut: DecodedBatch
    written: BatchWrites


@dataclass(eq=False)
class Surroundings:
    """The parts that all tasks of a process share.

    Attributes:
        group: The graph.
        clock: Wall-clock and monotonic time, and pauses between attempts.
        failpoint: Called between any two steps.
        metrics: The metrics to update; default: metrics in a new registry.
        tracer: The tracer that gets a span for each batch.
    """

    group: DeclaredBatch
    clock: Clock
    failpoint: Failpoint
    metrics: BatchMetrics = field(default_factory=lambda: BatchMetrics.register(CollectorRegistry()))
    tracer: Tracer = UNTRACED

    def __post_init__(self) -> None:
        self.beginnings = Beginnings(self.group)
        self.bisectors: defaultdict[int, PoisonBisector] = defaultdict(PoisonBisector)


class BatchTask:
    """The task of one partition of a `MicroBatch`; a `CustomTask`.

    Args:
        around: The parts that all tasks of the process share.
        partition: The number of the partition.
        rows: Its rows, embedded or in a central store.
    """

    def __init__(self, around: Surroundings, partition: int, rows: PartitionRows) -> None:
        self.partition = partition
        self._group = around.group
        self._around = around
        self._rows = rows
        self._bisector = around.bisectors[partition]  # outlives the task
        self._committed_offsets: Mapping[str, NextOffset] = {}
        self._buffer = Buffer(around.group.limits, {})
        self._done: Done | None = None
        self._sent_ahead = False  # whether the current batch has sent records, which only an abort undoes
        self._context: Headers = ()  # the trace context of the current batch, if it is traced

    # ---- records in ------------------------------------------------------------------------------------------------

    def feed(self, records: RecordBatch, arrived: float) -> None:
        """See `CustomTask.feed`."""
        self._buffer.add(records, arrived)

    def due(self) -> CommitDue | None:
        """See `CustomTask.due`."""
        if self._rows.unproved:
            return CommitDue(AT_ONCE)
        if not len(self._buffer):
            return None
        if self._buffer.full or self._bisector.records_max is not None:
            return CommitDue(AT_ONCE)
        # `async` functions await concurrently across partitions; a plain function would only delay them.
        at = self._buffer.first_arrival + self._group.limits.seconds
        return CommitDue(at, alone=not self._group.awaits)

    # ---- a batch ---------------------------------------------------------------------------------------------------

    def prepare(self, services: TaskServices) -> Prepared | Awaitable[Prepared] | None:
        """Process the next batch."""
        self._rows.begin(services)
        while len(self._buffer):
            try:
                return self._next_batch(services)
            except _SmallerBatch:
                continue  # it had no effects outside this process
        return None

    def _next_batch(self, services: TaskServices) -> Prepared | Awaitable[Prepared]:
        self._sent_ahead = False
        self._context = ()
        cut = self._cut(services)
        stored = self._rows.stored(services)
        if not cut.records:
            return self._prepared(Done(cut, NO_WRITES))
        batch = Batch(
            self.partition,
            cut.records,
            cut.next_offsets,
            self._group.rows,
            stored,
            partial(self._reject, services.outputs),
            services.watermarks,
        )
        began = time.perf_counter()

        def done() -> Done:
            if stored.failure is not None:
                raise stored.failure  # `process` caught it, but its results without these rows must not be committed
            found = Done(cut, self._rows.written(batch, stored, services))
            self._around.metrics.seconds.labels(self._group.name).observe(time.perf_counter() - began)
            return found

        with self._blamed(cut, services.outputs), nullcontext() if self._group.awaits else self._traced(cut):
            send = Send(services.outputs.emit, lambda: self._send_ahead(services))
            answer = self._group.process(batch, send)
            if not inspect.isawaitable(answer):
                check_results([answer])
                return self._prepared(done())
        return self._awaited(services, answer, cut, done)

    async def _awaited(
        self, services: TaskServices, answer: Awaitable[None], cut: DecodedBatch, done: Callable[[], Done]
    ) -> Prepared:
        try:
            with self._blamed(cut, services.outputs), self._traced(cut):
                await answer
                return self._prepared(done())
        except _SmallerBatch:
            again = self.prepare(services)
            assert again is not None, "its records are back in the buffer"
            return again if isinstance(again, Prepared) else await again

    def _prepared(self, done: Done) -> Prepared:
        self._done = done
        return Prepared(done.cut.next_offsets, self._rows.changes(done.written), self._context)

    def _cut(self, services: TaskServices) -> DecodedBatch:
        bounds = [each for each in (self._bisector.records_max, services.records_max) if each is not None]
        chunks = self._buffer.cut(min(bounds, default=None))
        ends = {chunk.records.topic: NextOffset(chunk.records.last_offset + 1) for chunk in chunks}
        if not len(self._buffer):
            ends = dict(services.passed)  # may be beyond the last records
        decoded = self._decoded(chunks, services.outputs)
        return DecodedBatch(chunks, decoded, {**self._committed_offsets, **ends})

    @contextmanager
    def _blamed(self, cut: DecodedBatch, outputs: Outputs) -> Iterator[None]:
        """Convert exceptions in the block to the errors that the engine handles."""
        try:
            yield
        except _NOT_THE_RECORDS_FAULT as error:
            self._around.metrics.failures.labels(self._group.name, type(error).__name__).inc()
            if error.topic is None:
                error.at(_topics(cut.chunks), self.partition)
            raise
        except (Exception, asyncio.CancelledError) as error:
            failed = self._failed(error, cut)
            if isinstance(failed, RewindNeeded) and not self._sent_ahead:
                outputs.forget()
                self._buffer.put_back(cut.chunks)
                raise _SmallerBatch from error
            raise failed from error

    @contextmanager
    def _traced(self, cut: DecodedBatch) -> Iterator[None]:
        """Trace the processing of the batch in the block."""
        with self._around.tracer.process(self._group.name, [chunk.records for chunk in cut.chunks]) as span:
            self._context = span.headers
            yield

    def _send_ahead(self, services: TaskServices) -> None:
        self._sent_ahead = True
        services.send_ahead(self._context)

    @staticmethod
    def _reject(outputs: Outputs, record: Record[Any, Any], reason: str) -> None:
        outputs.set_aside(record.raw, record.index, Rejected(reason))

    # ---- records that are unfit ------------------------------------------------------------------------------------

    def _decoded(self, chunks: Sequence[Chunk], outputs: Outputs) -> list[Record[Any, Any]]:
        found: list[Record[Any, Any]] = []
        for chunk in chunks:
            if chunk.records.topic != self._group.retry:
                found += self._good(chunk.records, chunk.records.topic, outputs)
                continue
            for index in range(len(chunk.records)):
                record = chunk.records.part(index, index + 1)
                origin = Origin.read(record.headers(0))
                if origin is None or origin.topic not in self._group.streams:
                    reason = f"its headers do not name an input of {self._group.name!r}"
                elif origin.partition != self.partition:
                    reason = f"it comes from partition {origin.partition}, and its rows belong there"
                else:
                    header = prefix_header(self._group.streams[origin.topic].value)
                    record = with_prefixes(origin.dated(record), header)
                    found += self._good(record, origin.topic, outputs)
                    continue
                error = DeserializationError(f"a record in the retry topic cannot be handled: {reason}")
                outputs.set_aside(record, 0, error)
        return found

    def _good(self, records: RecordBatch, stream: str, outputs: Outputs) -> list[Record[Any, Any]]:
        codecs = self._group.streams[stream]
        keys, values = codecs.key.decode_many(records.keys), codecs.value.decode_many(records.values)
        bad: dict[int, StreamtableError] = {**values.poison, **keys.poison}
        for raw, what in ((records.values, "value: a tombstone is no event"), (records.keys, "key")):
            if None in raw:
                bad.update(
                    (index, DeserializationError(f"the record has no {what}"))
                    for index, data in enumerate(raw)
                    if data is None
                )
        poison = self._bisector.found
        if poison:
            at = enumerate((records.topic, offset) for offset in records.offsets)
            bad.update((index, poison[place]) for index, place in at if place in poison)
        for index, error in sorted(bad.items()):
            if isinstance(error, HandlerFailed) and self._group.on_error is OnError.SKIP:
                log.warning("record is skipped", group=self._group.name, error=str(error))
            else:
                outputs.set_aside(records, index, error)
        return [
            Record(key, value, stream, records, index)
            for index, (key, value) in enumerate(zip(keys.values, values.values, strict=True))
            if index not in bad
        ]

    def _failed(self, error: BaseException, cut: DecodedBatch) -> StreamtableError:
        """Return the error to raise, after updating the bisector."""
        self._around.metrics.failures.labels(self._group.name, type(error).__name__).inc()
        chunks, records = cut.chunks, cut.records
        first = records[0]
        failed = HandlerFailed(
            f"process of micro-batch {self._group.name!r} raised {type(error).__name__}: {error}; its batch of "
            f"{len(records)} records was {_places(chunks)}"
        )
        failed.__cause__ = error
        topic, offset = (first.topic, first.offset) if len(records) == 1 else (_topics(chunks), None)
        failed.at(topic, self.partition, offset)
        if self._group.on_error is OnError.STOP:
            return failed
        if len(records) == 1:
            self._bisector.isolated(first.topic, first.offset, failed)
        else:
            self._bisector.halve(sum(len(chunk.records) for chunk in chunks), cut.next_offsets)
        log.warning("batch failed, retrying a part of it", error=str(failed), exc_info=error)
        return RewindNeeded("process failed", topic=failed.topic, partition=self.partition)

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def write(self) -> Written | None:
        """Write the rows to the central store, with the number that becomes valid by the commit."""
        done = self._done
        if done is None:
            return self._rows.write(NO_WRITES, self._committed_offsets)
        self._around.failpoint("batch-processed")
        try:
            return self._rows.write(done.written, self._committed_offsets)
        except SerializationError as error:
            raise self._failed(error, done.cut) from error

    def applied(self, next_offsets: Mapping[str, NextOffset]) -> bool:
        """Move to the next batch. Returns False if the ledger's row could not be written."""
        good = self._rows.applied(NO_WRITES if self._done is None else self._done.written)
        self._committed_offsets = next_offsets
        if self._done is not None:
            self._measure(self._done)
            self._bisector.passed(next_offsets)
        self._done = None
        return good

    def rewind(self, next_offsets: Mapping[str, NextOffset]) -> None:
        """Drop the buffered records and the batch. Raises `InputLost` at a first start over truncated inputs."""
        self._around.beginnings.check(self.partition, next_offsets)
        self._committed_offsets = next_offsets
        self._done = None
        self._buffer.clear(next_offsets)

    def _measure(self, done: Done) -> None:
        metrics, name = self._around.metrics, self._group.name
        chunks = done.cut.chunks
        metrics.records.labels(name).observe(sum(len(chunk.records) for chunk in chunks))
        age = self._around.clock.monotonic() - chunks[0].arrived
        metrics.age_seconds.labels(name).observe(age)


def _topics(chunks: Sequence[Chunk]) -> str:
    return ", ".join(dict.fromkeys(chunk.records.topic for chunk in chunks))


def _places(chunks: Sequence[Chunk]) -> str:
    """Return a text such as `tweets[3]@100..250, follows[3]@7..9`."""
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for chunk in chunks:
        first, _ = ends.get(chunk.records.place, (chunk.records.first_offset, 0))
        ends[chunk.records.place] = first, chunk.records.last_offset
    return ", ".join(f"{place}@{first}..{last}" for place, (first, last) in ends.items())
