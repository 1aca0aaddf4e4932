"""Readers: functions made once from writer's and reader's schema, that turn bytes into values and check every byte.

They are made here rather than taken from fastavro, because fastavro believes what it reads (lengths, indexes,
booleans, ranges, what a dropped field holds), and because checking its result afterwards costs more than reading:
for records of texts and numbers these are the faster ones.

A reader takes (data, position) and returns (value, next position). It may run past the end, as slices are forgiving:
the caller compares the final position with the length, and indexing past the end is an `IndexError`. Whatever is
wrong with the bytes comes out as one of `READ_ERRORS`.
"""

from collections.abc import Callable
from copy import deepcopy
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name says nothing on its own
from typing import Any, TypeVar

from streamtable.codec.logical import Conversion, conversion
from streamtable.codec.schema import Node, kind, logical, measure, placed, simple_name

T = TypeVar("T")
Reader = Callable[[bytes, int], tuple[Any, int]]

READ_ERRORS = (ValueError, IndexError, ArithmeticError, StructError)
ITEM_NODES_MAX = 10_000_000
"""Values in one array or map: what a message of a few MB may grow to in memory."""

_INT_MAX = 2**31
_LONG_BITS = 64
_INT_BYTES = 5
_FLOAT = Struct("<f").unpack_from
_DOUBLE = Struct("<d").unpack_from
_DEFAULT_TYPES: dict[str, set[type]] = {
    "null": {type(None)},
    "boolean": {bool},
    "int": {int},
    "long": {int},
    "float": {int, float},
    "double": {int, float},
    "bytes": {str},
    "string": {str},
    "fixed": {str},
    "enum": {str},
    "array": {list},
    "map": {dict},
    "record": {dict},
}
_PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


class Unresolvable(Exception):
    """Nothing written with the one schema can be read as the other."""


class Malformed(ValueError):
    """The bytes are not what the writer's schema says."""


def reason(error: Exception) -> str:
    """What to tell about one of `READ_ERRORS`."""
    return "ends in the middle of a value" if isinstance(error, IndexError | StructError) else str(error)


# ---- primitives ---------------------------------------------------------------------------------------------------


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most 10 bytes and 64 bits."""
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
    if size < 0x80 and not size & 1:  # noqa: PLR2004 - one byte, not negative: as good as always
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


_READERS: dict[str, Reader] = {
    "null": lambda _data, pos: (None, pos),
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": lambda data, pos: (_FLOAT(data, pos)[0], pos + 4),
    "double": lambda data, pos: (_DOUBLE(data, pos)[0], pos + 8),
    "bytes": _read_bytes,
    "string": _read_string,
}


# ---- making readers -----------------------------------------------------------------------------------------------


def make_reader(writer: Node, reader: Node) -> Reader:
    """A reader of what `writer` describes, that gives what `reader` describes.

    Fields and types are matched by name or the reader's aliases, numbers are widened, fields that the writer lacks
    get their default; fields that the reader lacks are checked and dropped.

    Raises:
        Unresolvable: the message names the place and both types.
    """
    if kind(writer) == "union":
        return _union_reader(list(writer), reader)
    if kind(reader) == "union":
        return _first_match(writer, list(reader))
    read = _plain_reader(writer, reader)
    said, wanted = conversion(writer), conversion(reader)
    if said is not None and wanted is not None and not _same_logical(writer, reader):
        raise Unresolvable(f"{logical(writer)} cannot be read as {logical(reader)}")
    return read if wanted is None else _converting(read, wanted)


def _same_logical(writer: Node, reader: Node) -> bool:
    def facts(node: Node) -> Any:
        return logical(node), isinstance(node, dict) and node.get("scale", 0)

    return bool(facts(writer) == facts(reader))


def _converting(read: Reader, wanted: Conversion) -> Reader:
    load = wanted.load

    def read_logical(data: bytes, pos: int) -> tuple[Any, int]:
        carried, pos = read(data, pos)
        return load(carried), pos

    return read_logical


def _plain_reader(writer: Node, reader: Node) -> Reader:
    said, wanted = kind(writer), kind(reader)
    if said != wanted:
        if (said, wanted) in _PROMOTIONS:
            return _promoting(said, wanted)
    elif said in _READERS:
        return _READERS[said]
    elif isinstance(writer, dict) and isinstance(reader, dict):
        if "name" in writer and simple_name(writer) not in _names(reader):
            raise Unresolvable(f"{writer['name']} is not {reader['name']}, and none of its aliases")
        if said in {"array", "map"}:
            part = "items" if said == "array" else "values"
            item = make_reader(writer[part], reader[part])
            blocks = _Blocks(measure(writer[part]).width, measure(reader[part]).nodes)
            return _array_reader(item, blocks) if said == "array" else _map_reader(item, blocks)
        if said == "record":
            return _record_reader(writer, reader)
        if said == "enum":
            return _enum_reader(writer["symbols"], reader)
        if writer["size"] == reader["size"]:
            size = writer["size"]
            return lambda data, pos: (data[pos : pos + size], pos + size)
    raise Unresolvable(f"{_title(writer)} cannot be read as {_title(reader)}")


def _title(node: Node) -> str:
    return f"{kind(node)} {node['name']}" if isinstance(node, dict) and "name" in node else kind(node)


def _names(reader: dict[str, Any]) -> set[str]:
    """Names without their namespaces, as the specification compares them."""
    return {simple_name(reader), *(alias.rpartition(".")[2] for alias in reader.get("aliases", ()))}


def _promoting(said: str, wanted: str) -> Reader:
    read = _READERS[said]
    if wanted in {"float", "double"} and said != "float":
        convert: Callable[[Any], Any] = float
    elif wanted == "bytes":
        convert = str.encode
    elif wanted == "string":
        convert = bytes.decode
    else:
        return read

    def read_promoted(data: bytes, pos: int) -> tuple[Any, int]:
        value, pos = read(data, pos)
        return convert(value), pos

    return read_promoted


def _record_reader(writer: dict[str, Any], reader: dict[str, Any]) -> Reader:
    wanted = {}
    for field in reader["fields"]:
        wanted.update(dict.fromkeys((field["name"], *field.get("aliases", ())), field))
    plan: list[tuple[str, Reader, bool]] = []
    missing = {field["name"]: field for field in reader["fields"]}
    for field in writer["fields"]:
        target = wanted.get(field["name"])
        if target is not None and missing.pop(target["name"], None) is None:
            target = None  # an alias of a field that the writer has under its present name too
        kept = target is not None
        name = target["name"] if target is not None else field["name"]
        try:
            plan.append((name, make_reader(field["type"], (target or field)["type"]), kept))
        except Unresolvable as error:
            raise Unresolvable(f"{simple_name(reader)}.{name}: {error}") from None
    if not missing and all(kept for _, _, kept in plan):
        return _whole_record([(name, read) for name, read, _ in plan])
    defaults = {}
    for name, field in missing.items():
        try:
            if "default" not in field:
                raise Unresolvable("not in the writer's schema, and has no default")
            defaults[name] = default_value(field["type"], field["default"])
        except Unresolvable as error:
            raise Unresolvable(f"{simple_name(reader)}.{name}: {error}") from None
    return _projected_record(plan, defaults)


def _whole_record(fields: list[tuple[str, Reader]]) -> Reader:
    def read_record(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        row: dict[str, Any] = {}
        name = ""
        try:
            for name, read in fields:
                row[name], pos = read(data, pos)
        except READ_ERRORS as error:
            raise Malformed(placed(f".{name}", reason(error))) from None
        return row, pos

    return read_record


def _projected_record(plan: list[tuple[str, Reader, bool]], defaults: dict[str, Any]) -> Reader:
    shared = {name: value for name, value in defaults.items() if not isinstance(value, dict | list)}
    copied = {name: value for name, value in defaults.items() if name not in shared}

    def read_record(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        row = dict(shared)
        name = ""
        try:
            for name, read, kept in plan:
                value, pos = read(data, pos)
                if kept:
                    row[name] = value
        except READ_ERRORS as error:
            raise Malformed(placed(f".{name}", reason(error))) from None
        if copied:  # a handler may change a value in place, and must not change the default
            row.update(deepcopy(copied))
        return row, pos

    return read_record


def _enum_reader(symbols: list[str], reader: dict[str, Any]) -> Reader:
    known = set(reader["symbols"])
    fallback = reader.get("default")
    table = [symbol if symbol in known else fallback for symbol in symbols]
    if not any(table):
        raise Unresolvable(f"enum {reader['name']}: no symbol in common")

    short = _one_byte({i: symbol for i, symbol in enumerate(table) if symbol is not None})

    def read_enum(data: bytes, pos: int) -> tuple[str, int]:
        quick = short.get(data[pos])
        if quick is not None:
            return quick, pos + 1
        index, pos = _read_int(data, pos)
        if not 0 <= index < len(table):
            raise Malformed(f"symbol {index} of an enum of {len(table)}")
        symbol = table[index]
        if symbol is None:
            raise Malformed(f"the symbol {symbols[index]!r} is unknown to the reader")
        return symbol, pos

    return read_enum


def _one_byte(table: dict[int, T]) -> dict[int, T]:
    """The same by the byte that an index is written as: nearly always one, and one look-up then answers."""
    return {index << 1: entry for index, entry in table.items() if index < 64}  # noqa: PLR2004 - six bits and the sign


class _Blocks:
    """The rule for the block counts of one array or map: `(smallest bytes of an item, values in an item)`."""

    def __init__(self, width: int, nodes: int) -> None:
        self._width = width
        self._items_max = ITEM_NODES_MAX // nodes

    def start(self, data: bytes, pos: int, items: int) -> tuple[int, int, int]:
        """Items in the block that starts here, the position of the first, and of the block's end (-1: not told)."""
        count, pos = read_long(data, pos)
        end = -1
        if count < 0:  # then the block's size follows, for readers that skip it
            count = -count
            size, pos = read_long(data, pos)
            end = pos + size
            if not pos <= end <= len(data):
                raise Malformed(f"a block of {size} bytes")
        if count * self._width > len(data) - pos or items + count > self._items_max:
            raise Malformed(f"a block of {count} items in a message of {len(data)} bytes")
        return count, pos, end


def _array_reader(read: Reader, blocks: _Blocks) -> Reader:
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


def _map_reader(read: Reader, blocks: _Blocks) -> Reader:
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


def _union_reader(branches: list[Node], reader: Node) -> Reader:
    readers: list[Reader | str] = []
    for branch in branches:
        try:
            readers.append(make_reader(branch, reader))
        except Unresolvable as error:
            readers.append(str(error))  # others can be read; only a record that uses this branch is poison
    if all(isinstance(read, str) for read in readers):
        raise Unresolvable(f"no branch can be read: {'; '.join(map(str, readers))}")

    short = _one_byte({i: read for i, read in enumerate(readers) if not isinstance(read, str)})

    def read_union(data: bytes, pos: int) -> tuple[Any, int]:
        quick = short.get(data[pos])
        if quick is not None:
            return quick(data, pos + 1)
        index, pos = _read_int(data, pos)
        if not 0 <= index < len(readers):
            raise Malformed(f"branch {index} of a union of {len(readers)}")
        read = readers[index]
        if isinstance(read, str):
            raise Malformed(read)
        return read(data, pos)

    return read_union


def _first_match(writer: Node, branches: list[Node]) -> Reader:
    """The branch of the same type and name, else the first that the writer's type can be widened to."""
    same = [b for b in branches if kind(b) == kind(writer) and logical(b) == logical(writer)]
    for branch in (*same, *branches):
        try:
            return make_reader(writer, branch)
        except Unresolvable:
            continue
    raise Unresolvable(f"{_title(writer)} cannot be read as any of {', '.join(map(_title, branches))}")


# ---- defaults -----------------------------------------------------------------------------------------------------


def default_value(node: Node, default: Any) -> Any:
    """The Python value of a default as JSON states it. Raises `Unresolvable` if it does not fit its type."""
    name = kind(node)
    if isinstance(node, list):
        return _default_of_branch(node, default)
    if type(default) not in _DEFAULT_TYPES[name]:
        raise Unresolvable(f"the default {default!r} is no {_title(node)}")
    value = default
    if isinstance(node, dict) and name == "array":
        value = [default_value(node["items"], item) for item in default]
    elif isinstance(node, dict) and name == "map":
        value = {key: default_value(node["values"], item) for key, item in default.items()}
    elif isinstance(node, dict) and name == "record":
        value = _default_record(node, default)
    elif name in {"bytes", "fixed"}:
        value = default.encode("latin-1", "replace")
    elif name in {"float", "double"}:
        value = float(default)
    rule = conversion(node)
    try:
        return value if rule is None else rule.load(value)
    except READ_ERRORS as error:
        raise Unresolvable(f"the default {default!r} is no {logical(node)}: {error}") from error


def _default_of_branch(branches: list[Node], default: Any) -> Any:
    for branch in branches:
        try:
            return default_value(branch, default)
        except Unresolvable:
            continue
    raise Unresolvable(f"the default {default!r} fits no branch")


def _default_record(node: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    given = {field["name"]: field["default"] for field in node["fields"] if "default" in field} | default
    fields = {field["name"]: field["type"] for field in node["fields"]}
    if given.keys() != fields.keys():
        raise Unresolvable(f"the default of {node['name']} has other fields than the record")
    return {name: default_value(fields[name], value) for name, value in given.items()}
