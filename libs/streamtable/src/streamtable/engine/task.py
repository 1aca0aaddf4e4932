"""A task: the processing of one partition of a group. Records go in; changed rows, outputs and offsets come out for a commit.

A task does no I/O but reading its store. Its work since the last commit can be dropped as a whole (`rewind`); after a
failure its records are handled carefully, so that each can be undone alone (`engine.calls.careful`).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from streamtable.base.clock import Clock
from streamtable.base.deadletter import OutputRecord
from streamtable.base.tracing import CONTEXTS_MAX
from streamtable.base.types import NextOffset, RecordBatch
from streamtable.engine.basetask import MOVED_SECONDS, BaseTask, Changed, Recovered, Work
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.calls.handlers import Handler
from streamtable.engine.records.dispatch import Dispatcher
from streamtable.engine.records.tables import PartitionTables
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.time.event_time import EventClock
from streamtable.engine.time.passed_on import PassedOn
from streamtable.engine.waiting.join_wait import JoinWait
from streamtable.errors import StoreCorrupted, StreamtableError
from streamtable.graph.custom_task import AT_ONCE, CommitDue
from streamtable.graph.group import Changes, Group
from streamtable.handlers.services import WholeTable
from streamtable.tables.position import LocalPosition, TablePosition

log = structlog.get_logger()

_AT_ONCE_MAX = 1 << 20


class Task(BaseTask):
    """One partition of a group over local tables.

    Args:
        group: The graph.
        recovered: The partition, with its tables complete.
        settings: The settings of the processor: the size of the cache of decoded rows, what wraps each handler, the tracer.
        clock: The clock, for the time in dead letters and checkpoints.
        lookups: Whole tables, by name.
        mode: The careful mode of the partition, and the records that have failed; it outlives the task.
    """

    _at_once = _AT_ONCE_MAX  # the records that the next call is given at most

    def __init__(
        self,
        group: Group[Any, Any],
        recovered: Recovered,
        settings: ProcessorSettings,
        clock: Clock,
        lookups: Mapping[str, WholeTable],
        mode: CarefulMode,
    ) -> None:
        super().__init__(group, recovered)
        self._moved_at = 0.0  # when a position passed markers for the first time since the last commit
        self._topics = recovered.topics
        self._clock = clock
        self.committed_at = clock.monotonic()
        self._tracer = settings.tracer
        self.tables = PartitionTables(group, recovered, settings.cache_bytes, clock)
        # The first work compares the meanings of the states.
        self._unchecked = self.tables.records is not None
        # The tables whose rows are still to be recorded as known; determined by the first work.
        self._to_copy: Sequence[Changes[Any, Any, Any]] = group.changes
        self._left_to_copy: Sequence[Changes[Any, Any, Any]] = self._to_copy
        if any(join.wait for join in group.joins):
            self.join_wait = JoinWait(group, self.tables.joins, clock)
        self._passed_on: PassedOn | None = None
        if group.event_time is not None:
            self.event_clock = EventClock(group, self.partition, recovered.plan.times, clock)
            if any(edge.watermarks for edge in group.outputs):
                self._passed_on = PassedOn(group, recovered.topics, self.partition)
        around, next_offsets = settings.around or _as_it_is, dict(self.committed_offsets)
        self._dispatcher = Dispatcher(
            group, recovered, self.tables, lookups, clock, around, next_offsets, mode, self.event_clock
        )
        self.due = self._dispatcher.due

    @property
    def next_offsets(self) -> Mapping[str, NextOffset]:
        """The next offset of each input, after the records that were handled."""
        return self._dispatcher.next_offsets

    @property
    def position(self) -> Hashable:
        return self._dispatcher.position

    def cache(self, bytes_max: int) -> None:
        self.tables.cache(bytes_max)

    def leave(self) -> None:
        super().leave()
        if self.due is not None:
            self.due.leave()

    # ---- records in ------------------------------------------------------------------------------------------------

    def process(self, records: RecordBatch, since: float | None = None) -> int:  # noqa: ARG002 - used by tasks that wait
        """Handle records of one input partition; see `Dispatcher.handle`."""
        if self.due is not None and not self.due.fire_timers(records.topic):
            return 0  # due rows come before these records
        # What a call does not come to is decoded again: after one that a timer has cut short, it is given few.
        records = records.part(0, self._at_once)
        with self._tracer.process(self.group.name, [records]) as span:
            taken = self._dispatcher.handle(records)
        self._at_once = min(_AT_ONCE_MAX, 2 * (self._at_once if taken == len(records) else taken) or 1)
        if span.headers and len(self.traced) < CONTEXTS_MAX:
            self.traced.append(span.headers)
        return taken

    def passed(self, topic: str, offset: int, now: float) -> None:
        if offset > self.next_offsets[topic]:
            if not self.dirty:
                self._moved_at = now
            self._dispatcher.next_offsets[topic] = NextOffset(offset)

    @property
    def _fired(self) -> int:
        """The number of due rows that handlers were called with since the last commit."""
        return 0 if self.due is None else self.due.fired

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    @property
    def must_commit(self) -> bool:
        """Whether a commit must come before the next record."""
        return self._dispatcher.must_commit

    def refused(self, outputs: Sequence[int], error: StreamtableError) -> bool:
        """As `BaseTask.refused`."""
        return self._dispatcher.refused(outputs, error, self.committed_offsets)

    @property
    def dirty(self) -> bool:
        """Whether the task has something to commit."""
        if self._fired or (self.event_clock is not None and self.event_clock.must_commit):
            return True
        if self._passed_on is not None and self._passed_on.must_commit(self._idle, self._clock.monotonic()):
            return True
        return self.preparing or self.next_offsets != self.committed_offsets

    @property
    def preparing(self) -> bool:
        """Whether its offsets, and then rows of its own, must be committed before its first record.

        That are the meanings of its state tables, the rows of joined tables that it takes as known, and what handlers made of
        deletions of such rows that it has missed.
        """
        missed = (joined.missed(self.next_offsets[name], 1) for name, joined in self.tables.joins.items())
        return self.uncommitted or self._unchecked or bool(self._to_copy) or any(missed)

    @property
    def commit_due(self) -> CommitDue:
        """The time of its next commit; positions that have only passed transaction markers can wait."""
        at_once = self.preparing or self._dispatcher.calls.records or self._fired
        return CommitDue(AT_ONCE if at_once else self._moved_at + MOVED_SECONDS)

    @property
    def changed(self) -> Changed:
        changed = self.tables.changed
        return changed._replace(bytes=changed.bytes + self._dispatcher.outgoing.bytes)

    def work(self) -> Work:
        """Return the work to commit now.

        Raises:
            RewindNeeded: A row does not fit its schema or its topic: the records since the last commit are read again
                one by one, to find the one that made it.
            StoreCorrupted: Noted as its `failure` too.
            StateMeaningChanged: A state table means something else than its rows.
            HandlerFailed: As `process`, of a deletion that was missed.
        """
        handling, tables = self._dispatcher, self.tables
        try:
            if tables.records is not None and self._unchecked and not self.uncommitted:
                tables.records.check(self.group)
            self._copy_known_rows()
            if not (self.uncommitted or self._to_copy):
                handling.delete_missed()
            states = handling.state_changes()
            named = states | {
                name: each.changes() for name, each in tables.named.items() if name not in states
            }
        except StoreCorrupted as error:
            self.failure = error
            raise
        return Work(
            self,
            handling.outgoing.records,
            handling.changes(),
            dict(handling.next_offsets),
            handling.outgoing.dead_letters,
            named={name: changes for name, changes in named.items() if changes},
            repeats=tables.ids.repeats if tables.ids else {},
            tombstones=dict(handling.calls.tombstones),
            traced=handling.calls.careful,
            times=self.event_clock.times() if self.event_clock else {},
            late={kept.state.name: kept.handle.late for kept in tables.states if kept.handle.late},
            offered={kept.state.name: kept.handle.offered for kept in tables.states if kept.handle.offered},
            marks=self._marks(),
        )

    def _marks(self) -> Sequence[OutputRecord]:
        """Return the marks that carry its watermark to readers of its outputs, after all that falls due before the commit."""
        if self._passed_on is None or self.event_clock is None:
            return ()
        due, event_clock = self.due, self.event_clock

        def reached(stage: int) -> int:
            watermark_ms = event_clock.watermark_of(stage)
            return watermark_ms if due is None else due.passed_on_ms(stage, watermark_ms)

        return self._passed_on.marks(reached, self._idle, self._clock.monotonic())

    def _idle(self, stage: int) -> bool:
        """Return whether nothing of a stage will be written before its inputs have new records."""
        return (
            self.event_clock is not None
            and self.event_clock.idle(stage)
            and (self.due is None or not self.due.awaits(stage))
        )

    def _copy_known_rows(self) -> None:
        """Copy the next rows that count as known, once the offsets are committed."""
        handled = self.tables.handled
        if handled is None or self.uncommitted or not self._to_copy:
            return
        left = [edge for edge in self._to_copy if not handled.complete(edge.table.name)]
        if left:
            handled.copy_some(left[0], self.tables.joins)
        self._left_to_copy = [edge for edge in left if not handled.complete(edge.table.name)]

    def committed(self, work: Work, position: TablePosition) -> None:
        """Write the work to the stores, in one write each, now that Kafka has committed it."""
        self._write(position, work)
        self.tables.committed()
        # Not before the write: if that fails for good, `save` must not record the store as up to date.
        self.changelog_position, self.named_positions = position.changelog, dict(position.tables)
        self.committed_offsets = dict(work.next_offsets)
        self.committed_at = self._clock.monotonic()
        self._unchecked = self._unchecked and self.uncommitted
        self.uncommitted = False
        self._to_copy = self._left_to_copy
        if self.event_clock is not None:
            self.event_clock.committed(work.times)
        if self._passed_on is not None:
            self._passed_on.committed(work.marks, self._clock.monotonic())
        try:
            self._dispatcher.committed(self.committed_offsets)
        except StoreCorrupted as error:
            self.failure = error  # as in `_write`

    def rewind(self) -> Mapping[str, NextOffset]:
        """Drop everything since the last commit. Returns the next offset of each topic."""
        self.tables.forget()
        if self.event_clock is not None:
            self.event_clock.rewind()
        self._dispatcher.rewind(self.committed_offsets)
        return self.committed_offsets

    def save(self) -> None:
        """Record in the stores that they are current although nothing was committed. Only called when nothing is dirty."""
        self._write(TablePosition(self.changelog_position, exact=True, tables=self.named_positions))

    def _write(self, position: TablePosition, work: Work | None = None) -> None:
        """Write the positions of the tables to the stores, with the rows of the work, if there is any."""
        next_offsets = self.committed_offsets if work is None else work.next_offsets
        try:
            if self.tables.own is not None:
                own = self.group.table.name
                checkpoint = self._checkpoint(own, position.changelog, next_offsets)
                self.stores[own].write(() if work is None else work.changes, checkpoint)
            for name, named in self.tables.named.items():
                topic = self.group.named_topic(name)
                checkpoint = self._checkpoint(topic, position.tables[name], next_offsets)
                rows = () if work is None else named.rows(work.named.get(name, []))
                named.store.write(rows, checkpoint)
            for name, joined in self.tables.joins.items():
                if work is None or joined.changed_bytes or next_offsets[name] != self.committed_offsets[name]:
                    joined.store.write(joined.changes(), self._joined_checkpoint(name, next_offsets))
        except StoreCorrupted as error:
            self.failure = error  # the commit stands, and so do the commits of the other tasks

    def _checkpoint(
        self, table: str, changelog_position: int, next_offsets: Mapping[str, NextOffset]
    ) -> bytes:
        topic, now = self._topics[table], self._clock.now()
        return LocalPosition.of(topic, changelog_position, now, inputs=next_offsets).encode()

    def _joined_checkpoint(self, table: str, next_offsets: Mapping[str, NextOffset]) -> bytes:
        # Rows that are still compared count as outdated: see `Restorer`.
        whole, before = self.tables.joins[table].whole, self.stores[table].checkpoint()
        now = self._clock.now() if whole else 0.0
        # How it was loaded stays as its recovery has recorded it.
        loaded = LocalPosition.decode(before) if before else LocalPosition.of(self._topics[table], 0, now)
        return replace(loaded, changelog=next_offsets[table], current_at=now).encode()


def _as_it_is(handler: Handler) -> Handler:
    return handler
