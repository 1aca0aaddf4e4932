"""Messages of Connect's JSON converter with schemas: `{"schema": ..., "payload": ...}`.

All messages of a topic begin with the same schema, 4 KB of text or more, until its table changes. So the beginnings that were
seen are kept, and a message that begins with one of them is cut there instead of parsed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from streamtable.errors import DeserializationError
from streamtable_capture.rows import MALFORMED
from streamtable_capture.semantics import Semantic

S = TypeVar("S")

_KNOWN_MAX = 64
"""The number of schemas that are kept for a topic: more than a table has versions at a time."""


class _Message(Struct):
    schema: Raw
    payload: Raw


class Schemas(Generic[S]):
    """Splits messages into schema and payload.

    Args:
        read: Makes of a parsed schema what is kept for it.
    """

    def __init__(self, read: Callable[[Mapping[str, Any]], S]) -> None:
        self._read = read
        self._decoder = msgspec.json.Decoder(_Message)
        self._known: dict[bytes, S] = {}
        self._latest = b"\0"  # no message begins with it

    def split(self, data: bytes) -> tuple[S, bytes]:
        """Return what is kept for the schema of a message, and the payload.

        Raises:
            DeserializationError: The message has no schema and payload.
        """
        if data.startswith(self._latest):
            return self._known[self._latest], data[len(self._latest) : -1]
        for start, found in self._known.items():
            if data.startswith(start):
                self._latest = start
                return found, data[len(start) : -1]
        return self._parse(data)

    def _parse(self, data: bytes) -> tuple[S, bytes]:
        try:
            message = self._decoder.decode(data)
            found = self._read(msgspec.json.decode(message.schema, type=dict[str, Any]))
        except MALFORMED as error:
            raise DeserializationError(
                f"no message with a schema ({error}): declare schemas=False, or set value.converter.schemas.enable=true"
            ) from error
        payload = bytes(message.payload)
        start = data[: len(data) - len(payload) - 1]
        # As Connect writes it; a message with blanks, or with the payload first, is parsed each time.
        if data.endswith(b"}") and start + payload + b"}" == data and start.endswith(b'"payload":'):
            known = dict(list(self._known.items())[1 - _KNOWN_MAX :])
            known[start] = found
            self._known, self._latest = known, start  # replaced, not changed: threads share a codec
        return found, payload


def semantics(fields: list[dict[str, Any]]) -> dict[str, Semantic]:
    """Return the semantic types of the columns of a struct, by column; those without one are missing."""
    named = [each for each in fields if each.get("name") is not None]
    return {each["field"]: Semantic(each["name"], _scale(each)) for each in named}


def _scale(field: Mapping[str, Any]) -> int | None:
    scale = field.get("parameters", {}).get("scale")
    return None if scale is None else int(scale)
