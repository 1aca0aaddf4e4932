"""The rows of a captured table as its topic holds them: the row as JSON, with its source position as the last field.

    {"id":1,"name":"ann","__position":26433200}

So any program that reads JSON reads the table; readers that have declared `Capture.table` see the row alone.
"""

from math import isfinite
from typing import Any, Generic, TypeVar

import msgspec

from streamtable.errors import DeserializationError, SerializationError
from streamtable_capture.positions import Position
from streamtable_capture.rows import UNREADABLE, OneByOne, RowType

T = TypeVar("T")
_POSITION = b'"__position":'


class Captured(Generic[T]):
    """A row with its position. A row that comes from the store is decoded only if it is asked for.

    Args:
        rows: The type of the row.
        row: The row; None: it is in `data`.
        position: The position of the change that made it; None if changes of this topic have none.
        data: The encoded row.
    """

    __slots__ = ("_data", "_row", "_rows", "position")

    def __init__(self, rows: RowType[T], row: T | None, position: Position | None, data: bytes = b"") -> None:
        self._rows, self._row, self.position, self._data = rows, row, position, data

    @property
    def row(self) -> T:
        """The row. Raises `DeserializationError` if the type of the rows has changed so that it does not fit."""
        if self._row is None:
            self._row = self._rows.row(self._data, {})
        return self._row

    def columns(self) -> dict[str, Any]:
        """Return the columns of the row, as JSON has them: without those that its class did not have when it was written."""
        found = self._rows.columns(self.row)
        written = msgspec.json.decode(self._data, type=dict[str, Any]) if self._data else found
        return {name: value for name, value in found.items() if name in written}


class _Rows(Generic[T]):
    def __init__(self, rows: RowType[T]) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return f"Captured({self._rows})"


class CapturedRows(_Rows[T], OneByOne[Captured[T]]):
    """The codec of rows with positions, for the group that writes them."""

    def encode(self, value: Captured[T]) -> bytes:
        row = self._rows.whole(value.row)
        data = encoded(row)
        if b"null" in data and self._rows.may_have_floats and not _finite(msgspec.to_builtins(row)):
            raise SerializationError(
                f"{self._rows} has a number that is NaN or infinite, and JSON has no such number"
            )
        comma = b"," if len(data) > 2 else b""  # noqa: PLR2004 - {}
        return b"".join((data[:-1], comma, _POSITION, msgspec.json.encode(value.position), b"}"))

    def decode(self, data: bytes) -> Captured[T]:
        row, position = split(data)
        return Captured(self._rows, None, position, row)


class PlainRows(_Rows[T], OneByOne[T]):
    """The codec of the same rows without their positions, for all others."""

    def encode(self, value: T) -> bytes:
        return encoded(self._rows.whole(value))

    def decode(self, data: bytes) -> T:
        return self._rows.row(split(data)[0], {})


def _finite(value: Any) -> bool:
    """Whether all numbers of a value are finite: the others would be written as null."""
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or isfinite(value)


def encoded(row: Any) -> bytes:
    """Return a row as JSON. Raises `SerializationError`."""
    try:
        return msgspec.json.encode(row)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SerializationError(f"{type(row).__name__} cannot be written as JSON: {error}") from error


def split(data: bytes) -> tuple[bytes, Position | None]:
    """Return the row, and its position; None if it has none."""
    row, found, position = data.rpartition(_POSITION)
    if not found:
        return data, None
    try:
        return row.rstrip(b",") + b"}", msgspec.json.decode(position[:-1])
    except UNREADABLE as error:
        raise DeserializationError(f"the position of the row is not readable: {position[:100]!r}") from error
