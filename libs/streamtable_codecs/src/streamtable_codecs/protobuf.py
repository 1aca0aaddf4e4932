"""The codec of Protobuf messages."""

import json
from collections.abc import Sequence
from copy import copy
from typing import Any, Generic, Literal, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, EncodeError, Message

from exactjson import unreadable
from streamtable import Decoded, Plain, decode_each
from streamtable.base.evolution import marked
from streamtable.errors import ConfigurationError, DeserializationError, SerializationError
from streamtable_codecs import messages
from streamtable_codecs.framing import Confluent

M = TypeVar("M", bound=Message)

_FIRST = b"\x00"
"""The short form of the place of a file's first message."""
_DEPTH_MAX = 32
_VARINT_BYTES_MAX = 5


class Protobuf(Generic[M]):
    """A codec of Protobuf messages of a generated class. Fields that the class does not know are kept.

    The fields of a state's rows are recorded by their numbers; a program whose class reads another value from the same bytes, or
    needs a field that rows may lack, stops at its start, with `StateMeaningChanged`.

    As the codec of keys it writes equal messages as the same bytes; a message with floats, whose equal values may differ, is
    refused. Rows of such keys are asked for one by one: messages cannot be the keys of a dict.

    Args:
        message: The generated class.
        framing: `Plain()` (default), or `Confluent(registry)`: 00, the id of the schema, the place of the message in its file
            as zig-zag varints (00 for the first message), then the message.
        max_bytes: The largest message that is decoded; larger ones are poison.

    Raises:
        ConfigurationError: The framing has no form for Protobuf.
    """

    def __init__(
        self, message: type[M], framing: Plain | Confluent | None = None, *, max_bytes: int = 10_000_000
    ) -> None:
        framing = framing or Plain()
        if not isinstance(framing, Plain | Confluent):
            raise ConfigurationError(
                f"Protobuf: {type(framing).__name__} has no form for it: use Plain() or Confluent(...)"
            )
        self.message, self.framing = message, framing
        self._descriptor = cast("Descriptor", message.DESCRIPTOR)
        self._parse = message.FromString
        self._required = _has_required(self._descriptor, set())
        self._max_bytes = max_bytes
        self._deterministic = False
        self._prefix: bytes | None = b"" if isinstance(framing, Plain) else None
        self._known: dict[
            bytes, str
        ] = {}  # prefixes, with the place: why they cannot be read, "" if they can
        self._files: dict[bytes, tuple[str, list[messages.PlacedMessage]]] = {}  # by the prefix of the id
        self._of_topic: dict[Confluent, Protobuf[M]] = {}

    @property
    def title(self) -> str:
        """The name of the message."""
        return self._descriptor.name

    def plain(self, value: M) -> Any:
        """See `ports.ShownValues`."""
        return MessageToDict(value, preserving_proto_field_name=True)

    @property
    def recorded(self) -> str:
        """See `ports.EvolvingRows`. The numbers of fields and their types are recorded; of keys no change is accepted."""
        shape = messages.shape_of(self._descriptor)
        return f"Protobuf key {json.dumps(shape)}" if self._deterministic else f"Protobuf{marked(shape)}"

    @property
    def definition(self) -> Any:
        """The schema as it is registered."""
        return messages.definition_of(self._descriptor.file, self._descriptor.full_name)

    def for_keys(self) -> "Protobuf[M]":
        """See `ports.CanonicalKeys`. Raises `ConfigurationError` for a message with floats."""
        if place := _float_in(self._descriptor, ()):
            raise ConfigurationError(
                f"{self!r} cannot be the codec of a key: equal values of {place} may have different bytes"
            )
        made = copy(self)
        made._deterministic = True  # noqa: SLF001 - its own copy
        made._of_topic = {}  # noqa: SLF001
        return made

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> "Protobuf[M]":
        """See `ports.TopicCodec`."""
        if isinstance(self.framing, Plain):
            return self
        framing = self.framing.for_topic(topic, part)
        if framing == self.framing:
            return self
        bound = self._of_topic.get(framing)
        if bound is None:
            bound = self._of_topic[framing] = copy(self)
            bound.framing, bound._prefix = framing, None  # noqa: SLF001 - its own copy
        return bound

    def encode(self, value: M) -> bytes:
        """See `ports.Codec`. With `Confluent` framing, the first call may also raise the errors of the registry."""
        if not isinstance(value, self.message):
            raise SerializationError(f"{self.title}: expected {self.title}, got {type(value).__name__}")
        prefix = self._prefix
        if prefix is None:
            assert isinstance(self.framing, Confluent), "Plain has a prefix from the start"
            prefix = self._prefix = self.framing.header(self.definition) + written_place(
                messages.place_of(self._descriptor)
            )
        try:
            return prefix + value.SerializeToString(deterministic=self._deterministic)
        except (EncodeError, ValueError) as error:
            raise SerializationError(f"{self.title}: {error}") from error

    def decode(self, data: bytes) -> M:
        """See `ports.Codec`."""
        if len(data) > self._max_bytes:
            raise DeserializationError(f"{self.title}: {len(data)} bytes, at most {self._max_bytes}")
        try:
            value = self._parse(self._body(data))
        except DecodeError as error:
            raise DeserializationError(
                f"{self.title}: not such a message: {error} ({len(data)} bytes)"
            ) from error
        if self._required and not value.IsInitialized():
            missing = ", ".join(cast("Any", value).FindInitializationErrors())
            raise DeserializationError(f"{self.title}: required fields are missing: {missing}")
        return value

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[M]:
        """See `ports.Codec`."""
        return decode_each(self.decode, data)

    def _body(self, data: bytes) -> bytes:
        """Return the message without its prefix. Raises `DeserializationError`, `RetryLater`."""
        framing = self.framing
        if isinstance(framing, Plain):
            return data
        size = framing.size
        if (
            self._known.get(data[: size + 1]) == ""
        ):  # the short form: most messages are the first of their file
            return data[size + 1 :]
        place, end = read_place(data, size) if len(data) > size else ((), size)
        prefix = data[:end]
        if prefix not in self._known:
            self._known[prefix] = self._writer_fault(framing, data[:size], place)
        if reason := self._known[prefix]:
            raise DeserializationError(reason)
        return data[end:]

    def _writer_fault(self, framing: Confluent, prefix: bytes, place: tuple[int, ...]) -> str:
        """Return why records written as the message at a place cannot be read; "" if it can.

        Raises:
            DeserializationError: The prefix names no message, or another one.
        """
        number, found = framing.registered(prefix, "PROTOBUF")
        file = self._files.get(prefix)
        if file is None:
            try:
                file = self._files[prefix] = messages.messages_in(found.text)
            except ValueError as error:
                raise DeserializationError(f"schema id {number}: {error}") from error
        try:
            name, _ = messages.message_at(*file, place)
        except IndexError:
            raise DeserializationError(
                f"schema id {number} has no message at the place {list(place)}"
            ) from None
        expected = self._descriptor.full_name
        if name != expected:
            raise DeserializationError(
                f"schema id {number}, place {list(place)}: a message {name}, not {expected}"
            )
        written = messages.shape_in_file(*file, name)
        reason = unreadable(written, messages.shape_of(self._descriptor)) if written else ""
        return reason and f"{self.title} by schema id {number} cannot be read, by numbers of fields: {reason}"

    def __repr__(self) -> str:
        return f"Protobuf({self._descriptor.full_name}, {type(self.framing).__name__})"


def written_place(place: tuple[int, ...]) -> bytes:
    """Return the place of a message as it stands before it: its length and indexes as zig-zag varints, or 00 for the first."""
    if place == (0,):
        return _FIRST
    made = bytearray()
    for number in (len(place), *place):
        rest = number << 1
        while rest > 0x7F:  # noqa: PLR2004 - seven bits in a byte
            made.append(rest & 0x7F | 0x80)
            rest >>= 7
        made.append(rest)
    return bytes(made)


def read_place(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the place of a message that begins at `start`, and its end. Raises `DeserializationError`."""
    count, end = _varint(data, start)
    if count == 0:
        return (0,), end
    if not 0 < count <= _DEPTH_MAX:
        raise DeserializationError(f"not the place of a message: it has {count} indexes")
    place = []
    for _ in range(count):
        index, end = _varint(data, end)
        place.append(index)
    return tuple(place), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for count, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            return (number >> 1) ^ -(number & 1), at + count + 1
    raise DeserializationError(
        f"not the place of a message: {data[at : at + _VARINT_BYTES_MAX].hex() or 'nothing'}"
    )


def _has_required(message: Descriptor, seen: set[str]) -> bool:
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        each.is_required or (each.message_type is not None and _has_required(each.message_type, seen))
        for each in message.fields
    )


def _float_in(message: Descriptor, inside: tuple[str, ...]) -> str:
    """Return the first field that holds floats, also in the messages of fields; "" if there is none."""
    for each in message.fields:
        if each.type in {FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE}:
            return str(each.full_name)
        inner = each.message_type
        if inner is not None and inner.full_name not in inside:
            found = _float_in(inner, (*inside, message.full_name))
            if found:
                return found
    return ""
