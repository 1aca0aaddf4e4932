"""Keys as Kafka Connect's converters write them, byte for byte: JSON, with and without schemas, and Avro of a registry."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from streamtable import Avro
from streamtable.errors import DeserializationError, GraphError, SerializationError
from streamtable_capture.rows import UNREADABLE, OneByOne

_ESCAPED = re.compile(r'["\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_INT64 = 1 << 63


def _escape(found: re.Match[str]) -> str:
    """Return a character as Jackson writes it: hexadecimal digits are capital, and pairs of surrogates are escaped."""
    character = found[0]
    if short := _SHORT.get(character):
        return short
    units = character.encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _text(value: str) -> str:
    return f'"{_ESCAPED.sub(_escape, value)}"'


def _int(value: int) -> str:
    if not -_INT64 <= value < _INT64:
        raise ValueError(f"{value} has more than 64 bits")
    return str(value)


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    int: _int,
    str: _text,
    bool: lambda value: "true" if value else "false",
    bytes: lambda value: f'"{b64encode(value).decode()}"',
    UUID: lambda value: f'"{value}"',
}


class ConnectKey(OneByOne[Any]):
    """The codec of keys that Kafka Connect writes: the columns of the primary key, in the order of the table.

    A key of one column is its value, a key of several columns is a tuple of their values. The bytes are those that Connect
    writes, so a lookup by key finds the row, in the partition where Connect has put it.

    Args:
        schema: The schema as Connect writes it before each key, with `key.converter.schemas.enable=true`; None: keys without
            schemas. `key_schema` makes it for columns without defaults; or take it from a key in the topic. With `framing`,
            the Avro schema of the keys as the registry has it.
        framing: `Confluent(registry, subject="shop.public.customers-key")` or another framing of `streamtable_codecs`, for keys in
            Avro; None: JSON. The subject is the raw topic's for all topics with these keys: the bytes name the schema.
        columns: The type of each column: `int`, `str`, `bool`, `bytes` or `UUID`.

    Raises:
        GraphError: There is no column, or one of another type; or a framing without a schema or a subject.

    Example:
        ConnectKey(id=int) writes 7 as {"id":7}
    """

    def __init__(self, *, schema: str | None = None, framing: Any = None, **columns: type) -> None:
        unknown = {name: kind for name, kind in columns.items() if kind not in _WRITERS}
        if not columns or unknown:
            kinds = ", ".join(kind.__name__ for kind in _WRITERS)
            raise GraphError(
                f"ConnectKey has {unknown or 'no columns'}: give each column of the primary key one of {kinds}"
            )
        if framing is not None and (schema is None or framing.subject is None):
            raise GraphError(
                "ConnectKey has a framing: give schema=, the Avro schema of the keys, and a framing with the subject of the raw "
                "topic's keys, as equal keys must be the same bytes in every topic"
            )
        self.columns, self.schema = dict(columns), schema
        self._avro: Avro[dict[str, Any]] | None = None if framing is None else Avro(schema or "", framing)
        self._single = len(columns) == 1
        self._names = [f"{_text(name)}:" for name in columns]
        self._writers = [_WRITERS[kind] for kind in columns.values()]
        self._before = "{" if schema is None else f'{{"schema":{schema},"payload":{{'
        self._after = "}" if schema is None else "}}"
        self._start = self._before[:-1].encode()
        fields = [(f"column_{number}", kind) for number, kind in enumerate(columns.values())]
        rename = {name: own for (name, _), own in zip(fields, columns, strict=True)}
        row = msgspec.defstruct("Key", fields, rename=rename, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(row)

    @property
    def key_form(self) -> str:
        """See `base.keys.form_of`: the names of the columns, and the schema in front of them."""
        return f"{list(self.columns)} {self.schema} {self._avro}"

    def encode(self, value: Any) -> bytes:
        values = (value,) if self._single else value
        try:
            if self._avro is not None:
                given = zip(self.columns.items(), values, strict=True)
                return self._avro.encode(
                    {name: _for_avro(part) for (name, kind), part in given if _is(part, kind)}
                )
            parts = zip(self._names, self._writers, self.columns.values(), values, strict=True)
            body = ",".join(name + write(part) for name, write, kind, part in parts if _is(part, kind))
            return f"{self._before}{body}{self._after}".encode()
        except (TypeError, ValueError, AttributeError) as error:
            raise SerializationError(f"{self!r}: {value!r:.100} is no such key: {error}") from error

    def decode(self, data: bytes) -> Any:
        if self._avro is not None:
            found = self._avro.decode(data)
            try:
                parts: list[Any] = [msgspec.convert(found[name], kind) for name, kind in self.columns.items()]
            except (KeyError, msgspec.ValidationError) as error:
                raise DeserializationError(f"{self!r}: {error!r} in {found!r:.100}") from error
            return parts[0] if self._single else tuple(parts)
        payload = data
        if self.schema is not None:
            if not data.startswith(self._start):
                raise DeserializationError(f"{self!r}: the key has no schema, or another one: {data[:300]!r}")
            payload = data[len(self._start) : -1]
        elif data.startswith(b'{"schema"'):
            raise DeserializationError(
                f"{self!r}: the key has a schema: give it as schema=, or set key.converter.schemas.enable=false: {data[:300]!r}"
            )
        return self._key(payload)

    def decode_header(self, data: bytes) -> Any:
        """Decode a key in a header of a change of the primary key, which has no schema in any format. Raises as `decode`."""
        return self._key(data)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}={kind.__name__}" for name, kind in self.columns.items())
        given = "" if self.schema is None else ", schema=..." if self._avro is None else ", framing=..."
        return f"ConnectKey({columns}{given})"

    def _key(self, payload: bytes) -> Any:
        try:
            key = msgspec.structs.astuple(self._decoder.decode(payload))
        except UNREADABLE as error:
            raise DeserializationError(f"{self!r}: {error} in {payload[:100]!r}") from error
        return key[0] if self._single else key


def _for_avro(part: Any) -> Any:
    return str(part) if isinstance(part, UUID) else part


def key_schema(name: str, **columns: str) -> str:
    """Return the schema of a key as Connect writes it, for columns without defaults.

    Args:
        name: The name of the schema: the topic with `.Key`, as in `shop.public.customers.Key`.
        columns: Connect's type of each column: `int16`, `int32`, `int64`, `string`, `boolean` or `bytes`.
    """
    fields = ",".join(
        f'{{"type":{_text(kind)},"optional":false,"field":{_text(column)}}}'
        for column, kind in columns.items()
    )
    return f'{{"type":"struct","fields":[{fields}],"optional":false,"name":{_text(name)}}}'


def _is(value: object, kind: type) -> bool:
    """Return True. Raises `TypeError` for a value of another type: True is no number here."""
    if type(value) is not kind and (kind in {int, bool} or not isinstance(value, kind)):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return True
