"""The columns that a sink needs, beside those that its table has."""

from typing import Final

import pyarrow as pa

from streamtable.errors import ConfigurationError

_SQL: Final = {
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "STRING",
    "large_string": "STRING",
    "binary": "BINARY",
    "large_binary": "BINARY",
    "date32[day]": "DATE",
}


def fitted(name: str, needed: pa.Schema, there: pa.Schema) -> pa.Schema:
    """Return the schema of the rows: the columns that the sink needs, in the types of the table.

    Raises:
        ConfigurationError: The table lacks a column, or requires one that the sink does not fill; with the statements that help.
    """
    fields = {field.name: field for field in there}
    missing = [each for each in needed if each.name not in fields]
    unfilled = [each for each in there if not each.nullable and each.name not in needed.names]
    ddl = [f"ALTER TABLE {name} ADD COLUMN {each.name} {_sql(each.type)};" for each in missing]
    ddl += [f"ALTER TABLE {name} ALTER COLUMN {each.name} DROP NOT NULL;" for each in unfilled]
    if ddl:
        raise ConfigurationError(
            f"table {name!r} does not have what its source needs. This would add it:\n" + "\n".join(ddl)
        )
    return pa.schema([fields[each.name] for each in needed])


def _sql(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    return _SQL.get(str(kind), str(kind).upper())


def with_micros(kind: pa.DataType) -> pa.DataType:
    """Return a type with times of day in microseconds, as all are in Iceberg."""
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(with_micros(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_micros(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(with_micros(kind.item_type)))
    return pa.time64("us") if pa.types.is_time32(kind) else kind
