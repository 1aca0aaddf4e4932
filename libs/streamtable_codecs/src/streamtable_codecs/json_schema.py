"""The codec of JSON whose schema is in a registry."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, cast, overload
from urllib.parse import urljoin

from orjson import dumps, loads

from exactjson import UNFILLED, bare, columns, fault, shaped
from streamtable import Codec, Decoded, Json, Plain, Typed, decode_each
from streamtable.base.decoding import row_codec
from streamtable.base.evolution import marked
from streamtable.errors import ConfigurationError, DeserializationError, SerializationError
from streamtable_codecs.framing import Apicurio, Confluent, Framed, Glue
from streamtable_codecs.schemas import Definition, Registered

T = TypeVar("T")
_Framing = Confluent | Apicurio | Glue | Plain
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class JsonSchema(Framed, Generic[T]):
    """A codec of JSON that fits a type, or a JSON schema, behind the id of its schema in a registry.

    What a reader gets always fits its type, as with `Typed`, whatever the writer's schema says.

    Args:
        kind: The type, as for `Typed`; or a JSON schema, as text or parsed, whose values are plain JSON. The latter needs
            `pip install streamtable-codecs[jsonschema]`, and is some hundred times as slow.
        framing: `Plain()` (default), `Confluent(registry)`, `Apicurio(registry)` or `Glue(registry)`.
        validate: Whether a record is checked by the reader's type alone ("reader"), or by the writer's schema too ("writer",
            which needs and costs the same).
        strict: Whether fields that the type does not have are refused. Of a schema, `additionalProperties` says it.
        max_bytes: The largest message that is decoded, without its prefix; larger ones are poison.

    Raises:
        ConfigurationError: JSON cannot be checked against the type or schema.
    """

    @overload
    def __init__(
        self: "JsonSchema[Any]",
        kind: str | Mapping[str, Any],
        framing: _Framing | None = ...,
        *,
        validate: Literal["reader", "writer"] = ...,
        strict: bool = ...,
        max_bytes: int = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        kind: type[T],
        framing: _Framing | None = ...,
        *,
        validate: Literal["reader", "writer"] = ...,
        strict: bool = ...,
        max_bytes: int = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "JsonSchema[Any]",
        kind: object,
        framing: _Framing | None = ...,
        *,
        validate: Literal["reader", "writer"] = ...,
        strict: bool = ...,
        max_bytes: int = ...,
    ) -> None: ...

    def __init__(
        self,
        kind: Any,
        framing: _Framing | None = None,
        *,
        validate: Literal["reader", "writer"] = "reader",
        strict: bool = False,
        max_bytes: int = 10_000_000,
    ) -> None:
        if validate not in {"reader", "writer"}:
            raise ConfigurationError(f"JsonSchema: validate={validate!r}: give 'reader' or 'writer'")
        self.framing = framing or Plain()
        self._check: Callable[[bytes], str] | None = None
        if isinstance(kind, str | Mapping):
            document = _loaded(kind)
            self._inner: Codec[Any] = Json(max_bytes)
            self._check, self.title = _checker(document, {}), str(document.get("title", "JsonSchema"))
            self._recorded = marked({**bare(document), UNFILLED: True})
        else:
            typed: Typed[Any] = Typed(kind, strict=strict, max_bytes=max_bytes)
            self._inner, self.title, self._recorded = typed, typed.title, marked(typed.schema)
            document = {"$schema": _DRAFT, "title": typed.title, **typed.document}
        self.definition = Definition("JSON", dumps(document).decode(), self.title)
        self._by_writer = validate == "writer"
        if self._by_writer:
            _checker({}, {})  # whether the library is there
        self._prefix: bytes | None = b"" if isinstance(self.framing, Plain) else None
        self._writers: dict[bytes, Callable[[bytes], str] | None] = {}
        self._of_topic = {}

    def plain(self, value: T) -> Any:
        """See `ports.ShownValues`."""
        return self._inner.plain(value) if isinstance(self._inner, Typed) else value

    @cached_property
    def columns(self) -> Any:
        """See `ports.ColumnValues`."""
        if isinstance(self._inner, Typed):
            return self._inner.columns
        return columns(loads(self.definition.text), document=True)

    def row(self, value: T) -> Any:
        """See `ports.ColumnValues`."""
        return shaped(self.plain(value), self.columns)

    @property
    def recorded(self) -> str:
        """See `ports.EvolvingRows`."""
        inner: Any = self._inner
        is_key = isinstance(inner, Typed) and "key" in inner.recorded[:9]
        return str(inner.recorded) if is_key else f"JsonSchema{self._recorded}"

    @property
    def key_form(self) -> str:
        """See `base.keys.form_of`."""
        return f"{type(self.framing).__name__} {getattr(self._inner, 'key_form', '')}"

    def for_keys(self) -> "JsonSchema[T]":
        """See `ports.CanonicalKeys`. Raises `ConfigurationError` for a type whose equal values may have different bytes."""
        return self._with(cast("Any", self._inner).for_keys())

    def for_rows(self) -> "JsonSchema[T]":
        """See `ports.ExactRows`."""
        return self._with(row_codec(self._inner))

    def _with(self, inner: Codec[Any]) -> "JsonSchema[T]":
        made = copy(self)
        made._inner, made._of_topic = inner, {}  # noqa: SLF001 - its own copy
        return made

    def prepare(self) -> bytes:
        """See `ports.PreparedCodec`. Returns the prefix of what it writes."""
        if self._prefix is None:
            assert not isinstance(self.framing, Plain), "Plain has a prefix from the start"
            self._prefix = self.framing.header(self.definition)
        return self._prefix

    def encode(self, value: T) -> bytes:
        """See `ports.Codec`. With the framing of a registry, the first call may also raise its errors."""
        body = self._inner.encode(value)
        if self._check and (reason := self._check(body)):
            raise SerializationError(f"{self.title}: {reason}")
        return self.prepare() + body

    def decode(self, data: bytes) -> T:
        """See `ports.Codec`."""
        check = self._writer_of(data)
        body = data[self.framing.size_of(data) :]
        value = self._inner.decode(body)
        for each in (self._check, check):
            if each is not None and (reason := each(body)):
                by = "" if each is self._check else " (by the writer's schema)"
                raise DeserializationError(f"{self.title}: {reason}{by}")
        return cast("T", value)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """See `ports.Codec`."""
        size, known = self.framing.size, self._writers
        if self._check or self._by_writer or not all(item and item[:size] in known for item in data):
            return decode_each(self.decode, data)
        return self._inner.decode_many([item[size:] for item in cast("Sequence[bytes]", data)])

    def _writer_of(self, data: bytes) -> Callable[[bytes], str] | None:
        """Return the check by the writer's schema, if that is asked for. Raises `DeserializationError`, `RetryLater`."""
        if isinstance(self.framing, Plain):
            return None
        prefix = data[: self.framing.size_of(data)]
        if prefix not in self._writers:
            number, found = self.framing.registered(prefix, "JSON")
            self._writers[prefix] = _writer(number, found) if self._by_writer else None
        return self._writers[prefix]

    def __repr__(self) -> str:
        return f"JsonSchema({self.title}, {type(self.framing).__name__})"


def _loaded(source: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = loads(source) if isinstance(source, str) else dict(source)
    except ValueError as error:
        raise ConfigurationError(f"JsonSchema: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"JsonSchema: not the schema of JSON: {str(source)[:100]}")
    return found


def _writer(number: int | str, found: Registered) -> Callable[[bytes], str]:
    try:
        return _checker(loads(found.text), found.references)
    except (AttributeError, TypeError, ValueError, RecursionError, ConfigurationError) as error:
        raise DeserializationError(f"schema id {number}: not a JSON Schema: {fault(error)}") from error


def _checker(schema: Any, references: Mapping[str, str]) -> Callable[[bytes], str]:
    """Return a function that says why JSON does not fit a schema, after the place.

    Raises:
        ConfigurationError: The library is missing, or it is not a schema.
    """
    try:
        from jsonschema import Draft7Validator, SchemaError, validators  # noqa: PLC0415 - an extra
        from referencing import Registry, Resource  # noqa: PLC0415 - the same
        from referencing.jsonschema import DRAFT7  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ConfigurationError("JsonSchema: pip install streamtable-codecs[jsonschema]") from error
    validator = validators.validator_for(schema, default=Draft7Validator)
    try:
        validator.check_schema(schema)
    except SchemaError as error:
        raise ConfigurationError(f"JsonSchema: {error.json_path}: {error.message}") from error
    others = Registry().with_resources(
        (name, Resource.from_contents(loads(text), default_specification=DRAFT7))
        for each, text in references.items()
        for name in (each, urljoin(schema.get("$id", ""), each))  # as Confluent's clients read a name
    )
    made = validator(schema, registry=others)

    def check(body: bytes) -> str:
        try:
            error = next(made.iter_errors(loads(body)), None)
        except MemoryError:
            raise
        except Exception as failed:  # noqa: BLE001 - such as nested too deep, or a reference to nowhere
            return fault(failed)
        return "" if error is None else f"{error.json_path}: {error.message}"

    return check
