"""The codec of typed JSON: values are checked against a type when they are decoded, and when they are encoded."""

import json
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar, cast, overload

from exactjson import Checked, Unsuitable, checked, columns, fault, key_fault, resolved, shaped
from streamtable.base.decoding import decode_each
from streamtable.base.evolution import marked
from streamtable.base.ports import Decoded
from streamtable.errors import ConfigurationError, DeserializationError, SerializationError

T = TypeVar("T")


class _Values(list[T]):
    """Decoded values, whose fields can be read: `ports.Fields`."""

    def field(self, name: str) -> list[Any]:
        values = cast("list[Any]", self)
        return list(map((itemgetter if values and isinstance(values[0], dict) else attrgetter)(name), values))


class Typed(Generic[T]):
    """A codec of JSON that fits a type: a struct of msgspec, a dataclass, a `TypedDict`, or a model of pydantic.

    A record that does not fit is poison, and the error names the place: `Order: $.items[2].price: expected float, got str`.
    Fields that the type does not have are ignored. The JSON schema of the type is recorded with the rows of a table; a
    program whose type does not accept the rows that were written stops at its start, with `StateMeaningChanged`.

    As the codec of keys it needs a type of texts, whole numbers, booleans and enums, whose values can be hashed: equal keys
    then have equal bytes.

    Args:
        kind: The type, or one that is made of such types: a union of structs with tags, a list of models.
        strict: Whether fields that the type does not have are refused. This costs a second look at each record.
        max_bytes: The largest message that is decoded; larger ones are poison.

    Raises:
        ConfigurationError: JSON cannot be checked against the type.
    """

    @overload
    def __init__(self, kind: type[T], *, strict: bool = ..., max_bytes: int = ...) -> None: ...
    @overload
    def __init__(self: "Typed[Any]", kind: object, *, strict: bool = ..., max_bytes: int = ...) -> None: ...

    def __init__(self, kind: Any, *, strict: bool = False, max_bytes: int = 10_000_000) -> None:
        try:
            self._json: Checked[T] = checked(kind, strict=strict)
        except Unsuitable as error:
            raise ConfigurationError(f"Typed: {error}") from error
        # A TypedDict has no instances.
        self._class: Any = kind if isinstance(kind, type) and not hasattr(kind, "__required_keys__") else None
        self.kind, self._strict, self._max_bytes = kind, strict, max_bytes
        self._read, self._exact = self._json.read, False

    def for_rows(self) -> "Typed[T]":
        """See `ports.ExactRows`."""
        made = copy(self)
        made._exact = True  # noqa: SLF001 - its own copy
        return made

    @property
    def title(self) -> str:
        """The name of the type."""
        return self._json.title

    def plain(self, value: T) -> Any:
        """See `ports.ShownValues`."""
        return self._json.plain(value)

    @cached_property
    def columns(self) -> Any:
        """See `ports.ColumnValues`."""
        return columns(self.schema, omits=self._json.omits)

    def row(self, value: T) -> Any:
        """See `ports.ColumnValues`."""
        return shaped(self.plain(value), self.columns)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of the type, without titles and descriptions."""
        return self._json.schema

    @property
    def document(self) -> Mapping[str, Any]:
        """The JSON schema of the type as msgspec or pydantic makes it, with titles and descriptions."""
        return self._json.document

    @property
    def recorded(self) -> str:
        """See `ports.EvolvingRows`."""
        return f"Typed{marked(self.schema)}"

    def for_keys(self) -> "Typed[T]":
        """See `ports.CanonicalKeys`. Raises `ConfigurationError` for a type whose equal values may have different bytes."""
        return _TypedKey(self.kind, strict=self._strict, max_bytes=self._max_bytes)

    def encode(self, value: T) -> bytes:
        """See `ports.Codec`. A value that would not be read again is refused."""
        if self._class is not None and not isinstance(value, self._class):
            raise SerializationError(f"{self.title}: expected {self.title}, got {type(value).__name__}")
        try:
            return self._json.write_checked(value, row=self._exact)
        except MemoryError:
            raise
        except Exception as error:
            raise SerializationError(f"{self._json.title}: {fault(error)}") from error

    def decode(self, data: bytes) -> T:
        """See `ports.Codec`."""
        if len(data) > self._max_bytes:
            raise DeserializationError(f"{self._json.title}: {len(data)} bytes, at most {self._max_bytes}")
        try:
            return self._read(data)
        except MemoryError:
            raise
        except Exception as error:  # a check in the type may raise anything
            raise DeserializationError(f"{self._json.title}: {fault(error)}") from error

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """See `ports.Codec`."""
        try:
            items = cast("Sequence[bytes]", data)
            if sum(map(len, items)) <= self._max_bytes:
                return Decoded(_Values(map(self._read, items)), {})
        except Exception:  # noqa: BLE001, S110 - one of them is bad, or None; below each is decoded alone
            pass
        each = decode_each(self.decode, data)
        return Decoded(_Values(each.values), each.poison)

    def __repr__(self) -> str:
        return f"Typed({self._json.title}{', strict=True' if self._strict else ''})"


class _TypedKey(Typed[T]):
    """`Typed` for keys: equal values have equal bytes, and any change of the type makes other keys."""

    def __init__(self, kind: Any, *, strict: bool, max_bytes: int) -> None:
        super().__init__(kind, strict=strict, max_bytes=max_bytes)
        self._json = checked(kind, strict=strict, sort_keys=True)
        reason = key_fault(self.schema, self.schema)
        frozen = getattr(getattr(kind, "__struct_config__", None), "frozen", True)
        if self._class is not None and (self._class.__hash__ is None or not frozen):
            reason = "its values cannot be hashed: freeze the class"
        if reason:
            raise ConfigurationError(
                f"{self!r} cannot be the codec of a key: {reason}. Use String(), Long(), or a type of texts, integers, booleans, enums"
            )
        self._read = self._read_key

    @property
    def recorded(self) -> str:
        return f"Typed key {json.dumps(self.schema, default=repr)}"

    @property
    def key_form(self) -> str:
        """See `base.keys.form_of`: the names of its fields."""
        return " ".join(sorted(resolved(self.schema, self.schema).get("properties", ())))

    def for_keys(self) -> Typed[T]:
        return self

    def encode(self, value: T) -> bytes:
        # The value as it is read is written: all fields in one form, whatever form the program's value had.
        return super().encode(self.decode(super().encode(value)))

    def _read_key(self, data: bytes) -> T:
        value = self._json.read(data)
        if not isinstance(value, dict):
            hash(value)  # raises TypeError for a part that cannot be hashed
        return value
