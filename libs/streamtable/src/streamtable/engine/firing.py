"""Hands rows that are due to their handlers, a slice at a time, so that neither a commit nor a poll has to wait for all."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.due import Due, DueRows
from streamtable.engine.calls import NOT_THE_RECORDS_FAULT, HandlerCalls
from streamtable.engine.careful import CarefulMode
from streamtable.engine.due import DueIndex, key_of, time_of
from streamtable.engine.limitedlog import LimitedLog
from streamtable.engine.meanings import StateRecords
from streamtable.engine.output import OutputBuffer
from streamtable.engine.state import KeptState
from streamtable.engine.undo import RecordUndo
from streamtable.errors import Fatal, HandlerFailed, RewindNeeded
from streamtable.graph import Group, OnError
from streamtable.handler_services import HandlerServices
from streamtable.types import RecordBatch

log = structlog.get_logger()

_SLICE_SECONDS = 0.05
_CALL_SECONDS = 0.02  # of a slice, for one call of the handler
_ROWS_AT_FIRST, _ROWS_AT_ONCE_MAX = 64, 4096
_ROWS_OF_SLICE_MAX = 20_000


class DueState:
    """The rows of one state table that fall due, in one partition.

    Args:
        kept: The state table.
        due: When its rows fall due.
        index: Finds those that are.
        rows: What the handler is given.
        now_ms: Returns the time that their clock has reached; None: it has none yet.
    """

    def __init__(
        self,
        kept: KeptState,
        due: Due[Any, Any],
        index: DueIndex,
        rows: DueRows[Any, Any],
        now_ms: Callable[[], int | None],
    ) -> None:
        self.kept = kept
        self.due = due
        self.index = index
        self.rows = rows
        self.now_ms = now_ms
        self.rows_at_once = _ROWS_AT_FIRST

    @property
    def name(self) -> str:
        """The name of the state."""
        return self.kept.state.name

    @property
    def pending(self) -> bool:
        """There is something to do at the present time of its clock."""
        now = self.now_ms()
        if now is None:
            return False
        first = self.index.first_ms
        return (first is not None and first <= now) or self.index.late or self.index.any_over(now)

    def stand(self, entries: Iterable[bytes], now: int, *, careful: bool) -> None:
        """Move what the handler is given to the rows of these entries. Raises `Fatal`: one cannot be decoded."""
        keys = [key_of(entry) for entry in entries]
        decoded = self.kept.state.key.decode_many(keys)
        for index, error in decoded.poison.items():
            raise Fatal(f"the key {keys[index]!r} of a row that is due cannot be decoded: {error.message}")
        # Carefully, each is noted before the handler may change it in place.
        rows = self.kept.journal.get_many(keys) if careful else self.kept.table.peek(keys)
        found = zip(keys, decoded.values, rows, strict=True)
        self.rows.stand([each for each in found if each[2] is not None], now)


class DueRunner:
    """Fires what is due in one partition of a group.

    Args:
        group: The graph.
        partition: The number of the partition.
        kept: Its state tables; those without rows that fall due are left out.
        records: Where it is noted how far each has come.
        reach: What handlers can reach.
        calls: Whether handlers are called carefully.
        mode: What is known of failures.
        undo: Takes back what a failed handler has done.
        outgoing: Where dead letters go.
        clock: The wall clock, and the monotonic one for the length of slices.
        watermark_ms: Returns the watermark; None: there is none yet.

    Attributes:
        fired: The number of rows that were handed over, left out or deleted since the last commit.
        total: The same since the start.
        wakes_at: The wall time, in seconds since 1970, from which on there is something to do without more records, as
            the last `run` has left it; None: nothing.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        partition: int,
        kept: Sequence[KeptState],
        records: StateRecords,
        reach: HandlerServices,
        calls: HandlerCalls,
        mode: CarefulMode,
        undo: RecordUndo,
        outgoing: OutputBuffer,
        clock: Clock,
        watermark_ms: Callable[[], int | None],
    ) -> None:
        self.fired = self.total = 0
        self.wakes_at: float | None = None
        self._group = group.name
        self._partition = partition
        self._records = records
        self._calls = calls
        self._mode = mode
        self._undo = undo
        self._outgoing = outgoing
        self._clock = clock
        self._said = LimitedLog(log, clock)
        clocks = {"event": watermark_ms, "wall": lambda: int(clock.now() * 1000)}
        self._states = [
            DueState(
                each,
                each.state.due,
                each.index,
                DueRows(each.state, group.named_topic(each.state.name), partition, reach),
                clocks[each.state.due.clock],
            )
            for each in kept
            if each.state.due is not None and each.index is not None
        ]
        self._opened = False

    # ---- when there is something to do -----------------------------------------------------------------------------

    def run(self) -> bool:
        """Do a slice of what there is to do. Returns whether that was something.

        Raises:
            RewindNeeded: A handler has failed: rewind; it is called carefully then.
            HandlerFailed: A handler has failed, and is to stop the process, after a commit of what is good.
        """
        self._open()
        before = self.total
        end = self._clock.monotonic() + _SLICE_SECONDS
        for each in self._states:
            self._look(each)
            if each.pending:
                self._run(each, end)
        self.wakes_at = min(filter(None, map(self._wakes_at, self._states)), default=None)
        return self.total > before

    def before_commit(self) -> None:
        """Fire what must not be committed without, and note how far all have come. Raises as `run`."""
        self._open()
        for each in self._states:
            self._look(each)
            while each.index.late:
                self._fire(each, 0, each.rows_at_once)
                self._look(each)
            self._records.note(each.name, each.index.fired_from, each.index.kept_from)

    def committed(self) -> None:
        """All of that is committed, and in the stores."""
        self.fired = 0
        for each in self._states:
            each.index.committed()

    def forget(self) -> None:
        """All since the last commit is undone."""
        self.fired = 0
        for each in self._states:
            each.index.forget(*self._noted(each))

    def _wakes_at(self, each: DueState) -> float | None:
        if each.pending:
            return 0.001
        first = each.index.first_ms
        return first / 1000 if first is not None and each.due.clock == "wall" else None

    # ---- slices ----------------------------------------------------------------------------------------------------

    def _run(self, each: DueState, end: float) -> None:
        now = each.now_ms()
        assert now is not None, "something is pending"
        until = self.total + _ROWS_OF_SLICE_MAX
        while self.total < until and self._fire(each, now, each.rows_at_once):
            self._look(each)
            if self._clock.monotonic() >= end:
                return
        while self.total < until and each.index.any_over(now):
            keys = each.index.over(now, _ROWS_AT_ONCE_MAX)
            self._delete(each, keys)
            self._count(len(keys))
            if self._clock.monotonic() >= end:
                return

    def _fire(self, each: DueState, now: int, limit: int) -> int:
        """Hand over the next rows. Returns how many there were."""
        entries = each.index.take(now, limit)
        if not entries:
            return 0
        began = self._clock.monotonic()
        if self._calls.careful:
            for number, entry in enumerate(entries):
                try:
                    self._fire_carefully(each, entry, now)
                except BaseException:
                    each.index.give_back(entries[number:])
                    raise
        else:
            self._fire_fast(each, entries, now)
        took = self._clock.monotonic() - began
        if took > _CALL_SECONDS:
            each.rows_at_once = max(1, each.rows_at_once // 2)
        elif took < _CALL_SECONDS / 4 and len(entries) == limit:
            each.rows_at_once = min(each.rows_at_once * 2, _ROWS_AT_ONCE_MAX)
        return len(entries)

    def _fire_fast(self, each: DueState, entries: Sequence[bytes], now: int) -> None:
        each.stand(entries, now, careful=False)
        try:
            each.due.handler(each.rows)
        except NOT_THE_RECORDS_FAULT:
            raise
        except Exception as error:
            self._said.warning(
                "handler of rows that are due failed, what came since the last commit is done again one by one",
                error=str(self._failure(each, error)), exc_info=error,
            )  # fmt: skip
            self._mode.begin(self._calls.records + self.fired + len(entries))
            raise RewindNeeded(
                "a handler failed", topic=each.rows.topic, partition=self._partition
            ) from error
        if not each.due.keep:
            self._delete(each, [key_of(entry) for entry in entries])
        each.index.fired(entries[-1])
        self._count(len(entries))

    def _fire_carefully(self, each: DueState, entry: bytes, now: int) -> None:
        self._undo.begin()
        each.stand([entry], now, careful=True)
        try:
            each.due.handler(each.rows)
            if not each.due.keep:
                self._delete(each, [key_of(entry)])
            self._undo.keep_unsourced()
        except NOT_THE_RECORDS_FAULT:
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            self._undo.undo(())
            self._give_up(each, entry, error)
        each.index.fired(entry)
        self._mode.handled(1)
        self._count(1)

    def _give_up(self, each: DueState, entry: bytes, error: Exception) -> None:
        """Do with a row what `on_error` says."""
        self._calls.failures += 1
        self._mode.begin(0)
        failed = self._failure(each, error)
        if each.due.on_error is OnError.STOP:
            raise failed
        self._undo.begin()
        if each.due.on_error is OnError.DEAD_LETTER:
            data = each.kept.table.peek_encoded(key_of(entry))
            record = RecordBatch(each.rows.topic, self._partition, [_DueMessage(entry, data)])
            self._outgoing.set_aside(record, 0, failed)
        else:
            self._said.warning("row that is due is skipped", group=self._group, error=str(failed))
        if not each.due.keep:
            self._delete(each, [key_of(entry)])
        self._undo.keep_unsourced()

    def _failure(self, each: DueState, error: Exception) -> HandlerFailed:
        failed = HandlerFailed(
            f"the handler of rows of state {each.name!r} of group {self._group!r} that are due raised "
            f"{type(error).__name__}: {error}",
            topic=each.rows.topic,
            partition=self._partition,
        )
        failed.__cause__ = error
        return failed

    def _delete(self, each: DueState, keys: Iterable[bytes]) -> None:
        delete = each.kept.handle.raw.delete
        for key in keys:
            delete(key)

    def _count(self, rows: int) -> None:
        self.fired += rows
        self.total += rows

    def _look(self, each: DueState) -> None:
        self._calls.encoded(each.index.look)

    # ---- how far it has come ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Look how far it has come. Not when it is made: a damaged store is noticed where that is mended."""
        if not self._opened:
            for each in self._states:
                each.index.forget(*self._noted(each))
            self._opened = True

    def _noted(self, each: DueState) -> tuple[bytes, bytes]:
        return self._records.noted(each.name)


class _DueMessage:
    """A row that is due, as a message for the dead letters."""

    def __init__(self, entry: bytes, data: bytes | None) -> None:
        self._entry = entry
        self._data = data

    def key(self) -> bytes:
        return key_of(self._entry)

    def value(self) -> bytes | None:
        return self._data

    def offset(self) -> int:
        return -1  # it is in no record of its own

    def headers(self) -> Sequence[Any]:
        return ()

    def timestamp(self) -> tuple[int, int]:
        return 1, time_of(self._entry)
