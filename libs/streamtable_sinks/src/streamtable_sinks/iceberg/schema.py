"""The columns that a sink needs, beside those that its table has."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from streamtable.errors import ConfigurationError

_SQL: Final = {
    "int32": "INT", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "STRING",
    "large_string": "STRING", "binary": "BINARY", "large_binary": "BINARY", "date32[day]": "DATE",
}  # fmt: skip


_CHECKED: Final = (
    (kinds.is_integer, kinds.is_integer), (kinds.is_floating, kinds.is_integer), (kinds.is_integer, kinds.is_floating),
    (kinds.is_decimal, kinds.is_decimal), (kinds.is_time, kinds.is_time), (kinds.is_binary, kinds.is_fixed_size_binary),
)  # fmt: skip
"""Types whose values Arrow's cast keeps, or refuses."""


def fitted(name: str, needed: pa.Schema, there: pa.Schema) -> pa.Schema:
    """Return the schema of the rows: the columns that the sink needs, in the types of the table.

    Raises:
        ConfigurationError: The table lacks a column, or a field inside of one, or requires one that the sink does not fill; with
            the statements that help. Or a column has a type that changes values.
    """
    types = {field.name: field.type for field in there}
    found = [part for each in needed for part in _unlike(each.name, each.type, types.get(each.name))]
    unfilled = [each for each in there if not each.nullable and each.name not in needed.names]
    ddl = [f"ALTER TABLE {name} ADD COLUMN {path} {_sql(kind)};" for path, kind, own in found if own is None]
    ddl += [f"ALTER TABLE {name} ALTER COLUMN {each.name} DROP NOT NULL;" for each in unfilled]
    if ddl:
        raise ConfigurationError(
            f"table {name!r} does not have what its source needs. This would add it:\n" + "\n".join(ddl)
        )
    if found:
        changed = "; ".join(f"{path} is {own}, and the values are {kind}" for path, kind, own in found)
        raise ConfigurationError(
            f"table {name!r} has types that change values: {changed}. Give the table columns of these types, or make values of "
            "the table's types with columns= and schema="
        )
    return pa.schema([there.field(each.name) for each in needed])


def _unlike(
    path: str, given: pa.DataType, there: pa.DataType | None
) -> Iterator[tuple[str, pa.DataType, pa.DataType | None]]:
    """Yield the parts of a column that the table lacks, with None, and those whose values its type changes, with that."""
    if there is None:
        yield path, given, None
    elif kinds.is_struct(given) and kinds.is_struct(there):
        parts = {each.name: each.type for each in there}
        for each in given:
            yield from _unlike(f"{path}.{each.name}", each.type, parts.get(each.name))
    elif kinds.is_map(given) and kinds.is_map(there):
        yield from _unlike(f"{path}.value", given.item_type, there.item_type)
    elif hasattr(given, "value_type") and hasattr(there, "value_type"):
        yield from _unlike(f"{path}.element", given.value_type, there.value_type)
    elif not _keeps(given, there):
        yield path, given, there


def _keeps(given: pa.DataType, there: pa.DataType) -> bool:
    """Return whether Arrow's cast of a value to a type gives the same value, or refuses the value."""
    given = given.value_type if kinds.is_dictionary(given) else given
    if kinds.is_floating(given) and kinds.is_floating(there):
        return bool(given.bit_width <= there.bit_width)  # larger ones become infinite
    if kinds.is_timestamp(given) and kinds.is_timestamp(there):
        return given.tz is not None or there.tz is None  # one without a zone is in none, and not in UTC
    names = (str(each).removeprefix("large_") for each in (given, there))
    return len(set(names)) == 1 or any(of(given) and into(there) for of, into in _CHECKED)


def _sql(kind: pa.DataType) -> str:
    if kinds.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    return _SQL.get(str(kind), str(kind).upper())
