"""The Arrow schema of the files, from the types of keys and values."""

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from streamtable import Codec
from streamtable.errors import ConfigurationError
from streamtable_sinks.columns import fields_of

_KINDS: Final = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "fixed": pa.binary(), "string": pa.string(), "enum": pa.string(), "null": pa.string(),
}  # fmt: skip
_LOGICAL: Final = {
    "date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us"), "uuid": pa.string(),
    "timestamp-millis": pa.timestamp("ms", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"), "local-timestamp-micros": pa.timestamp("us"),
}  # fmt: skip
_DECIMAL128_DIGITS: Final = 38
PLACE: Final = (
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", pa.timestamp("ms", "UTC")),
)
"""The columns that each row has: the place of its record, and the record's timestamp."""
DELETED: Final = pa.field("_deleted", pa.bool_())
"""The column of a table's rows: whether the change deletes the row of its key."""


def schema_of(codec: Codec[Any], single: str) -> pa.Schema | None:
    """Return the schema of values of a codec; None if it is not known. `single`: the column of a value that is no record."""
    found = fields_of(codec, single)
    return None if found is None else pa.schema([_field(name, node) for name, node in found])


def with_micros(kind: pa.DataType) -> pa.DataType:
    """Return a type with microseconds in the place of nanoseconds, and for all times of day."""
    if kinds.is_struct(kind):
        return pa.struct([each.with_type(with_micros(each.type)) for each in kind])
    if kinds.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(with_micros(kind.item_type)))
    if hasattr(kind, "value_field"):
        part = kind.value_field.with_type(with_micros(kind.value_type))
        return pa.list_(part, getattr(kind, "list_size", -1))
    if kinds.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return (
        pa.time64("us") if kinds.is_time(kind) else pa.duration("us") if kind == pa.duration("ns") else kind
    )


def _field(name: str, node: Any) -> pa.Field:
    try:
        return pa.field(name, _type(node))
    except ValueError as error:
        raise ConfigurationError(f"no type for {name!r}, {error}: give columns= and schema=") from error


def _type(node: Any) -> pa.DataType:
    if isinstance(node, list):
        values = [kind for kind in node if kind != "null"]
        return _type(values[0]) if len(values) == 1 else pa.string()
    return _complex(node) if isinstance(node, dict) else _KINDS[node]


def _complex(node: Any) -> pa.DataType:
    logical = node.get("logicalType")
    if logical == "decimal":
        make = pa.decimal128 if node["precision"] <= _DECIMAL128_DIGITS else pa.decimal256
        return make(node["precision"], node.get("scale", 0))
    match node["type"]:
        case "record":
            return pa.struct([_field(field["name"], field["type"]) for field in node["fields"]])
        case "array":
            return pa.list_(_type(node["items"]))
        case "map":
            return pa.map_(pa.string(), _type(node["values"]))
        case kind:
            return _LOGICAL.get(logical or "") or _type(kind)
