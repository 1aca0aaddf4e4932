"""Calls handlers for rows that are due, a slice at a time, so that neither a commit nor a poll waits for all of them."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from streamtable.base.event_time import NO_TIME
from streamtable.base.limited_log import LimitedLog
from streamtable.base.mapped import check_results
from streamtable.base.message import MadeMessage
from streamtable.base.types import RecordBatch
from streamtable.engine.calls.handlers import NOT_THE_RECORDS_FAULT, HandlerCalls
from streamtable.engine.due.chunks import time_of
from streamtable.engine.due.index import DueIndex, key_of
from streamtable.engine.firing.pending import PendingRows
from streamtable.engine.firing.timers import TimerCalls
from streamtable.engine.named.meanings import StateRecords
from streamtable.engine.named.state import KeptState
from streamtable.engine.time.event_time import EventClock
from streamtable.errors import Fatal, HandlerFailed, RewindNeeded
from streamtable.graph.companion import CALLS, Companion, Companions
from streamtable.graph.due import Due
from streamtable.graph.group import Group, OnError
from streamtable.graph.timer import TIMERS, PendingTimers
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.services import HandlerServices

log = structlog.get_logger()

_SLICE_SECONDS = 0.05
_CALL_SECONDS = 0.02  # of a slice, for one call of the handler
_ROWS_AT_FIRST, _ROWS_AT_ONCE_MAX = 64, 1024
_ROWS_OF_SLICE_MAX = 20_000


@dataclass(eq=False)
class DueState:
    """The due rows of one state table in one partition.

    Args:
        kept: The state table.
        due: The due times of its rows, and their handler.
        index: Finds the rows that are due.
        rows: The argument of the handler.
        now_ms: Returns the time that the clock of the rows has reached; None: it has none yet.
        timers: Calls the handlers of timers; None: the rows are no timers.

    Attributes:
        noted: The `position` of the index as of the last commit.
        pending_rows: Counts the rows that have not fallen due.
    """

    kept: KeptState
    due: Due[Any, Any]
    index: DueIndex
    rows: DueRows[Any, Any]
    now_ms: Callable[[], int | None]
    timers: TimerCalls | None
    rows_at_once: int = _ROWS_AT_FIRST

    def __post_init__(self) -> None:
        self.noted = self.index.position
        self.pending_rows = PendingRows(self.index)

    @property
    def name(self) -> str:
        """The name of the state."""
        return self.kept.state.name

    @property
    def pending(self) -> bool:
        """Whether there is work at the present time of the clock."""
        now = self.now_ms()
        return now is not None and (self.unfired or self.index.late or self.index.any_over(now))

    @property
    def unfired(self) -> bool:
        """Whether rows are due that the handler has not been called with."""
        now, first = self.now_ms(), self.index.first_ms
        return now is not None and first is not None and first <= now

    def on_error(self, key: bytes) -> OnError:
        """Return the policy for a failure of the handler with this row."""
        return self.due.on_error if self.timers is None else self.timers.on_error(key)

    def call(self, entries: Sequence[bytes], now: int, *, careful: bool) -> int:
        """Call the handler for the rows of these entries. Returns for how many: its effects may have to come first.

        Raises:
            Fatal: One cannot be decoded. And whatever the handler raises.
        """
        keys = [key_of(entry) for entry in entries]
        decoded = self.kept.state.key.decode_many(keys)
        for index, error in decoded.poison.items():
            raise Fatal(f"the key {keys[index]!r} of a row that is due cannot be decoded: {error.message}")
        # In careful mode, each row is recorded before the handler may change it in place.
        found = self.kept.journal.get_many(keys) if careful else self.kept.table.peek(keys)
        there = [
            ((key, name, row), time_of(entry))
            for key, name, row, entry in zip(keys, decoded.values, found, entries, strict=True)
            if row is not None
        ]
        self.rows.stand([row for row, _ in there], [at for _, at in there], now)
        if self.timers is not None and there:
            return self.timers.call(self.rows)
        if not self.due.keep:
            self.delete(key for (key, _, _), _ in there)  # a chunk names rows that are gone, too
        if there:
            handler: Any = self.due.handler
            check_results([handler(self.rows)])
        return len(entries)

    def delete(self, keys: Iterable[bytes]) -> None:
        """Delete rows."""
        put = self.kept.handle.raw.put
        for key in keys:
            put(key, None)


class DueRunner:
    """Fires the due rows of one partition of a group.

    Args:
        group: The graph.
        partition: The number of the partition.
        kept: Its state tables; tables without rows that fall due are omitted.
        records: The recorded progress of each state table.
        services: The services that handlers can use.
        calls: The calls of handlers, with what they share.
        event_clock: The event time of the partition; None if the group does not follow it.
        timers: Calls the handlers of timers; None if the group has none.

    Attributes:
        fired: The number of rows that were handled, skipped or deleted since the last commit.
        total: The same since the start.
        behind_ms: The lag of the first due row that the last `run` has left over, in milliseconds; 0 if it has left none.
        wakes_at: The wall time, in seconds since 1970, when the next row falls due without further records, as of the
            last `run`; None: there is none.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        partition: int,
        kept: Sequence[KeptState],
        records: StateRecords,
        services: HandlerServices,
        calls: HandlerCalls,
        event_clock: EventClock | None,
        timers: TimerCalls | None,
    ) -> None:
        self.fired = self.total = self.behind_ms = 0
        self.wakes_at: float | None = None
        self._group, self._retry, self._stages = group.name, group.retry, group.stages
        self._partition, self._records, self._calls = partition, records, calls
        self._limited_log = LimitedLog(log, calls.clock)

        def now_of(state: str, kind: str) -> int | None:
            if kind == "wall":
                return int(calls.clock.now() * 1000)
            if event_clock is None:
                return None
            reached = self._reached(state, event_clock.watermark_of(self._stage_of(state)))
            return None if reached <= NO_TIME else reached

        self._states = [
            DueState(
                each,
                each.state.due,
                each.index,
                DueRows(each.state, group.named_topic(each.state.name), partition, services),
                partial(now_of, each.state.name, each.state.due.clock),
                timers if isinstance(each.state, PendingTimers) else None,
            )
            for each in kept
            if each.state.due is not None and each.index is not None
        ]
        self._timers = timers
        self._event_timers = next((each for each in self._states if each.name == TIMERS["event"]), None)
        self._opened = False
        self._companion: Companion | None = None

    def accompany(self, companions: Companions) -> None:
        """Begin the work beside the records, if there is any."""
        for each in self._states:
            if self._timers is not None and each.name == CALLS:
                self._companion = self._timers.companion = companions.open(self._partition, each.kept.handle)

    def leave(self) -> None:
        """End the work beside the records: another process continues it."""
        if self._companion is not None:
            self._companion.close()

    # ---- due work ----------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Do a slice of the work. Returns whether there was any.

        Raises:
            RewindNeeded: A handler has failed: rewind; it is called carefully then.
            HandlerFailed: A handler has failed, and the process must stop, after a commit of the rows before it.
        """
        self._open()
        before = self.total
        if self._companion is not None:
            self._count(self._companion.work())
        end = self._calls.clock.monotonic() + _SLICE_SECONDS
        held = False
        for each in self._states:
            self._look(each)
            # Due rows of one state may change rows of later states before those are due.
            follows = each.due.clock == "event" and each is not self._event_timers
            if each.pending and not (held and follows):
                self._run(each, end)
                held |= follows and each.unfired
        self.behind_ms = max(map(self._behind_ms, self._states), default=0)
        self.wakes_at = min(filter(None, map(self._wakes_at, self._states)), default=None)
        return self.total > before

    def count_rows(self, limit: int) -> Mapping[str, int]:
        """Count further rows, `limit` of each state. Return the number not yet due, by topic. Called by one thread."""
        return {each.rows.topic: each.pending_rows.step(limit) for each in self._states}

    def before_commit(self) -> None:
        """Fire the rows that the commit must not overtake, and fix the positions of all. Raises like `run`."""
        self._open()
        for each in self._states:
            self._look(each)
            while each.index.late:
                self._fire(each, each.now_ms() or 0)
                self._look(each)
            each.index.before_commit()
            self._records.note(each.name, each.noted, each.index.position)

    def committed(self) -> None:
        """Note that everything is committed and in the stores."""
        self.fired = 0
        for each in self._states:
            each.noted = each.index.position
            each.index.committed()
            self._calls.mode.committed(each.rows.topic, each.index.fired_from)
        if self._companion is not None:
            self._companion.committed()

    def forget(self) -> None:
        """Drop everything since the last commit."""
        self.fired = 0
        for each in self._states:
            each.index.forget(*each.noted)
        if self._companion is not None:
            self._companion.undone()

    def _wakes_at(self, each: DueState) -> float | None:
        if each.pending:
            return 0.001
        first = each.index.first_ms
        return first / 1000 if first is not None and each.due.clock == "wall" else None

    def _stage_of(self, state: str) -> int:
        return self._stages.states.get(state, self._stages.last if state in TIMERS.values() else 0)

    def _reached(self, state: str, watermark_ms: int) -> int:
        """Return the time that the rows of a state fall due up to."""
        return watermark_ms - self._stages.lags.get(state, 0)

    def passed_on_ms(self, stage: int, watermark_ms: int) -> int:
        """Return the watermark for readers of the outputs of a stage: rows make no earlier event later.

        Args:
            stage: The stage.
            watermark_ms: Its watermark.
        """
        beside = None if self._companion is None else self._companion.oldest_ms()
        least = watermark_ms if beside is None else min(beside, watermark_ms)
        for each in self._in_event_time(stage):
            self._look(each)
            first = each.index.first_ms
            now = self._reached(each.name, watermark_ms)
            least = min(least, (now if first is None else min(first, now)) - each.due.holds_ms)
        return least

    def awaits(self, stage: int) -> bool:
        """Return whether rows of a stage, or of one before it, are still to fall due in event time, or are worked on."""
        if self._companion is not None and self._companion.oldest_ms() is not None:
            return True
        return any(each.index.first_ms is not None for each in self._in_event_time(stage))

    def _in_event_time(self, stage: int) -> Iterator[DueState]:
        timed = (each for each in self._states if each.due.clock == "event")
        return (each for each in timed if self._stage_of(each.name) <= stage)

    @staticmethod
    def _behind_ms(each: DueState) -> int:
        now, first = each.now_ms(), each.index.first_ms
        return 0 if now is None or first is None else max(0, now - first)

    # ---- timers in event time, between records ---------------------------------------------------------------------

    @property
    def in_order(self) -> bool:
        """Whether there are event-time timers, which fire in order between the records as the watermark reaches them."""
        return self._event_timers is not None

    def holds(self, topic: str) -> bool:
        """Whether records of a topic wait: more of these timers are due than one call handles, or the companion is full."""
        timers = self._event_timers
        return self._full_for(topic) or (timers is not None and self._opened and timers.pending)

    def _full_for(self, topic: str) -> bool:
        # Commands, which may make it less full, are records of the retry topic.
        return self._companion is not None and self._companion.full and topic != self._retry

    def fire_timers(self, topic: str) -> bool:
        """Fire a slice of the due timers. Returns whether records of a topic may follow. Raises like `run`."""
        full = self._full_for(topic)
        if full or self._event_timers is None:
            return not full
        self._open()
        self._look(self._event_timers)
        if self._event_timers.pending:
            self._run(self._event_timers, self._calls.clock.monotonic() + _SLICE_SECONDS)
        self._interrupt_up_to(self._event_timers.now_ms())
        return not self._event_timers.pending

    def before_timers(self, records: RecordBatch) -> int:
        """Return the number of the records that come before the next timer. A timer set meanwhile interrupts the context.

        Args:
            records: Consecutive records that are about to be handled, after `fire_timers`.
        """
        assert self._event_timers is not None, "asked only if there are some"
        if records.times is None:
            return len(records)
        until, first, marks = len(records), self._event_timers.index.first_ms, records.times.watermarks_ms
        if first is not None:
            until = bisect_left(marks, first, 1)  # none is due before the first record
        self._interrupt_up_to(marks[until - 1])
        return until

    def _interrupt_up_to(self, limit_ms: int | None) -> None:
        assert self._timers is not None, "the group has event timers"
        self._timers.limit_ms = -1 if limit_ms is None else limit_ms

    # ---- slices ----------------------------------------------------------------------------------------------------

    def _run(self, each: DueState, end: float) -> None:
        now = each.now_ms()
        assert now is not None, "something is pending"
        until = self.total + _ROWS_OF_SLICE_MAX
        while self.total < until and self._fire(each, now):
            self._look(each)
            if self._calls.clock.monotonic() >= end:
                return
        while self.total < until and each.index.any_over(now):
            keys = each.index.over(now, _ROWS_AT_ONCE_MAX)
            each.delete(keys)
            self._count(len(keys))
            if self._calls.clock.monotonic() >= end:
                return

    def _fire(self, each: DueState, now: int) -> int:
        """Call the handler for the next rows. Returns the number of rows."""
        # In careful mode one by one, as a handler may change which row is next.
        entries = each.index.take(now, 1 if self._calls.careful else each.rows_at_once)
        if not entries:
            return 0
        began = self._calls.clock.monotonic()
        done = self._call(each, entries, now)
        took = self._calls.clock.monotonic() - began
        if took > _CALL_SECONDS:
            each.rows_at_once = max(1, each.rows_at_once // 2)
        elif took < _CALL_SECONDS / 4 and done == each.rows_at_once:
            each.rows_at_once = min(each.rows_at_once * 2, _ROWS_AT_ONCE_MAX)
        return done

    def _call(self, each: DueState, entries: Sequence[bytes], now: int) -> int:
        if self._calls.careful:
            try:
                self._fire_carefully(each, entries[0], now)
            except BaseException:
                each.index.give_back(entries)
                raise
            return 1
        return self._fire_fast(each, entries, now)

    def _fire_fast(self, each: DueState, entries: Sequence[bytes], now: int) -> int:
        try:
            done = each.call(entries, now, careful=False)
        except NOT_THE_RECORDS_FAULT:
            raise
        except Exception as error:
            self._limited_log.warning(
                "handler of due rows failed: rewinding to the last commit, records are reprocessed one by one",
                error=str(self._failure(each, error)),
                exc_info=error,
            )
            self._calls.mode.begin(self._calls.records + self.fired + len(entries))
            raise RewindNeeded("a handler failed").at(each.rows.topic, self._partition) from error
        each.index.fired(entries[done - 1])
        each.index.give_back(entries[done:])
        self._count(done)
        return done

    def _fire_carefully(self, each: DueState, entry: bytes, now: int) -> None:
        key = key_of(entry)
        message = MadeMessage(key, each.kept.table.peek_encoded(key), (1, time_of(entry)))
        record, on_error = RecordBatch(each.rows.topic, self._partition, [message]), each.on_error(key)
        if refused := self._calls.mode.failure_of(record.topic, entry):  # Kafka did, what it has emitted
            error: BaseException | None = refused.__cause__
        else:
            call = partial(each.call, [entry], now, careful=True)
            error = self._calls.alone(call, partial(self._calls.undo.keep, record, 0, on_error), ())
        if error is not None:
            self._give_up(each, record, on_error, error)
        each.index.fired(entry)
        self._calls.mode.handled(1)
        self._count(1)

    def _give_up(self, each: DueState, record: RecordBatch, on_error: OnError, error: BaseException) -> None:
        """Handle a failed row by its `on_error` policy."""
        self._calls.failures += 1
        self._calls.mode.begin(0)
        failed = self._failure(each, error)
        if on_error is OnError.STOP:
            if each.name == CALLS:  # it stands in no topic, where `group skip` could pass over it
                failed.message += (
                    f". Correct the handler, or delete it: 'streamtable calls list {self._group}' shows its id, for "
                    f"'streamtable calls drop {self._group} --id ID'"
                )
            raise failed
        self._calls.undo.begin()
        if on_error is OnError.DEAD_LETTER:
            self._calls.outgoing.set_aside(record, 0, failed)
        else:
            self._limited_log.warning("due row is skipped", group=self._group, error=str(failed))
        if not each.due.keep:
            each.delete([record.messages[0].key()])
        self._calls.undo.keep_unsourced()

    def _failure(self, each: DueState, error: BaseException) -> HandlerFailed:
        failed = HandlerFailed(
            f"the handler of rows of state {each.name!r} of group {self._group!r} that are due raised "
            f"{type(error).__name__}: {error}"
        )
        failed.__cause__ = error
        return failed.at(each.rows.topic, self._partition)

    def _count(self, rows: int) -> None:
        self.fired += rows
        self.total += rows

    def _look(self, each: DueState) -> None:
        self._calls.encoded(each.index.look)

    # ---- progress ---------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Read the recorded progress. Deferred until first use, where a damaged store can be repaired."""
        if not self._opened:
            for each in self._states:
                each.noted = self._records.noted(each.name)
                each.index.forget(*each.noted)
                each.index.look_for_kept()
            self._opened = True
