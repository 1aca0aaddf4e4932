"""A task: one partition of a group at work. Records go in; changed rows, outputs and offsets come out for a commit.

A task does no I/O but reading its store. What it did since the last commit can be dropped as a whole (`rewind`), and
only as a whole: handlers may have changed values in place.
"""

from bisect import bisect_left
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.context import Batch, Context
from streamtable.deadletter import RECORD_OVERHEAD_BYTES, Origin, OutputRecord, dead_letter
from streamtable.engine.position import LocalPosition, TablePosition
from streamtable.errors import (
    Fatal,
    GraphError,
    HandlerFailed,
    PoisonRecord,
    RetryLater,
    RewindNeeded,
    StoreCorrupted,
    StreamtableError,
)
from streamtable.graph import Group, Input, OnError
from streamtable.ports import Decoded, Store, TopicInfo
from streamtable.table import PartitionTable, refuse_if_larger
from streamtable.topics import Stream
from streamtable.types import Committed, Headers, NextOffset, RecordBatch, TopicPartition

log = structlog.get_logger()


@dataclass(frozen=True)
class Work:
    """What a task wants committed: encoded, so that committing it cannot fail halfway for a reason of its own."""

    task: "Task"
    outputs: list[OutputRecord]
    changes: list[tuple[bytes, bytes | None]]
    next_offsets: Mapping[str, NextOffset]
    dead_letters: int  # among the outputs


class Task:
    """One partition of a group.

    Args:
        group: the graph.
        topics: all topics of the group as the broker describes them.
        partition: its number.
        store: the partition's table, recovered; None if the group keeps none.
        changelog_position: where the table stands.
        next_offsets: where each input goes on.
        uncommitted: an offset was never committed: they must be, before the first record.
        cache_bytes: for decoded rows.
        clock: for the time in dead letters and checkpoints.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        topics: Mapping[str, TopicInfo],
        partition: int,
        *,
        store: Store | None,
        changelog_position: int,
        next_offsets: Mapping[str, NextOffset],
        uncommitted: bool,
        cache_bytes: int,
        clock: Clock,
    ) -> None:
        self.group = group
        self.partition = partition
        self.store = store
        self.changelog_position = changelog_position
        self.committed_offsets = dict(next_offsets)
        self.next_offsets = dict(next_offsets)
        self.uncommitted = uncommitted
        self.records = 0  # handled since the last commit
        self.dead_letters = 0  # among them
        self.failure: StoreCorrupted | None = None  # the store must be rebuilt
        self._topics = topics
        self._clock = clock
        self._inputs: dict[str, Input[Any, Any, Any]] = {edge.stream.name: edge for edge in group.inputs}
        self._declared = {edge.stream.name for edge in group.outputs}
        self.table: PartitionTable[Any] | None = None
        if group.persist is not None and store is not None:
            self.table = PartitionTable(store, group.persist.value, cache_bytes)
        self._context: Context[Any, Any] = Context(self.table, self._emit)
        self._batch: Batch[Any, Any, Any] = Batch(self.table, group.inputs[0].stream.key, self._emit)
        self._outputs: list[OutputRecord] = []
        self._output_bytes = 0
        # Offsets that made their handler raise, by topic: the replay leaves them out.
        self._condemned: dict[str, dict[int, HandlerFailed]] = {}
        # Up to here, by topic, records are handled one at a time, to find the one that a batch failed on.
        self._careful_until: dict[str, int] = {}

    # ---- records in ------------------------------------------------------------------------------------------------

    def process(self, records: RecordBatch) -> None:
        """Handle records of one input partition. Those below the next offset have been handled before: dropped.

        Raises:
            HandlerFailed: a handler raised and its input says stop.
            RewindNeeded: a handler raised and its input says go on without the record: rewind, and read again.
            RetryLater: something outside (a schema registry) does not answer: rewind, wait, and read again.
        """
        topic, expected = records.topic, self.next_offsets[records.topic]
        if records.first_offset < expected:
            records = records.part(bisect_left(records.offsets, expected), len(records))
            if not records:
                return
        if topic == self.group.retry:
            for index in range(len(records)):
                self._retry(records.part(index, index + 1))
        elif records.first_offset < self._careful_until.get(topic, 0):
            for index in range(len(records)):
                self._run(self._inputs[topic], records.part(index, index + 1), careful=True)
        else:
            self._run(self._inputs[topic], records)
        self.records += len(records)
        self.next_offsets[topic] = NextOffset(records.last_offset + 1)

    def _retry(self, record: RecordBatch) -> None:
        """A dead letter sent again: handled as if it came from its origin."""
        origin = Origin.read(record.headers(0))
        edge = self._inputs.get(origin.topic) if origin else None
        if edge is None or origin is None or origin.partition != record.partition:
            if origin is None:
                reason = "it has no origin headers"
            elif edge is None:
                reason = f"its headers name no input of group {self.group.name!r}"
            else:
                reason = f"it comes from partition {origin.partition}: its row is in that partition's table"
            self._set_aside(
                record, 0, PoisonRecord(f"a record in the retry topic cannot be handled: {reason}")
            )
        else:
            self._run(edge, record, careful=True)

    def _run(self, edge: Input[Any, Any, Any], records: RecordBatch, *, careful: bool = False) -> None:
        keys = edge.stream.key.decode_many(records.keys)
        events = edge.stream.value.decode_many(records.values)
        bad = self._unfit(records, keys, events)
        if bad:
            for index, error in sorted(bad.items()):
                if not (isinstance(error, HandlerFailed) and edge.on_error is OnError.SKIP):
                    self._set_aside(records, index, error)
            keep = [index not in bad for index in range(len(records))]
            if not any(keep):
                return
            records = records.only(keep)
            keys = Decoded([k for k, good in zip(keys.values, keep, strict=True) if good], {})
            events = Decoded([e for e, good in zip(events.values, keep, strict=True) if good], {})
        checked = self.table.checked(self._table_bytes_max) if careful and self.table else nullcontext()
        try:
            with checked:
                self._call(edge, records, keys.values, events.values)
        except (Fatal, StoreCorrupted, GraphError, RetryLater):
            raise  # not the record's fault
        except Exception as error:  # noqa: BLE001 - user code may raise anything; it is reported with its place
            self._handler_failed(edge, records, error)

    def _call(
        self, edge: Input[Any, Any, Any], records: RecordBatch, keys: list[Any], events: list[Any]
    ) -> None:
        if edge.handler is not None:
            self._context.each(records, keys, events, edge.handler)
        elif edge.batch is not None:
            self._batch.whole(records, keys, events, edge.batch)
        elif edge.aggregate is not None and self.table is not None:
            edge.aggregate.fold(self.table, records.keys, events)  # type: ignore[arg-type] # no key is None here

    def _unfit(
        self, records: RecordBatch, keys: Decoded[Any], events: Decoded[Any]
    ) -> dict[int, StreamtableError]:
        """Records that no handler must see, by index."""
        bad: dict[int, StreamtableError] = {}
        if None in records.keys:
            missing = (index for index, key in enumerate(records.keys) if key is None)
            bad.update(
                (index, PoisonRecord("the record has no key; this group is keyed")) for index in missing
            )
        if None in records.values:
            missing = (index for index, value in enumerate(records.values) if value is None)
            bad.update(
                (index, PoisonRecord("the record has no value: a tombstone is no event")) for index in missing
            )
        if keys.poison or events.poison:
            bad.update(events.poison)
            bad.update(keys.poison)
        if condemned := self._condemned.get(records.topic):
            bad.update(
                (i, condemned[offset]) for i, offset in enumerate(records.offsets) if offset in condemned
            )
        return bad

    def _set_aside(self, records: RecordBatch, index: int, error: StreamtableError) -> None:
        origin = Origin.of(records, index)
        if records.topic == self.group.retry:
            origin = Origin.read(records.headers(index)) or origin
        error.at(records.topic, records.partition, records.offsets[index])
        topic = self._topics[self.group.dead_letters]
        letter = dead_letter(
            records,
            index,
            error,
            origin=origin,
            group=self.group.name,
            topic=topic.name,
            now=self._clock.now(),
            bytes_max=topic.max_message_bytes,
        )
        log.warning("record goes to the dead letters", group=self.group.name, error=str(error))
        self.dead_letters += 1
        self._add_output(letter)

    def _handler_failed(self, edge: Input[Any, Any, Any], records: RecordBatch, error: Exception) -> None:
        known = edge.handler is not None or len(records) == 1
        offset = records.offsets[self._context.index if edge.handler is not None else 0] if known else None
        failed = HandlerFailed(
            f"the handler of group {self.group.name!r} raised {type(error).__name__}: {error}",
            topic=records.topic,
            partition=records.partition,
            offset=offset,
        )
        failed.__cause__ = error
        if edge.on_error is OnError.STOP:
            raise failed from error
        log.warning(
            "handler failed, its batch is undone and read again",
            error=str(failed), then=edge.on_error.value, exc_info=error,
        )  # fmt: skip
        if offset is None:
            self._careful_until[records.topic] = records.last_offset + 1
        else:
            self._condemned.setdefault(records.topic, {})[offset] = failed
        raise RewindNeeded(
            "a handler failed", topic=records.topic, partition=records.partition, offset=offset
        )

    # ---- outputs ---------------------------------------------------------------------------------------------------

    def _emit(
        self, stream: Stream[Any, Any], key: Any, value: Any, headers: Headers, timestamp_ms: int
    ) -> None:
        if stream.name not in self._declared:
            raise GraphError(
                f"group {self.group.name!r} emits to {stream.name!r}, which is not declared: add Output(...) to its graph"
            )
        record = OutputRecord(
            stream.name,
            None if key is None else stream.key.encode(key),
            None if value is None else stream.value.encode(value),
            headers,
            timestamp_ms,
        )
        limit = self._topics[stream.name].max_message_bytes - RECORD_OVERHEAD_BYTES
        refuse_if_larger(record.size, limit, f"the record for {stream.name!r}")
        self._add_output(record)

    def _add_output(self, record: OutputRecord) -> None:
        self._outputs.append(record)
        self._output_bytes += record.size

    @property
    def _table_bytes_max(self) -> int:
        return self._topics[self.group.table.name].max_message_bytes - RECORD_OVERHEAD_BYTES

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Has something to commit."""
        return self.uncommitted or self.next_offsets != self.committed_offsets

    @property
    def pending_bytes(self) -> int:
        """About how many bytes the next commit will write."""
        return self._output_bytes + (self.table.changed_bytes if self.table else 0)

    def work(self) -> Work:
        """What to commit now.

        Raises:
            RewindNeeded: a row does not fit its schema or its topic: the records since the last commit are read again
                one by one, to find the one that made it.
        """
        changes: list[tuple[bytes, bytes | None]] = []
        if self.table is not None:
            try:
                changes = self.table.changes()
                limit = self._table_bytes_max
                if changes:
                    largest = max(len(key) + len(value or b"") for key, value in changes)
                    refuse_if_larger(largest, limit, "a row of the table")
            except StreamtableError as error:
                self._careful_until.update(self.next_offsets)
                raise RewindNeeded(error.message, topic=error.topic, partition=self.partition) from error
        return Work(self, self._outputs, changes, dict(self.next_offsets), self.dead_letters)

    def offsets(self, work: Work, changelog_position: int, *, exact: bool) -> dict[TopicPartition, Committed]:
        """What the group commits for this work: all inputs, each with the table's position as metadata."""
        metadata = TablePosition(changelog_position, exact).encode()
        return {
            TopicPartition(topic, self.partition): Committed(offset, metadata)
            for topic, offset in work.next_offsets.items()
        }

    def committed(self, work: Work, changelog_position: int) -> None:
        """Kafka has committed the work: now, and only now, it goes to the store, in one write."""
        if self.store is not None and self.table is not None:
            try:
                self.store.write(work.changes, self._checkpoint(changelog_position, work.next_offsets))
            except StoreCorrupted as error:
                self.failure = error  # the commit stands, and so do those of the other tasks
            self.table.committed()
        # Not before the write: if that failed for good, `save` must not say that the store is as far as Kafka.
        self.changelog_position = changelog_position
        self.committed_offsets = dict(work.next_offsets)
        self.uncommitted = False
        self._forget_outputs()
        for topic, offset in self.committed_offsets.items():
            if offset >= self._careful_until.get(topic, offset):
                self._careful_until.pop(topic, None)
            if condemned := self._condemned.get(topic):
                self._condemned[topic] = {o: error for o, error in condemned.items() if o >= offset}

    def rewind(self) -> Mapping[str, NextOffset]:
        """Drop everything since the last commit. Returns where to read on, by topic."""
        if self.table is not None:
            self.table.forget()
        self._forget_outputs()
        self.next_offsets = dict(self.committed_offsets)
        return self.committed_offsets

    def save(self) -> None:
        """Note in the store that it is current, though nothing was committed for a while. Only when nothing is dirty."""
        if self.store is not None:
            self.store.write((), self._checkpoint(self.changelog_position, self.committed_offsets))

    def _checkpoint(self, changelog_position: int, next_offsets: Mapping[str, NextOffset]) -> bytes:
        return LocalPosition(
            changelog=changelog_position,
            topic_id=self._topics[self.group.table.name].topic_id,
            current_at=self._clock.now(),
            inputs=next_offsets,
            partitions=self._topics[self.group.table.name].partitions,
        ).encode()

    def _forget_outputs(self) -> None:
        self._outputs = []
        self._output_bytes = 0
        self.records = self.dead_letters = 0
