"""Schemas as registries keep them, and the rules for the subjects under which they are registered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
NAMES: Mapping[Kind, str] = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}


@dataclass(frozen=True)
class Definition:
    """A schema that a program writes with.

    Attributes:
        kind: Its type, as registries name it.
        text: Its text; of Protobuf the file's descriptor in base64, as confluent-kafka registers it.
        record: The full name of the record, for subjects that are named after it.
        imports: The schemas that it refers to, by the name by which it does. Each is registered under this name.
    """

    kind: Kind
    text: str
    record: str
    imports: tuple[tuple[str, "Definition"], ...] = ()


@dataclass(frozen=True)
class Registered:
    """A schema that a registry has returned.

    Attributes:
        kind: Its type, as the registry names it.
        text: Its text.
        references: The texts of all schemas that it refers to, by name.
    """

    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)


class Subjects(Protocol):
    """A rule for the subject under which the schema of a topic's keys or values is registered."""

    def subject(self, topic: str, part: Literal["key", "value"], record: str) -> str:
        """Return the subject. `record` is the full name of the record."""


@dataclass(frozen=True)
class TopicName:
    """Subjects `<topic>-key` and `<topic>-value`: a topic has records of one type."""

    def subject(self, topic: str, part: Literal["key", "value"], record: str) -> str:  # noqa: ARG002 - the protocol's
        return f"{topic}-{part}"


@dataclass(frozen=True)
class RecordName:
    """Subjects that are the full name of the record: it evolves in the same way in all topics."""

    def subject(self, topic: str, part: Literal["key", "value"], record: str) -> str:  # noqa: ARG002 - the protocol's
        return record


@dataclass(frozen=True)
class TopicRecordName:
    """Subjects `<topic>-<record>`: a topic has records of several types, each with an evolution of its own."""

    def subject(self, topic: str, part: Literal["key", "value"], record: str) -> str:  # noqa: ARG002 - the protocol's
        return f"{topic}-{record}"
