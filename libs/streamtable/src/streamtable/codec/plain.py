"""Codecs without a schema: `String`, `Bytes`, `Long`, `Json`. Keys are one of the first three."""

from collections.abc import Sequence
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from struct import Struct, unpack
from struct import error as StructError  # noqa: N812 - the standard library's name says nothing on its own
from typing import Any, TypeVar, cast

import orjson

from exactavro import avro_branch_of
from exactjson import finite
from streamtable.base.decoding import decode_each
from streamtable.base.keys import ListKey, RecordKey
from streamtable.base.ports import Decoded, JsonValue, Span
from streamtable.codec.lazy import Lazy
from streamtable.codec.rows import refuse_unlike
from streamtable.errors import DeserializationError, SerializationError

T = TypeVar("T")

_LONG = Struct(">q")
_NEGATIVE = b"\x80"
"""The first bytes of the range of negative numbers."""
_DECLARED = (Decimal, date, time, timedelta, bytes, set, frozenset)
_JSON_OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def _plain(value: Any) -> Any:
    """Return a record, symbol or key of a class of ours as a plain value, for JSON. Raises `TypeError` for any other value."""
    if isinstance(value, ListKey):
        return list(value)
    if isinstance(value, RecordKey) or (avro_branch_of(value) is not None and isinstance(value, dict | str)):
        return dict(value) if isinstance(value, dict) else str(value)
    kind = type(value).__name__
    declared = isinstance(value, _DECLARED) or is_dataclass(value)
    typed = f"; or choose a codec that declares it: Typed({kind}), or Typed of a type with such a field"
    raise TypeError(
        f"Type is not JSON serializable: {kind}. Write it as a text, a number, a list or a dict{typed if declared else ''}"
    )


class String:
    """A codec that encodes text as UTF-8."""

    def encode(self, value: str) -> bytes:
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"String: not a text that UTF-8 can hold: {error}") from error
        except AttributeError as error:
            raise SerializationError(f"String: must be a str, not {type(value).__name__}") from error

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DeserializationError(f"String: not UTF-8: {error.reason} at byte {error.start}") from error

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[str]:
        items = cast("Sequence[bytes]", data)
        try:
            if b"".join(items).isascii():
                return Decoded(Lazy(len(items), lambda: list(map(bytes.decode, items))), {})
        except TypeError:
            pass  # there is a None among them: quicker found this way than looked for
        try:
            return Decoded([None if item is None else item.decode() for item in data], {})
        except UnicodeDecodeError:
            return decode_each(self.decode, data)

    def spans(self, start: str | None, end: str | None) -> list[Span]:
        """See `ports.OrderedKeys`: UTF-8 has the order of the code points."""
        return [(None if start is None else self.encode(start), None if end is None else self.encode(end))]

    def __repr__(self) -> str:
        return "String()"


class Bytes:
    """A codec that leaves bytes as they are."""

    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes):
            raise SerializationError(f"Bytes: must be bytes, is {type(value).__name__}")
        return value

    def decode(self, data: bytes) -> bytes:
        return data

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[bytes]:
        return Decoded(list(data), {})

    def spans(self, start: bytes | None, end: bytes | None) -> list[Span]:
        """See `ports.OrderedKeys`."""
        return [(start, end)]

    def __repr__(self) -> str:
        return "Bytes()"


class Long:
    """A codec of 64-bit integers as 8 bytes, big-endian two's complement, as Java's LongSerializer writes them."""

    def encode(self, value: int) -> bytes:
        try:
            if isinstance(value, bool):
                raise SerializationError("Long: must be an int, not bool")
            return _LONG.pack(value)
        except StructError as error:
            if isinstance(value, int):
                raise SerializationError(f"Long: {value.bit_length() + 1} bits, more than 64") from error
            raise SerializationError(
                f"Long: must be an int, not {type(value).__name__}. For other numbers choose another codec, such as "
                "Json() or Avro('double'), and for Decimals Typed(Decimal) or Avro with the logicalType decimal; at a step of a "
                "flow by value="
            ) from error

    def decode(self, data: bytes) -> int:
        try:
            number: int = _LONG.unpack(data)[0]
        except StructError as error:
            raise DeserializationError(f"Long: {len(data)} bytes, must be 8") from error
        return number

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[int]:
        items = [item for item in data if item is not None]
        if len(items) < len(data) or set(map(len, items)) != {_LONG.size}:
            return decode_each(self.decode, data)
        return Decoded(Lazy(len(items), lambda: list(unpack(f">{len(items)}q", b"".join(items)))), {})

    def spans(self, start: int | None, end: int | None) -> list[Span]:
        """See `ports.OrderedKeys`: the bytes of negative numbers sort after all others."""
        first = None if start is None else self.encode(start)
        after = None if end is None else self.encode(end)
        if start is not None and start >= 0:
            return [(first, _NEGATIVE if after is None else after)] if end is None or end >= 0 else []
        negative = (first or _NEGATIVE, after if end is not None and end < 0 else None)
        return [negative] if end is not None and end < 0 else [negative, (None, after or _NEGATIVE)]

    def __repr__(self) -> str:
        return "Long()"


class Json:
    """A codec of JSON as RFC 8259 defines it: no NaN, no infinity, no types that only Python has.

    If an object has a name twice, the last value is used. A whole number of more than 64 bits is refused when written, and
    decoded as a float when another program wrote it. Tuples, UUIDs and enums are written as JSON's lists, texts and numbers,
    but refused in rows of tables and where records wait for a join: there they would be read as other values.

    Args:
        max_bytes: The largest message that is decoded; larger ones are poison.
        sort_keys: Whether the names of objects are sorted, as in the keys of streams and tables: equal keys then have equal
            bytes.
    """

    def __init__(self, max_bytes: int = 10_000_000, *, sort_keys: bool = False) -> None:
        self._max_bytes = max_bytes
        self._options = _JSON_OPTIONS | (orjson.OPT_SORT_KEYS if sort_keys else 0)

    def for_keys(self) -> "Json":
        """See `ports.CanonicalKeys`."""
        return Json(self._max_bytes, sort_keys=True)

    def for_rows(self) -> "Json":
        """See `ports.ExactRows`."""
        return _JsonRows(self._max_bytes, sort_keys=self._options != _JSON_OPTIONS)

    def encode(self, value: JsonValue) -> bytes:
        try:
            data = orjson.dumps(value, _plain, self._options)
        except TypeError as error:
            # Of what `_plain` raises orjson says the type alone.
            raise SerializationError(f"Json: {error.__cause__ or error}") from error
        if b"null" in data and not finite(value):  # what orjson makes of NaN; only then look for one
            raise SerializationError("Json: NaN and infinity are no JSON numbers")
        return data

    def decode(self, data: bytes) -> JsonValue:
        if len(data) > self._max_bytes:
            raise DeserializationError(f"Json: {len(data)} bytes, at most {self._max_bytes}")
        try:
            value: JsonValue = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise DeserializationError(f"Json: {error}") from error
        return value

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[JsonValue]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        return "Json()"


class _JsonRows(Json):
    """`Json` for rows."""

    def encode(self, value: JsonValue) -> bytes:
        data = super().encode(value)
        refuse_unlike(self, value)
        return data
