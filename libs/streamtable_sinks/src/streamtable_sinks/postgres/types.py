"""The columns that a source needs, from the types of its keys and values, and how they differ from a table's."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, Final

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
    "text": "", "bytea": b"", "date": _HOUR.date(), _LOCAL: _HOUR.replace(tzinfo=None), _ZONED: _HOUR,
}  # fmt: skip
"""Values of types of the source: a column that would change one of them changes nearly all."""
_MODIFIER: Final = re.compile(r" ?\(([^)]*)\)")
"""The digits of a type, such as `(10,2)`."""


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
    if base == "numeric" and found:
        return partial(_keeps_digits, int(found[1].partition(",")[2] or 0))
    if base == "double precision":
        return lambda value: (number := _exact(value)) is None or number == Decimal(repr(float(number)))
    if base.startswith(("date", "time")):
        return partial(_keeps_time, base, int(found[1]) if found else 6)
    other = {"bytea": str, "text": bytes, "character varying": bytes}.get(base)
    return None if other is None else lambda value: not isinstance(value, other)


def changed(needed: Sequence[Column], there: Mapping[str, Column]) -> Iterator[tuple[str, str, str]]:
    """Yield the columns whose type changes the values of the source, with that type, and with the source's."""
    for name, kind in ((each.name, each.type) for each in needed if each.name in there):
        keeps = keeping(there[name].type)
        if keeps is not None and kind in _EXAMPLES and not keeps(_EXAMPLES[kind]):
            yield name, there[name].type, kind


def _exact(value: Any) -> Decimal | None:
    """Return a number that is not a float, also one in a text; None: the value has none."""
    try:
        number = Decimal(value) if isinstance(value, int | str | Decimal) else None
    except ArithmeticError:
        return None
    return number if number is not None and number.is_finite() else None


def _keeps_digits(scale: int, value: Any) -> bool:
    if (number := _exact(value)) is None:
        return True
    _, digits, exponent = number.as_tuple()
    beyond = -int(exponent) - scale
    return beyond <= 0 or not any(digits[-beyond:])


def _keeps_time(base: str, digits: int, value: Any) -> bool:
    if isinstance(value, str):
        try:
            value = (time if base.startswith("time ") else datetime).fromisoformat(value)
        except ValueError:
            return True  # PostgreSQL refuses it, or knows more forms
    if base == "date":
        return not isinstance(value, datetime) or value.timetz() == time()
    if not isinstance(value, datetime | time):
        return not isinstance(value, date) or not base.endswith(" with time zone")
    if value.microsecond % 10 ** (6 - digits) or (isinstance(value, datetime) and base.startswith("time ")):
        return False
    offset = value.utcoffset()
    return offset is not None if base.endswith(" with time zone") else not offset
