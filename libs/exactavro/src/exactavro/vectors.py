"""Reads fields of many messages at once, with numpy: the building blocks of `ColumnReader`.

Whatever the bytes, positions stay within their message: a field that would exceed it ends at the end of the message,
and the message is marked bad.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exactavro.schema import Node

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]
Column = NDArray[Any]
Rows = Ints | None
"""A selection of the messages of a batch; None for all."""
Read = Callable[["MessageBuffer", Rows, Ints], tuple[list[Column], Ints]]
"""Reads one field of these messages at these positions. Returns its columns and the positions after it."""

_PADDING: Final = bytes(8)  # words are read up to the end of the data
_CONTINUES: Final = np.uint64(0x8080808080808080)
_PAYLOAD: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE: Final = np.uint64(1)
_ASCII_MAX: Final = 0x7F
_INT_MAX: Final = 2**31
_INT_BYTES: Final = 5
_WORD: Final = 8


class MessageBuffer:
    """Concatenated messages, with the state of reading them.

    Attributes:
        data: The buffer, with padding after the last message.
        ends: The position where each message ends.
        bad: Whether each message may be invalid.
    """

    def __init__(self, messages: Sequence[bytes], sizes: Ints) -> None:
        self.data = b"".join((*messages, _PADDING))
        self.ends: Ints = np.cumsum(sizes)
        self.bad: Bools = np.zeros(len(sizes), np.bool_)
        self._starts = self.ends - sizes
        self._bytes = np.frombuffer(self.data, np.uint8)
        self._high = 0  # a lower bound of the bytes above 127 outside of texts, if no message is bad
        self._texts: list[tuple[Rows, Ints, Ints]] = []

    def doubt(self, rows: Rows, which: Bools) -> None:
        if rows is None:
            self.bad |= which
        else:
            self.bad[rows[which]] = True

    def skip(self, prefix: bytes) -> Ints:
        """Return the positions after the prefix, which every message has room for; mark messages with another prefix bad."""
        for place in range(0, len(prefix), _WORD):
            part = prefix[place : place + _WORD]
            mask = np.uint64(256 ** len(part) - 1)
            self.bad |= (self.words(self._starts + place) & mask) != np.uint64(int.from_bytes(part, "little"))
        self._high += len(self.ends) * sum(byte > _ASCII_MAX for byte in prefix)
        return self._starts + len(prefix)

    def moved(self, rows: Rows, position: Ints, size: Ints | int) -> Ints:
        """Return the positions advanced by `size` bytes. Beyond the message or backwards: its end, and it is marked bad."""
        room = (self.ends if rows is None else self.ends[rows]) - position
        wrong = (room < size) | (np.less(size, 0))
        self.doubt(rows, wrong)
        return position + np.where(wrong, room, size)

    def bytes_at(self, position: Ints) -> NDArray[np.uint8]:
        return self._bytes[position]

    def words(self, position: Ints, size: int = _WORD) -> Column:
        """Read this many bytes at each position as an unsigned number, little-endian."""
        whole: Column = np.ndarray((len(self.data) - size + 1,), f"<u{size}", self.data, strides=(1,))
        return whole[position]

    def reals(self, position: Ints, size: int) -> Column:
        words = self.words(position, size)
        self._high += int(np.bitwise_count(words & _CONTINUES.astype(f"u{size}")).sum())
        return words.view(f"<f{size}")

    def varints(self, rows: Rows, position: Ints) -> tuple[Ints, Ints | int, Ints]:
        """Read zigzag varints of at most 10 bytes and 64 bits. Returns numbers, sizes and the positions after them."""
        first = self._bytes[position]
        if not (first > _ASCII_MAX).any():
            small = first.astype(np.int64)
            return (small >> 1) ^ -(small & 1), 1, self.moved(rows, position, 1)
        raw, size = self._long_varints(rows, position)
        self._high += int(size.sum()) - len(size)
        return ((raw >> _ONE) ^ -(raw & _ONE)).view(np.int64), size, self.moved(rows, position, size)

    def _long_varints(self, rows: Rows, position: Ints) -> tuple[Words, Ints]:
        """Return the varints as unsigned numbers, with their sizes. Bytes after the eighth are read only for longer ones."""
        word = self.words(position)
        stop = ~word & _CONTINUES
        own = stop ^ (stop - _ONE)  # all bits up to the lowest stop bit; without one, all bits
        size = np.bitwise_count(own).astype(np.int64) >> 3
        raw = word & own & _PAYLOAD  # then the gaps between groups of 7, 14 and 28 bits are closed
        raw = (raw & np.uint64(0x007F007F007F007F)) | ((raw >> _ONE) & np.uint64(0x3F803F803F803F80))
        raw = (raw & np.uint64(0x00003FFF00003FFF)) | ((raw >> np.uint64(2)) & np.uint64(0x0FFFC0000FFFC000))
        raw = (raw & np.uint64(0x000000000FFFFFFF)) | ((raw >> np.uint64(4)) & np.uint64(0x00FFFFFFF0000000))
        more = np.flatnonzero(stop == 0)
        if len(more):
            ninth, tenth = self._bytes[position[more] + 8], self._bytes[position[more] + 9]
            goes_on = ninth > _ASCII_MAX
            raw[more] |= (ninth & np.uint8(_ASCII_MAX)).astype(np.uint64) << np.uint64(56)
            raw[more] |= np.where(goes_on, tenth, 0).astype(np.uint64) << np.uint64(63)
            size[more] += 1 + goes_on
            self.doubt(more if rows is None else rows[more], goes_on & (tenth > 1))
        return raw, size

    def add_text(self, rows: Rows, starts: Ints, ends: Ints) -> None:
        """Add the texts between these positions, for `odd_texts`."""
        self._texts.append((rows, starts, ends))

    def odd_texts(self) -> list[tuple[int, int, str]]:
        """Return the texts that are not ASCII, as (message, index of the text in it, text). Messages with invalid UTF-8
        are marked bad.

        Usually there is none, which a count shows: the bytes above 127 are no more than those outside of texts.
        """
        high = self._bytes > _ASCII_MAX
        if self._high == np.count_nonzero(high) and not self.bad.any():
            return []
        before = np.zeros(len(high) + 1, np.uint32)  # may overflow, but not within one text
        before[1:] = high
        np.cumsum(before, dtype=np.uint32, out=before)  # in place, to avoid a converted copy of `high`
        found = []
        for number, (rows, starts, ends) in enumerate(self._texts):
            good = ~(self.bad if rows is None else self.bad[rows])
            odd = np.flatnonzero(good & (before[starts] != before[ends]))
            messages = odd if rows is None else rows[odd]
            places = zip(messages.tolist(), starts[odd].tolist(), ends[odd].tolist(), strict=True)
            for message, start, end in places:
                try:
                    found.append((message, number, self.data[start:end].decode()))
                except UnicodeDecodeError:
                    self.bad[message] = True
        return [each for each in found if not self.bad[each[0]]]


class Field(NamedTuple):
    """The reader of a field, for all messages of a batch at once.

    Attributes:
        read: Reads the columns of the field.
        columns: The number of columns.
        value: The Python expression for the value, with {0}, {1}, ... for the entries of the columns, `text` for the buffer
            decoded to a string of the same length, and `data` for the buffer.
        width: The minimal number of bytes.
        text: Whether the field adds to the texts of the batch, one text for each message.
    """

    read: Read
    columns: int
    value: str
    width: int
    text: bool = False


def field_of(node: Node) -> Field | None:
    """Return the column reader of a field; None if the type is not supported here."""
    if isinstance(node, str):
        return _PRIMITIVES.get(node)
    if isinstance(node, list):
        return _optional(node)
    if "logicalType" in node:
        return None
    if node["type"] == "enum":
        return _enum(node["symbols"])
    if node["type"] == "fixed":
        return _fixed(node["size"]) if node["size"] else None
    return _PRIMITIVES.get(node["type"])


def _read_null(_batch: MessageBuffer, _rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    return [], position


def _read_boolean(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    byte = batch.bytes_at(position)
    batch.doubt(rows, byte > 1)
    return [byte == 1], batch.moved(rows, position, 1)


def _read_long(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    number, _, end = batch.varints(rows, position)
    return [number], end


def _read_int(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    number, size, end = batch.varints(rows, position)
    batch.doubt(rows, (number < -_INT_MAX) | (number >= _INT_MAX) | np.greater(size, _INT_BYTES))
    return [number], end


def _read_float(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    return [batch.reals(position, 4)], batch.moved(rows, position, 4)


def _read_double(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    return [batch.reals(position, 8)], batch.moved(rows, position, 8)


def _read_bytes(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    size, _, start = batch.varints(rows, position)
    end = batch.moved(rows, start, size)
    return [start, end], end


def _read_string(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
    size, _, start = batch.varints(rows, position)
    end = batch.moved(rows, start, size)
    batch.add_text(rows, start, end)
    return [start, end], end


_BYTES: Final = "data[{0}:{1}]"
_PRIMITIVES: dict[str, Field] = {
    "null": Field(_read_null, 0, "None", 0),
    "boolean": Field(_read_boolean, 1, "{0}", 1),
    "int": Field(_read_int, 1, "{0}", 1),
    "long": Field(_read_long, 1, "{0}", 1),
    "float": Field(_read_float, 1, "{0}", 4),
    "double": Field(_read_double, 1, "{0}", 8),
    "bytes": Field(_read_bytes, 2, _BYTES, 1),
    "string": Field(_read_string, 2, "text[{0}:{1}]", 1, text=True),
}


def _fixed(size: int) -> Field:
    def read_fixed(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
        end = batch.moved(rows, position, size)
        return [position, end], end

    return Field(read_fixed, 2, _BYTES, size)


def _enum(symbols: Sequence[str]) -> Field:
    def read_enum(batch: MessageBuffer, rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
        (index,), end = _read_int(batch, rows, position)
        batch.doubt(rows, (index < 0) | (index >= len(symbols)))
        return [index], end

    return Field(read_enum, 1, f"{tuple(symbols)!r}[{{0}}]", 1)


def _optional(branches: list[Node]) -> Field | None:
    """Return the column of a union of null and one other type. Indexes of more than one byte are left to the reader."""
    others = [number for number, branch in enumerate(branches) if branch not in ("null", {"type": "null"})]
    inner = field_of(branches[others[0]]) if len(branches) == 2 and len(others) == 1 else None  # noqa: PLR2004 - a pair
    if inner is None:
        return None
    present = others[0] << 1

    def read_optional(batch: MessageBuffer, _rows: Rows, position: Ints) -> tuple[list[Column], Ints]:
        index = batch.bytes_at(position)
        batch.bad |= (index != 0) & (index != 2)  # noqa: PLR2004 - 1 as a varint
        position = batch.moved(None, position, 1)
        there = index == present
        rows = np.flatnonzero(there)
        columns, position[rows] = inner.read(batch, rows, position[rows])
        return [there, *(_spread(column, rows, len(there)) for column in columns)], position

    shifted = inner.value.format(*(f"{{{number + 1}}}" for number in range(inner.columns)))
    return Field(read_optional, inner.columns + 1, f"({shifted} if {{0}} else None)", 1, inner.text)


def _spread(column: Column, rows: Ints, size: int) -> Column:
    whole = np.zeros(size, column.dtype)
    whole[rows] = column
    return whole
