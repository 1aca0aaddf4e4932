"""Bytes as people can read them: by the released schemas where a fingerprint names one, else by what they look like."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import ModuleType
from typing import Any, Final

from contracts.schema import RecordSchema
from streamtable import Avro
from streamtable.errors import StreamtableError
from streamtable.types import Headers
from streamtable.visiting import VISIT_PROGRESS_SCHEMA

PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "string", "bytes")
CHARACTERS_MAX: Final = 4000
_SINGLE_OBJECT: Final = b"\xc3\x01"
_FINGERPRINT_END: Final = 10
_LONG_BYTES: Final = 8


def schemas_of(records: ModuleType) -> Mapping[bytes, Avro[Any]]:
    """Codecs by the fingerprints of all schemas that a module of generated records knows, and of the primitive ones.

    The schema of `<group>-visits` is the library's own, and among them.
    """
    codecs: list[Avro[Any]] = [Avro({"type": name}) for name in PRIMITIVES] + [Avro(VISIT_PROGRESS_SCHEMA)]
    for found in vars(records).values():
        if isinstance(found, RecordSchema):
            codecs += [Avro(json.loads(text)) for text in (found.schema, *found.history)]
    return {codec.schema.fingerprint: codec for codec in codecs}


@dataclass(frozen=True)
class Decoder:
    """Shows keys and values. Never fails."""

    schemas: Mapping[bytes, Avro[Any]]

    def show(self, data: bytes | None) -> dict[str, Any]:
        """`type` (null, text, long, hex, or a schema's name), `value`, and `problem` if a schema did not fit.

        A value that would be longer than 4,000 characters is cut, and `cut` says how many bytes there are.
        """
        if data is None:
            return {"type": "null", "value": None}
        shown = self._decoded(data)
        if len(json.dumps(shown["value"])) <= CHARACTERS_MAX:
            return shown
        text = (
            shown["value"]
            if isinstance(shown["value"], str)
            else json.dumps(shown["value"], ensure_ascii=False)
        )
        return {**shown, "value": text[:CHARACTERS_MAX], "cut": len(data)}

    def headers(self, headers: Headers) -> list[dict[str, Any]]:
        return [{"name": name, **self.show(value)} for name, value in headers[:100]]

    def _decoded(self, data: bytes) -> dict[str, Any]:
        if not data.startswith(_SINGLE_OBJECT):
            return _guessed(data)
        codec = self.schemas.get(data[2:_FINGERPRINT_END])
        if codec is None:
            name = data[2:_FINGERPRINT_END][::-1].hex()
            return {"type": "hex", "value": data.hex(), "problem": f"an unknown schema, fingerprint {name}"}
        try:
            value = codec.decode(data)
        except StreamtableError as error:
            return {"type": "hex", "value": data.hex(), "problem": error.message}
        return {"type": codec.schema.name.rpartition(".")[2], "value": _plain(value)}


def _guessed(data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(each.isprintable() or each in "\t\r\n" for each in text):
        return {"type": "text", "value": text}
    if len(data) == _LONG_BYTES:
        return {"type": "long", "value": int.from_bytes(data, "big", signed=True)}
    return {"type": "hex", "value": data.hex()}


def _plain(value: Any) -> Any:
    """What JSON can express: bytes in hex; as text what is no number to it, or more than a browser counts exactly."""
    match value:
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return value.hex()
        case bool() | str() | None:
            return value
        case float() | int() if isfinite(value) and abs(value) < 1 << 53:
            return value
    return str(value)
