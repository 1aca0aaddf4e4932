"""Records whose schema is in a registry: Avro, Protobuf and JSON Schema, as Connect's converters write them.

A record begins with the id of its schema. What a column means is in that schema's `connect.name`, for Avro, or in the type of
its field, for Protobuf. Values are read as they are in the record, without logical types: bytes stay bytes, and numbers
numbers, as in JSON with schemas.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from streamtable import Avro, Plain
from streamtable.errors import ConfigurationError, DeserializationError
from streamtable_capture.rows import MALFORMED, UNREADABLE, Plan
from streamtable_capture.semantics import Semantic

Read = Callable[[bytes], dict[str, Any]]
"""Returns the fields of a record."""


class RegisteredSchema(Protocol):
    """A schema in a registry: `streamtable_codecs` has it."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def references(self) -> Mapping[str, str]: ...


class SchemaRegistry(Protocol):
    """A registry: `HttpRegistry` or `FileRegistry` of `streamtable_codecs`."""

    def schema(self, schema_id: int | str) -> RegisteredSchema: ...


class MessagePlaces(Protocol):
    """The bytes in front of a Protobuf message that say which message of its file it is."""

    def end(self, data: bytes, start: int) -> int: ...
    def name(self, place: bytes, package: str, messages: Sequence[Any]) -> str: ...


class RegistryFraming(Protocol):
    """The bytes that name the schema: `Confluent`, `Apicurio` or `Glue` of `streamtable_codecs`."""

    format: str

    @property
    def prefix_header(self) -> str: ...
    @property
    def registry(self) -> SchemaRegistry: ...
    @property
    def places(self) -> MessagePlaces: ...
    def size_of(self, data: bytes) -> int: ...
    def fits(self, prefix: bytes) -> bool: ...
    def unpack(self, prefix: bytes) -> int | str: ...


class KnownSchema(NamedTuple):
    """The reader of the records of one schema, and how their columns are converted.

    Attributes:
        read: Reads a record without its prefix.
        plan: How its columns are converted.
    """

    read: Read
    plan: Plan


class RegistryRecords:
    """Reads records whose schema is in a registry.

    Args:
        framing: The bytes that name the schema.
        plan_of: Makes of the semantic types of a record's columns, by column, how they are converted.
        flattened: Whether the columns are the fields of the record, or of its field `after`.
    """

    def __init__(
        self, framing: RegistryFraming, plan_of: Callable[[Mapping[str, Semantic]], Plan], *, flattened: bool
    ) -> None:
        self._framing, self._plan_of, self._flattened = framing, plan_of, flattened
        self._found: dict[bytes, KnownSchema] = {}  # as many as the registry has schemas of the topic

    def read(self, data: bytes) -> tuple[dict[str, Any], Plan]:
        """Return the fields of a record, and how its columns are converted.

        Raises:
            DeserializationError: It is not as its schema says, or names none.
            RetryLater: The registry does not answer.
        """
        size = self._framing.size_of(data)
        prefix = data[:size]
        found = self._found.get(prefix)
        if found is None:
            found = self._found[prefix] = self._ask(prefix)
        return found.read(data[size:]), found.plan

    def _ask(self, prefix: bytes) -> KnownSchema:
        framing = self._framing
        if len(prefix) < framing.size_of(prefix) or not framing.fits(prefix):
            raise DeserializationError(
                f"not {framing.format} format: begins with {prefix.hex() or 'nothing'}: has the connector another converter?"
            )
        number = framing.unpack(prefix)
        schema = framing.registry.schema(number)
        try:
            if schema.kind == "AVRO":
                return self._avro(schema)
            if schema.kind == "PROTOBUF":
                from streamtable_capture.protobuf import message_reader  # noqa: PLC0415 - few need Protobuf

                places = framing.places
                return KnownSchema(message_reader(schema.text, places.end, places.name), self._plan_of({}))
        except (ConfigurationError, *MALFORMED) as error:
            raise DeserializationError(f"schema id {number}: {error}") from error
        return KnownSchema(_json, self._plan_of({}))

    def _avro(self, schema: RegisteredSchema) -> KnownSchema:
        if schema.references:
            raise ValueError(
                "it refers to other schemas: let the converter write each with the types that it needs"
            )
        tree, named = msgspec.json.decode(schema.text), dict[str, Any]()
        _name(tree, "", named)
        codec: Avro[dict[str, Any]] = Avro(_bare(tree), Plain())
        record = tree
        if not self._flattened:
            after = [each["type"] for each in tree.get("fields", ()) if each["name"] == "after"]
            record = _resolved(after[0], named) if after else {}
        return KnownSchema(codec.decode, self._plan_of(_semantics(record, named)))


def _json(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE as error:
        raise DeserializationError(f"not JSON behind the id of its schema: {error}") from error


def _bare(node: Any) -> Any:
    """Return an Avro schema without its logical types."""
    if isinstance(node, list):
        return [_bare(each) for each in node]
    if isinstance(node, dict):
        return {
            name: value if name == "default" else _bare(value)
            for name, value in node.items()
            if name != "logicalType"
        }
    return node


def _name(node: Any, namespace: str, named: dict[str, Any]) -> None:
    """Add the named types of an Avro schema, by their full names."""
    if isinstance(node, list):
        for each in node:
            _name(each, namespace, named)
    elif isinstance(node, dict):
        if "name" in node and node.get("type") in {"record", "enum", "fixed"}:
            name = node["name"]
            namespace = name.rpartition(".")[0] or node.get("namespace", namespace)
            named[name if "." in name or not namespace else f"{namespace}.{name}"] = node
            named.setdefault(name, node)
        fields = [field["type"] for field in node.get("fields", ())]
        for each in (*fields, node.get("items"), node.get("values"), node.get("type")):
            _name(each, namespace, named)


def _resolved(node: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition of a type that is not null; an empty one of a primitive."""
    if isinstance(node, list):
        node = next((each for each in node if each != "null"), "null")
    if isinstance(node, str):
        node = named.get(node, {})
    return node if isinstance(node, dict) else {}


def _semantics(record: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Semantic]:
    """Return the semantic types of a record's columns, by column; those without one are missing."""
    found = {}
    for field in record.get("fields", ()):
        described = _resolved(field["type"], named)
        if "connect.name" in described:
            scale = described.get("scale", described.get("connect.parameters", {}).get("scale"))
            found[field["name"]] = Semantic(described["connect.name"], None if scale is None else int(scale))
    return found
