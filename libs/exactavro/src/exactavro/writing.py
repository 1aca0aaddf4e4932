"""Writers: functions, made once from a schema, that encode a value and reject any that does not fit exactly.

Nothing is truncated or converted silently: a float for an int, an int of more than 32 bits or an unknown field is an
error. The encoding is the shortest that Avro allows, and a map's entries are sorted by their encoded keys, so equal values have
equal bytes. What Avro can only hold approximately, such as 0.1 in 32 bits, is written as near as it can: an exact writer refuses it.
"""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, timedelta
from itertools import chain
from operator import index
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name says nothing on its own
from typing import Any

from exactavro.branches import avro_branch_of, full_names, has_name
from exactavro.defaults import default_value
from exactavro.errors import Unfit, Unusable, placed
from exactavro.logical import EXPECTED, Conversion, conversion
from exactavro.schema import Node, Schema, kind, logical, title
from exactavro.unrolled import unrolled

_LOSES = re.compile(r'"(array|float|default|(time|local-timestamp)-millis|timestamp-(millis|micros))"')

Writer = Callable[[Any], bytes]
"""Called directly, it raises one of `WRITE_ERRORS`, which `unfit` turns into an `Unfit`."""

WRITE_ERRORS = (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, StructError)

_INT_MAX = 2**31
_LONG_BITS = 64
# Varints are composed of 14-bit groups from look-up tables: shifting out groups of seven bits takes four times as long.
# The two tables take 1.6 MB: the first writer fills them.
_PIECES = 1 << 14
_LAST: list[bytes] = []
"""The varints of one and two bytes."""
_MORE: list[bytes] = []
"""The two bytes of each 14-bit group that is not the last."""
_EMPTY_BLOCK = b"\x00"


def _fill_tables() -> None:
    if (
        not _MORE
    ):  # filled last: another thread finds both filled, or fills each again, in one step and with the same
        _LAST[:] = [
            *(bytes((number,)) for number in range(0x80)),
            *(bytes((number & 0x7F | 0x80, number >> 7)) for number in range(0x80, _PIECES)),
        ]
        _MORE[:] = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(_PIECES)]


# ---- primitives ---------------------------------------------------------------------------------------------------


def write_long(value: int) -> bytes:
    """Encode a number as the shortest zigzag varint."""
    if type(value) is not int:
        value = _exact_int(value)
    number = (value << 1) ^ (value >> 63)
    if number < _PIECES:
        return _LAST[number]
    if number < 1 << 28:
        return _MORE[number & 0x3FFF] + _LAST[number >> 14]
    if number < 1 << 42:  # milliseconds since 1970, until 2039
        return _MORE[number & 0x3FFF] + _MORE[number >> 14 & 0x3FFF] + _LAST[number >> 28]
    if number >> _LONG_BITS:
        raise Unfit("more than 64 bits")
    pieces = []
    while number >= _PIECES:
        pieces.append(_MORE[number & 0x3FFF])
        number >>= 14
    pieces.append(_LAST[number])
    return b"".join(pieces)


def _exact_int(value: Any) -> int:
    """Return the value as an int. Subclasses and numpy's integers are accepted, booleans are not."""
    if isinstance(value, bool):
        raise Unfit("must be a number, not bool")
    try:
        return int(index(value))
    except TypeError:
        raise Unfit(f"must be an int, not {type(value).__name__}") from None


def _write_int(value: int) -> bytes:
    if type(value) is not int:
        value = _exact_int(value)
    if not -_INT_MAX <= value < _INT_MAX:
        raise Unfit("more than 32 bits")
    return write_long(value)


def _write_string(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Unfit(f"must be a str, not {type(value).__name__}")
    raw = value.encode()
    return write_long(len(raw)) + raw


def _write_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise Unfit(f"must be bytes, not {type(value).__name__}")
    data = (
        value.tobytes() if isinstance(value, memoryview) else bytes(value)
    )  # a view counts items, not bytes
    return write_long(len(data)) + data


def _write_boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise Unfit(f"must be a bool, not {type(value).__name__}")
    return _LAST[value]


def _write_null(value: Any) -> bytes:
    if value is not None:
        raise Unfit(f"must be None, not {type(value).__name__}")
    return b""


def _float_writer(form: Struct) -> Writer:
    """Return a writer of floats. Numbers of other types are refused where they would be rounded."""
    pack, unpack = form.pack, form.unpack

    def write_float(value: Any) -> bytes:
        if isinstance(value, float):
            return pack(value)
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise Unfit(f"must be a number, not {type(value).__name__}")
        data = pack(value)
        exact = (
            index(value) if hasattr(value, "__index__") else value
        )  # numpy rounds whole numbers to compare them
        if exact == exact and unpack(data)[0] != exact:  # noqa: PLR0124 - NaN
            raise Unfit(f"{value!r} would be rounded")
        return data

    return write_float


def _write_exact_float(value: Any) -> bytes:
    """Write a float that 32 bits hold."""
    data = _WRITERS["float"](value)
    (again,) = _FLOAT.unpack(data)
    if again != value and value == value:  # noqa: PLR0124 - NaN
        raise Unfit(
            f"is {value!r}, which would be read as {again!r}: write that, or let the schema have a double"
        )
    return data


_FLOAT = Struct("<f")
_WRITERS: dict[str, Writer] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _write_int,
    "long": write_long,
    "float": _float_writer(_FLOAT),
    "double": _float_writer(Struct("<d")),
    "bytes": _write_bytes,
    "string": _write_string,
}


# ---- making writers -----------------------------------------------------------------------------------------------


def make_writer(schema: Schema, prefix: bytes = b"", *, exact: bool = False) -> Writer:
    """Return a writer of the values of a schema, for `encode`.

    Args:
        schema: The schema.
        prefix: The bytes before each value.
        exact: Whether a value is refused that is not equal to the one that is read: a float that 32 bits round, a time with more
            digits than its unit, a datetime of another zone than UTC, a tuple, and a record without a field that has a default.
    """
    _fill_tables()
    node = schema.tree
    if isinstance(node, dict) and kind(node) == "record" and conversion(node) is None:
        return _record_writer(node, prefix, exact=exact)
    write = _writer(node, exact=exact)
    return (lambda value: prefix + write(value)) if prefix else write


def may_lose(schema: Schema) -> bool:
    """Return whether an exact writer of a schema may refuse values that another one writes."""
    return _LOSES.search(schema.text) is not None


def encode(write: Writer, value: Any) -> bytes:
    """Return the bytes of a value. Raises `Unfit`."""
    try:
        return write(value)
    except WRITE_ERRORS as error:
        raise unfit(error) from error


def unfit(error: Exception) -> Unfit:
    """Convert one of `WRITE_ERRORS` to the error that it means."""
    return Unfit(f"{error} is not one of its symbols" if isinstance(error, LookupError) else str(error))


def _writer(node: Node, *, exact: bool) -> Writer:
    if isinstance(node, list):
        return _union_writer(node, exact=exact)
    write = _plain_writer(node, exact=exact)
    rule = conversion(node)
    if rule is None:
        return write
    name = logical(node) or ""
    dump = _exactly(rule) if exact and name.startswith(_TIMES) else rule.dump
    expected = EXPECTED[name]

    def write_logical(value: Any) -> bytes:
        try:
            carried = dump(value)
        except (AttributeError, TypeError):
            raise Unfit(f"must be {expected}, not {type(value).__name__}") from None
        return write(carried)

    return write_logical


_TIMES = ("time-millis", "timestamp-", "local-timestamp-millis")
_NO_OFFSET = timedelta(0)


def _exactly(rule: Conversion) -> Callable[[Any], Any]:
    """Return the conversion of times that refuses those which would be read as others."""

    def dump(value: Any) -> Any:
        carried = rule.dump(value)
        zone = value.tzinfo
        if zone is not None and zone is not UTC and zone.utcoffset(None) != _NO_OFFSET:  # None: it varies
            raise Unfit(f"is {value}, which would be read in UTC: write .astimezone(UTC)")
        if (again := rule.load(carried)) != value:
            raise Unfit(
                f"is {value}, which would be read as {again}: write that, or let the schema have micros"
            )
        return carried

    return dump


def _plain_writer(node: str | dict[str, Any], *, exact: bool) -> Writer:
    name = kind(node)
    if exact and name == "float":
        write: Writer = _write_exact_float
    elif isinstance(node, str) or name in _WRITERS:
        write = _WRITERS[name]
    elif name == "record":
        write = _record_writer(node, exact=exact)
    elif name == "array":
        write = _array_writer(_writer(node["items"], exact=exact), exact=exact)
    elif name == "map":
        write = _map_writer(_writer(node["values"], exact=exact))
    elif name == "enum":
        write = _Symbols(
            (symbol, write_long(number)) for number, symbol in enumerate(node["symbols"])
        ).__getitem__
    else:
        write = _fixed_writer(node["size"])
    return write


class _Symbols(dict[str, bytes]):
    """The encoded symbols of an enum."""

    def __missing__(self, value: Any) -> bytes:
        raise Unfit(f"must be one of {', '.join(self)}, not {repr(value)[:100]}")


def _fixed_writer(size: int) -> Writer:
    def write_fixed(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview) or len(data := bytes(value)) != size:
            raise Unfit(f"must be {size} bytes, not {_described(value)}")
        return data

    return write_fixed


def _described(value: Any) -> str:
    return (
        f"{len(value)} bytes" if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__
    )


def _check(write: Writer, value: Any, place: str) -> None:
    try:
        write(value)
    except WRITE_ERRORS as error:
        raise Unfit(placed(place, str(unfit(error)))) from None


def _array_writer(write: Writer, *, exact: bool) -> Writer:
    def write_array(value: Any) -> bytes:
        if exact and isinstance(value, tuple):
            raise Unfit("is a tuple, which would be read as a list: write list(...)")
        if not isinstance(value, list | tuple):
            raise Unfit(f"must be a list or tuple, not {type(value).__name__}")
        if not value:
            return _EMPTY_BLOCK
        try:
            return b"".join((write_long(len(value)), *map(write, value), _EMPTY_BLOCK))
        except WRITE_ERRORS:
            for number, item in enumerate(value):
                _check(write, item, f"[{number}]")
            raise

    return write_array


def _map_writer(write: Writer) -> Writer:
    def write_map(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise Unfit(f"must be a dict, not {type(value).__name__}")
        if not value:
            return _EMPTY_BLOCK
        entries = []
        for key, item in value.items():
            try:
                entries.append((_write_string(key), write(item)))
            except WRITE_ERRORS as error:
                raise Unfit(placed(f"[{repr(key)[:100]}]", str(unfit(error)))) from None
        return b"".join((write_long(len(value)), *chain.from_iterable(sorted(entries)), _EMPTY_BLOCK))

    return write_map


def _record_writer(node: dict[str, Any], prefix: bytes = b"", *, exact: bool) -> Writer:
    fields = [(field["name"], _writer(field["type"], exact=exact)) for field in node["fields"]]
    defaults = {}
    for field in node["fields"]:
        if "default" in field:
            try:
                defaults[field["name"]] = default_value(field["type"], field["default"])
            except Unusable:
                continue  # an invalid default counts as none here; readers report it

    def complete(row: Any) -> bytes:
        """Write a record with defaults filled in, or raise the error with its place; the slow path."""
        if not isinstance(row, dict):
            raise Unfit(f"must be a dict, not {type(row).__name__}")
        unknown = row.keys() - dict(fields).keys()
        if unknown:
            raise Unfit(f"has unknown fields: {', '.join(sorted(map(str, unknown)))}")
        parts = [prefix]
        for name, write in fields:
            if name not in row and name not in defaults:
                raise Unfit(f".{name}: missing, and has no default")
            if exact and name not in row:
                raise Unfit(
                    f".{name}: missing, and would be read as its default, {defaults[name]!r}: write it"
                )
            try:
                parts.append(write(row[name] if name in row else defaults[name]))
            except WRITE_ERRORS as error:
                raise Unfit(placed(f".{name}", str(unfit(error)))) from None
        return b"".join(parts)

    nodes = [field["type"] for field in node["fields"]]
    return unrolled(
        [(name, of, write) for (name, write), of in zip(fields, nodes, strict=True)],
        write_long=write_long,
        last=_LAST,
        more=_MORE,
        errors=WRITE_ERRORS,
        otherwise=complete,
        prefix=prefix,
    )


def _union_writer(branches: list[Node], *, exact: bool) -> Writer:
    writers = [(node, write_long(number), _writer(node, exact=exact)) for number, node in enumerate(branches)]
    nothing = next((prefix for _, prefix, write in writers if write is _write_null), None)
    writers = [each for each in writers if each[2] is not _write_null]
    if len(writers) == 1:
        _, only, write_only = writers[0]
        return lambda value: nothing if value is None and nothing is not None else only + write_only(value)
    # Float branches accept ints too, so branches of the exact type are tried first.
    order = sorted(writers, key=lambda each: {"double": 1, "float": 2}.get(kind(each[0]), 0))
    unnamed = [(node, prefix, write) for node, prefix, write in order if not has_name(node)]
    named = [(node, prefix, write) for node, prefix, write in order if has_name(node)]
    by_name = _by_name(named)

    def write_union(value: Any) -> bytes:
        if value is None and nothing is not None:
            return nothing
        chosen = by_name.get(avro_branch_of(value) or "")
        if chosen is not None:
            return chosen[0] + chosen[1](value)
        errors: list[str] = []
        for node, prefix, write in unnamed:
            try:
                return prefix + write(value)
            except WRITE_ERRORS as error:
                errors.append(f"{title(node)}: {unfit(error)}")
        found: list[tuple[Node, bytes]] = []
        for node, prefix, write in named:
            try:
                found.append((node, prefix + write(value)))
            except WRITE_ERRORS as error:
                errors.append(f"{title(node)}: {unfit(error)}")
        if len(found) > 1:
            found = _closest(value, found)
        if found:
            return found[0][1]
        raise Unfit(
            f"a {type(value).__name__} that fits no branch of {', '.join(map(title, branches))} ({'; '.join(errors)})"
        )

    return write_union


def _by_name(named: list[tuple[Node, bytes, Writer]]) -> dict[str, tuple[bytes, Writer]]:
    """Return the branches by full name, alias, and simple name, if only one of them has it."""
    full = {name: (prefix, write) for node, prefix, write in reversed(named) for name in full_names(node)}
    own = {full_names(node)[0]: (prefix, write) for node, prefix, write in named}
    simple = Counter(name.rpartition(".")[2] for name in own)
    short = {short: each for name, each in own.items() if simple[short := name.rpartition(".")[2]] == 1}
    return {**short, **full, **own}


def _closest(value: Any, found: list[tuple[Node, bytes]]) -> list[tuple[Node, bytes]]:
    """Return the branch of exactly the fields of the value. Raises `Unfit` if it is not the only one."""
    closest = [
        each
        for each in found
        if isinstance(value, dict)
        and isinstance(each[0], dict)
        and "fields" in each[0]
        and {field["name"] for field in each[0]["fields"]} == value.keys()
    ]
    if len(closest) != 1:
        names = ", ".join(full_names(node)[0] for node, _ in closest or found)
        raise Unfit(f"fits several branches, {names}: choose one with avro_branch(name, value)")
    return closest
