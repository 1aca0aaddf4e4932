"""Keys of windowed tables: a key and its window, in the bytes that Kafka Streams writes and reads."""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from streamtable.decoding import decode_each
from streamtable.errors import DeserializationError, GraphError, SerializationError
from streamtable.ports import Codec, Decoded
from streamtable.state import codec_name

K = TypeVar("K")

START = Struct(">q")
"""The start of a window behind the bytes of the key, as in Kafka Streams' time-windowed keys."""
END_START = Struct(">qq")
"""The end and the start of a session behind the bytes of the key, as in Kafka Streams' session keys."""


class Windowed(NamedTuple, Generic[K]):
    """A key in a window.

    Attributes:
        key: The key of the records.
        start_ms: The first millisecond of the window, since 1970.
        end_ms: The end of the window: the first millisecond after a tumbling or hopping window; of a sliding window and of
            a session the last millisecond that belongs to it.
    """

    key: K
    start_ms: int
    end_ms: int


class WindowedKey(Generic[K]):
    """A codec of windowed keys: the bytes of the key, then the start of the window as 8 bytes, big-endian.

    Kafka Streams writes the keys of its tumbling, hopping and sliding windows in this way. The end is not written: as with
    its `TimeWindowedSerde`, the reader has to know the size.

    Args:
        key: The codec of the keys.
        size_ms: The milliseconds from the start of a window to its end.
    """

    def __init__(self, key: Codec[K], size_ms: int) -> None:
        self.key = key
        self.size_ms = size_ms

    def encode(self, value: Windowed[K]) -> bytes:
        key, start, _ = _parts(value)
        return self.key.encode(key) + _packed(START, start)

    def decode(self, data: bytes) -> Windowed[K]:
        (start,) = _unpacked(START, data)
        return Windowed(self.key.decode(data[: -START.size]), start, start + self.size_ms)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[Windowed[K]]:
        return decode_each(self.decode, data)

    def inner(self, data: bytes) -> bytes:
        return data[: -START.size]

    def bounds(self, key: K, since_ms: int, until_ms: int) -> tuple[bytes, bytes]:
        data = self.key.encode(key)
        return data + _packed(START, max(0, since_ms - self.size_ms)), data + _packed(START, until_ms)

    def overlaps(self, data: bytes, since_ms: int, until_ms: int) -> bool:
        (start,) = _unpacked(START, data)
        return start < until_ms and start + self.size_ms > since_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WindowedKey) and (self.key, self.size_ms) == (other.key, other.size_ms)

    def __hash__(self) -> int:
        return hash((type(self.key), self.size_ms))

    def __repr__(self) -> str:
        return f"WindowedKey({codec_name(self.key)}, {self.size_ms})"


class SessionKey(Generic[K]):
    """A codec of session keys: the bytes of the key, then end and start of the session as 8 bytes each, big-endian.

    This is how Kafka Streams writes the keys of its session windows.

    Args:
        key: The codec of the keys.
    """

    def __init__(self, key: Codec[K]) -> None:
        self.key = key

    def encode(self, value: Windowed[K]) -> bytes:
        key, start, end = _parts(value)
        return self.key.encode(key) + _packed(END_START, end, start)

    def decode(self, data: bytes) -> Windowed[K]:
        end, start = _unpacked(END_START, data)
        return Windowed(self.key.decode(data[: -END_START.size]), start, end)

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[Windowed[K]]:
        return decode_each(self.decode, data)

    def inner(self, data: bytes) -> bytes:
        return data[: -END_START.size]

    def bounds(self, key: K, since_ms: int, until_ms: int) -> tuple[bytes, bytes]:  # noqa: ARG002 - ends come first
        data = self.key.encode(key)
        return data + _packed(END_START, max(0, since_ms), 0), data + b"\x80"

    def overlaps(self, data: bytes, since_ms: int, until_ms: int) -> bool:
        end, start = _unpacked(END_START, data)
        return start < until_ms and end >= since_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionKey) and self.key == other.key

    def __hash__(self) -> int:
        return hash((SessionKey, type(self.key)))

    def __repr__(self) -> str:
        return f"SessionKey({codec_name(self.key)})"


def _parts(value: Any) -> "Windowed[Any]":
    if not isinstance(value, Windowed):
        raise SerializationError(
            f"{value!r} is no key of a windowed table: give Windowed(key, start_ms, end_ms), the key with its window"
        )
    return value


def _packed(layout: Struct, *times: int) -> bytes:
    if not all(0 <= time < 1 << 63 for time in times):
        raise SerializationError(f"a window from {times!r}: give milliseconds since 1970")
    return layout.pack(*times)


def _unpacked(layout: Struct, data: bytes) -> tuple[int, ...]:
    if len(data) < layout.size:
        raise DeserializationError(f"a windowed key of {len(data)} bytes: it has at least {layout.size}")
    times = layout.unpack_from(data, len(data) - layout.size)
    if min(times) < 0:
        raise DeserializationError(
            f"a windowed key with the time {min(times)}: a window begins at 0 or later"
        )
    return times


def is_windowed(key: Codec[Any]) -> bool:
    """Whether the keys are of windows."""
    return isinstance(key, WindowedKey | SessionKey)


def check_both_windowed(operator: str, left: Codec[Any], right: Codec[Any]) -> None:
    """Raise `GraphError` if only one side of a join has keys of windows: nothing would ever match."""
    if is_windowed(left) != is_windowed(right):
        raise GraphError(f"{operator} of keys of windows with keys without: none of them would match")
