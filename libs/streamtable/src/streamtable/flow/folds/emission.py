"""Emission at intervals of event time: the changes of a table, at most once per row and interval."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from streamtable.base.decoding import ItemCodec
from streamtable.base.ports import Codec
from streamtable.errors import DeserializationError
from streamtable.flow.plan.columns import Columns, Scope
from streamtable.flow.plan.nodes import DueRecord
from streamtable.flow.windows.keys import START
from streamtable.graph.state import State
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.state_table import StateRows

K = TypeVar("K")
V = TypeVar("V")

_ROW, _DELETED = b"+", b"-"
_BEHIND = START.pack((1 << 63) - 1)
"""Behind the times of the pending changes of a row."""


@dataclass(frozen=True, repr=False, eq=False)
class PendingRow(ItemCodec[tuple[V | None]]):
    """A codec of pending changes: a tuple of the row, or of None where the row was deleted.

    Args:
        rows: The codec of the rows.
    """

    rows: Codec[V]

    def encode(self, value: tuple[V | None]) -> bytes:
        (row,) = value
        return _DELETED if row is None else _ROW + self.rows.encode(row)

    def decode(self, data: bytes) -> tuple[V | None]:
        if data[:1] not in {_ROW, _DELETED}:
            raise DeserializationError(f"a pending change begins with {data[:1]!r} instead of '+' or '-'")
        return (self.rows.decode(data[1:]) if data[:1] == _ROW else None,)


@dataclass(frozen=True)
class EmitLater:
    """The step that remembers the changes of a table until the end of their interval, or until their window closes.

    A later change of the same row in the same interval replaces an earlier one.

    Args:
        pending: The table of the pending changes.
        interval_ms: The length of an interval; intervals are aligned to 1970.
        closes_at: Returns the time when the window of an encoded key closes; None: the table has no windows.
        apart: Whether changes may come from inputs, or from tasks behind a repartition, that are apart in event time.
    """

    pending: State[Any, Any]
    interval_ms: int
    closes_at: Callable[[bytes, bytes], int | None] | None
    apart: bool

    def __call__(self, scope: Scope, changes: Columns) -> None:
        keys, late_before = changes.encoded_keys, changes.late_before
        assert late_before is not None, "the plan requests them"
        interval, pending = self.interval_ms, scope.table(self.pending).raw
        times = [(reached // interval + 1) * interval for reached in late_before]
        if self.closes_at is not None:
            closes = [self.closes_at(key, b"") for key in keys]
            times = [
                end if close is None else min(end, close) for end, close in zip(times, closes, strict=True)
            ]
        if self.apart:
            # A change from an input that is behind must not come out before an earlier one from an input that is ahead.
            last = _last_times(pending, keys)
            for index, key in enumerate(keys):
                times[index] = last[key] = max(times[index], last[key])
        found = {
            key + START.pack(at): (row,) for key, at, row in zip(keys, times, changes.values, strict=True)
        }
        pending.changing(found).update(found)


def _last_times(pending: StateRows[Any], keys: Iterable[bytes]) -> dict[bytes, int]:
    """Return the time of the last pending change of each row; 0: it has none."""
    ordered = sorted(set(keys))
    last = dict.fromkeys(ordered, 0)
    for key, found in zip(ordered, pending.ranges([(key, key + _BEHIND) for key in ordered]), strict=True):
        for raw, _ in found:
            if len(raw) == len(key) + START.size:  # keys of another length may lie in between
                last[key] = max(last[key], int(START.unpack_from(raw, len(key))[0]))
    return last


def pending_changes(due: DueRows[Any, Any]) -> list[DueRecord]:
    """Return changes that are emitted now as records."""
    # The last millisecond of the interval, or of the time that the window was open. Changes from before the first event, of a
    # table that another group keeps, are due at 0.
    times = [(at_ms or due.watermark_ms or 1) - 1 for at_ms in due.times_ms]
    return [
        (raw[: -START.size], row, time, time) for (raw, _, (row,)), time in zip(due.rows, times, strict=True)
    ]
