"""Dispatches records to handlers: decodes them, skips unfit ones, and finds the record that made a call fail."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from streamtable.base.clock import Clock
from streamtable.base.deadletter import RECORD_OVERHEAD_BYTES, Origin, OutputRecord
from streamtable.base.mapped import check_results
from streamtable.base.message import MadeMessage, with_prefixes
from streamtable.base.ports import TopicInfo
from streamtable.base.topics import hash_of_rows
from streamtable.base.types import NextOffset, RecordBatch
from streamtable.engine.basetask import Recovered
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.calls.handlers import Around, Handler, HandlerCalls
from streamtable.engine.calls.undo import RecordUndo, RowJournal
from streamtable.engine.firing.runner import DueRunner
from streamtable.engine.firing.timers import TimerCalls
from streamtable.engine.output.buffer import OutputBuffer
from streamtable.engine.records.input_calls import InputCalls, unfit
from streamtable.engine.records.placement import Placement
from streamtable.engine.records.tables import PartitionTables
from streamtable.engine.time.event_time import EventClock, TimedInput
from streamtable.errors import DeserializationError, StreamtableError
from streamtable.graph.companion import CALLS
from streamtable.graph.group import Changes, Group, Input, OnError, Visit, prefix_headers
from streamtable.graph.row_change import RowChange
from streamtable.graph.visiting import ROWS_AT_ONCE, VisitProgress
from streamtable.handlers.context import BatchContext, Context
from streamtable.handlers.own_keys import OwnKeys, OwnRows
from streamtable.handlers.services import HandlerServices, WholeTable
from streamtable.handlers.state_table import StateTable

log = structlog.get_logger()

Encoded = list[tuple[bytes, bytes | None]]

Route = Callable[[RecordBatch], int]
"""Handles records of one topic, and returns their number: fewer if a commit must come first, or the process must stop."""


@dataclass(eq=False)
class Dispatcher:
    """Handles the records of one partition of a group. Their effects are dropped or committed as a whole.

    Args:
        group: The graph.
        recovered: The partition, with its tables complete.
        tables: Its tables.
        lookups: Whole tables, by name.
        clock: The clock, for the time in dead letters.
        around: Wraps each handler.
        next_offsets: The next offset of each topic.
        mode: The careful mode of the partition, and the records that have failed.
        event_clock: The event time of the partition; None if the group does not follow it.

    Attributes:
        next_offsets: The next offset of each topic, after the records that were handled.
        outgoing: Outputs and dead letters.
        calls: The calls of handlers, and what they have done since the last commit.
        due: Fires rows that are due; None if no state table has any.
    """

    _group: Group[Any, Any]
    _recovered: Recovered
    _tables: PartitionTables
    _lookups: Mapping[str, WholeTable]
    _clock: Clock
    _around: Around
    next_offsets: dict[str, NextOffset]
    _mode: CarefulMode
    _event_clock: EventClock | None

    def __post_init__(self) -> None:
        partition, topics = self._recovered.partition, self._recovered.topics
        group, tables, mode, clock = self._group, self._tables, self._mode, self._clock
        table, states, records = tables.own, tables.states, tables.records
        self._partition, self._topics = partition, topics
        self._table, self._handled, self._joins = table, tables.handled, tables.joins
        self.outgoing = OutputBuffer(group, topics, clock)
        self._placement = Placement(group, partition, topics)
        self._prefix_headers = prefix_headers(group)
        self._own_keys = _own_keys_of(group, topics, partition)
        handles = {kept.state.name: kept.handle for kept in states}
        self._timers = TimerCalls(group, handles, self._around, clock) if group.timers else None
        services = self._services(handles)
        self._context: Context[Any, Any] = Context(table, services)
        self._batch: BatchContext[Any, Any, Any] = BatchContext(table, group.key, services)
        if self._timers is not None:
            self._timers.context = self._context
        rows = None if table is None else RowJournal(table, self._table_bytes_max, group.table.name)
        self._undo = RecordUndo(rows, [kept.journal for kept in states], self.outgoing, self._joins)
        self.calls = HandlerCalls(group.name, mode, self._undo, self._context, self.outgoing, clock)
        self.due: DueRunner | None = None
        if records is not None and any(kept.state.due is not None for kept in states):
            self.due = DueRunner(
                group, partition, states, records, services, self.calls, self._event_clock, self._timers
            )
        self._choose_rows()
        self._routes = self._make_routes()
        self._calls_of_rows = 0  # of visits; see `position`

    def _services(self, states: Mapping[str, StateTable[Any, Any]]) -> HandlerServices:
        dated = {e.stream.name: e.watermarks for e in self._group.outputs if e.watermarks or e.event_times}
        loop, timers = self._group.loop, None if self._timers is None else self._timers.timers
        return HandlerServices(
            self.outgoing.emit,
            self.outgoing.emit_many,
            self.outgoing.set_aside,
            loop.stream.name if loop else None,
            self._joins,
            self._lookups,
            states,
            self._own_keys,
            self._event_clock,
            timers,
            dated,
            self._recovered.plan.repeats,
        )

    def _make_routes(self) -> dict[str, Route]:
        routes: dict[str, Route] = {name: partial(self._follow, name) for name in self._joins}
        for edge in self._group.inputs:
            routes[edge.stream.name] = self._route_of(edge)
        again: dict[str, Route] = {edge.stream.name: routes[edge.stream.name] for edge in self._group.inputs}
        for change in self._group.changes:
            handler = self._around(change.handler)
            routes[change.table.name] = partial(self._change, change, handler)
            again[change.table.name] = partial(self._change_again, change, handler)
        if self._timers is not None:
            again[self._group.named_topic(CALLS)] = partial(self._accompanied_again, self._timers)
        routes[self._group.retry] = partial(self._one_by_one, partial(self._retry, again))
        visits = {visit.name: (visit, self._around(visit.handler)) for visit in self._group.visits}
        if visits:
            again[self._group.visits_topic] = partial(self._visit, visits)
            routes[self._group.visits_topic] = partial(self._one_by_one, again[self._group.visits_topic])
        return routes

    def _route_of(self, edge: Input[Any, Any, Any]) -> Route:
        handler = None if edge.handler is None else self._around(edge.handler)
        batch, due = partial(self._call_batch, edge), self.due
        due = due if due is not None and due.in_order else None
        accepted = None if self._tables.ids is None else self._tables.ids.accepted.get(edge.stream.name)
        return InputCalls(edge, handler, batch, self.calls, accepted, self._timed(edge), due).handle

    def _timed(self, edge: Input[Any, Any, Any]) -> TimedInput | None:
        if self._event_clock is None or edge.stream.name not in self._group.event_time_inputs:
            return None
        return TimedInput(self._group, edge, self._event_clock, self._clock)

    # ---- records in ------------------------------------------------------------------------------------------------

    def handle(self, records: RecordBatch) -> int:
        """Handle records of one topic. Records below the next offset were handled before and are dropped.

        Args:
            records: Consecutive records of one topic.

        Returns:
            The number of records that were handled. Pass the others again after a commit.

        Raises:
            HandlerFailed: A handler raised and its edge says stop. The records before it can be committed.
            RewindNeeded: A handler raised: rewind, and read again; it is then handled carefully.
            RetryLater: Something outside (a schema registry) does not answer: rewind, wait, and read again.
        """
        topic, expected = records.topic, self.next_offsets[records.topic]
        self._placement.look(records)
        dropped = bisect_left(records.offsets, expected) if records.first_offset < expected else 0
        if dropped:
            records = records.part(dropped, len(records))
        until = self._mode.before_commit(records) if records else 0
        if not until:
            return dropped
        if until < len(records):
            records = records.part(0, until)
        taken = self._routes[topic](records)
        self.calls.records += taken
        self._mode.handled(taken)
        if taken:
            self.next_offsets[topic] = NextOffset(records.offsets[taken - 1] + 1)
        if self.calls.stopped is not None:
            self.next_offsets[topic] = NextOffset(records.offsets[taken])
            raise self.calls.stopped
        return dropped + taken

    @property
    def must_commit(self) -> bool:
        """Whether a commit must come before the next record."""
        return self._mode.commit_reached_by(self.next_offsets)

    @property
    def position(self) -> tuple[int, int, int]:
        """A value that changes whenever a handler has returned; see `BaseTask.position`."""
        fired = 0 if self.due is None else self.due.total
        return self.calls.records, self._calls_of_rows + fired, self._context.index

    def _one_by_one(self, route: Route, records: RecordBatch) -> int:
        for index in range(len(records)):
            self._context.interrupted = False  # not each of these is given to a handler
            if not route(records.part(index, index + 1)):
                return index
            if self._context.interrupted:
                return index + 1
        return len(records)

    def _call_batch(
        self, edge: Input[Any, Any, Any], records: RecordBatch, keys: Sequence[Any], events: Sequence[Any]
    ) -> None:
        if edge.batch is not None:
            self._batch.whole(records, keys, events, edge.batch)
        elif edge.aggregate is not None and self._table is not None and self._own_keys is not None:
            rows = self._undo.rows if self.calls.careful and self._undo.rows is not None else self._table
            raw_keys: Sequence[bytes] = records.keys  # type: ignore[assignment] # no key is None here
            edge.aggregate.fold(OwnRows(rows, raw_keys, self._own_keys), raw_keys, events)

    def _follow(self, table: str, records: RecordBatch) -> int:
        self._joins[table].apply(records)
        return len(records)

    def _change(self, edge: Changes[Any, Any, Any], handler: Handler, records: RecordBatch) -> int:
        table = self._joins[edge.table.name]
        keys = edge.table.key.decode_many(records.keys)
        rows = edge.table.value.decode_many(records.values)
        bad = unfit(records, keys, rows, self._mode, deletions=True)
        for index, (raw, data) in enumerate(zip(records.keys, records.values, strict=True)):
            error, row = bad.get(index), rows.values[index]
            if error is not None and not self.calls.leave_out(edge.on_error, records, index, error):
                return index
            if raw is None or index in keys.poison:
                continue
            before = table.uncommitted(raw)
            # Also of a record that its handler refuses, or that cannot be decoded: it is the table's row nevertheless.
            if index in rows.poison:
                table.apply(records.part(index, index + 1))
                continue
            table.put(raw, data, row, records.timestamp(index))
            if error is None:
                self._context.stand(records, index, keys.values[index])
                if not self._hand_over(edge, handler, records, index, row):
                    table.take_back(raw, before)  # it will come again
                    return index
                if self._context.interrupted:
                    return index + 1
            elif data is None and self._handled is not None:
                self._handled.refused(edge.table.name, raw)
        return len(records)

    def _hand_over(
        self, edge: Changes[Any, Any, Any], handler: Handler, records: RecordBatch, index: int, row: Any
    ) -> bool:
        """Call the handler of a change and remember the value it was given. Returns False if the process must stop at it."""
        handled, key = self._handled, records.keys[index]
        assert handled is not None, "the graph has this table"
        assert key is not None, "a record without a key is a dead letter"

        def call() -> None:
            old = handled.last(edge, key)
            handled.handled(edge.table.name, key, records.values[index])
            if (made := handler(self._context, RowChange(old, row))) is not None:
                check_results([made])

        before, failures = handled.uncommitted(edge.table.name, key), self.calls.failures
        goes_on = self.calls.attempt(edge.on_error, records, index, call)
        if not goes_on or self.calls.failures > failures:
            handled.take_back(edge.table.name, key, before)
            if goes_on and records.values[index] is None:
                handled.refused(edge.table.name, key)
        return goes_on

    def delete_missed(self) -> None:
        """Handle deletions of joined rows that Kafka has deleted before the group read them. Raises like `handle`."""
        for edge in self._group.changes:
            name, when = edge.table.name, (1, int(self._clock.now() * 1000))
            keys = self._joins[name].missed(self.next_offsets[name], ROWS_AT_ONCE)
            if not keys:
                continue
            # Each has a number of its own: by that it is found again if Kafka refuses its outputs.
            made = [MadeMessage(key, None, when, (), -1 - number) for number, key in enumerate(keys)]
            taken = self._routes[name](RecordBatch(name, self._partition, made))
            self.calls.records += taken
            self._mode.handled(taken)
            if self.calls.stopped is not None:
                raise self.calls.stopped

    def _retry(self, again: Mapping[str, Route], record: RecordBatch) -> int:
        """Handle a replayed dead letter as if it came from its origin."""
        origin = Origin.read(record.headers(0))
        route = again.get(origin.topic) if origin else None
        if origin is None:
            reason = "it has no origin headers"
        elif route is None:
            reason = f"its headers name no input of group {self._group.name!r}"
        elif origin.partition != record.partition:
            reason = f"it comes from partition {origin.partition}: its row is in that partition's table"
        else:
            return route(origin.dated(with_prefixes(record, self._prefix_headers.get(origin.topic, ""))))
        self._refuse(record, f"a record in the retry topic cannot be handled: {reason}")
        return 1

    def _accompanied_again(self, timers: TimerCalls, record: RecordBatch) -> int:
        """Change an accompanied timer as its dead letter, or a command, says."""
        return int(self.calls.attempt(OnError.DEAD_LETTER, record, 0, partial(timers.again, record)))

    def _change_again(self, edge: Changes[Any, Any, Any], handler: Handler, record: RecordBatch) -> int:
        """Handle a replayed change. Its old value is the one that the handler was given last, perhaps a later one."""
        keys = edge.table.key.decode_many(record.keys)
        rows = edge.table.value.decode_many(record.values)
        if bad := unfit(record, keys, rows, self._mode, deletions=True):
            return int(self.calls.leave_out(edge.on_error, record, 0, bad[0]))
        self._context.stand(record, 0, keys.values[0])
        return int(self._hand_over(edge, handler, record, 0, rows.values[0]))

    def _visit(self, visits: Mapping[str, tuple[Visit[Any, Any], Handler]], record: RecordBatch) -> int:
        progress = VisitProgress.decode(record.values[0])
        visit, handler = visits.get((record.keys[0] or b"").decode(errors="replace"), (None, None))
        if progress is None or visit is None or handler is None:
            known = ", ".join(visits)
            self._refuse(
                record, f"it asks for no visit that group {self._group.name!r} knows ({known}), or is none"
            )
            return 1
        if progress.done:
            return 1
        if failed := self._mode.failure_of(record.topic, record.first_offset):
            return int(self.calls.leave_out(visit.on_error, record, 0, failed))
        table = self._table
        assert table is not None, "the graph has refused visits without a table"
        after = progress.cursor if progress.visited else None
        keys, cursor, done = table.keys_after(after, ROWS_AT_ONCE)
        call = partial(self._visit_rows, visit, handler, record, progress, keys, cursor, done=done)
        if self.calls.careful and visit.on_error is OnError.SKIP:
            call()
            return 1
        return int(self.calls.attempt(visit.on_error, record, 0, call, keys))

    def _visit_rows(
        self,
        visit: Visit[Any, Any],
        handler: Handler,
        record: RecordBatch,
        progress: VisitProgress,
        keys: Sequence[bytes],
        cursor: bytes,
        *,
        done: bool,
    ) -> None:
        """Visit these rows and record the progress of the visit."""
        row_by_row = self.calls.careful and visit.on_error is OnError.SKIP
        self._context.stand(record, 0, visit.name)
        for raw in keys:
            self._context.stand_at_row(raw, self._group.key.decode(raw))
            call = partial(handler, self._context, progress.argument)
            if row_by_row:
                self.calls.row(visit.on_error, record, raw, call)
            elif (made := call()) is not None:
                check_results([made])
            self._calls_of_rows += 1
        next_ = progress.went_on(cursor, len(keys), done=done)
        self.outgoing.add(
            OutputRecord(self._group.visits_topic, record.keys[0], next_.encode(), partition=self._partition)
        )

    def refused(
        self, outputs: Iterable[int], error: StreamtableError, committed: Mapping[str, NextOffset]
    ) -> bool:
        """As `HandlerCalls.refused`. `committed`: the offsets of the last commit."""
        for topic, offset in self.next_offsets.items():
            if offset > committed[topic]:
                self._mode.commit_at(topic, offset)
        return self.calls.refused(outputs, error)

    # ---- unfit records ---------------------------------------------------------------------------------------------

    def _refuse(self, record: RecordBatch, reason: str) -> None:
        self.outgoing.set_aside(record, 0, DeserializationError(reason))

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Return the changed rows of the group's table, encoded.

        Raises:
            RewindNeeded: A row does not fit: see `HandlerCalls.encoded`.
        """
        table, journal = self._table, self._undo.rows
        if table is None or journal is None:
            return []
        return self.calls.encoded(lambda: table.changes(self._table_bytes_max, journal.encoded))

    def state_changes(self) -> dict[str, Encoded]:
        """Fire what must come first, and return the changed rows of each state table. Raises like `changes` and `DueRunner.run`."""
        if self.due is not None:
            self.due.before_commit()
        return {kept.state.name: self.calls.encoded(kept.changes) for kept in self._tables.states}

    def committed(self, offsets: Mapping[str, NextOffset]) -> None:
        """Note that everything up to these offsets is committed."""
        self.outgoing.forget()
        if self.due is not None:
            self.due.committed()
        for topic, offset in offsets.items():
            self._mode.committed(topic, offset)
        self.calls.committed()
        self._choose_rows()

    def rewind(self, offsets: Mapping[str, NextOffset]) -> None:
        """Drop everything since the last commit and continue at these offsets."""
        self.outgoing.forget()
        if self.due is not None:
            self.due.forget()
        self.next_offsets = dict(offsets)
        self.calls.rewind()
        self._choose_rows()

    def _choose_rows(self) -> None:
        """Let handlers work on the table, or on its journal if each record must be undoable alone."""
        rows = self._undo.rows if self.calls.careful else self._table
        if rows is not None:
            self._context.work_on(rows)
            self._batch.work_on(rows)
        for kept in self._tables.states:
            kept.choose_rows(careful=self.calls.careful)

    @property
    def _table_bytes_max(self) -> int:
        return self._topics[self._group.table.name].max_message_bytes - RECORD_OVERHEAD_BYTES


def _own_keys_of(group: Group[Any, Any], topics: Mapping[str, TopicInfo], partition: int) -> OwnKeys | None:
    if group.persist is None:
        return None
    table = group.table
    return OwnKeys(group.name, table.name, partition, topics[table.name].partitions, hash_of_rows(table))
