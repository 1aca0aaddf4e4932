"""The Avro codec: a schema and a framing make a `Codec`."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, overload

from streamtable.codec.framing import Framing, SingleObject
from streamtable.codec.reading import READ_ERRORS, Malformed, Reader, Unresolvable, make_reader, reason
from streamtable.codec.schema import AvroSchema, placed
from streamtable.codec.writing import WRITE_ERRORS, make_writer, misfit_reason
from streamtable.errors import ConfigurationError, PoisonRecord, Unencodable
from streamtable.ports import Decoded

T = TypeVar("T")
Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)


class RecordSchema(Protocol[Row_co]):
    """A generated constant that binds a schema to the type of its rows; `contracts.records` has them.

    Attributes:
        schema: JSON text of the schema to read and write with.
        history: JSON texts of all versions ever released, which may still lie in topics.
        row: the type of a row, for the type checker only.
    """

    @property
    def schema(self) -> str: ...
    @property
    def history(self) -> tuple[str, ...]: ...
    @property
    def row(self) -> type[Row_co]: ...


class Avro(Generic[T]):
    """Values in Avro's binary encoding. A record is a dict, typed by its generated `TypedDict`.

    Decoding accepts exactly what the writer's schema describes, and resolves it to the reader's.

    Args:
        schema: a generated constant, a primitive's name, or a schema as JSON text or parsed JSON.
        framing: `SingleObject()` (default), `Plain()` or `Confluent(...)`.
        max_bytes: larger messages are poison.

    Raises:
        ConfigurationError: the schema is not safe to read with, or a released version cannot be read as the present.
    """

    @overload
    def __init__(
        self: "Avro[int]",
        schema: Literal["int", "long"],
        framing: Framing | None = None,
        *,
        max_bytes: int = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[float]",
        schema: Literal["float", "double"],
        framing: Framing | None = None,
        *,
        max_bytes: int = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[str]", schema: Literal["string"], framing: Framing | None = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[bytes]", schema: Literal["bytes"], framing: Framing | None = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[bool]",
        schema: Literal["boolean"],
        framing: Framing | None = None,
        *,
        max_bytes: int = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[Row]", schema: RecordSchema[Row], framing: Framing | None = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[Any]",
        schema: str | Mapping[str, Any] | list[Any],
        framing: Framing | None = None,
        *,
        max_bytes: int = ...,
    ) -> None: ...

    def __init__(
        self,
        schema: RecordSchema[Any] | str | Mapping[str, Any] | list[Any],
        framing: Framing | None = None,
        *,
        max_bytes: int = 10_000_000,
    ) -> None:
        self._framing = framing or SingleObject()
        self._max_bytes = max_bytes
        if isinstance(schema, str | Mapping | list):
            self.schema = AvroSchema.load(schema)
            history: tuple[str, ...] = ()
        else:
            self.schema = AvroSchema.load(schema.schema)
            history = schema.history
        self._title = self.schema.name.rpartition(".")[2]
        self._write = make_writer(self.schema.tree)
        self._prefix: bytes | None = None
        self._known: dict[bytes, AvroSchema] = {}
        self._by_fingerprint: dict[bytes, Reader | PoisonRecord] = {}
        for version in (self.schema, *map(AvroSchema.load, history)):
            reader = self._reader_of(version)
            if isinstance(reader, PoisonRecord):
                raise ConfigurationError(f"a released version cannot be read: {reader.message}")
            self._known[version.fingerprint] = version
        # By the prefix of a record. Filled as prefixes are met, by what the framing says, so it stays small.
        self._readers: dict[bytes, Reader] = {}
        if self._framing.size == 0:
            self._readers[b""] = cast("Reader", self._reader_of(self.schema))
            self._prefix = b""

    def encode(self, value: T) -> bytes:
        """See `ports.Codec`. With `Confluent` framing, the first call may also raise what its registry raises."""
        prefix = self._prefix
        if prefix is None:
            prefix = self._prefix = self._framing.prefix(self.schema)
        try:
            return prefix + self._write(value)
        except WRITE_ERRORS as error:
            raise Unencodable(placed(self._title, misfit_reason(error))) from error

    def decode(self, data: bytes) -> T:
        """See `ports.Codec`."""
        size = self._framing.size
        if len(data) > self._max_bytes:
            raise PoisonRecord(f"{self._title}: {len(data)} bytes, at most {self._max_bytes}")
        prefix = data[:size]
        read = self._readers.get(prefix) or self._reader_for(prefix)
        try:
            value, end = read(data, size)
            if end != len(data):
                raise Malformed(f"ends {end - len(data):+} bytes from the end of the message")
        except READ_ERRORS as error:
            raise PoisonRecord(placed(self._title, f"{reason(error)} ({len(data)} bytes)")) from error
        return cast("T", value)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """See `ports.Codec`. The hot path: what is new or wrong leaves it for `decode`, which knows why."""
        values: list[T | None] = []
        poison: dict[int, PoisonRecord] = {}
        append, known, size, limit = values.append, self._readers.get, self._framing.size, self._max_bytes
        for item in data:
            if item is None:
                append(None)
                continue
            length = len(item)
            read = known(item[:size])
            if read is not None and length <= limit:
                try:
                    value, end = read(item, size)
                    if end == length:
                        append(value)
                        continue
                except READ_ERRORS:
                    pass
            try:
                append(self.decode(item))
            except PoisonRecord as error:
                poison[len(values)] = error
                append(None)
        return Decoded(values, poison)

    def _reader_for(self, prefix: bytes) -> Reader:
        schema = self._framing.writer(prefix, self._known)
        reader = self._reader_of(schema)
        if isinstance(reader, PoisonRecord):
            raise PoisonRecord(reader.message)
        self._readers[prefix] = reader
        return reader

    def _reader_of(self, writer: AvroSchema) -> Reader | PoisonRecord:
        """Remembered also if there is none: a schema's answer never changes."""
        reader = self._by_fingerprint.get(writer.fingerprint)
        if reader is None:
            try:
                reader = make_reader(writer.tree, self.schema.tree)
            except Unresolvable as error:
                reader = PoisonRecord(f"written with {writer.name} {writer.fingerprint[::-1].hex()}: {error}")
            self._by_fingerprint[writer.fingerprint] = reader
        return reader

    def __repr__(self) -> str:
        return f"Avro({self.schema.name!r}, {type(self._framing).__name__})"
