"""The framing of an Avro record: the bytes that name the writer's schema, in front of the body."""

from collections.abc import Mapping
from typing import Literal, Protocol, Self

from exactavro import Schema
from streamtable.errors import DeserializationError

_SINGLE_OBJECT_MAGIC = b"\xc3\x01"


class Framing(Protocol):
    """A fixed number of bytes before the body that name the writer's schema.

    Attributes:
        size: The number of bytes.
        prefix_header: See `ports.HeaderPrefix`.
    """

    size: int

    @property
    def prefix_header(self) -> str: ...

    def size_of(self, data: bytes) -> int:
        """Return the number of bytes of a record's prefix, which may have another form with another size."""

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> "Framing":
        """Return the framing of the keys or values of a topic; itself if it depends on no topic."""

    def prefix(self, schema: Schema) -> bytes:
        """Return the prefix of a body of this schema.

        Raises:
            RetryLater: A registry must be asked, and does not answer.
            ConfigurationError: The schema cannot be named this way.
        """

    def writer(self, prefix: bytes, known: Mapping[bytes, Schema]) -> Schema:
        """Return the schema that a prefix names. `prefix` is shorter than `size` if the record is.

        Args:
            prefix: The first bytes of a record.
            known: The schemas that need not be asked for, by fingerprint.

        Raises:
            DeserializationError: It names none.
            RetryLater: A registry must be asked, and does not answer.
        """


class _OneForm:
    """A framing whose prefix has one form, in all topics."""

    size: int
    prefix_header = ""

    def size_of(self, data: bytes) -> int:  # noqa: ARG002 - the protocol's
        return self.size

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> Self:  # noqa: ARG002 - the protocol's
        return self


class SingleObject(_OneForm):
    """The framing of Avro's single-object encoding: C3 01, then the 8-byte little-endian CRC-64-AVRO fingerprint."""

    size = 10

    def prefix(self, schema: Schema) -> bytes:
        return _SINGLE_OBJECT_MAGIC + schema.fingerprint

    def writer(self, prefix: bytes, known: Mapping[bytes, Schema]) -> Schema:
        if len(prefix) < self.size or not prefix.startswith(_SINGLE_OBJECT_MAGIC):
            begin = prefix.hex() or "nothing"
            raise DeserializationError(f"not Avro single-object encoding: begins with {begin}")
        if (schema := known.get(prefix[2:])) is None:
            raise DeserializationError(
                f"written with an unknown schema, fingerprint {prefix[:1:-1].hex()}: give its version to Avro's `history`"
            )
        return schema


class Plain(_OneForm):
    """A framing without a prefix, for records that were all written with the reader's schema."""

    size = 0

    def prefix(self, schema: Schema) -> bytes:  # noqa: ARG002 - the protocol's
        return b""

    def writer(self, prefix: bytes, known: Mapping[bytes, Schema]) -> Schema:
        raise DeserializationError(f"plain Avro has no prefix: {prefix!r} names none of {len(known)} schemas")
