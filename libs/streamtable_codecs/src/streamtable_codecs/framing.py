"""The framings of values whose schema is in a registry: the bytes that name the schema, in front of the body."""

from collections.abc import Mapping
from copy import copy
from typing import Any, Literal, Self
from uuid import UUID

from exactavro import Schema, Unusable
from streamtable import Plain
from streamtable.errors import ConfigurationError, DeserializationError
from streamtable_codecs.places import Indexes, Names, Numbers, Places
from streamtable_codecs.registry import Registry
from streamtable_codecs.schemas import NAMES, Definition, Kind, Registered

_GUID_MAGIC, _GUID_BYTES = b"\x01", 16
_GLUE_VERSION, _GLUE_UNCOMPRESSED = 3, 0


class InRegistry:
    """A framing whose prefix is the id of a schema in a registry.

    Attributes:
        size: The number of bytes of the prefix.
        places: How it says which message of a file a Protobuf message is.
        format: The name of the format, for errors.
        registry: The registry.
        subject: The subject under which ids are looked up; None: as the registry's rule says.
        topic: The topic whose keys or values these are; "" if it is not known.
        part: Whether they are keys or values.
    """

    size: int
    format: str
    places: Places

    def __init__(self, registry: Registry, subject: str | None = None) -> None:
        self.registry, self.subject = registry, subject
        self.topic: str = ""
        self.part: Literal["key", "value"] = "value"
        self._avro: dict[bytes, Schema | str] = {}

    def _identity(self) -> tuple[object, ...]:
        return type(self), id(self.registry), self.subject, self.topic, self.part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InRegistry) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> Self:
        """Return the framing of the keys or values of a topic."""
        if self.subject is not None:
            return self
        bound = type(self)(self.registry)
        bound.topic, bound.part = topic, part
        return bound

    def subject_of(self, definition: Definition) -> str:
        """Return the subject of a schema. Raises `ConfigurationError` where neither the codec nor a topic names it."""
        if self.subject is not None:
            return self.subject
        found = self.registry.subjects.subject(self.topic, self.part, definition.record)
        if not self.topic and definition.record != found:
            raise ConfigurationError(
                f"{type(self).__name__}: to write {definition.record}, name the subject it is registered under"
            )
        return found

    @property
    def prefix_header(self) -> str:
        """See `streamtable.codec.Framing`."""
        return ""

    def size_of(self, data: bytes) -> int:  # noqa: ARG002 - the protocol's
        """See `streamtable.codec.Framing`."""
        return self.size

    def header(self, definition: Definition) -> bytes:
        """Return the prefix of values of a schema. Raises the errors of the registry."""
        return self.pack(self.registry.id_of(self.subject_of(definition), definition))

    def registered(self, prefix: bytes, kind: Kind) -> tuple[int | str, Registered]:
        """Return the id and the schema that a prefix names.

        Raises:
            DeserializationError: It is not of this framing, or names no schema of this kind.
            RetryLater: The registry does not answer.
        """
        if len(prefix) < self.size_of(prefix) or not self.fits(prefix):
            raise DeserializationError(f"not {self.format} format: begins with {prefix.hex() or 'nothing'}")
        number = self.unpack(prefix)
        found = self.registry.schema(number)
        if found.kind != kind:
            name = NAMES[kind]
            raise DeserializationError(f"schema id {number}: a schema of type {found.kind[:100]}, not {name}")
        return number, found

    def prefix(self, schema: Schema) -> bytes:
        """See `streamtable.codec.Framing`."""
        return self.header(definition_of(schema))

    def writer(
        self,
        prefix: bytes,
        known: Mapping[bytes, Schema],  # noqa: ARG002 - the protocol's
    ) -> Schema:
        """See `streamtable.codec.Framing`."""
        number, found = self.registered(prefix, "AVRO")
        schema = self._avro.get(prefix)
        if schema is None:
            try:
                schema = Schema.load(found.text, found.references)
            except Unusable as error:
                schema = f"schema id {number}: {error}"
            self._avro[prefix] = schema  # as many as the registry has
        if isinstance(schema, str):
            raise DeserializationError(schema)
        return schema

    def fits(self, prefix: bytes) -> bool:
        """Return whether a prefix is of this framing."""
        return prefix.startswith(b"\x00")

    def pack(self, number: int | str) -> bytes:
        """Return the prefix of an id."""
        raise NotImplementedError

    def unpack(self, prefix: bytes) -> int | str:
        """Return the id of a prefix."""
        return int.from_bytes(prefix[1:], "big")


class Confluent(InRegistry):
    """The framing of Confluent's wire format: 00, then the schema's 4-byte big-endian id in a registry.

    The newer form is read too: 01, then the 16 bytes of the schema's GUID, in front of the body or in the record's header
    `__value_schema_id`. Keys with their id in a header are bodies alone: declare them with `Plain()`.

    Args:
        registry: The schema registry: `HttpRegistry` or `FileRegistry`.
        subject: The subject under which the id to write with is looked up; default: the registry's rule for the topic, which
            is "<topic>-value" unless it has another one.
    """

    size = 5
    format = "Confluent's"
    places = Indexes()

    @property
    def prefix_header(self) -> str:
        return "__value_schema_id" if self.part == "value" else ""

    def size_of(self, data: bytes) -> int:
        return 1 + _GUID_BYTES if data.startswith(_GUID_MAGIC) else self.size

    def fits(self, prefix: bytes) -> bool:
        return prefix.startswith((b"\x00", _GUID_MAGIC))

    def unpack(self, prefix: bytes) -> int | str:
        return str(UUID(bytes=prefix[1:])) if prefix.startswith(_GUID_MAGIC) else super().unpack(prefix)

    def pack(self, number: int | str) -> bytes:
        return b"\x00" + _packed(number, 4)


class Apicurio(InRegistry):
    """The framing of Apicurio's serializers: 00, then the schema's 8-byte big-endian id.

    A message of Protobuf has its name in front, and is one of its file's top level.

    Args:
        registry: The schema registry: `HttpRegistry` at `.../apis/ccompat/v7`, or `FileRegistry`.
        subject: See `Confluent`.
    """

    size = 9
    format = "Apicurio's"
    places = Names()

    def pack(self, number: int | str) -> bytes:
        return b"\x00" + _packed(number, 8)


class Glue(InRegistry):
    """The framing of AWS Glue's serializers: 03, 00 for no compression, then the 16 bytes of a UUID.

    A message of Protobuf has its number among the messages of its file in front.

    Args:
        registry: A registry whose ids are the UUIDs of schema versions: `FileRegistry`.
        subject: See `Confluent`.
    """

    size = 18
    format = "AWS Glue's"
    places = Numbers()

    def fits(self, prefix: bytes) -> bool:
        if prefix[0] == _GLUE_VERSION and prefix[1] != _GLUE_UNCOMPRESSED:
            raise DeserializationError(
                f"AWS Glue's format with compression {prefix[1]}, which is not read: write without compression"
            )
        return prefix[0] == _GLUE_VERSION

    def pack(self, number: int | str) -> bytes:
        try:
            return bytes([_GLUE_VERSION, _GLUE_UNCOMPRESSED]) + UUID(str(number)).bytes
        except ValueError as error:
            raise ConfigurationError(f"Glue: the id of a schema is a UUID, and this is {number!r}") from error

    def unpack(self, prefix: bytes) -> int | str:
        return str(UUID(bytes=prefix[2:18]))


class Framed:
    """The part of a codec that depends on the framing of its values, which may depend on their topic.

    Attributes:
        framing: The framing.
    """

    framing: Confluent | Apicurio | Glue | Plain
    _prefix: bytes | None
    _of_topic: dict[Any, Any]

    @property
    def prefix_header(self) -> str:
        """See `ports.HeaderPrefix`."""
        return self.framing.prefix_header

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> Self:
        """See `ports.TopicCodec`."""
        framing = self.framing.for_topic(topic, part)
        if framing == self.framing:
            return self
        bound: Self | None = self._of_topic.get(framing)
        if bound is None:
            bound = self._of_topic[framing] = copy(self)
            bound.framing, bound._prefix = framing, None  # noqa: SLF001 - its own copy
        return bound


def definition_of(schema: Schema) -> Definition:
    """Return an Avro schema as it is registered."""
    text = schema.text.strip()
    # The name of a primitive is registered as JSON too.
    return Definition("AVRO", text if text[0] in '{["' else f'"{text}"', schema.name)


def _packed(number: int | str, size: int) -> bytes:
    try:
        return int(number).to_bytes(size, "big")
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"the id of a schema has {size} bytes, and this is {number!r}") from error
