"""The stateful step of sliding windows.

The windows of a key follow from the times of its records: one ends at each record, and one begins a millisecond after each
record, if another is in it. Beside the rows of open windows, the step keeps for each of these times what both windows hold,
also when they are closed: a record that comes out of order makes windows that begin with what another one holds already.
"""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from streamtable.base.decoding import ItemCodec
from streamtable.base.ports import Codec
from streamtable.flow.folds.folds import Keeping, changed_rows, copied
from streamtable.flow.folds.windows import Late
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.sides import packed, unpacked
from streamtable.flow.windows.keys import START, WindowedKey
from streamtable.flow.windows.pending import emitted_at
from streamtable.flow.windows.windows import Sliding
from streamtable.graph.aggregate import Aggregate
from streamtable.graph.due import Due
from streamtable.graph.edge import OnError
from streamtable.graph.state import State
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.state_table import StateRows


class Around(NamedTuple):
    """The rows of the two windows around a time; None: the window is empty.

    Attributes:
        until: The row of the window that ends at this time.
        after: The row of the window that begins one millisecond after it.
    """

    until: Any
    after: Any


@dataclass(frozen=True, repr=False, eq=False)
class AroundRows(ItemCodec[Around]):
    """The codec of `Around`: both rows, each behind its length as 4 bytes, which is -1 if there is no row.

    Args:
        rows: The codec of the rows.
    """

    rows: Codec[Any]

    def encode(self, value: Around) -> bytes:
        return packed([None if row is None else self.rows.encode(row) for row in value])

    def decode(self, data: bytes) -> Around:
        until, after = (None if part is None else self.rows.decode(part) for part in unpacked(data, 2))
        return Around(until, after)


def times_state(
    name: str, key: Codec[Any], value: Codec[Any], window: Sliding, on_error: OnError
) -> State[Any, Any]:
    """Return the state that keeps the rows of the windows around each time of a record.

    A record that is not late affects windows that its neighbours' neighbours created: up to three times the size back.
    """
    needed_ms = 3 * window.size_ms + 2 + window.grace_ms

    def when(data: bytes, row: bytes) -> int | None:
        at_ms = emitted_at(data, row)
        return None if at_ms is None else at_ms + needed_ms

    due: Due[Any, Any] = Due(when, _forgotten, keep=timedelta(0), by_key=True, on_error=on_error)
    times, meaning = WindowedKey(key, window.size_ms), f"times of records in {window.meaning}"
    return State(name, key=times, value=AroundRows(value), due=due, meaning=meaning)


def _forgotten(_: DueRows[Any, Any]) -> None:
    """Do nothing: a time that no record can reach any more is only deleted."""


@dataclass(frozen=True)
class KeepSliding(Keeping):
    """The step that folds records into the rows of their sliding windows.

    Args:
        state: The table.
        times: The rows of the windows around each time of a record.
        aggregate: The aggregate that makes rows; they are never merged.
        window: The kind of window.
        late: The output of late records.
    """

    times: State[Any, Any]
    aggregate: Aggregate[Any, Any]
    window: Sliding
    late: Late

    def step(self, scope: Scope, records: Columns) -> Columns:
        """Fold the records. Returns one change for each key and window, in the order of the records that have made them."""
        raw, times, late_before = records.keyed_times()
        kept = scope.table(self.times).raw
        scope.table(self.state).offered += len(times)
        bounds: dict[bytes, tuple[int, int]] = {}
        for key, time in zip(raw, times, strict=True):
            first, last = bounds.get(key, (time, time))
            bounds[key] = min(first, time), max(last, time)
        every = {key: _Times.load(kept, self, key, *span) for key, span in bounds.items()}
        columns = zip(raw, times, records.values, late_before, range(len(times)), strict=True)
        in_time = [every[key].add(time, value, bound, index) for key, time, value, bound, index in columns]
        self.late.leave_out(scope, records, in_time)
        found = {key + at: around for key, each in every.items() for at, around in each.changed_times()}
        kept.changing(found).update(found)
        return self._written(scope.table(self.state).raw, records, every)

    def _written(self, table: StateRows[Any], records: Columns, every: dict[bytes, "_Times"]) -> Columns:
        """Write the rows of windows that have changed while they were open."""
        changes = [
            (index, key + START.pack(start), row)
            for key, each in every.items()
            for start, (index, row) in each.changed_rows.items()
        ]
        rows = table.changing([key for _, key, _ in changes])
        before = self.copies([rows[key] for _, key, _ in changes])
        rows.update((key, row) for _, key, row in changes)
        found = [(index, key, old, row) for (index, key, row), old in zip(changes, before, strict=True)]
        return changed_rows(records, self.state.key, found)


@dataclass
class _Times:
    """The event times of the records of one key, and the rows of the windows around each of these times.

    Attributes:
        keep: The step.
        times: The times, in order.
        until: The row of the window that ends at a time.
        after: The row of the window that begins after a time.
        touched: The times whose windows have changed.
        changed_rows: The last record that has changed an open window, and its row, by the start of the window.
    """

    keep: KeepSliding
    times: list[int]
    until: dict[int, Any]
    after: dict[int, Any]
    touched: set[int] = field(default_factory=set)
    changed_rows: dict[int, tuple[int, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, kept: StateRows[Any], keep: KeepSliding, key: bytes, first: int, last: int) -> "_Times":
        """Read the times of a key from which windows reach into a range of times."""
        length, reach = len(key) + START.size, 2 * keep.window.size_ms + 1
        rows_until, rows_after = dict[int, Any](), dict[int, Any]()
        since, until = key + START.pack(max(first - reach, 0)), key + START.pack(last + reach + 1)
        for raw, around in kept.scan(since, until):
            if len(raw) == length:  # keys of another length may lie in between
                (time,) = START.unpack_from(raw, len(key))
                rows_until[time], rows_after[time] = copied(keep.times.value, around)
        return cls(keep, sorted(rows_until), rows_until, rows_after)

    def changed_times(self) -> list[tuple[bytes, Around]]:
        """Return the rows of the times to write, by the encoded times."""
        codec = self.keep.times.value
        rows = ((at, Around(self.until[at], self.after[at])) for at in self.touched)
        return [(START.pack(at), copied(codec, around)) for at, around in rows]

    def add(self, time: int, value: Any, late_before: int, index: int) -> bool:
        """Add a record. Returns False if it comes too late for all windows."""
        size, window = self.keep.window.size_ms, self.keep.window
        if window.closes_at(time, time + size) <= late_before:
            return False
        if time not in self.until:
            # Before the record is added: the existing content of the windows that it creates.
            self.until[time], self.after[time] = self._held(self._start(time)), self._held(time + 1)
            insort(self.times, time)
            if self.after[time] is not None:
                self._change(time + 1, self.after[time], late_before, index)
        after = self.keep.aggregate.after
        near = self.times[bisect_left(self.times, time - size - 1) : bisect_right(self.times, time + size)]
        for other in near:
            start = self._start(other)
            if start <= time <= start + size:
                self.until[other] = after(self.until[other], value)
                self._change(start, self.until[other], late_before, index)
            if other + 1 <= time <= other + 1 + size:
                self.after[other] = after(self.after[other], value)
                self._change(other + 1, self.after[other], late_before, index)
            self.touched.add(other)
        return True

    def _start(self, time: int) -> int:
        """The start of the window that ends at a time."""
        return time - self.keep.window.size_ms

    def _held(self, start: int) -> Any:
        """Return the row of a window that does not exist yet: the row of an existing window with the same records."""
        size = self.keep.window.size_ms
        end = bisect_right(self.times, start + size)
        begin = bisect_left(self.times, start)
        if begin == end:
            return None
        last = self.times[end - 1]
        before = self.times[begin - 1] if begin else None
        row = self.until[last] if before is None or before < last - size else self.after[before]
        return copied(self.keep.state.value, row)

    def _change(self, start: int, row: Any, late_before: int, index: int) -> None:
        if self.keep.window.closes_at(start, start + self.keep.window.size_ms) > late_before:
            # A later record of the batch may change the row in place, when it is too late for this window.
            self.changed_rows[start] = index, copied(self.keep.state.value, row)
