"""The Avro codec: a `Codec` made of a schema and a framing."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, cast, overload

from exactavro import (
    READ_ERRORS,
    WRITE_ERRORS,
    Malformed,
    Reader,
    Schema,
    Unusable,
    Writer,
    avro_branch,
    avro_branch_of,
    decode,
    make_reader,
    make_writer,
    may_lose,
    placed,
    unfit,
)
from streamtable.base.evolution import marked
from streamtable.base.ports import Decoded
from streamtable.codec.framing import Framing, SingleObject
from streamtable.codec.lazy import Lazy
from streamtable.errors import ConfigurationError, DeserializationError, SerializationError

__all__ = ["Avro", "BoundSchema", "avro_branch", "avro_branch_of"]

if TYPE_CHECKING:
    from exactavro.columns import ColumnReader

_COLUMNS_FROM: Final = 100  # records in a batch: below, one by one is as fast
_PAUSE: Final = 64  # batches without columns after one where they were of no use

T = TypeVar("T")
Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)
_Framing = Framing | None
_Source = str | Mapping[str, Any] | list[Any]


class BoundSchema(Protocol[Row_co]):
    """A schema bound to the type of its rows; the generated module `contracts.records` has such constants.

    Attributes:
        schema: JSON text of the schema to read and write with.
        history: JSON texts of all versions ever released, which may still lie in topics.
        row: The type of a row, for the type checker only.
    """

    @property
    def schema(self) -> str: ...
    @property
    def history(self) -> tuple[str, ...]: ...
    @property
    def row(self) -> type[Row_co]: ...


class Avro(Generic[T]):
    """A codec of values in Avro's binary encoding. A record is a dict, typed by its generated `TypedDict`.

    Decoding accepts exactly what the writer's schema describes, and resolves it to the reader's.

    Args:
        schema: A generated constant, a primitive's name, or a schema as JSON text or parsed JSON.
        framing: The framing of the values: `SingleObject()` (default), `Plain()`, or `Confluent(...)` of `streamtable_codecs`.
        history: Earlier versions of the schema, in any order: records of them may still be in topics, and rows in tables. A
            generated constant has its own. A record of a version that is not among them goes to the dead letters, unless it
            differs in logical types alone, which `SingleObject` does not tell apart: another scale or unit needs a new field.
        max_bytes: The largest message that is decoded; larger ones are poison.

    Raises:
        ConfigurationError: The schema is not safe to read with, or a version of `history` cannot be read as the present.
    """

    @overload
    def __init__(
        self: "Avro[int]", schema: Literal["int", "long"], framing: _Framing = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[float]",
        schema: Literal["float", "double"],
        framing: _Framing = None,
        *,
        max_bytes: int = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[str]", schema: Literal["string"], framing: _Framing = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[bytes]", schema: Literal["bytes"], framing: _Framing = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[bool]", schema: Literal["boolean"], framing: _Framing = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[Row]", schema: BoundSchema[Row], framing: _Framing = None, *, max_bytes: int = ...
    ) -> None: ...
    @overload
    def __init__(
        self: "Avro[Any]",
        schema: _Source,
        framing: _Framing = None,
        *,
        history: Sequence[_Source] = ...,
        max_bytes: int = ...,
    ) -> None: ...

    def __init__(
        self,
        schema: BoundSchema[Any] | _Source,
        framing: Framing | None = None,
        *,
        history: Sequence[_Source] = (),
        max_bytes: int = 10_000_000,
    ) -> None:
        self._framing = framing or SingleObject()
        self._max_bytes = max_bytes
        if not isinstance(schema, str | Mapping | list):
            history, schema = schema.history, schema.schema
        self.schema = _load(schema)
        self._title = self.schema.name.rpartition(".")[2]
        self._write: Writer | None = None  # made with the first record: it may take the answer of a registry
        self._known: dict[bytes, Schema] = {}
        self._by_text: dict[str, Reader | DeserializationError] = {}
        for version in (self.schema, *map(_load, history)):
            if isinstance(reader := self._reader_of(version), DeserializationError):
                raise ConfigurationError(f"a released version cannot be read: {reader.message}")
            self._known[version.fingerprint] = version
        # By the prefix of a record. Filled as prefixes are met, by what the framing says, so it stays small.
        self._readers: dict[bytes, Reader] = {}
        self._own: bytes | None = None  # the prefix of records that were written with our schema, once met
        if self._framing.size == 0:
            self._readers[b""] = cast("Reader", self._reader_of(self.schema))
            self._own = b""
        self._columns: ColumnReader | None = None
        self._pause, self._columns_from = 0, _COLUMNS_FROM
        self._of_topic: dict[Framing, Avro[T]] = {}
        self._exact = False

    def for_rows(self) -> "Avro[T]":
        """See `ports.ExactRows`."""
        made = copy(self)
        made._exact, made._write, made._of_topic = True, None, {}  # noqa: SLF001 - its own copy
        return made if may_lose(self.schema) else self

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> "Avro[T]":
        """See `ports.TopicCodec`."""
        framing = self._framing.for_topic(topic, part)
        if framing is self._framing:
            return self
        bound = self._of_topic.get(framing)
        if bound is None:
            bound = self._of_topic[framing] = copy(self)
            bound._framing, bound._write = framing, None  # noqa: SLF001 - its own copy
        return bound

    def prepare(self) -> Writer:
        """See `ports.PreparedCodec`."""
        own = self.schema
        self._write = self._write or make_writer(own, self._framing.prefix(own), exact=self._exact)
        return self._write

    def encode(self, value: T) -> bytes:
        """See `ports.Codec`. The first call may also raise the errors of the framing's registry."""
        write = self._write or self.prepare()
        try:
            return write(value)
        except WRITE_ERRORS as error:
            raise SerializationError(placed(self._title, str(unfit(error)))) from error

    def decode(self, data: bytes) -> T:
        """See `ports.Codec`."""
        size = self._framing.size_of(data)
        if len(data) > self._max_bytes:
            raise DeserializationError(f"{self._title}: {len(data)} bytes, at most {self._max_bytes}")
        prefix = data[:size]
        read = self._readers.get(prefix) or self._reader_for(prefix)
        try:
            return cast("T", decode(read, data, size))
        except Malformed as error:
            raise DeserializationError(placed(self._title, f"{error} ({len(data)} bytes)")) from error

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """See `ports.Codec`."""
        if len(data) < self._columns_from or self._own is None or None in data:
            return self._one_by_one(data)
        if self._pause:
            self._pause -= 1
            return self._one_by_one(data)
        reader = self._columns
        if reader is None:
            # Only now: who reads little is spared numpy's 20 MB and quarter of a second.
            from exactavro.columns import make_column_reader  # noqa: PLC0415

            reader = self._columns = make_column_reader(self.schema, self._own)
        if reader is None:
            self._columns_from = sys.maxsize
            return self._one_by_one(data)
        return self._by_columns(reader, cast("Sequence[bytes]", data))

    def _by_columns(self, reader: "ColumnReader", data: Sequence[bytes]) -> Decoded[T]:
        """Check all records at once; unsure ones are decoded one by one, the others when they are read."""
        columns = reader.read(data, self._max_bytes)
        unsure = columns.unsure
        singles = self._one_by_one([data[index] for index in unsure])
        if len(unsure) > len(data) // 2:  # of another version, say
            self._pause = _PAUSE

        def with_singles(made: list[Any], alone: Iterable[Any]) -> list[Any]:
            for index, value in zip(unsure, alone, strict=True):
                made[index] = value
            return made

        def field(name: str) -> list[Any]:
            # Records; None for poison raises.
            return with_singles(columns.values_of(name), (cast("Any", each)[name] for each in singles.values))

        poison = {unsure[i]: error for i, error in singles.poison.items()}
        return Decoded(Lazy(len(data), lambda: with_singles(columns.values(), singles.values), field), poison)

    def _one_by_one(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """Decode each record alone; `decode` reports unknown and malformed records."""
        values: list[T | None] = []
        poison: dict[int, DeserializationError] = {}
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
            except DeserializationError as error:
                poison[len(values)] = error
                append(None)
        return Decoded(values, poison)

    def _reader_for(self, prefix: bytes) -> Reader:
        schema = self._framing.writer(prefix, self._known)
        if isinstance(reader := self._reader_of(schema), DeserializationError):
            raise DeserializationError(reader.message)
        self._readers[prefix] = reader
        if schema.canonical == self.schema.canonical:  # the same bytes; columns know no logical types
            self._own, self._columns = prefix, None
        return reader

    def _reader_of(self, writer: Schema) -> Reader | DeserializationError:
        """Return the reader of a schema, None included, from a cache: the answer for a schema never changes.

        By its text: schemas of one fingerprint may differ in logical types, milliseconds in one, microseconds in
        the other.
        """
        reader = self._by_text.get(writer.text)
        if reader is None:
            try:
                reader = make_reader(writer, self.schema)
            except Unusable as error:
                name = f"{writer.name} {writer.fingerprint[::-1].hex()}"
                reader = DeserializationError(f"written with {name}: {error}")
            self._by_text[writer.text] = reader
        return reader

    def version(self, data: bytes) -> bytes:
        """See `ports.VersionedKeys`."""
        return data[: self._framing.size_of(data)]

    @property
    def key_form(self) -> str:
        """See `base.keys.form_of`."""
        return f"{type(self._framing).__name__} {self.schema.canonical if self._framing.size else ''}"

    @property
    def recorded_key(self) -> str:
        """See `ports.VersionedKeys`."""
        return self._recorded([self.schema])

    @property
    def recorded(self) -> str:
        """See `ports.EvolvingRows`."""
        if self._framing.size == 0:
            return self.recorded_key
        return self._recorded(self._known.values() if isinstance(self._framing, SingleObject) else ())

    def _recorded(self, known: Iterable[Schema]) -> str:
        return f"{self!r}{marked({'avro': self.schema.text, 'versions': [each.text for each in known]})}"

    @property
    def prefix_header(self) -> str:
        """See `ports.HeaderPrefix`."""
        return self._framing.prefix_header

    @property
    def framing(self) -> Framing:
        """The framing of the values: the bytes that name the writer's schema, in front of the Avro body."""
        return self._framing

    @property
    def older(self) -> tuple[str, ...]:
        """The JSON texts of the released versions of the schema other than the present one."""
        return tuple(each.text for each in self._known.values() if each != self.schema)

    def __repr__(self) -> str:
        return f"Avro({self.schema.name!r}, {type(self._framing).__name__})"

    @staticmethod
    def warm_up() -> None:
        """Load the decoder of large batches before the first one needs it, which takes a quarter of a second."""
        import exactavro.columns  # noqa: F401, PLC0415 - as above


def _load(source: _Source) -> Schema:
    try:
        return Schema.load(source)
    except Unusable as error:
        raise ConfigurationError(str(error)) from error
