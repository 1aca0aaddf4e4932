"""Decodes keys, values and headers for people: with a schema or codec where one is known, else by their bytes.

Other packages add decoders for bytes without a known codec by entry points of the group `streamtable.decoders`: each a function that
returns an `AddedDecoder`, or None if its settings name none. It is named as an environment variable that ends with `URL`, and loaded
if there is any variable with the same prefix.

Bytes without a schema are text if they are printable UTF-8, a `long` if there are eight of them, and hexadecimal digits
otherwise. Bytes that a codec refuses are shown as hexadecimal digits, with the reason.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from math import isfinite
from os import environ
from pathlib import Path
from typing import Any, Literal

from streamtable import Avro, Bytes, Group, Stream, String, Table
from streamtable.base.deadletter import ORIGIN_TOPIC
from streamtable.base.message import prefix_header
from streamtable.base.ports import Codec, ShownValues
from streamtable.base.topics import hash_of_rows
from streamtable.base.types import Headers
from streamtable.errors import ConfigurationError, DeserializationError, StreamtableError
from streamtable.graph.visiting import VISIT_PROGRESS_SCHEMA
from streamtable_admin.text import one_line

PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
_SINGLE_OBJECT = b"\xc3\x01"
_FINGERPRINT_END = 10
_LONG_BYTES = 8
_CONFLUENT_BYTES = 5

Schemas = Mapping[bytes, Avro[Any]]
"""Codecs by the fingerprint of their schema."""
Part = Literal["key", "value"]
AddedDecoder = Callable[[bytes, Headers, Part], tuple[str, Any] | None]
"""Returns the kind and the value of bytes; None for bytes in another format. Raises `StreamtableError` if they cannot be decoded."""


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A decoded key, value or header.

    Attributes:
        kind: null, text, long, hex, json, or the name of an Avro schema.
        value: The value as JSON can express it.
        problem: The reason why a codec could not decode the bytes.
    """

    kind: str
    value: Any
    problem: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "null":
                text = "null"
            case "text":
                text = one_line(self.value)
            case "hex":
                text = f"hex {self.value}"
            case _:
                text = f"{self.kind} {one_line(self.value)}"
        return f"{text} ({self.problem})" if self.problem else text

    def document(self) -> dict[str, Any]:
        found = {"type": self.kind, "value": self.value}
        return {**found, "problem": self.problem} if self.problem else found


def guess(data: bytes | None) -> DecodedValue:
    """Decode bytes of an unknown format."""
    if data is None:
        return DecodedValue("null", None)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(each.isprintable() or each in "\t\r\n" for each in text):
        return DecodedValue("text", text)
    if len(data) == _LONG_BYTES:
        return DecodedValue("long", int.from_bytes(data, "big", signed=True))
    problem = ""
    if len(data) > _CONFLUENT_BYTES and data[0] == 0:
        number = int.from_bytes(data[1:5], "big")
        problem = f"perhaps Confluent's framing, schema id {number}; set SCHEMA_REGISTRY_URL to decode it"
    return DecodedValue("hex", data.hex(), problem)


def known_schemas(schemas: Iterable[Mapping[str, Any]] = ()) -> Schemas:
    """Return codecs of these Avro schemas, of the primitive ones, and of the library's own."""
    always: list[Mapping[str, Any]] = [{"type": name} for name in PRIMITIVES]
    codecs: list[Avro[Any]] = [Avro(VISIT_PROGRESS_SCHEMA), *(Avro(each) for each in (*always, *schemas))]
    return {codec.schema.fingerprint: codec for codec in codecs}


def schemas_in(folder: Path) -> tuple[Schemas, list[str]]:
    """Return the codecs of all `*.avsc` files in a folder, and a line for each file that is not a schema.

    Raises:
        ConfigurationError: It is not a folder.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"--schemas {str(folder)!r} is not a folder; it is searched for *.avsc")
    found, skipped = {}, []
    for path in sorted(folder.rglob("*.avsc")):
        try:
            codec: Avro[Any] = Avro(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, StreamtableError) as error:
            skipped.append(f"{path} was skipped: {error}")
        else:
            found[codec.schema.fingerprint] = codec
    return found, skipped


@dataclass(frozen=True)
class Decoder:
    """Decodes the keys and values of topics. Never fails.

    Attributes:
        schemas: Codecs for Avro's single-object encoding, whose bytes name their schema.
        keys: The codec of the keys, by topic.
        values: The codec of the values, by topic.
        hashes: The hash that assigns encoded keys to partitions, by topic, where it is known; see `hash_of_rows`.
        added: The decoders that other packages add.
    """

    schemas: Schemas = field(default_factory=dict)
    keys: Mapping[str, Codec[Any]] = field(default_factory=dict)
    values: Mapping[str, Codec[Any]] = field(default_factory=dict)
    hashes: Mapping[str, Callable[[bytes], int]] = field(default_factory=dict)
    added: Sequence[AddedDecoder] = ()

    def key(self, topic: str, data: bytes | None, headers: Headers = ()) -> DecodedValue:
        """Decode a key of a topic; a dead letter's key as a key of the topic it comes from."""
        codec = self.keys.get(_origin(headers) or topic) or self.keys.get(topic)
        return self._decoded(codec, data, headers, "key")

    def value(self, topic: str, data: bytes | None, headers: Headers = ()) -> DecodedValue:
        """Decode a value of a topic; a dead letter's value as a value of the topic it comes from."""
        codec = self.values.get(_origin(headers) or topic) or self.values.get(topic)
        named = prefix_header(codec)  # a header may have an empty name, which is the text for none
        # The schema's id, if it is not in front.
        prefix = dict(reversed(headers)).get(named) if named else None
        return self._decoded(codec, prefix + data if prefix and data is not None else data, headers, "value")

    def names_schema(self, data: bytes) -> bool:
        """Return whether bytes are in Avro's single-object encoding, with a known schema that can decode them."""
        codec = self.schemas.get(data[2:_FINGERPRINT_END]) if data.startswith(_SINGLE_OBJECT) else None
        if codec is None:
            return False
        try:
            codec.decode(data)
        except DeserializationError:
            return False
        return True

    def _decoded(
        self, codec: Codec[Any] | None, data: bytes | None, headers: Headers, part: Part
    ) -> DecodedValue:
        if data is None:
            return DecodedValue("null", None)
        if codec is None and data.startswith(_SINGLE_OBJECT):
            fingerprint = data[2:_FINGERPRINT_END]
            codec = self.schemas.get(fingerprint)
            if codec is None:
                problem = f"Avro with an unknown schema, fingerprint {fingerprint[::-1].hex()}"
                return DecodedValue("hex", data.hex(), problem)
        try:
            if codec is None:
                found = next(filter(None, (each(data, headers, part) for each in self.added)), None)
                return guess(data) if found is None else DecodedValue(found[0], _plain(found[1]))
            value = codec.decode(data)
            return DecodedValue(
                _kind(codec), _plain(codec.plain(value) if isinstance(codec, ShownValues) else value)
            )
        except StreamtableError as error:
            return DecodedValue("hex", data.hex(), str(error))
        except Exception as error:  # noqa: BLE001 - a codec of the user may raise anything; a date may be out of range
            return DecodedValue("hex", data.hex(), f"{type(error).__name__}: {error}")


def decoder_for(schemas: Schemas, groups: Iterable[Group[Any, Any]]) -> Decoder:
    """Return a decoder that uses the codecs of these groups for their topics, and the schemas for all others."""
    keys: dict[str, Codec[Any]] = {}
    values: dict[str, Codec[Any]] = {}
    hashes: dict[str, Callable[[bytes], int]] = {}
    for group in groups:
        topics: list[Stream[Any, Any] | Table[Any, Any]] = [edge.stream for edge in group.inputs]
        topics += [edge.stream for edge in group.outputs]
        topics += [edge.table for edge in group.joins] + [edge.table for edge in group.lookups]
        topics += [group.table] if group.persist is not None else []
        topics += map(group.state_table, group.states)
        for topic in topics:
            keys[topic.name], values[topic.name] = topic.key, topic.value
            hashes[topic.name] = hash_of_rows(topic)
    return Decoder(schemas, keys, values, hashes, added_decoders())


def added_decoders() -> Sequence[AddedDecoder]:
    """Return the decoders that installed packages add. Raises `ConfigurationError` for settings that cannot be used."""
    found = sorted(entry_points(group="streamtable.decoders"))
    # Any variable with the prefix: a misspelt one is to be refused.
    named = [each for each in found if any(var.startswith(each.name.removesuffix("URL")) for var in environ)]
    return list(filter(None, (each.load()() for each in named)))


def headers_document(headers: Headers) -> Sequence[dict[str, Any]]:
    """Return headers as JSON can express them."""
    return [{"name": name, **guess(value).document()} for name, value in headers]


def _origin(headers: Headers) -> str | None:
    value = dict(headers).get(ORIGIN_TOPIC)
    return value.decode(errors="replace") if value else None


def _kind(codec: Codec[Any]) -> str:
    if isinstance(codec, Avro):
        return codec.schema.name
    if isinstance(codec, ShownValues):
        return codec.title
    return {String: "text", Bytes: "hex"}.get(type(codec), type(codec).__name__.lower())


def _plain(value: Any) -> Any:
    """Return bytes as hexadecimal digits, and numbers that JSON lacks as text."""
    match value:
        case bytes():
            return value.hex()
        case float() if not isfinite(value):
            return str(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value
