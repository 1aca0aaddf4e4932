"""The bytes between a registry's prefix and a Protobuf message, which say which message of its file it is.

Confluent writes the message's place in the file, AWS Glue its number among all messages of the file by name, and Apicurio its
name.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from google.protobuf.descriptor import Descriptor

from streamtable.errors import ConfigurationError, DeserializationError
from streamtable_codecs.messages import PlacedMessage, all_messages, message_at, place_of

_FIRST = b"\x00"
"""Confluent's short form of the place of a file's first message."""
_DEPTH_MAX = 32
_VARINT_BYTES_MAX = 5
_NAME_TAG = 0x0A
"""The first byte of Apicurio's message that holds a name: field 1, of a length."""


class Places(Protocol):
    """The form in which a framing names a message of a file."""

    def written(self, message: Descriptor) -> bytes:
        """Return the bytes that name a message. Raises `ConfigurationError` if the framing cannot name it."""

    def end(self, data: bytes, start: int) -> int:
        """Return the end of the bytes that begin at `start`. Raises `DeserializationError`."""

    def name(self, place: bytes, package: str, messages: Sequence[PlacedMessage]) -> str:
        """Return the full name of the message that these bytes name in a file.

        Raises:
            IndexError: The file has no such message; its text says which.
            DeserializationError: The bytes have not this form.
        """


class Indexes:
    """Confluent's: the number of indexes, and the indexes, as zig-zag varints; 00 for the first message."""

    def written(self, message: Descriptor) -> bytes:
        place = place_of(message)
        return _FIRST if place == (0,) else b"".join(_written(each << 1) for each in (len(place), *place))

    def end(self, data: bytes, start: int) -> int:
        return self._read(data, start)[1]

    def name(self, place: bytes, package: str, messages: Sequence[PlacedMessage]) -> str:
        indexes, _ = self._read(place, 0)
        try:
            return message_at(package, messages, indexes)[0]
        except IndexError:
            raise IndexError(f"at the place {indexes}") from None

    def _read(self, data: bytes, start: int) -> tuple[list[int], int]:
        count, end = _zigzag(data, start)
        if count == 0:
            return [0], end
        if not 0 < count <= _DEPTH_MAX:
            raise DeserializationError(f"not the place of a message: it has {count} indexes")
        place = []
        for _ in range(count):
            index, end = _zigzag(data, end)
            place.append(index)
        return place, end


class Numbers:
    """AWS Glue's: the number of the message as a varint, among all of the file in the order of their full names."""

    def written(self, message: Descriptor) -> bytes:
        names = sorted(_names(message.file.message_types_by_name.values()))
        return _written(names.index(message.full_name))

    def end(self, data: bytes, start: int) -> int:
        return _varint(data, start)[1]

    def name(self, place: bytes, package: str, messages: Sequence[PlacedMessage]) -> str:
        number, names = _varint(place, 0)[0], sorted(name for name, _ in all_messages(package, messages))
        if number >= len(names):
            raise IndexError(f"of the number {number}")
        return names[number]


class Names:
    """Apicurio's: a message with the name as its field 1, behind its length. Messages inside of others have no such name."""

    def written(self, message: Descriptor) -> bytes:
        if message.containing_type is not None:
            raise ConfigurationError(
                f"Apicurio: cannot name {message.full_name}, which is inside of another message: move it to the file's top level"
            )
        name = message.name.encode()
        named = bytes([_NAME_TAG]) + _written(len(name)) + name
        return _written(len(named)) + named

    def end(self, data: bytes, start: int) -> int:
        size, begin = _varint(data, start)
        if size > len(data) - begin:
            raise DeserializationError(
                f"not the name of a message: {size} bytes, with {len(data) - begin} left"
            )
        return begin + size

    def name(self, place: bytes, package: str, messages: Sequence[PlacedMessage]) -> str:
        _, begin = _varint(place, 0)
        if place[begin : begin + 1] != bytes([_NAME_TAG]):
            raise DeserializationError(f"not the name of a message: {place[begin:].hex() or 'nothing'}")
        size, at = _varint(place, begin + 1)
        name = place[at:].decode(errors="replace")
        if size != len(place) - at or name not in {each.name for each in messages}:
            raise IndexError(f"of the name {name[:100]!r} at its top level")
        return f"{package}.{name}" if package else name


def _names(messages: Iterable[Descriptor]) -> list[str]:
    return [name for each in messages for name in (each.full_name, *_names(each.nested_types))]


def _written(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits in a byte
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, end = _varint(data, at)
    return (number >> 1) ^ -(number & 1), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for count, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            return number, at + count + 1
    raise DeserializationError(
        f"not the place of a message: {data[at : at + _VARINT_BYTES_MAX].hex() or 'nothing'}"
    )
