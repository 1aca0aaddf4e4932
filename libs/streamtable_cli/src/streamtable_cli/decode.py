"""Bytes as people can read them: by a schema or a codec where one is known, else by a guess that is unambiguous.

A guess is a text (in quotes) if the bytes are UTF-8 and printable, a `long` if they are eight, and `hex` otherwise.
Bytes that a codec refuses are shown in hex, with the reason.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any

from streamtable import Avro, Bytes, Group, Long, String
from streamtable.deadletter import ORIGIN_TOPIC
from streamtable.errors import ConfigurationError, PoisonRecord, StreamtableError, Unencodable
from streamtable.partitioner import Partitioner
from streamtable.ports import Codec
from streamtable.types import Headers
from streamtable.visiting import VISIT_PROGRESS_SCHEMA
from streamtable_cli.errors import Refused
from streamtable_cli.output import note, one_line

PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
_SINGLE_OBJECT = b"\xc3\x01"
_FINGERPRINT_END = 10
_LONG_BYTES = 8
_CONFLUENT_BYTES = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as they are shown.

    Attributes:
        kind: null, text, long, hex, json, or the name of an Avro schema.
        value: what JSON can express.
        problem: why a codec that was to read them could not.
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


def guess(data: bytes | None) -> Shown:
    """Without knowing anything."""
    if data is None:
        return Shown("null", None)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(each.isprintable() or each in "\t\r\n" for each in text):
        return Shown("text", text)
    if len(data) == _LONG_BYTES:
        return Shown("long", int.from_bytes(data, "big", signed=True))
    problem = ""
    if len(data) > _CONFLUENT_BYTES and data[0] == 0:
        problem = f"perhaps Confluent's framing, schema id {int.from_bytes(data[1:5], 'big')}"
    return Shown("hex", data.hex(), problem)


@dataclass(frozen=True)
class Decoder:
    """Shows the keys and values of topics. Never fails.

    Attributes:
        schemas: codecs by the fingerprint that single-object encoding begins with.
        keys: codecs of keys by topic.
        values: codecs of values by topic.
        partitioners: how the keys of a topic are partitioned, where that is known.
    """

    schemas: Mapping[bytes, Avro[Any]] = field(default_factory=dict)
    keys: Mapping[str, Codec[Any]] = field(default_factory=dict)
    values: Mapping[str, Codec[Any]] = field(default_factory=dict)
    partitioners: Mapping[str, Partitioner] = field(default_factory=dict)

    def key(self, topic: str, data: bytes | None, headers: Headers = ()) -> Shown:
        return self._shown(self.keys.get(_origin(headers) or topic) or self.keys.get(topic), data)

    def value(self, topic: str, data: bytes | None, headers: Headers = ()) -> Shown:
        """Of a dead letter, and of one sent again, as at its origin."""
        return self._shown(self.values.get(_origin(headers) or topic) or self.values.get(topic), data)

    def names_schema(self, data: bytes) -> bool:
        """Whether bytes are Avro's single-object encoding by a known schema, and can be decoded by it."""
        codec = self.schemas.get(data[2:_FINGERPRINT_END]) if data.startswith(_SINGLE_OBJECT) else None
        if codec is None:
            return False
        try:
            codec.decode(data)
        except PoisonRecord:
            return False
        return True

    def _shown(self, codec: Codec[Any] | None, data: bytes | None) -> Shown:
        if data is None:
            return Shown("null", None)
        if codec is None and data.startswith(_SINGLE_OBJECT):
            fingerprint = data[2:_FINGERPRINT_END]
            codec = self.schemas.get(fingerprint)
            if codec is None:
                problem = f"Avro by an unknown schema, fingerprint {fingerprint[::-1].hex()}; see --schemas and --graph"
                return Shown("hex", data.hex(), problem)
        if codec is None:
            return guess(data)
        try:
            return Shown(_kind(codec), _value(codec.decode(data)))
        except StreamtableError as error:
            return Shown("hex", data.hex(), str(error))
        except Exception as error:  # noqa: BLE001 a codec may be anybody's; also a date that Python cannot hold
            return Shown("hex", data.hex(), f"{type(error).__name__}: {error}")


def decoder_of(schemas: Path | None = None, *groups: Group[Any, Any] | None) -> Decoder:
    """Of what the flags name. The primitive schemas, and that of the library's own visits, are always known.

    Raises:
        ConfigurationError: `schemas` is not a folder.
    """
    always = [Avro({"type": name}) for name in PRIMITIVES] + [Avro(VISIT_PROGRESS_SCHEMA)]
    known = {codec.schema.fingerprint: codec for codec in always}
    if schemas is not None:
        known |= _schemas_in(schemas)
    keys: dict[str, Codec[Any]] = {}
    values: dict[str, Codec[Any]] = {}
    partitioners: dict[str, Partitioner] = {}
    for group in filter(None, groups):
        streams = [*(edge.stream for edge in group.inputs), *(edge.stream for edge in group.outputs)]
        tables = [*(edge.table for edge in group.joins), *(edge.table for edge in group.lookups)]
        if group.persist is not None:
            tables.append(group.table)
        for stream in streams:
            keys[stream.name], values[stream.name] = stream.key, stream.value
            partitioners[stream.name] = stream.partitioner
        for table in tables:
            keys[table.name], values[table.name] = table.key, table.value
            partitioners[table.name] = table.partitioner
    return Decoder(known, keys, values, partitioners)


def _schemas_in(folder: Path) -> dict[bytes, Avro[Any]]:
    if not folder.is_dir():
        raise ConfigurationError(f"--schemas {str(folder)!r} is not a folder; it is searched for *.avsc")
    found = {}
    for path in sorted(folder.rglob("*.avsc")):
        try:
            codec: Avro[Any] = Avro(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, StreamtableError) as error:
            note(f"note: {path} is left out: {error}")
        else:
            found[codec.schema.fingerprint] = codec
    return found


def _origin(headers: Headers) -> str | None:
    value = dict(headers).get(ORIGIN_TOPIC)
    return value.decode(errors="replace") if value else None


def _kind(codec: Codec[Any]) -> str:
    match codec:
        case Avro():
            return codec.schema.name
        case String():
            return "text"
        case Bytes():
            return "hex"
    return type(codec).__name__.lower()


def _value(value: Any) -> Any:
    """What JSON can express: bytes in hex, and as text what is no number to it."""
    match value:
        case bytes():
            return value.hex()
        case float() if not isfinite(value):
            return str(value)
        case dict():
            return {name: _value(each) for name, each in value.items()}
        case list() | tuple():
            return [_value(each) for each in value]
    return value


# ---- keys given on the command line ---------------------------------------------------------------------------------


class KeyType(StrEnum):
    """How a key given as text becomes bytes."""

    TEXT = "text"
    LONG = "long"
    HEX = "hex"


def key_bytes(text: str, kind: KeyType | None, codec: Codec[Any] | None) -> bytes:
    """The bytes of a key given as text: by `kind`, else by the graph's codec, else as UTF-8.

    Raises:
        Refused: the text is no such key.
    """
    if kind is None and codec is not None and not isinstance(codec, String):
        kind = KeyType.LONG if isinstance(codec, Long) else KeyType.HEX if isinstance(codec, Bytes) else None
        if kind is None:
            try:
                return codec.encode(json.loads(text))
            except (ValueError, Unencodable, PoisonRecord) as error:
                raise Refused(
                    f"key {text!r} is not what the graph's codec takes, as JSON: {error}"
                ) from error
    try:
        match kind:
            case KeyType.LONG:
                if not text.isascii():
                    raise ValueError("other digits than 0 to 9")
                return Long().encode(int(text))
            case KeyType.HEX:
                return bytes.fromhex(text)
            case _:
                return text.encode()
    except (ValueError, Unencodable) as error:
        raise Refused(f"key {text[:100]!r} is no {kind or 'text'}: {error}") from error


def document_of_headers(headers: Headers) -> Sequence[dict[str, Any]]:
    return [{"name": name, **guess(value).document()} for name, value in headers]
