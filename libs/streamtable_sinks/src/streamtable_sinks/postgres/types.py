"""The columns that a source needs, from the types of its keys and values, and how they differ from a table's."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from struct import pack, unpack
from typing import Any, Final
from uuid import UUID

import psycopg

from streamtable import Codec
from streamtable_sinks.columns import fields_of

_KINDS: Final = {
    "boolean": "boolean", "int": "integer", "long": "bigint", "float": "real", "double": "double precision",
    "bytes": "bytea", "fixed": "bytea", "string": "text", "enum": "text",
}  # fmt: skip
_ZONED, _LOCAL, _TIME = ("timestamp with time zone", "timestamp without time zone", "time without time zone")
_LOGICAL: Final = {
    "date": "date", "time-millis": _TIME, "time-micros": _TIME, "timestamp-millis": _ZONED, "timestamp-micros": _ZONED,
    "local-timestamp-millis": _LOCAL, "local-timestamp-micros": _LOCAL, "uuid": "uuid",
}  # fmt: skip
_STRUCTURED: Final = "jsonb"
_HOUR: Final = datetime(2026, 1, 1, 1, tzinfo=UTC)
_EXAMPLES: Final[Mapping[str, Any]] = {
    "text": "", "bytea": b"", "date": _HOUR.date(), _LOCAL: _HOUR.replace(tzinfo=None), _ZONED: _HOUR, _TIME: time(1),
    "boolean": True, "integer": 0, "bigint": 0, "real": 0.0, "double precision": 0.0, "numeric": Decimal(0),
}  # fmt: skip
"""Values of types of the source: a column that would change one of them changes nearly all."""
_MODIFIER: Final = re.compile(r" ?\(([^)]*)\)")
"""The digits of a type, such as `(10,2)`."""
_NO_TEXTS: Final = (bool, bytes, bytearray, memoryview, psycopg.Binary, list, tuple)


@dataclass(frozen=True)
class Column:
    """A column of a table in PostgreSQL.

    Attributes:
        type: The SQL type, as `format_type` writes it.
        required: Whether a row must have a value: it is NOT NULL without a default.
    """

    name: str
    type: str
    required: bool = False


def columns_of(codec: Codec[Any], single: str) -> Sequence[Column] | None:
    """Return the columns of values of a codec; None if they are not known.

    Args:
        codec: The codec.
        single: The name of the column of a value that is not a record.
    """
    found = fields_of(codec, single)
    return None if found is None else [_column(name, node) for name, node in found]


def _column(name: str, node: Any) -> Column:
    kinds = node if isinstance(node, list) else [node]
    values = [kind for kind in kinds if kind != "null"]
    sql = _sql_type(values[0]) if len(values) == 1 else _STRUCTURED
    return Column(name, sql, required=len(values) == len(kinds))


def _sql_type(node: Any) -> str:
    if not isinstance(node, dict):
        return _KINDS.get(node, _STRUCTURED)
    logical = node.get("logicalType")
    if logical == "decimal":
        return f"numeric({node['precision']},{node.get('scale', 0)})"
    return _LOGICAL.get(logical or "") or _sql_type(node["type"])


def keeping(kind: str) -> Callable[[Any], bool] | None:
    """Return the function that says whether a column of a type keeps a value, or refuses it; None: it does so with all values.

    PostgreSQL reads each value from its text, and cuts what the type has no place for. A float is rounded to the digits of any type.
    """
    base, found = _MODIFIER.sub("", kind), _MODIFIER.search(kind)
    if kind.endswith("[]"):
        part = keeping(kind[:-2])
        return part and partial(_keeps_parts, part, _CHECKS.get(base[:-2]) in {_keeps_text, _keeps_bytes})
    if base not in _CHECKS or kind == "numeric":
        return None
    return partial(_CHECKS[base], int(found[1].rpartition(",")[2]) if found else math.inf)


def changed(needed: Sequence[Column], there: Mapping[str, Column]) -> Iterator[tuple[str, str, str]]:
    """Yield the columns whose type changes the values of the source, with that type, and with the source's."""
    for name, kind in ((each.name, each.type) for each in needed if each.name in there):
        keeps, example = keeping(there[name].type), _EXAMPLES.get(_MODIFIER.sub("", kind))
        literal = kind == "text" and there[name].type.endswith("[]")  # of an array: its parts decide
        if keeps is not None and example is not None and not literal and not keeps(example):
            yield name, there[name].type, kind


def _exact(value: Any) -> Decimal | None:
    """Return a number that is not a float, also one in a text; None: the value has none."""
    try:
        number = Decimal(value) if isinstance(value, int | str | Decimal) else None
    except ArithmeticError:
        return None
    return number if number is not None and number.is_finite() else None


def _keeps_digits(scale: float, value: Any) -> bool:
    if (number := _exact(value)) is None:
        return True
    _, digits, exponent = number.as_tuple()
    beyond = -int(exponent) - scale
    return beyond <= 0 or not any(digits[-int(beyond) :])


def _keeps_number(shown: Callable[[float], str], _: float, value: Any) -> bool:
    return (number := _exact(value)) is None or number == Decimal(shown(float(number)))


def _shown_by_real(number: float) -> str:
    """Return the shortest text of the four bytes that hold a number."""
    held = pack("f", number)
    texts = (f"{unpack('f', held)[0]:.{digits}g}" for digits in range(6, 10))
    return next(text for text in texts if pack("f", float(text)) == held)


def _keeps_text(longest: float, value: Any) -> bool:
    if type(value) is str:
        return len(value) <= longest
    return not isinstance(value, _NO_TEXTS) and len(_sent(value)) <= longest


def _keeps_padded(longest: float, value: Any) -> bool:
    return _keeps_text(longest, value.rstrip(" ") if type(value) is str else value)


def _keeps_bytes(_: float, value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview | psycopg.Binary)


def _sent(value: Any) -> str:
    """Return the text that the client sends for a value."""
    return value.hex if isinstance(value, UUID) else value if isinstance(value, str) else str(value)


def _keeps_parts(keeps: Callable[[Any], bool], as_text: bool, value: Any) -> bool:  # noqa: FBT001 - of a partial
    if not isinstance(value, list):
        return as_text
    arrays = partial(_keeps_parts, keeps, as_text)
    return all(each is None or (arrays if isinstance(each, list) else keeps)(each) for each in value)


def _keeps_time(base: str, digits: float, value: Any) -> bool:
    if isinstance(value, str) and value.lower() not in {"", "infinity", "-infinity"}:
        iso = re.sub(r"(?<=[-T :])(\d)(?=[-T :]|$)", r"0\1", re.sub(r" (UTC|GMT)$", "Z", value))
        try:
            read = (time if base.startswith("time ") else datetime).fromisoformat(iso)
        except ValueError:
            return False  # PostgreSQL refuses it, or knows the form and may drop a part
        return not re.search(r"[.,]\d{6,}[1-9]", value) and _keeps_time(base, digits, read)
    if not isinstance(value, datetime | time):
        return isinstance(value, str) or (isinstance(value, date) and base in {"date", _LOCAL})
    if base == "date":
        return isinstance(value, datetime) and value.timetz() == time()
    unit = 10 ** (6 - min(digits, 6))
    if value.microsecond % unit or (isinstance(value, datetime) and base.startswith("time ")):
        return False
    offset = value.utcoffset()
    return offset is not None if base.endswith(" with time zone") else not offset


_CHECKS: Final[Mapping[str, Callable[[float, Any], bool]]] = {
    "numeric": _keeps_digits, "money": lambda _, value: _keeps_digits(2, value.strip("$ ") if isinstance(value, str) else value),
    "real": partial(_keeps_number, _shown_by_real), "double precision": partial(_keeps_number, repr),
    "text": _keeps_text, "character varying": _keeps_text, "character": _keeps_padded,
    "name": lambda _, value: len(_sent(value).encode()) <= 63, '"char"': lambda _, value: len(_sent(value).encode()) <= 1,  # noqa: PLR2004
    "bytea": _keeps_bytes,
    "interval": lambda digits, value: not isinstance(value, timedelta) or not value.microseconds % 10 ** (6 - min(digits, 6)),
    "oid": lambda _, value: not str(value).startswith("-"),
    **{base: partial(_keeps_time, base) for base in ("date", _ZONED, _LOCAL, _TIME, "time with time zone")},
}  # fmt: skip
"""Whether a type keeps a value, by the number in its modifier; infinite if it has none."""
