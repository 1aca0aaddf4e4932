"""Rows of a type of the user's: a `msgspec.Struct`, a dataclass, a `TypedDict`, or a plain dict."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Generic, TypeVar, get_origin

import msgspec
from msgspec import inspect

from streamtable import Decoded, decode_each
from streamtable.errors import DeserializationError, GraphError
from streamtable_capture.semantics import EXTRA, Converter, Semantic, converter

T = TypeVar("T")
Plan = Mapping[str, Converter]
"""The functions that convert columns, by column."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of JSON that cannot be read; msgspec raises the last two for a text that is not UTF-8, and for deep nesting."""
MALFORMED = (*UNREADABLE, LookupError, TypeError, ValueError, AttributeError)
"""The errors of a schema that is JSON, and has not the form of a schema."""
_WITH_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_CLASSES: Mapping[type, type] = {
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.DateType: date,
    inspect.TimeType: time,
    inspect.DateTimeType: datetime,
    inspect.TimeDeltaType: timedelta,
    inspect.DecimalType: Decimal,
}


class OneByOne(Generic[T]):
    """The part of a codec that decodes several values, one after the other."""

    decode: Callable[[bytes], T]

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        return decode_each(self.decode, data)


class RowType(Generic[T]):
    """The type of a table's rows, and how they are made of columns.

    Args:
        row: The class of the rows. With `dict` the values stay as the connector wrote them, also where the topic has schemas.

    Raises:
        GraphError: The class is none of the kinds that can be rows.
    """

    def __init__(self, row: type[T]) -> None:
        self.row_class = row
        self.plain = row is dict or get_origin(row) is dict
        try:
            described = inspect.type_info(row)
        except TypeError as error:
            raise GraphError(f"rows cannot be {row!r}: {error}") from error
        if not self.plain and not isinstance(described, _WITH_FIELDS):
            raise GraphError(
                f"rows cannot be {row!r}: give a msgspec.Struct, a dataclass, a TypedDict or dict, with a field for each column"
            )
        fields = getattr(described, "fields", ())
        self.fields: Mapping[str, tuple[Semantic | None, frozenset[type]]] = {
            field.encode_name: _field(field.type) for field in fields
        }
        kinds = [wanted for _, wanted in self.fields.values()]
        self.may_have_floats = self.plain or any(not wanted or wanted & {float, object} for wanted in kinds)
        omits = isinstance(described, inspect.StructType) and described.cls.__struct_config__.omit_defaults
        self._omitting = {field.encode_name: field.name for field in fields} if omits else {}
        self.own_plan: Plan = self.plan({})
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(row)

    def plan(self, schema: Mapping[str, Semantic]) -> Plan:
        """Return how the columns of a topic are converted.

        Args:
            schema: The semantic types of the columns in the topic's schema; empty if it has none: what the fields say counts.
        """
        found = {}
        for name, (own, wanted) in self.fields.items():
            semantic = schema.get(name) or own
            function = None if semantic is None else converter(semantic, wanted)
            if function is not None:
                found[name] = function
        return found

    def row(self, data: bytes, plan: Plan | None = None) -> T:
        """Decode a row as JSON. Raises `DeserializationError` that names the column that does not fit.

        Args:
            data: The row, as a connector writes it.
            plan: How its columns are converted; None: as the fields say.
        """
        plan = self.own_plan if plan is None else plan
        try:
            if not plan:
                return self._decoder.decode(data)
            return self.made(msgspec.json.decode(data, type=dict[str, Any]), plan)
        except UNREADABLE as error:
            raise self.unfit(error) from error

    def made(self, columns: Mapping[str, Any], plan: Plan) -> T:
        """Make a row of columns as a connector writes them. Raises `DeserializationError` as `row`."""
        return self.converted(self.convert(columns, plan))

    def convert(self, columns: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
        """Return the columns that the row has, converted. Raises `DeserializationError` as `row`."""
        found = dict(columns)
        for name, function in plan.items():
            value = found.get(name)
            if value is None:
                continue
            try:
                found[name] = function(value)
            except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
                raise DeserializationError(
                    f"column {name!r} cannot be converted for {self}: {value!r:.100}: {error}"
                ) from error
        return found

    def converted(self, columns: Mapping[str, Any]) -> T:
        """Make a row of columns that are converted. Raises `DeserializationError` as `row`."""
        try:
            return msgspec.convert(columns, self.row_class)
        except UNREADABLE as error:
            raise self.unfit(error) from error

    def columns(self, row: T) -> dict[str, Any]:
        """Return the columns of a row, as JSON has them; `converted` makes the row of them again."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.whole(row)))
        return found

    def whole(self, row: T) -> Any:
        """Return what is encoded for a row: also the fields that have their defaults, as a column that is missing has no value."""
        if not self._omitting:
            return row
        found = {name: getattr(row, each) for name, each in self._omitting.items()}
        return {name: each for name, each in found.items() if each is not msgspec.UNSET}

    def unfit(self, error: Exception) -> DeserializationError:
        """Return the error of a row that does not fit."""
        hint = ""
        if "got `int`" in str(error) and any(name in str(error) for name in ("date", "time", "duration")):
            hint = "; annotate the field with what the number counts, as Annotated[datetime, MICRO_TIMESTAMP]"
        return DeserializationError(f"{self}: {error}{hint}")

    def __repr__(self) -> str:
        return getattr(self.row_class, "__qualname__", repr(self.row_class))


def _field(described: inspect.Type) -> tuple[Semantic | None, frozenset[type]]:
    """Return the semantic type that a field is annotated with, and the types that its values may have, without None."""
    if isinstance(described, inspect.Metadata):
        semantic, wanted = _field(described.type)
        return (described.extra or {}).get(EXTRA, semantic), wanted
    if isinstance(described, inspect.UnionType):
        parts = [_field(each) for each in described.types if not isinstance(each, inspect.NoneType)]
        semantics = [semantic for semantic, _ in parts if semantic is not None]
        return semantics[0] if semantics else None, frozenset().union(*(wanted for _, wanted in parts))
    if isinstance(described, inspect.AnyType):
        return None, frozenset()
    return None, frozenset({_CLASSES.get(type(described), object)})  # `object`: no column is converted to it
