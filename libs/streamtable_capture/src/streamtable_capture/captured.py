"""The rows of a captured table as its topic holds them: the row as JSON, with its source position as the last field.

    {"id":1,"name":"ann","__position":26433200}

So any program that reads JSON reads the table; readers that have declared `Capture.table` see the row alone.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from streamtable import Decoded, decode_each
from streamtable.errors import DeserializationError, SerializationError
from streamtable_capture.positions import Position
from streamtable_capture.rows import RowType

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


class CapturedRows(Generic[T]):
    """The codec of rows with positions, for the group that writes them."""

    def __init__(self, rows: RowType[T]) -> None:
        self._rows = rows

    def encode(self, value: Captured[T]) -> bytes:
        data = encoded(value.row)
        comma = b"," if len(data) > 2 else b""  # noqa: PLR2004 - {}
        return b"".join((data[:-1], comma, _POSITION, msgspec.json.encode(value.position), b"}"))

    def decode(self, data: bytes) -> Captured[T]:
        row, position = split(data)
        return Captured(self._rows, None, position, row)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[Captured[T]]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return f"Captured({self._rows})"


class Rows(Generic[T]):
    """The codec of the same rows without their positions, for all others."""

    def __init__(self, rows: RowType[T]) -> None:
        self._rows = rows

    def encode(self, value: T) -> bytes:
        return encoded(value)

    def decode(self, data: bytes) -> T:
        return self._rows.row(split(data)[0], {})

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return f"Captured({self._rows})"


def encoded(row: Any) -> bytes:
    """Return a row as JSON. Raises `SerializationError`."""
    try:
        return msgspec.json.encode(row)
    except (TypeError, ValueError, OverflowError) as error:
        raise SerializationError(f"{type(row).__name__} cannot be written as JSON: {error}") from error


def split(data: bytes) -> tuple[bytes, Position | None]:
    """Return the row, and its position; None if it has none."""
    row, found, position = data.rpartition(_POSITION)
    if not found:
        return data, None
    try:
        return row.rstrip(b",") + b"}", msgspec.json.decode(position[:-1])
    except msgspec.MsgspecError as error:
        raise DeserializationError(f"the position of the row is not readable: {position[:100]!r}") from error
