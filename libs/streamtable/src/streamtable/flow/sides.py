"""Rows of several encoded parts, as joins and sliding windows keep them, and the codecs of messages between joined tables."""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from streamtable.base.decoding import ItemCodec
from streamtable.errors import DeserializationError

_LENGTH = Struct(">i")
_NONE = -1
_NO_PART = _LENGTH.pack(_NONE)
Part = bytes | None


class Sides(NamedTuple):
    """The rows of one key in both tables, encoded, so that earlier steps cannot change them in place.

    Attributes:
        left: The row of the left table; None if there is none.
        right: The row of the right table; None if there is none.
    """

    left: Part
    right: Part


class SidesCodec(ItemCodec[Sides]):
    """The codec of `Sides`.

    Args:
        codecs: The identifiers of the codecs of both sides.
    """

    def __init__(self, *codecs: str) -> None:
        self._codecs = codecs

    def encode(self, value: Sides) -> bytes:
        return packed(value)

    def decode(self, data: bytes) -> Sides:
        left, right = unpacked(data, 2)
        return Sides(left, right)

    def __repr__(self) -> str:
        return f"SidesCodec({', '.join(self._codecs)})"


def packed(parts: Sequence[Part]) -> bytes:
    """Encode parts; each may be None."""
    pieces: list[bytes] = []
    for part in parts:
        pieces += (_NO_PART,) if part is None else (_LENGTH.pack(len(part)), part)
    return b"".join(pieces)


def unpacked(data: bytes, count: int, least: int | None = None) -> list[Part]:
    """Decode parts.

    Args:
        data: The encoded parts.
        count: Their number.
        least: The minimum number of parts; missing ones are None. None: all parts are required.

    Raises:
        DeserializationError: The data is something else.
    """
    parts: list[Part] = []
    at = 0
    for number in range(count):
        if at == len(data) and least is not None and number >= least:
            return [*parts, *[None] * (count - number)]
        if len(data) < at + _LENGTH.size:
            raise DeserializationError(f"a row of several parts ends after {len(data)} bytes")
        length: int = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        if not _NONE <= length <= len(data) - at:
            raise DeserializationError(
                f"a row of several parts ends after {len(data)} bytes, within a part of {length}"
            )
        parts.append(None if length == _NONE else data[at : at + length])
        at += max(length, 0)
    if at < len(data):
        raise DeserializationError(f"a row of several parts has {len(data) - at} bytes after its parts")
    return parts
