"""The framing of an Avro record: the bytes that name the writer's schema, in front of the body."""

from collections.abc import Mapping
from typing import Protocol

from exactavro import Schema
from streamtable.errors import ConfigurationError, DeserializationError

_SINGLE_OBJECT_MAGIC = b"\xc3\x01"
_CONFLUENT_MAGIC = b"\x00"


class Framing(Protocol):
    """A fixed number of bytes before the body that name the writer's schema.

    Attributes:
        size: The number of bytes.
    """

    size: int

    def prefix(self, schema: Schema) -> bytes:
        """Return the prefix of a body of this schema.

        Raises:
            RetryLater: A registry must be asked, and does not answer.
            ConfigurationError: The schema cannot be named this way.
        """
        ...

    def writer(self, prefix: bytes, known: Mapping[bytes, Schema]) -> Schema:
        """Return the schema that a prefix names. `prefix` is shorter than `size` if the record is.

        Args:
            prefix: The first bytes of a record.
            known: The schemas that need not be asked for, by fingerprint.

        Raises:
            DeserializationError: It names none.
            RetryLater: A registry must be asked, and does not answer.
        """
        ...


class SingleObject:
    """The framing of Avro's single-object encoding: C3 01, then the 8-byte little-endian CRC-64-AVRO fingerprint."""

    size = 10

    def prefix(self, schema: Schema) -> bytes:
        return _SINGLE_OBJECT_MAGIC + schema.fingerprint

    def writer(self, prefix: bytes, known: Mapping[bytes, Schema]) -> Schema:
        if len(prefix) < self.size or not prefix.startswith(_SINGLE_OBJECT_MAGIC):
            raise DeserializationError(
                f"not Avro single-object encoding: begins with {prefix.hex() or 'nothing'}"
            )
        schema = known.get(prefix[2:])
        if schema is None:
            raise DeserializationError(f"written with an unknown schema, fingerprint {prefix[:1:-1].hex()}")
        return schema


class Plain:
    """A framing without a prefix, for records that were all written with the reader's schema."""

    size = 0

    def prefix(self, schema: Schema) -> bytes:  # noqa: ARG002 - the protocol's
        return b""

    def writer(self, prefix: bytes, known: Mapping[bytes, Schema]) -> Schema:
        raise DeserializationError(
            f"plain Avro has no prefix; {len(known)} schemas are known, {prefix!r} names none"
        )


class Registry(Protocol):
    """A schema registry that resolves Confluent's schema ids. Safe to call from any thread."""

    def schema(self, schema_id: int) -> Schema:
        """Return the schema of an id. Raises `RetryLater`, and `DeserializationError` if there is none that fits."""
        ...

    def id_of(self, subject: str, schema: Schema) -> int:
        """Return the id of a registered schema. Raises `ConfigurationError` if it is not registered, and `RetryLater`."""
        ...


class Confluent:
    """The framing of Confluent's wire format: 00, then the schema's 4-byte big-endian id in a registry.

    Args:
        registry: The schema registry: `FileRegistry`, or `HttpRegistry` from `streamtable.codec.registry`.
        subject: The subject under which the id to write with is looked up, usually "<topic>-value". Not needed to read.
    """

    size = 5

    def __init__(self, registry: Registry, subject: str | None = None) -> None:
        self._registry = registry
        self._subject = subject

    def prefix(self, schema: Schema) -> bytes:
        if self._subject is None:
            raise ConfigurationError(
                f"Confluent: to write {schema.name}, name the subject it is registered under"
            )
        return _CONFLUENT_MAGIC + self._registry.id_of(self._subject, schema).to_bytes(4, "big")

    def writer(
        self,
        prefix: bytes,
        known: Mapping[bytes, Schema],  # noqa: ARG002 - the protocol's
    ) -> Schema:
        if len(prefix) < self.size or not prefix.startswith(_CONFLUENT_MAGIC):
            raise DeserializationError(f"not Confluent's format: begins with {prefix.hex() or 'nothing'}")
        return self._registry.schema(int.from_bytes(prefix[1:], "big"))
