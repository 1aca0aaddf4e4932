"""The schemas that groups write with, compared with the registries of their codecs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from streamtable import Avro, Codec, Group
from streamtable_codecs.framing import InRegistry, definition_of
from streamtable_codecs.json_schema import JsonSchema
from streamtable_codecs.protobuf import Protobuf
from streamtable_codecs.registry import HttpRegistry
from streamtable_codecs.schemas import NAMES, Definition

Step = Literal["same", "register", "refused"]


@dataclass(frozen=True)
class PlannedSchema:
    """A schema of a topic's keys or values.

    Attributes:
        subject: The subject under which it is, or would be, registered.
        topic: The topic.
        step: "same": it is registered; "register": it would be; "refused": it does not fit the versions before.
        details: The id, or the type of the schema, or the reason.
    """

    subject: str
    topic: str
    step: Step
    details: str


@dataclass(frozen=True)
class WrittenSchema:
    """A schema that a program writes with, and the registry where its ids are looked up."""

    topic: str
    subject: str
    registry: HttpRegistry
    definition: Definition


def schemas_of(groups: Iterable[Group[Any, Any]], *, inputs: bool = False) -> list[WrittenSchema]:
    """Return the schemas of groups that are in a registry over HTTP: of all that they write.

    Args:
        groups: The groups.
        inputs: Whether the schemas of the inputs are among them.

    Raises:
        ConfigurationError: The codec of a state, of a call, of a timer's payload or of rows names no subject.
    """
    found: dict[tuple[str, Definition], WrittenSchema] = {}
    for topic, codec in _codecs(groups, inputs=inputs):
        known = _registered(codec)
        if known is None:
            continue
        framing, definition = known
        if isinstance(framing.registry, HttpRegistry):
            subject = framing.subject_of(definition)
            found.setdefault(
                (subject, definition), WrittenSchema(topic, subject, framing.registry, definition)
            )
    return list(found.values())


def planned(written: WrittenSchema) -> PlannedSchema:
    """Ask a registry whether it has a schema, or would accept it. Raises `RetryLater`, `ConfigurationError`."""
    subject, definition = written.subject, written.definition
    number = written.registry.registered(subject, definition)
    if number is not None:
        return PlannedSchema(subject, written.topic, "same", f"id {number}")
    if reason := written.registry.compatible(subject, definition):
        return PlannedSchema(subject, written.topic, "refused", reason)
    return PlannedSchema(subject, written.topic, "register", f"{definition.record}, {NAMES[definition.kind]}")


def _codecs(groups: Iterable[Group[Any, Any]], *, inputs: bool) -> Iterator[tuple[str, Codec[Any]]]:
    """Yield the names of topics with the codecs that write them."""
    for group in groups:
        for edge in group.inputs if inputs else ():
            yield from ((edge.stream.name, each) for each in (edge.stream.key, edge.stream.value))
        yield from group.written_codecs()


def _registered(codec: Codec[Any]) -> tuple[InRegistry, Definition] | None:
    match codec:
        case Avro() if isinstance(codec.framing, InRegistry):
            return codec.framing, definition_of(codec.schema)
        case Protobuf() | JsonSchema() if isinstance(codec.framing, InRegistry):
            return codec.framing, codec.definition
    return None
