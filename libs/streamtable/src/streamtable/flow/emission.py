"""Emission at intervals of event time: the changes of a windowed table, at most once per row and interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from streamtable.decoding import decode_each
from streamtable.errors import DeserializationError
from streamtable.flow.columns import Columns, Scope
from streamtable.flow.keys import START
from streamtable.ports import Codec, Decoded
from streamtable.state import State, codec_name

K = TypeVar("K")
V = TypeVar("V")

_ROW, _DELETED = b"+", b"-"


class Pending(NamedTuple, Generic[K]):
    """The key of a pending change.

    Attributes:
        key: The key of the row.
        at_ms: The event time at which it is emitted.
    """

    key: K
    at_ms: int


class PendingKey(Generic[K]):
    """A codec of the keys of pending changes: the bytes of the row's key, then the time as 8 bytes, big-endian.

    Args:
        key: The codec of the keys of the rows.
    """

    def __init__(self, key: Codec[K]) -> None:
        self.key = key

    def encode(self, value: Pending[K]) -> bytes:
        return self.key.encode(value.key) + START.pack(value.at_ms)

    def decode(self, data: bytes) -> Pending[K]:
        at_ms = emitted_at(data, b"")
        if at_ms is None:
            raise DeserializationError(
                f"the key of a pending change has {len(data)} bytes: it has at least 8"
            )
        return Pending(self.key.decode(data[: -START.size]), at_ms)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[Pending[K]]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return f"PendingKey({codec_name(self.key)})"


class PendingRow(Generic[V]):
    """A codec of pending changes: a tuple of the row, or of None where the row was deleted.

    Args:
        rows: The codec of the rows.
    """

    def __init__(self, rows: Codec[V]) -> None:
        self._rows = rows

    def encode(self, value: tuple[V | None]) -> bytes:
        (row,) = value
        return _DELETED if row is None else _ROW + self._rows.encode(row)

    def decode(self, data: bytes) -> tuple[V | None]:
        if data[:1] not in {_ROW, _DELETED}:
            raise DeserializationError(f"a pending change begins with {data[:1]!r} instead of '+' or '-'")
        return (self._rows.decode(data[1:]) if data[:1] == _ROW else None,)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[tuple[V | None]]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return f"PendingRow({codec_name(self._rows)})"


def emitted_at(key: bytes, _: bytes) -> int | None:
    """Return the time at which a pending change is emitted, from its encoded key; None: the key is not one."""
    return int(START.unpack_from(key, len(key) - START.size)[0]) if len(key) >= START.size else None


@dataclass(frozen=True)
class EmitLater:
    """The step that remembers the changes of a windowed table until the end of their interval, or of their window.

    A later change of the same row in the same interval replaces an earlier one.

    Args:
        table: The windowed table.
        pending: The table of the pending changes.
        interval_ms: The length of an interval; intervals are aligned to 1970.
    """

    table: State[Any, Any]
    pending: State[Any, Any]
    interval_ms: int

    def __call__(self, scope: Scope, changes: Columns) -> None:
        keys, late_before = changes.raw_keys, changes.late_before
        assert keys is not None, "rows of a table have encoded keys"
        assert late_before is not None, "the plan requests them"
        assert self.table.due is not None, "rows of a windowed table fall due when their window closes"
        closes_at, interval = self.table.due.when, self.interval_ms
        found: dict[bytes, tuple[Any]] = {}
        for key, row, reached in zip(keys, changes.values, late_before, strict=True):
            end = (reached // interval + 1) * interval
            closing = closes_at(key, b"")
            found[key + START.pack(end if closing is None else min(end, closing))] = (row,)
        scope.table(self.pending).raw.changing(found).update(found)
