"""Calls the handlers of due timers one after the other; each may set or cancel the next one."""

from collections.abc import Mapping
from typing import Any

from streamtable.base.clock import Clock
from streamtable.base.mapped import check_results
from streamtable.base.message import MadeMessage
from streamtable.base.types import RecordBatch
from streamtable.engine.calls.handlers import Around
from streamtable.engine.due.chunks import entry_of
from streamtable.errors import Fatal, GraphError
from streamtable.graph.companion import CALLS, Accompanied, Companion
from streamtable.graph.group import Group, OnError
from streamtable.graph.timer import TIMERS, Timer
from streamtable.handlers.context import Context
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.state_table import StateTable
from streamtable.handlers.timers import PendingTimer, Timers, payload_of


class TimerCalls:
    """The timers of one partition of a group.

    Args:
        group: The graph.
        tables: Its state tables, by name.
        around: Wraps each handler.
        clock: The wall clock.

    Attributes:
        timers: The object that handlers set timers with.
        context: The context that handlers are called with. Set before the first call.
        companion: Works on the timers of a table of its own; None: there are none.
        limit_ms: An event timer that is set for this time or an earlier one fires before the next record is handled.
    """

    context: Context[Any, Any]

    def __init__(
        self, group: Group[Any, Any], tables: Mapping[str, StateTable[Any, Any]], around: Around, clock: Clock
    ) -> None:
        self.limit_ms = -1
        self._group = group
        self._declared = {timer.name: timer for timer in group.timers}
        self._handlers = {timer.name: around(timer.handler) for timer in group.timers}
        self._tables = {timer.table: tables[timer.table] for timer in group.timers}
        self.timers = Timers(self._declared, self._tables, self._placed, clock)
        self.companion: Companion | None = None
        self._firing = ""  # the table of the timers that are being called
        self._last = b""  # the entry of the last of them
        self._keys: set[bytes] = set()  # of the rows of all of them
        self._disturbed = False  # one of these has changed, or another has come before them

    def call(self, due: DueRows[Any, Any]) -> int:
        """Call the handlers of due timers. Returns the number of calls: fewer if one of them has changed the due timers.

        Raises:
            Fatal: A row is no timer of the group's.
        """
        context = self.context
        self._firing = due.state.name
        self._keys = {row_key for row_key, _, _ in due.rows}
        self._last = entry_of(due.times_ms[-1], due.rows[-1][0]) if due.rows else b""
        rows = self._tables[due.state.name].raw
        try:
            for number, ((row_key, _, data), time_ms) in enumerate(
                zip(due.rows, due.times_ms, strict=True), 1
            ):
                pending = self._pending(row_key)
                timer = self._timer(pending)
                rows.put(row_key, None)  # before its handler, which may set it again
                self._placed(due.state.name, row_key, None)
                self._disturbed = False  # its own deletion does not count
                message = MadeMessage(row_key, data, (1, time_ms))
                record = RecordBatch(due.topic, due.partition, [message])
                context.stand(record, 0, self._group.key.decode(pending.raw_key))
                context.stand_at_row(pending.raw_key, context.key)
                made = self._handlers[timer.name](context, timer.payload.decode(payload_of(data)))
                if made is not None:
                    check_results([made])
                if self._disturbed:
                    return number
        finally:
            self._firing = ""
        return len(due.rows)

    def again(self, record: RecordBatch) -> None:
        """Change a timer that is worked on elsewhere, as `Accompanied.again` says. Raises `LookupError` if its key is of none."""
        row_key = record.keys[0] or b""
        timer = self._declared.get(PendingTimer.decode(row_key).name)
        if not isinstance(timer, Accompanied):
            raise LookupError(f"its key {row_key[:100]!r} is of no call of the group")  # noqa: TRY004 - it is the record that is wrong
        rows = self._tables[timer.table].raw
        rows.put(row_key, timer.again(rows.get(row_key), record))
        self._placed(timer.table, row_key, None)

    def on_error(self, row_key: bytes) -> OnError:
        """Return the policy for a failure of the handler of this timer."""
        return self._timer(self._pending(row_key)).on_error

    def _placed(self, table: str, row_key: bytes, when_ms: int | None) -> None:
        if self.companion is not None and table == CALLS:
            self.companion.placed(row_key)
            self.context.interrupted |= self.companion.full
        elif table == self._firing:
            earlier = when_ms is not None and entry_of(when_ms, row_key) < self._last
            self._disturbed = self._disturbed or earlier or row_key in self._keys
        elif table == TIMERS["event"] and when_ms is not None and when_ms <= self.limit_ms:
            self.context.interrupted = True

    def _pending(self, row_key: bytes) -> PendingTimer:
        try:
            return PendingTimer.decode(row_key)
        except ValueError as error:
            raise Fatal(
                f"the key {row_key[:100]!r} in the timers of group {self._group.name!r} is no timer's ({error}); did another program write it?"
            ) from error

    def _timer(self, pending: PendingTimer) -> Timer[Any, Any, Any]:
        timer = self._declared.get(pending.name)
        if timer is None:
            raise GraphError(
                f"a timer {pending.name!r} of group {self._group.name!r} is due, but the graph has no Timer of this name: "
                "add it to its edges again, with a handler that does nothing if it is not needed any more"
            )
        return timer
