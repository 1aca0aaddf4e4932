"""Joins of streams as pure parts: which records match, until when, and how waiting records are stored.

All times are milliseconds since 1970.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from struct import Struct
from typing import Any, Literal, NamedTuple

from streamtable.base.decoding import ItemCodec, codec_name, row_codec
from streamtable.base.ports import Codec
from streamtable.errors import DeserializationError, Fatal, GraphError
from streamtable.flow.checks import LONGEST, check_duration

_MS = timedelta(milliseconds=1)

Side = Literal[0, 1]
LEFT: Side = 0
RIGHT: Side = 1

Within = timedelta | tuple[timedelta, timedelta]
"""The distances that a right record may be before and after a left record; a single duration applies to both."""


def other_side(side: Side) -> Side:
    """Return the side that records of this one are joined with."""
    return RIGHT if side == LEFT else LEFT


@dataclass(frozen=True)
class Bounds:
    """The bounds of a join of two streams: the times that match, and the grace for late records.

    A left record at time t matches the right records from t - before to t + after, both inclusive. One of the two bounds
    may be negative if their sum is not.

    The window of a record is closed for a record of the other stream if the input of that record has passed the end of the
    window and the grace. This depends on that input only, so the result is the same in whichever order the inputs are read.

    Args:
        before_ms: How many milliseconds a right record may be before a left record.
        after_ms: How many milliseconds a right record may be after a left record.
        grace_ms: The additional milliseconds that a record's window stays open for late records.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    def of(cls, within: Within, grace: timedelta) -> "Bounds":
        """Return the bounds of these arguments. Raises `GraphError`: they cannot be ones."""
        pair: tuple[timedelta, ...] = within if isinstance(within, tuple) else (within, within)
        if len(pair) != 2:  # noqa: PLR2004 - a pair
            raise GraphError(f"a join has within={within!r}: give one timedelta, or a pair: before and after")
        for each in pair:
            check_duration(each, "a join has within", -LONGEST)
        check_duration(grace, "a join has grace")
        before, after = pair
        if before + after < timedelta(0):
            raise GraphError(
                f"a join has within={within!r}: nothing can match, as the sum of both bounds is negative"
            )
        return cls(before // _MS, after // _MS, grace // _MS)

    @property
    def meaning(self) -> str:
        """The meaning of the rows of the join, with their time of expiry. It is recorded with the state table."""
        return f"within {self.before_ms} ms before and {self.after_ms} ms after, with a grace of {self.grace_ms} ms"

    def matching(self, side: Side, time: int) -> tuple[int, int]:
        """Return the first and the last time of matching records of the other stream."""
        if side == LEFT:
            return time - self.before_ms, time + self.after_ms
        return time - self.after_ms, time + self.before_ms

    def all_matching(self, side: Side, times: Sequence[int]) -> list[tuple[int, int]]:
        """Return the spans of time of the other stream's records that match any of these, in order and apart."""
        spans: list[tuple[int, int]] = []
        for time in sorted(times):
            since, until = self.matching(side, time)
            if spans and since <= spans[-1][1] + 1:
                spans[-1] = spans[-1][0], until
            else:
                spans.append((since, until))
        return spans

    def all_spans(self, side: Side, asked: Mapping[bytes, Sequence[int]]) -> list[tuple[bytes, bytes]]:
        """Return the spans, as `span_of`, of records of the other stream that match some of these, in order.

        Args:
            side: The stream of the records.
            asked: Their times, by key.
        """
        spans: list[tuple[bytes, bytes]] = []
        edges: dict[int, tuple[bytes, bytes]] = {}  # by time: many records have the same
        for key in sorted(asked):
            times = asked[key]
            if len(times) > 1:
                spans += [span_of(key, 1 - side, *each) for each in self.all_matching(side, times)]
                continue
            edge = edges.get(times[0])
            if edge is None:
                edge = edges[times[0]] = span_of(b"", 1 - side, *self.matching(side, times[0]))
            spans.append((key + edge[0], key + edge[1]))
        return spans

    def life_ms(self, side: int) -> int:
        """Return the milliseconds from the time of a record until its window is closed."""
        # A record at the very end of the window still matches, one millisecond later it does not.
        return (self.after_ms if side == LEFT else self.before_ms) + self.grace_ms + 1

    @property
    def longest(self) -> timedelta:
        """The longest that a record waits before it comes out unmatched, with its own time."""
        return timedelta(milliseconds=max(0, self.life_ms(LEFT), self.life_ms(RIGHT)))


def bound_of(time: int, due_ms: int, late_before: int) -> int:
    """Return the `late_before` of a record that has waited: in time for the steps behind the join unless it came late to it."""
    return late_before if late_before >= due_ms else time


# ---- rows -----------------------------------------------------------------------------------------------------------------

_PLACE = Struct(">BQQ")
"""The side, the time and the number of a waiting record, behind the bytes of its key."""
_HEAD = Struct(">B?q")
"""The head of the row of a waiting record, before the value: its side, whether it has matched, and its `late_before`."""
NEXT_KEY = b"next"
"""The key of the row that holds the number of the next record: shorter than the keys of records."""
_NEXT = 2
_EMPTY = 0x80
"""Marks the side of a row without a value."""
_SIDES = {LEFT, RIGHT, *(side | _EMPTY for side in (LEFT, RIGHT, _NEXT))}
"""The possible first bytes of a row: the side, with `_EMPTY` if the row has no value."""


class Place(NamedTuple):
    """The key of a waiting record, decoded.

    Attributes:
        key: The encoded key of the record.
        side: The stream that it came from.
        time: Its event time.
        number: Distinguishes records of the same key and time, in the order of their arrival.
    """

    key: bytes
    side: int
    time: int
    number: int


def place(key: bytes, side: int, time: int, number: int) -> bytes:
    """Return the row key of a waiting record: records of one key and stream lie together, in the order of time."""
    return key + _PLACE.pack(side, time, number)


def span_of(key: bytes, side: int, since: int, until: int) -> tuple[bytes, bytes]:
    """Return the first key, and the one behind the last, of the records of a key and a stream between two times."""
    pack = _PLACE.pack
    return key + pack(side, max(since, 0), 0), key + pack(side, max(until + 1, 0), 0)


def is_of(key: bytes, raw: bytes) -> bool:
    """Whether a waiting record that was found between two of a key is one of this key."""
    # Other keys of the same length cannot begin with this one's bytes; longer ones may lie in between.
    return len(raw) == len(key) + _PLACE.size


def closing_times(bounds: Bounds, raws: Sequence[bytes]) -> list[int | None]:
    """Return the times when the windows of waiting records close; None for a key that is not a record's."""
    lives = bounds.life_ms(LEFT), bounds.life_ms(RIGHT)
    closing: list[int | None] = []
    for raw in raws:
        if len(raw) < _PLACE.size:
            closing.append(None)
        else:
            side, time, _ = _PLACE.unpack_from(raw, len(raw) - _PLACE.size)
            closing.append(time + lives[side != LEFT])
    return closing


def next_row(number: int) -> "Waiting":
    """Return the row that holds the number of the next record."""
    return Waiting(_NEXT, False, number, None)


@dataclass(frozen=True, repr=False, eq=False)
class PlaceKey(ItemCodec[Place]):
    """The codec of the keys of waiting records.

    Args:
        key: The codec of the records' keys.
    """

    key: Codec[Any]

    def encode(self, value: Place) -> bytes:
        return place(*value)

    @staticmethod
    def split(data: bytes) -> "Place | None":
        """Return the parts of a key; None if it is not a record's key, as a table is loaded before it is checked."""
        if len(data) < _PLACE.size:
            return None
        side, time, number = _PLACE.unpack_from(data, len(data) - _PLACE.size)
        return Place(data[: -_PLACE.size], side, time, number)

    def decode(self, data: bytes) -> Place:
        found = self.split(data)
        if found is None:
            raise DeserializationError(f"{data!r} is no key of a record that waits to be joined")
        return found


class Waiting(NamedTuple):
    """A record that waits for those that match it.

    Attributes:
        side: The stream that it came from; `_NEXT` in the row that holds the next number.
        matched: It has been joined. Followed only where records that have not been come out.
        late_before: Windows that close at this time or before were closed for it; of `_NEXT` the number.
        value: Its value.
    """

    side: int
    matched: bool
    late_before: int
    value: Any


class WaitingCodec(ItemCodec[Waiting]):
    """The codec of waiting records.

    Args:
        left: The codec of the values of the left stream.
        right: The codec of the values of the right stream.
    """

    def __init__(self, left: Codec[Any], right: Codec[Any]) -> None:
        self._values = row_codec(left), row_codec(right)

    def encode(self, value: Waiting) -> bytes:
        if value.value is None:
            return _HEAD.pack(value.side | _EMPTY, value.matched, value.late_before)
        head = _HEAD.pack(value.side, value.matched, value.late_before)
        return head + self._values[value.side].encode(value.value)

    def decode(self, data: bytes) -> Waiting:
        side = data[0] if len(data) >= _HEAD.size else -1
        if side not in _SIDES or (side & _EMPTY and len(data) > _HEAD.size):
            raise DeserializationError(f"{data[:20]!r} is no record that waits to be joined")
        _, matched, late_before = _HEAD.unpack_from(data)
        if side & _EMPTY:
            return Waiting(side & ~_EMPTY, matched, late_before, None)
        return Waiting(side, matched, late_before, self._values[side].decode(data[_HEAD.size :]))

    def __repr__(self) -> str:
        return f"WaitingCodec({', '.join(map(codec_name, self._values))})"


def checked_codecs(
    operator: str, name: str, kept: str, left: Codec[Any] | None, right: Codec[Any] | None
) -> tuple[Codec[Any], Codec[Any]]:
    """Return the codecs of the records or rows that a join keeps of both sides. Raises `GraphError` if one is not known."""
    if left is None or right is None:
        side = "left" if left is None else "right"
        raise GraphError(
            f"{operator}({name!r}) keeps {kept} of the {side} side that a step has changed: give that step their codec by value="
        )
    return left, right


def stored_values(codec: Codec[Any], data: Sequence[bytes], what: str) -> Sequence[Any]:
    """Decode values of a join's state together.

    Raises:
        Fatal: One cannot be decoded. That is not the fault of the record at work, which must not become a dead letter for it.
    """
    decoded = codec.decode_many(data)
    for index, error in decoded.poison.items():
        raise Fatal(
            f"{what}, {data[index][:100]!r}, cannot be decoded: {error.message}; was it written with another codec or by another program?"
        ) from error
    return decoded.values
