"""Records to handlers: decode, leave out what is unfit, call user code, and find the record that made it fail."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import compress
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.context import Batch, Context, Reach, RowChange, Whole
from streamtable.deadletter import RECORD_OVERHEAD_BYTES, Origin, OutputRecord
from streamtable.engine.deferral import Deferral, Deferrals
from streamtable.engine.handled import HandledRows
from streamtable.engine.ids import IdTable
from streamtable.engine.outgoing import Outgoing
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
from streamtable.graph import Changes, Group, Input, OnError, Visit
from streamtable.joined import Joined
from streamtable.ports import Decoded, TopicInfo
from streamtable.table import PartitionTable
from streamtable.types import NextOffset, RecordBatch
from streamtable.visiting import ROWS_AT_ONCE, VisitProgress

log = structlog.get_logger()

Handler = Callable[[Any, Any], None]
Around = Callable[[Handler], Handler]
"""Makes a handler of a handler, for tracing and the like; asked in each partition for each handler of the graph."""

Route = Callable[[RecordBatch, bool], None]
"""Handles records of one topic; true: each for itself, with a look at what it made."""

_NOT_THE_RECORDS_FAULT = (Fatal, StoreCorrupted, GraphError, RetryLater)


class Handling:
    """What happens to the records of one partition of a group. What it makes of them is dropped or committed as a whole.

    Args:
        group: the graph.
        partition: its number.
        topics: all topics of the group as the broker describes them.
        table: the partition's rows; None if the group keeps none.
        ids: of the events that count once; None if no input has `once`.
        handled: what the handlers of `Changes` were given last; None if there are none.
        joins: the partition's part of each joined table.
        lookups: whole tables, by name.
        clock: for the time in dead letters.
        around: goes around each handler.
        next_offsets: where each topic goes on.

    Attributes:
        next_offsets: after what was handled.
        outgoing: outputs and dead letters.
        deferrals: what handlers have put off.
        records: handled since the last commit.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        partition: int,
        topics: Mapping[str, TopicInfo],
        *,
        table: PartitionTable[Any] | None,
        ids: IdTable | None,
        handled: HandledRows | None,
        joins: Joined,
        lookups: Mapping[str, Whole],
        clock: Clock,
        around: Around | None,
        next_offsets: Mapping[str, NextOffset],
    ) -> None:
        self.next_offsets = dict(next_offsets)
        self.outgoing = Outgoing(group, topics, clock)
        self.deferrals = Deferrals()
        self.records = 0
        self._group = group
        self._partition = partition
        self._topics = topics
        self._table = table
        self._ids = ids
        self._handled = handled
        self._joins = joins
        self._around = around or (lambda handler: handler)
        loop = group.loop.stream.name if group.loop else None
        reach = Reach(self.outgoing.emit, self.deferrals.add, loop, joins, lookups)
        self._context: Context[Any, Any] = Context(table, reach)
        self._batch: Batch[Any, Any, Any] = Batch(table, group.key, reach)
        self._routes = self._make_routes()
        # Offsets that made their handler raise, by topic: the replay leaves them out.
        self._condemned: dict[str, dict[int, HandlerFailed]] = {}
        # Up to here, by topic, records are handled one at a time, to find the one that a batch failed on.
        self._careful_until: dict[str, int] = {}
        self._unchecked = False  # a record since the last commit was handled without looking at what it made

    def _make_routes(self) -> dict[str, Route]:
        routes: dict[str, Route] = {name: partial(self._follow, name) for name in self._joins}
        for edge in self._group.inputs:
            routes[edge.stream.name] = self._route_of(edge)
        again: dict[str, Route] = {edge.stream.name: routes[edge.stream.name] for edge in self._group.inputs}
        for change in self._group.changes:
            handler = self._around(change.handler)
            routes[change.table.name] = partial(self._change, change, handler)
            again[change.table.name] = partial(self._change_again, change, handler)
        routes[self._group.retry] = partial(self._one_by_one, partial(self._retry, again))
        visits = {visit.name: (visit, self._around(visit.handler)) for visit in self._group.visits}
        if visits:
            again[self._group.visits_topic] = partial(self._visit, visits)
            routes[self._group.visits_topic] = partial(self._one_by_one, again[self._group.visits_topic])
        return routes

    def _route_of(self, edge: Input[Any, Any, Any]) -> Route:
        if edge.handler is not None:
            return partial(self._run, edge, self._around(edge.handler))
        return partial(self._run, edge, None)

    # ---- records in ------------------------------------------------------------------------------------------------

    def handle(self, records: RecordBatch) -> None:
        """Handle records of one topic. Those below the next offset have been handled before: dropped.

        Raises:
            HandlerFailed: a handler raised and its edge says stop.
            RewindNeeded: a handler raised and its edge says go on without the record: rewind, and read again.
            RetryLater: something outside (a schema registry) does not answer: rewind, wait, and read again.
        """
        topic, expected = records.topic, self.next_offsets[records.topic]
        if records.first_offset < expected:
            records = records.part(bisect_left(records.offsets, expected), len(records))
            if not records:
                return
        self.records += len(records)
        route = self._routes[topic]
        if records.first_offset < self._careful_until.get(topic, 0):
            self._one_by_one(route, records, True)
        else:
            route(records, False)
        self.next_offsets[topic] = NextOffset(records.last_offset + 1)

    def _one_by_one(self, route: Route, records: RecordBatch, _: bool) -> None:  # noqa: FBT001 - a Route
        for index in range(len(records)):
            route(records.part(index, index + 1), True)

    def _run(
        self,
        edge: Input[Any, Any, Any],
        handler: Handler | None,
        records: RecordBatch,
        careful: bool,  # noqa: FBT001 - a Route
    ) -> None:
        keys = edge.stream.key.decode_many(records.keys)
        events = edge.stream.value.decode_many(records.values)
        bad = self._unfit(records, keys, events)
        if bad:
            self._leave_out(edge.on_error, records, bad)
            keep = [index not in bad for index in range(len(records))]
            if not any(keep):
                return
            records = records.only(keep)
            keys = Decoded([k for k, good in zip(keys.values, keep, strict=True) if good], {})
            events = Decoded([e for e, good in zip(events.values, keep, strict=True) if good], {})
        if edge.once is not None:
            fresh = self._first_seen(edge, records, keys.values, events.values)
            if fresh is not None:
                records, keys, events = fresh
                if not records:
                    return

        def call() -> None:
            if handler is not None:
                self._context.each(records, keys.values, events.values, handler)
            elif edge.batch is not None:
                self._batch.whole(records, keys.values, events.values, edge.batch)
            elif edge.aggregate is not None and self._table is not None:
                edge.aggregate.fold(self._table, records.keys, events.values)  # type: ignore[arg-type] # no key is None here

        self._guarded(edge.on_error, records, call, careful=careful, singly=handler is not None)

    def _first_seen(
        self, edge: Input[Any, Any, Any], records: RecordBatch, keys: Sequence[Any], events: Sequence[Any]
    ) -> tuple[RecordBatch, Decoded[Any], Decoded[Any]] | None:
        """The records that are no repeats; None if none of them is one."""
        assert self._ids is not None, "the graph has this table"
        keep, failed = self._ids.sift(edge, records, events, again=records.topic == self._group.retry)
        for index, error in failed.items():
            failure = self._handler_failed(records, index, error)
            if edge.on_error is OnError.STOP:
                raise failure from error
            self._leave_out(edge.on_error, records, {index: failure})
        if keep is None:
            return None
        good = Decoded(list(compress(keys, keep)), {}), Decoded(list(compress(events, keep)), {})
        return records.only(keep), *good

    def _follow(self, table: str, records: RecordBatch, _: bool) -> None:  # noqa: FBT001 - a Route
        self._joins[table].apply(records)

    def _change(
        self,
        edge: Changes[Any, Any, Any],
        handler: Handler,
        records: RecordBatch,
        careful: bool,  # noqa: FBT001 - a Route
    ) -> None:
        table = self._joins[edge.table.name]
        keys = edge.table.key.decode_many(records.keys)
        rows = edge.table.value.decode_many(records.values)
        bad = self._unfit(records, keys, rows, deletions=True)
        self._leave_out(edge.on_error, records, bad)

        def call() -> None:
            for index, (raw, data) in enumerate(zip(records.keys, records.values, strict=True)):
                error, row = bad.get(index), rows.values[index]
                if raw is None or (error is not None and not isinstance(error, HandlerFailed)):
                    continue
                # Also of a record that its handler refuses: it is the table's row all the same.
                table.put(raw, data, row, records.timestamp(index))
                if error is None:
                    self._context.stand(records, index, keys.values[index])
                    self._hand_over(edge, handler, raw, data, row)

        self._guarded(edge.on_error, records, call, careful=careful, singly=True)

    def _hand_over(
        self, edge: Changes[Any, Any, Any], handler: Handler, key: bytes, data: bytes | None, row: Any
    ) -> None:
        """Call the handler of a change, and remember what it was given."""
        assert self._handled is not None, "the graph has this table"
        old = self._handled.last(edge, key)
        self._handled.handled(edge.table.name, key, data)
        handler(self._context, RowChange(old, row))

    def _retry(self, again: Mapping[str, Route], record: RecordBatch, careful: bool) -> None:  # noqa: FBT001 - a Route
        """A dead letter sent again: handled as if it came from its origin."""
        origin = Origin.read(record.headers(0))
        route = again.get(origin.topic) if origin else None
        if route is None or origin is None or origin.partition != record.partition:
            if origin is None:
                reason = "it has no origin headers"
            elif route is None:
                reason = f"its headers name no input of group {self._group.name!r}"
            else:
                reason = f"it comes from partition {origin.partition}: its row is in that partition's table"
            self._refuse(record, f"a record in the retry topic cannot be handled: {reason}")
        else:
            route(record, careful)

    def _change_again(
        self,
        edge: Changes[Any, Any, Any],
        handler: Handler,
        record: RecordBatch,
        careful: bool,  # noqa: FBT001 - a Route
    ) -> None:
        """A change that was refused, sent again: its old value is what the handler was given last, perhaps of a later one."""
        keys = edge.table.key.decode_many(record.keys)
        rows = edge.table.value.decode_many(record.values)
        if bad := self._unfit(record, keys, rows, deletions=True):
            self._leave_out(edge.on_error, record, bad)
            return

        def call() -> None:
            self._context.stand(record, 0, keys.values[0])
            raw = record.keys[0]
            assert raw is not None, "it would have been set aside"
            self._hand_over(edge, handler, raw, record.values[0], rows.values[0])

        self._guarded(edge.on_error, record, call, careful=careful, singly=True)

    def _visit(
        self,
        visits: Mapping[str, tuple[Visit[Any, Any], Handler]],
        record: RecordBatch,
        careful: bool,  # noqa: FBT001 - a Route
    ) -> None:
        progress = VisitProgress.decode(record.values[0])
        visit, handler = visits.get((record.keys[0] or b"").decode(errors="replace"), (None, None))
        if progress is None or visit is None or handler is None:
            known = ", ".join(visits)
            self._refuse(
                record, f"it asks for no visit that group {self._group.name!r} knows ({known}), or is none"
            )
            return
        if progress.done:
            return
        if condemned := self._condemned.get(record.topic, {}).get(record.first_offset):
            self._leave_out(visit.on_error, record, {0: condemned})
            return
        table, decode = self._table, self._group.key.decode
        assert table is not None, "the graph has refused visits without a table"
        after = bytes.fromhex(progress.cursor) if progress.visited else None
        keys, cursor, done = table.keys_after(
            after, ROWS_AT_ONCE
        )  # here: `checked` hides rows changed before

        def call() -> None:
            self._context.stand(record, 0, visit.name)
            for key in keys:
                self._context.stand_at_row(key, decode(key))
                handler(self._context, progress.argument)
            next_ = progress.went_on(cursor, len(keys), done=done)
            self.outgoing.add(
                OutputRecord(
                    self._group.visits_topic, record.keys[0], next_.encode(), partition=self._partition
                )
            )

        self._guarded(visit.on_error, record, call, careful=careful, singly=True)

    def finish(self, deferral: Deferral, result: Any) -> None:
        """Hand over what a deferred awaitable has come to. Raises as `handle`."""

        def call() -> None:
            self._context.stand(deferral.records, deferral.index, deferral.key)
            self._context.stand_at_row(deferral.raw_key, deferral.key)
            if isinstance(result, asyncio.CancelledError):
                raise HandlerFailed("what it has deferred was cancelled") from result
            if isinstance(result, BaseException):
                raise result
            deferral.then(self._context, result)

        self.deferrals.finishing = True
        try:
            # Checked, though the record itself was not: a row that is too large must be found to be this one's.
            self._guarded(deferral.on_error, deferral.records, call, careful=True, singly=True)
        finally:
            self.deferrals.finishing = False

    # ---- what is wrong with records --------------------------------------------------------------------------------

    def _unfit(
        self, records: RecordBatch, keys: Decoded[Any], events: Decoded[Any], *, deletions: bool = False
    ) -> dict[int, StreamtableError]:
        """Records that no handler must see, by index. `deletions`: a record without a value has a meaning."""
        bad: dict[int, StreamtableError] = {}
        if None in records.keys:
            missing = (index for index, key in enumerate(records.keys) if key is None)
            bad.update(
                (index, PoisonRecord("the record has no key; this group is keyed")) for index in missing
            )
        if not deletions and None in records.values:
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

    def _leave_out(
        self, on_error: OnError, records: RecordBatch, bad: Mapping[int, StreamtableError]
    ) -> None:
        for index, error in sorted(bad.items()):
            if isinstance(error, HandlerFailed) and on_error is OnError.SKIP:
                log.warning("record is skipped", group=self._group.name, error=str(error))
            else:
                self.outgoing.set_aside(records, index, error)

    def _refuse(self, record: RecordBatch, reason: str) -> None:
        self.outgoing.set_aside(record, 0, PoisonRecord(reason))

    # ---- user code -------------------------------------------------------------------------------------------------

    def _guarded(
        self,
        on_error: OnError,
        records: RecordBatch,
        call: Callable[[], None],
        *,
        careful: bool,
        singly: bool,
    ) -> None:
        """Run what calls handlers. `singly`: the context tells which record failed. `careful`: what they make is
        looked at before the next.
        """
        if careful and self._unchecked:
            self.changes()  # a row that a record before has made too large would be laid at this one's door
        self._unchecked = not careful
        self.deferrals.on_error = on_error
        checked = self._table.checked(self._table_bytes_max) if careful and self._table else nullcontext()
        try:
            with checked:
                call()
        except _NOT_THE_RECORDS_FAULT:
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything; it is reported with its place
            index = self._context.index if singly else None if len(records) > 1 else 0
            self._failed(on_error, records, index, error)

    def _failed(self, on_error: OnError, records: RecordBatch, index: int | None, error: Exception) -> None:
        offset = None if index is None else records.offsets[index]
        failed = self._handler_failed(records, index, error)
        if on_error is OnError.STOP:
            raise failed from error
        log.warning(
            "handler failed, its batch is undone and read again",
            error=str(failed), then=on_error.value, exc_info=error,
        )  # fmt: skip
        if offset is None:
            self._careful_until[records.topic] = records.last_offset + 1
        else:
            self._condemned.setdefault(records.topic, {})[offset] = failed
        raise RewindNeeded(
            "a handler failed", topic=records.topic, partition=records.partition, offset=offset
        )

    def _handler_failed(self, records: RecordBatch, index: int | None, error: Exception) -> HandlerFailed:
        failed = HandlerFailed(
            f"the handler of group {self._group.name!r} raised {type(error).__name__}: {error}",
            topic=records.topic,
            partition=records.partition,
            offset=None if index is None else records.offsets[index],
        )
        failed.__cause__ = error
        return failed

    # ---- commit and rewind -----------------------------------------------------------------------------------------

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """The changed rows of the group's table, encoded.

        Raises:
            RewindNeeded: a row does not fit its schema or its topic: the records since the last commit are read again
                one by one, to find the one that made it.
        """
        if self._table is None:
            return []
        try:
            return self._table.changes(self._table_bytes_max)
        except StreamtableError as error:
            self._careful_until.update(self.next_offsets)
            raise RewindNeeded(error.message, topic=error.topic, partition=self._partition) from error

    def committed(self, offsets: Mapping[str, NextOffset]) -> None:
        """All that was handled is done with, up to here."""
        self._forget()
        for topic, offset in offsets.items():
            if offset >= self._careful_until.get(topic, offset):
                self._careful_until.pop(topic, None)
            if condemned := self._condemned.get(topic):
                self._condemned[topic] = {o: error for o, error in condemned.items() if o >= offset}

    def rewind(self, offsets: Mapping[str, NextOffset]) -> None:
        """All that was handled is undone: it goes on here."""
        self._forget()
        self.next_offsets = dict(offsets)

    def _forget(self) -> None:
        self.records = 0
        self._unchecked = False
        self.outgoing.forget()
        self.deferrals.forget()

    @property
    def _table_bytes_max(self) -> int:
        return self._topics[self._group.table.name].max_message_bytes - RECORD_OVERHEAD_BYTES
