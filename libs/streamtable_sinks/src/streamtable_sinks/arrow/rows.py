"""Changes as rows of an Arrow table."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa

from streamtable import Avro, Codec
from streamtable.errors import ConfigurationError, Rejected
from streamtable_sinks.arrow.schema import DELETED, PLACE, schema_of, with_micros
from streamtable_sinks.columns import converted, key_maker, key_part, parts, row_maker, tree_of
from streamtable_sinks.target import Changes, SinkChange, SinkSource

MakeColumns = Callable[[Any, Any], Mapping[str, Any]]


class ArrowRows:
    """Makes a table of changes: the columns of the key, the fields of the value, and the place of the record.

    Args:
        key: The names of the columns of the key, of a table: one, or one for each part of the key.
        columns: Makes the columns of a row, without the key's, from a record's key and value. Needs `schema`.
        schema: The schema of these columns, of Arrow or Avro. Default: from the codec.

    Attributes:
        schema: The schema of the tables, once it is known; may be replaced by another one with the same names.

    Raises:
        ConfigurationError: The arguments contradict each other.
    """

    def __init__(
        self, key: Sequence[str], columns: MakeColumns | None, schema: pa.Schema | Avro[Any] | None
    ) -> None:
        if columns is not None and schema is None:
            raise ConfigurationError("columns= needs schema=: all files have the same columns")
        self._key, self._columns = tuple(key), columns
        self._given = schema_of(schema, "value") if isinstance(schema, Avro) else schema
        self._is_table = self._compared = False
        self._row_of: Callable[[Any], Mapping[str, Any]] | None = None
        self._key_row_of: Callable[[Any], Any] | None = None
        self._uuids = isinstance(schema, Avro) and _has_uuid(schema)
        self._needed = pa.schema([])
        self._names: frozenset[str] = frozenset()
        self.schema = self._places = pa.schema([])

    def open(self, source: SinkSource) -> pa.Schema:
        """Return the schema that the source needs. Raises `ConfigurationError` if it is not known."""
        self._is_table = source.is_table
        if source.is_table and not self._key:
            raise ConfigurationError(
                f"sink {source.sink!r} writes the table {source.topic!r}: name its key columns, key="
            )
        values = self._given if self._given is not None else schema_of(source.value, "value")
        own = schema_of(source.key, self._key[0]) if self._key else None
        of_key = {} if own is None or len(own) < len(self._key) else {each.name: each for each in own}
        of_value = {} if values is None else {each.name: each for each in values}
        typed = {**of_value, **of_key} if self._given is None else {**of_key, **of_value}
        own_types = self._given is None and of_key.keys() >= {*self._key}
        self._compared = not own_types or _has_text_of_many(source.value) or _has_text_of_many(source.key)
        if values is None or not typed.keys() >= {*self._key}:
            raise ConfigurationError(
                f"the columns of sink {source.sink!r} are not known: give columns= and schema=, with the key's too"
            )
        others = [each for each in values if each.name not in self._key]
        self._needed = pa.schema([*(typed[name] for name in self._key), *others])
        self._names = frozenset(self._needed.names)
        self._row_of = row_maker(source.value, self._names, () if self._given is None else self._names)
        self._key_row_of = key_maker(source.key, self._key)
        self._uuids = self._uuids or _has_uuid(source.key) or _has_uuid(source.value)
        self._places = pa.schema([*PLACE, *([DELETED] if source.is_table else [])])
        if taken := self._names.intersection(self._places.names):
            raise ConfigurationError(
                f"sink {source.sink!r} has columns of its own with the names {sorted(taken)}: give columns= and schema="
            )
        self.schema = pa.schema([*self._needed, *self._places])
        return self.schema

    def table(self, partition: int, changes: Changes) -> pa.Table:
        """Return the rows of changes. Raises `Rejected`, with the offset if it is known which change it is."""
        rows = [self._row(each) for each in changes]
        for row, change in zip(rows, changes, strict=True):
            if not row.keys() <= self._names:
                unknown = sorted(map(str, row.keys() - self._names))
                raise Rejected(f"the schema has no columns {unknown}", offset=change.offset)
        try:
            made = pa.Table.from_pylist(rows, schema=self._needed)
            if self._compared:
                self._compare(rows, made, changes)
            columns = zip(*(self._place(partition, each) for each in changes), strict=True)
            for field, values in zip(self._places, columns, strict=False):  # a stream has no deletions
                made = made.append_column(field, pa.array(values, field.type))
            made = made.cast(pa.schema([field.with_nullable(True) for field in self.schema]))
        except (pa.ArrowException, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise Rejected(f"the rows do not fit the schema: {error}") from error
        empty = [field.name for field in self.schema if not field.nullable and made[field.name].null_count]
        if empty:
            raise Rejected(f"the columns {empty} may not be null")
        return made.cast(self.schema)

    @staticmethod
    def _place(partition: int, change: SinkChange) -> tuple[Any, ...]:
        known = None if change.timestamp_ms < 0 else change.timestamp_ms
        return partition, change.offset, known, change.value is None

    def _compare(self, rows: Sequence[Mapping[str, Any]], made: pa.Table, changes: Changes) -> None:
        """Refuse the first value that Arrow has changed to the type of its column, which it does without an error."""
        try:
            found = made.to_pylist()
        except ValueError:  # a number of nanoseconds, which Python has no time of
            micros = pa.schema([each.with_type(with_micros(each.type)) for each in made.schema])
            found = made.cast(micros, safe=False).to_pylist()
        for row, kept, change in zip(rows, found, changes, strict=True):
            for name, value in kept.items():
                if not _same(row.get(name), value):
                    message = f"the column {name!r} would change {row[name]!r:.100} to {value!r:.100}"
                    raise Rejected(message, offset=change.offset)

    def _row(self, change: SinkChange) -> Mapping[str, Any]:
        try:
            found = {} if change.value is None and self._is_table else self._found(change)
            row = {**found, **self._key_of(change.key)} if self._key else {**found}
            return converted(row, _with_text) if self._uuids else row
        except Exception as error:
            message = f"the row cannot be made: {type(error).__name__}: {error}"
            raise Rejected(message, offset=change.offset) from error

    def _found(self, change: SinkChange) -> Mapping[str, Any]:
        if self._columns is not None:
            return self._columns(change.key, change.value)
        if self._row_of is not None:
            return self._row_of(change.value)
        return change.value if isinstance(change.value, dict) else {"value": change.value}

    def _key_of(self, key: Any) -> Mapping[str, Any]:
        if self._key_row_of is not None:
            key = self._key_row_of(key)
        return {name: key_part(self._key, name, key) for name in self._key}


def _same(given: Any, found: Any) -> bool:
    """Return whether Arrow has kept a value. A float may have fewer digits, and a number may count the units of a time."""
    given = given.tolist() if hasattr(given, "tolist") else given  # numpy's
    if isinstance(found, dict):
        row = dict(given)
        return row.keys() <= found.keys() and all(_same(each, found[name]) for name, each in row.items())
    if isinstance(found, list | tuple):
        parts = list(given.items() if isinstance(given, Mapping) else given)
        return len(parts) == len(found) and all(map(_same, parts, found))
    if isinstance(given, datetime) and isinstance(found, datetime) and given.tzinfo and found.tzinfo:
        return given.astimezone(UTC) == found.astimezone(
            UTC
        )  # in a repeated hour, none equals one of another zone
    if isinstance(given, float) and isinstance(found, float):
        return given == found or not math.isinf(found)
    return bool(given == found or (type(given) is int and isinstance(found, date | time | timedelta)))


def _has_uuid(codec: Codec[Any]) -> bool:
    return any(isinstance(each, dict) and each.get("logicalType") == "uuid" for each in parts(tree_of(codec)))


def _has_text_of_many(codec: Codec[Any]) -> bool:
    """Return whether values have a union of several types, whose column is a text: bytes would be one, too."""
    return any(isinstance(each, list) and len(each) - ("null" in each) > 1 for each in parts(tree_of(codec)))


def _with_text(value: Any) -> Any:
    """Return a UUID as a text, which Arrow does not make of one."""
    return str(value) if isinstance(value, UUID) else value
