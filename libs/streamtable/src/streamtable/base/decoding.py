"""Decoding of columns, for codecs that decode item by item."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from streamtable.base.ports import Decoded
from streamtable.errors import DeserializationError

T = TypeVar("T")


def decode_each(decode: Callable[[bytes], T], data: Sequence[bytes | None]) -> Decoded[T]:
    """Decode a column item by item, for codecs that have no faster way; poison stays with its index."""
    values: list[T | None] = []
    poison: dict[int, DeserializationError] = {}
    for index, item in enumerate(data):
        try:
            values.append(None if item is None else decode(item))
        except DeserializationError as error:
            values.append(None)
            poison[index] = error
    return Decoded(values, poison)
