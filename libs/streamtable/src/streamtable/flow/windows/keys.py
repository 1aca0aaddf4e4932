"""Keys of windowed tables: a key and its window, in the bytes that Kafka Streams writes and reads."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from struct import Struct
from typing import Any, Generic, NamedTuple, Self, TypeVar, get_origin

from streamtable.base.decoding import ItemCodec
from streamtable.base.keys import canonical, form_of
from streamtable.base.no_key import NoKey
from streamtable.base.ports import Codec
from streamtable.codec import Avro, Bytes, Json, Long, String, Typed
from streamtable.errors import DeserializationError, GraphError, SerializationError
from streamtable.flow.windows.zone_days import ZoneDays

K = TypeVar("K")

START = Struct(">q")
"""The start of a window behind the bytes of the key, as in Kafka Streams' time-windowed keys."""
END_START = Struct(">qq")
"""The end and the start of a session behind the bytes of the key, as in Kafka Streams' session keys."""
_BEHIND_ALL = b"\xff" * (START.size + 1)


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


@dataclass(frozen=True, repr=False)
class StartKey(ItemCodec[Windowed[K]]):
    """A codec of the keys of windows whose end follows from their start: the key's bytes, then the start as 8 bytes, big-endian.

    Kafka Streams writes the keys of its tumbling, hopping and sliding windows in this way. The end is not written: as with
    its `TimeWindowedSerde`, the reader has to know it. A start before 1970 is a negative number, in two's complement.
    """

    key: Codec[K]

    @abstractmethod
    def end_of(self, start: int) -> int:
        """Return the end of the window that begins at this time."""

    @property
    @abstractmethod
    def longest_ms(self) -> int:
        """The milliseconds that a window has at most."""

    def for_keys(self) -> Self:
        return replace(self, key=canonical(self.key))

    def encode(self, value: Windowed[K]) -> bytes:
        key, start, _ = _parts(value)
        if not -self.longest_ms <= start < 1 << 63:
            raise SerializationError(
                f"a window from {start}: give milliseconds since 1970; a window that begins before ends after"
            )
        return self.key.encode(key) + START.pack(start)

    def decode(self, data: bytes) -> Windowed[K]:
        start = self._start(data)
        return Windowed(self.key.decode(data[: -START.size]), start, self.end_of(start))

    def inner(self, data: bytes) -> bytes:
        return data[: -START.size]

    def bounds(self, key: K, since_ms: int, until_ms: int) -> tuple[bytes, bytes]:
        data, first = self.key.encode(key), since_ms - self.longest_ms
        if first < 0:  # negative starts are behind all others
            return data + START.pack(0), data + _BEHIND_ALL
        return data + START.pack(first), data + START.pack(until_ms)

    def overlaps(self, data: bytes, since_ms: int, until_ms: int) -> bool:
        start = self._start(data)
        return start < until_ms and self.end_of(start) > since_ms

    def _start(self, data: bytes) -> int:
        if len(data) < START.size:
            raise DeserializationError(f"a windowed key of {len(data)} bytes, at least {START.size}")
        start: int = START.unpack_from(data, len(data) - START.size)[0]
        if start < -self.longest_ms:
            raise DeserializationError(f"a windowed key of time {start}: the window would end before 1970")
        return start


@dataclass(frozen=True, repr=False)
class WindowedKey(StartKey[K]):
    """A codec of the keys of windows of a fixed size: the bytes of the key, then the start of the window. See `StartKey`.

    Args:
        key: The codec of the keys.
        size_ms: The milliseconds from the start of a window to its end.
        inclusive: Whether the end belongs to the window, as in sliding windows. It is not in the bytes: `View.windows` looks at it.
    """

    size_ms: int
    inclusive: bool = field(default=False, kw_only=True, repr=False, compare=False)

    def end_of(self, start: int) -> int:
        return start + self.size_ms

    def overlaps(self, data: bytes, since_ms: int, until_ms: int) -> bool:
        return super().overlaps(data, since_ms - self.inclusive, until_ms)

    @property
    def longest_ms(self) -> int:
        return self.size_ms


@dataclass(frozen=True, repr=False)
class DayWindowKey(StartKey[K]):
    """A codec of the keys of windows of days in a time zone, as `Tumbling(days=, zone=)` makes them. See `StartKey`.

    Args:
        key: The codec of the keys.
        days: The number of days of a window.
        zone: The name of the time zone. A window ends with its last day there.
    """

    days: int
    zone: str

    @cached_property
    def _zone_days(self) -> ZoneDays:
        return ZoneDays(self.days, self.zone)

    def end_of(self, start: int) -> int:
        return self._zone_days.end_of(start)

    @property
    def longest_ms(self) -> int:
        return self._zone_days.longest_ms


@dataclass(frozen=True, repr=False)
class SessionKey(ItemCodec[Windowed[K]]):
    """A codec of session keys: the bytes of the key, then end and start of the session as 8 bytes each, big-endian.

    This is how Kafka Streams writes the keys of its session windows.

    Args:
        key: The codec of the keys.
    """

    key: Codec[K]

    def for_keys(self) -> Self:
        return replace(self, key=canonical(self.key))

    def encode(self, value: Windowed[K]) -> bytes:
        key, start, end = _parts(value)
        return self.key.encode(key) + _packed(end, start)

    def decode(self, data: bytes) -> Windowed[K]:
        end, start = _unpacked(data)
        return Windowed(self.key.decode(data[: -END_START.size]), start, end)

    def inner(self, data: bytes) -> bytes:
        return data[: -END_START.size]

    def bounds(self, key: K, since_ms: int, until_ms: int) -> tuple[bytes, bytes]:  # noqa: ARG002 - ends come first
        data = self.key.encode(key)
        return data + _packed(max(0, since_ms), 0), data + b"\x80"

    def overlaps(self, data: bytes, since_ms: int, until_ms: int) -> bool:
        end, start = _unpacked(data)
        return start < until_ms and end >= since_ms


def _parts(value: Any) -> "Windowed[Any]":
    if not isinstance(value, Windowed):
        raise SerializationError(
            f"{value!r} is no key of a windowed table: give Windowed(key, start_ms, end_ms), the key with its window"
        )
    return value


def _packed(end: int, start: int) -> bytes:
    if not (0 <= end < 1 << 63 and 0 <= start < 1 << 63):
        raise SerializationError(f"a session from {start} to {end}: give milliseconds since 1970")
    return END_START.pack(end, start)


def _unpacked(data: bytes) -> tuple[int, int]:
    if len(data) < END_START.size:
        raise DeserializationError(f"the key of a session has {len(data)} bytes, at least {END_START.size}")
    end, start = END_START.unpack_from(data, len(data) - END_START.size)
    if end < 0 or start < 0:
        raise DeserializationError(
            f"the key of a session with the time {min(end, start)}: a session begins at 0 or later"
        )
    return end, start


def check_matching(operator: str, left: Codec[Any], right: Codec[Any]) -> None:
    """Raise `GraphError` if no key of one side can have the bytes of a key of the other: nothing would ever match."""
    if form_of(left) != form_of(right):
        apart = isinstance(left, _KEYS) is not isinstance(right, _KEYS)
        by = f": {_TAKEN_OUT}, value=codec).repartition(name" if apart else " by key_by(name, ..."
        raise GraphError(
            f"{operator} of keys by {left!r} with keys by {right!r}: equal keys have different bytes, and none of them would "
            f"match. Give one side the keys of the other{by}, key=codec, beside=other)"
        )


def check_written(operator: str, made: Codec[Any] | None, written: Codec[Any] | None) -> None:
    """Raise `GraphError` if a codec cannot write the keys, or those of windows would be read as the keys of other ones.

    The ends of windows are not in the bytes. A codec of the program may do with them as it likes.
    """
    if type(made) in _STRICT and type(written) in {NoKey, *_STRICT} - {type(made)}:
        raise GraphError(
            f"{operator}: {written!r} cannot write the keys by {made!r}: give the topic the key {made!r}"
        )
    if isinstance(made, _KEYS) and not _writes(made, written):
        raise GraphError(
            f"{operator}: {written!r} cannot write keys with windows, by {made!r}: give the topic the key {made!r}, or {_TAKEN_OUT})"
        )
    if _windows_of(made, written) != written:
        raise GraphError(
            f"{operator}: readers would get other windows, by {written!r} from keys by {made!r}: give the topic the key {made!r}"
        )


_KEYS = StartKey, SessionKey
_TAKEN_OUT = "take the key out of its window by map(lambda key, value: (key.key, value)"
_STRICT: Mapping[Any, tuple[object, str]] = {
    Bytes: (bytes, "bytes"),
    Long: (int, "long"),
    String: (str, "string"),
}
"""Codecs that write keys of one kind, with the Python type and the Avro type of these."""


def _writes(made: Any, written: Any) -> bool:
    """Whether a codec can write keys with windows; of one that is not the library's own, nothing is known."""
    if isinstance(written, _KEYS):
        return _writes(made.key, written.key) if isinstance(made, _KEYS) else _writes_plain(made, written)
    if not isinstance(made, _KEYS):
        return _writes_plain(made, written)
    if isinstance(written, Typed):  # of `Windowed` itself, it can
        return (get_origin(written.kind) or written.kind) in Windowed.__mro__
    return type(written) not in {Avro, Json, NoKey, *_STRICT}


def _writes_plain(made: Any, written: Any) -> bool:
    if type(made) not in _STRICT:
        return True
    python, avro = _STRICT[type(made)]
    if isinstance(written, Typed):
        return written.kind is python
    if isinstance(written, Avro):
        return bool(written.schema.tree == avro)
    return type(made) is type(written) or type(written) not in {NoKey, *_STRICT}


def _windows_of(made: Any, written: Any) -> Any:
    """Return a codec of keys in the windows of the one, and in the windows of their own that these keys may have."""
    if isinstance(made, _KEYS) and isinstance(written, _KEYS):
        return replace(made, key=_windows_of(made.key, written.key))
    return written
