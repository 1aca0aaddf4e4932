"""Keys and values for a page: decoded by the released schemas, with numbers that a browser represents exactly, and cut."""

import json
from types import ModuleType
from typing import Any, Final

from contracts.schema import RecordSchema
from streamtable.base.types import Headers
from streamtable_admin.decode import Decoder, Part, Schemas, added_decoders, guess, known_schemas
from streamtable_admin.records import TopicRecord

CHARACTERS_MAX: Final = 4000
HEADERS_MAX: Final = 100
DECODED_BYTES_MAX: Final = 64 << 10
"""The maximum bytes that are decoded. Decoded they take up to a hundred times their bytes, and a page shows hundreds of records."""
_CUT_BYTES: Final = 4 * CHARACTERS_MAX
_CHARACTER_BYTES: Final = 4
_SINGLE_OBJECT: Final = b"\xc3\x01"  # the marker of Avro's single-object encoding
_EXACT_MAX: Final = 1 << 53


def released_schemas(records: ModuleType) -> Schemas:
    """Return codecs of all schemas of a module of generated records, with their former versions."""
    found = [each for each in vars(records).values() if isinstance(each, RecordSchema)]
    return known_schemas(json.loads(text) for each in found for text in (each.schema, *each.history))


class PageDecoder:
    """Decodes keys, values and headers as JSON for a page. Never fails.

    Args:
        schemas: The codecs, by the fingerprint in the encoding.
    """

    def __init__(self, schemas: Schemas) -> None:
        self._decoder = Decoder(schemas, added=added_decoders())

    def show(self, data: bytes | None, headers: Headers = (), part: Part = "value") -> dict[str, Any]:
        """Return `type` (null, text, long, hex, or a schema's name), `value`, and `problem` if a schema did not fit.

        A value of more than 4,000 characters is cut, and `cut` is the number of its bytes. One of more than 64 KiB is not
        decoded by a schema: the beginning of its bytes is shown.
        """
        if data is not None and len(data) > DECODED_BYTES_MAX:
            return self._beginning(data)
        decode = self._decoder.key if part == "key" else self._decoder.value
        decoded = decode("", data, headers)
        document = {
            **decoded.document(),
            "type": decoded.kind.rpartition(".")[2],
            "value": _exact(decoded.value),
        }
        if data is None or len(json.dumps(document["value"])) <= CHARACTERS_MAX:
            return document
        value = document["value"]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return {**document, "value": text[:CHARACTERS_MAX], "cut": len(data)}

    def _beginning(self, data: bytes) -> dict[str, Any]:
        begun = guess(_whole_characters(data[:_CUT_BYTES]))
        document = {**begun.document(), "value": begun.value[:CHARACTERS_MAX], "cut": len(data)}
        if data.startswith(_SINGLE_OBJECT):
            document["problem"] = f"not decoded: larger than {DECODED_BYTES_MAX} bytes"
        return document

    def headers(self, headers: Headers) -> list[dict[str, Any]]:
        return [{"name": name, **self.show(value)} for name, value in headers[:HEADERS_MAX]]

    def record(self, record: TopicRecord) -> dict[str, Any]:
        """Return a record of a topic."""
        return {
            "topic": record.place.topic,
            "partition": record.place.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": self.show(record.key, record.headers, "key"),
            "value": self.show(record.value, record.headers),
            "headers": self.headers(record.headers),
        }


def _whole_characters(data: bytes) -> bytes:
    """Return the bytes without a character of UTF-8 that is cut off at their end."""
    for dropped in range(_CHARACTER_BYTES):
        whole = data[: len(data) - dropped]
        try:
            whole.decode()
        except UnicodeDecodeError:
            continue
        return whole
    return data


def _exact(value: Any) -> Any:
    """Return as text numbers that a browser would round, and values that JSON does not have."""
    match value:
        case dict():
            return {str(name): _exact(each) for name, each in value.items()}
        case list():
            return [_exact(each) for each in value]
        case bool() | str() | None:
            return value
        case float() | int() if abs(value) < _EXACT_MAX:
            return value
    return str(value)
