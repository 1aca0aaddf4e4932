"""The columns that a source needs, from the types of its keys and values, and how they differ from a table's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamtable import Codec
from streamtable_sinks.columns import tree_of

_KINDS: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "bytes": "bytea",
    "string": "text",
    "enum": "text",
    "fixed": "bytea",
}
_LOGICAL: Final = {
    "date": "date",
    "time-millis": "time without time zone",
    "time-micros": "time without time zone",
    "timestamp-millis": "timestamp with time zone",
    "timestamp-micros": "timestamp with time zone",
    "local-timestamp-millis": "timestamp without time zone",
    "local-timestamp-micros": "timestamp without time zone",
    "uuid": "uuid",
}
_STRUCTURED: Final = "jsonb"


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
    tree = tree_of(codec)
    if tree is None:
        return None
    if isinstance(tree, dict) and tree.get("type") == "record":
        return [_column(field["name"], field["type"]) for field in tree["fields"]]
    return [_column(single, tree)]


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


@dataclass(frozen=True)
class Difference:
    """The differences between a table and the columns that its source needs.

    Attributes:
        missing: The columns that it lacks.
        other_types: The columns with another type, and the type that the source has.
        unfilled: The columns that need a value and get none.
    """

    missing: Sequence[Column]
    other_types: Sequence[tuple[Column, str]]
    unfilled: Sequence[Column]


def difference(needed: Sequence[Column], there: Mapping[str, Column]) -> Difference:
    """Compare the columns that a source needs with a table's."""
    names = {column.name for column in needed}
    both = [(there[column.name], column.type) for column in needed if column.name in there]
    return Difference(
        [column for column in needed if column.name not in there],
        [(column, kind) for column, kind in both if column.type != kind],
        [column for column in there.values() if column.required and column.name not in names],
    )
