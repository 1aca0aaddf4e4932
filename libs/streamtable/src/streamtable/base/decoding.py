"""Codecs that decode item by item."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar

from streamtable.base.ports import Codec, Decoded, EvolvingRows, ExactRows, VersionedKeys
from streamtable.errors import DeserializationError, UnreadableRow

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


def decoded(codec: Codec[T], data: bytes, table: str, partition: int, key: bytes) -> T:
    """Return the key or the value of a row. Raises `UnreadableRow`, with the place of the row."""
    try:
        return codec.decode(data)
    except DeserializationError as error:
        raise UnreadableRow(error.message, key=key, topic=table, partition=partition) from error


def row_codec(codec: Codec[T]) -> Codec[T]:
    """Return the codec that writes no value which it would read as another one."""
    return codec.for_rows() if isinstance(codec, ExactRows) else codec


def codec_name(codec: Codec[Any]) -> str:
    """Return the text that is recorded for a codec: with its schema, or its own if that is the same in each process."""
    if isinstance(codec, EvolvingRows):
        return codec.recorded
    return type(codec).__name__ if type(codec).__repr__ is object.__repr__ else repr(codec)


def key_codec_name(key: Codec[Any]) -> str:
    """Return the text that is recorded for the codec of keys."""
    return key.recorded_key if isinstance(key, VersionedKeys) else codec_name(key)


def codecs_name(key: Codec[Any], value: Codec[Any]) -> str:
    """Return the text that is recorded for the codecs of rows or records."""
    return f"{key_codec_name(key)} to {codec_name(value)}"


class ItemCodec(ABC, Generic[T]):
    """A codec that decodes item by item. Its subclasses are dataclasses with `repr=False`, and are named by their fields."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """Decode an item. Raises `DeserializationError`."""

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        return decode_each(self.decode, data)

    def __repr__(self) -> str:
        parts = (codec_name(getattr(self, each.name)) for each in fields(self) if each.repr)  # type: ignore[arg-type] # as above
        return f"{type(self).__name__}({', '.join(parts)})"
