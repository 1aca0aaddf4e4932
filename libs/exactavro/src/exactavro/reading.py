"""Readers: functions that turn bytes into values and check every byte, and their building blocks.

They replace fastavro's, which does not validate lengths, indexes, booleans, ranges and the content of dropped fields;
checking its results afterwards would cost more than reading. For records of texts and numbers these readers are also
faster.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name says nothing on its own
from typing import Any, TypeVar

from exactavro.errors import Malformed, placed

T = TypeVar("T")
Reader = Callable[[bytes, int], tuple[Any, int]]
"""Takes data and a position, returns the value and the position after it.

Called directly, it raises one of `READ_ERRORS` and may return a position beyond the end, as slices do not raise: the
caller must compare it with the length.
"""

READ_ERRORS = (ValueError, IndexError, ArithmeticError, StructError)
ITEM_NODES_MAX = 10_000_000
"""The maximum number of values in one array or map: it bounds the memory that a message of a few MB may take."""

_INT_MAX = 2**31
_LONG_BITS = 64
_INT_BYTES = 5
_FLOAT = Struct("<f").unpack_from
_DOUBLE = Struct("<d").unpack_from


def decode(read: Reader, data: bytes, start: int = 0) -> Any:
    """Return the value that starts at `start` and ends at the end of `data`. Raises `Malformed`."""
    try:
        value, end = read(data, start)
    except READ_ERRORS as error:
        raise Malformed(_reason(error)) from error
    if end > len(data):
        raise Malformed(f"runs {end - len(data)} bytes over the end of the message")
    if end < len(data):
        raise Malformed(f"{len(data) - end} bytes are left at the end of the message")
    return value


def _reason(error: Exception) -> str:
    """Return the message for one of `READ_ERRORS`."""
    return "ends in the middle of a value" if isinstance(error, IndexError | StructError) else str(error)


# ---- primitives ---------------------------------------------------------------------------------------------------


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 10 bytes and 64 bits."""
    byte = data[pos]
    pos += 1
    if byte < 0x80:  # noqa: PLR2004 - the continuation bit
        return (byte >> 1) ^ -(byte & 1), pos
    number = byte & 0x7F
    shift = 7
    while True:
        byte = data[pos]
        pos += 1
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            number |= byte << shift
            if number >> _LONG_BITS:
                raise Malformed("a number of more than 64 bits")
            return (number >> 1) ^ -(number & 1), pos
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift >= _LONG_BITS:
            raise Malformed("a number of more than 10 bytes")


def _read_int(data: bytes, pos: int) -> tuple[int, int]:
    number, end = read_long(data, pos)
    if not -_INT_MAX <= number < _INT_MAX or end - pos > _INT_BYTES:
        raise Malformed("an int of more than 32 bits or 5 bytes")
    return number, end


def _read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = read_long(data, pos)
    if size < 0:
        raise Malformed("a negative length")
    end = pos + size
    return data[pos:end], end


def _read_string(data: bytes, pos: int) -> tuple[str, int]:
    size = data[pos]
    if size < 0x80 and not size & 1:  # noqa: PLR2004 - one byte and not negative, as almost always
        pos += 1
        end = pos + (size >> 1)
        return data[pos:end].decode(), end
    raw, end = _read_bytes(data, pos)
    return raw.decode(), end


def _read_boolean(data: bytes, pos: int) -> tuple[bool, int]:
    byte = data[pos]
    if byte > 1:
        raise Malformed(f"a boolean that is {byte}")
    return byte == 1, pos + 1


PRIMITIVES: dict[str, Reader] = {
    "null": lambda _data, pos: (None, pos),
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": lambda data, pos: (_FLOAT(data, pos)[0], pos + 4),
    "double": lambda data, pos: (_DOUBLE(data, pos)[0], pos + 8),
    "bytes": _read_bytes,
    "string": _read_string,
}


# ---- readers made of readers --------------------------------------------------------------------------------------


def converting(read: Reader, convert: Callable[[Any], Any]) -> Reader:
    """Make a reader that applies `convert` to the value; it may raise one of `READ_ERRORS`."""

    def read_converted(data: bytes, pos: int) -> tuple[Any, int]:
        value, pos = read(data, pos)
        return convert(value), pos

    return read_converted


def fixed_reader(size: int) -> Reader:
    return lambda data, pos: (data[pos : pos + size], pos + size)


def record_reader(fields: Sequence[tuple[str, Reader]]) -> Reader:
    """Make a reader of records, as dicts of all fields in their order."""

    def read_record(data: bytes, start: int) -> tuple[dict[str, Any], int]:
        row: dict[str, Any] = {}
        pos = start
        name = ""
        try:
            for name, read in fields:
                row[name], pos = read(data, pos)
        except READ_ERRORS as error:
            if pos > len(data):
                raise Malformed(overrun(data, start)) from None
            raise Malformed(placed(f".{name}", _reason(error))) from None
        return row, pos

    def overrun(data: bytes, pos: int) -> str:
        """Return the place of the first field that ran over the end."""
        for name, read in fields:
            _, pos = read(data, pos)
            if pos > len(data):
                return f".{name}: runs {pos - len(data)} bytes over the end of the message"
        return "runs over the end of the message"

    return read_record


def projecting(read: Reader, dropped: set[str], defaults: dict[str, Any]) -> Reader:
    """Make a reader of records without the fields that only the writer has, and with the defaults of those that it lacks."""
    shared = {name: value for name, value in defaults.items() if not isinstance(value, dict | list)}
    copied = {name: value for name, value in defaults.items() if name not in shared}

    def project(row: dict[str, Any]) -> dict[str, Any]:
        for name in dropped:
            del row[name]
        row.update(shared)
        if copied:  # the caller may change a value in place, and must not change the default
            row.update(deepcopy(copied))
        return row

    return converting(read, project)


def enum_reader(symbols: Sequence[str], known: Sequence[str | None]) -> Reader:
    """Make a reader of enums; `known` has the reader's symbol for each of the writer's, None where it has none."""
    short = _by_first_byte({i: symbol for i, symbol in enumerate(known) if symbol is not None})

    def read_enum(data: bytes, pos: int) -> tuple[str, int]:
        quick = short.get(data[pos])
        if quick is not None:
            return quick, pos + 1
        index, pos = _read_int(data, pos)
        if not 0 <= index < len(known):
            raise Malformed(f"symbol {index} of an enum of {len(known)}")
        symbol = known[index]
        if symbol is None:
            raise Malformed(f"the symbol {symbols[index]!r} is unknown to the reader")
        return symbol, pos

    return read_enum


def union_reader(branches: Sequence[Reader | str]) -> Reader:
    """Make a reader of unions.

    Args:
        branches: The readers of the branches. A text in place of a reader is the reason why a record with that branch
            is malformed.
    """
    short = _by_first_byte({i: read for i, read in enumerate(branches) if not isinstance(read, str)})

    def read_union(data: bytes, pos: int) -> tuple[Any, int]:
        quick = short.get(data[pos])
        if quick is not None:
            return quick(data, pos + 1)
        index, pos = _read_int(data, pos)
        if not 0 <= index < len(branches):
            raise Malformed(f"branch {index} of a union of {len(branches)}")
        read = branches[index]
        if isinstance(read, str):
            raise Malformed(read)
        return read(data, pos)

    return read_union


def _by_first_byte(table: dict[int, T]) -> dict[int, T]:
    """Return the table keyed by the encoded byte of each index: indexes of one byte then take one look-up."""
    return {index << 1: entry for index, entry in table.items() if index < 64}  # noqa: PLR2004 - six bits and the sign


class Blocks:
    """The rule for the block counts of one array or map.

    Args:
        width: The minimum size of an item in bytes.
        nodes: The number of values in an item, including those that defaults add.
    """

    def __init__(self, width: int, nodes: int) -> None:
        self._width = width
        self._items_max = ITEM_NODES_MAX // nodes

    def start(self, data: bytes, pos: int, items: int) -> tuple[int, int, int]:
        """Return the count of items in the block at `pos`, the position of the first, and the block's end (-1: unknown)."""
        count, pos = read_long(data, pos)
        end = -1
        if count < 0:  # the block's size follows, for readers that skip the block
            count = -count
            size, pos = read_long(data, pos)
            end = pos + size
            if not pos <= end <= len(data):
                raise Malformed(f"a block of {size} bytes")
        if count * self._width > len(data) - pos or items + count > self._items_max:
            raise Malformed(f"a block of {count} items in a message of {len(data)} bytes")
        return count, pos, end


def array_reader(read: Reader, blocks: Blocks) -> Reader:
    def read_array(data: bytes, pos: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        append = items.append
        count, pos, end = blocks.start(data, pos, 0)
        while count:
            for _ in range(count):
                item, pos = read(data, pos)
                append(item)
            if pos != end >= 0:
                raise Malformed("a block of another size than it says")
            count, pos, end = blocks.start(data, pos, len(items))
        return items, pos

    return read_array


def map_reader(read: Reader, blocks: Blocks) -> Reader:
    def read_map(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        count, pos, end = blocks.start(data, pos, 0)
        while count:
            expected = len(items) + count
            for _ in range(count):
                key, pos = _read_string(data, pos)
                items[key], pos = read(data, pos)
            if pos != end >= 0:
                raise Malformed("a block of another size than it says")
            if len(items) != expected:
                raise Malformed("a map with the same key twice")
            count, pos, end = blocks.start(data, pos, len(items))
        return items, pos

    return read_map
