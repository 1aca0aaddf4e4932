"""The framings of values whose schema is in a registry: the bytes that name the schema, in front of the body."""

from collections.abc import Mapping
from typing import Protocol

from exactavro import Schema
from streamtable.errors import ConfigurationError, DeserializationError

_CONFLUENT_MAGIC = b"\x00"


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
        registry: The schema registry: `FileRegistry`, or `HttpRegistry`.
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
