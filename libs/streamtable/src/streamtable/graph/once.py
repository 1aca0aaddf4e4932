"""De-duplication of events by id: the declaration, the rule, and how ids are stored.

The rule is a pure function of the records of one input partition, `Accepted.is_repeat`; the engine keeps what it needs
of the past in the group's table `<group>-ids` (`engine.named.ids`), and a batch job over the same records follows it too.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from itertools import islice
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any, Generic, TypeVar
from uuid import UUID

from streamtable.base.mapped import mapped
from streamtable.base.ports import Fields
from streamtable.base.topics import check_kind
from streamtable.errors import GraphError, StreamtableError
from streamtable.tables.kept import bounded_meaning

E_contra = TypeVar("E_contra", contravariant=True)

ID_BYTES = 16
AHEAD_MS_MAX = 5 * 60 * 1000
"""A timestamp further ahead of the clock than this does not move the stream time."""
NO_TIME = -1
_DAYS_MAX = 366
_UUID_TEXT = 36
_DASHES = (8, 13, 18, 23)
_HEAD = Struct(">BqI")  # version, newest time, number of runs
_RUN = Struct(">qI")  # time, number of ids
_VERSION = 1
# Hashes begun with a type.
_TEXT, _BYTES, _INT = (blake2b(kind, digest_size=ID_BYTES) for kind in (b"s", b"b", b"i"))


class NoId(StreamtableError):
    """An event of an input with `Once` has no id, or one of an unsupported type."""


class UnreadableIds(StreamtableError):
    """A chunk of a `<group>-ids` topic was not written by this library."""


@dataclass(frozen=True)
class Once(Generic[E_contra]):
    """Handles each event id once: a repeated event changes nothing, whichever client sends it.

    It calls no handler, writes no row, no output and no dead letter; it is counted in the metric
    `streamtable_repeats_total`. The exact rule, for each input and partition:

    - The *stream time* is the greatest timestamp of the records so far that had an id, also of those that failed. A
      timestamp more than five minutes ahead of this machine's clock does not move it, so a clock that is wrong expires nothing.
    - An event is a repeat if and only if an event of the same id was accepted at a stream time `t`, and the stream time
      now, this event's timestamp included, is at most `t + within`.
    - An event whose handler failed was not accepted. A dead letter that is sent again is accepted if no event of its id
      has been accepted meanwhile; its timestamp is the event's, not the time when it was sent again.

    So the decision depends on the records alone, not on commits, restarts or rebalances. Ids are kept in the group's
    topic `<group>-ids`, in the transaction of the rows, and expire from it.

    A client that repeats an event must send it with the same key: ids are compared within a partition.

    Args:
        by: Takes the id from the event: text, bytes, an int or a UUID. Or the name of the field that holds it, which is
            faster; "meta.id" is the attribute of an attribute. An event without an id fails as if its handler had raised.
        within: The time that an id is kept, in stream time. An id takes 42 to 48 bytes in the local store, and 17 to 28
            bytes in the topic.
    """

    by: str | Callable[[E_contra], Any]
    within: timedelta

    def __post_init__(self) -> None:
        check_kind(self.within, "within= of Once", timedelta)
        if not timedelta(milliseconds=1) <= self.within <= timedelta(days=_DAYS_MAX):
            raise GraphError(f"Once(within={self.within!r}): give 1 millisecond to {_DAYS_MAX} days")
        if self.by == "" or not (isinstance(self.by, str) or callable(self.by)):
            raise GraphError(f"Once(by={self.by!r}): give a function of the event, or the name of a field")

    @property
    def within_ms(self) -> int:
        return self.within // timedelta(milliseconds=1)

    @property
    def meaning(self) -> str:
        """The meaning of the ids, as far as the declaration says it. It is recorded with the offsets of the input."""
        by = f"the field {self.by!r}" if isinstance(self.by, str) else "a function"
        return bounded_meaning(f"ids by {by}, kept for {self.within_ms} ms")

    def id_of(self, event: E_contra) -> Any:
        """Return the id of the event. Raises whatever `by` raises, `KeyError` or `AttributeError` for a missing field."""
        if isinstance(self.by, str):
            return _getter(event)(self.by)(event)
        return self.by(event)


# ---- the rule -----------------------------------------------------------------------------------------------------------


def stream_time(before_ms: int, timestamp_ms: int, now_ms: int) -> int:
    """Return the stream time after a record with this timestamp; `now_ms` is the clock."""
    return before_ms if timestamp_ms > now_ms + AHEAD_MS_MAX else max(before_ms, timestamp_ms)


def is_repeat(accepted_ms: int | None, stream_time_ms: int, within_ms: int) -> bool:
    """Return whether an event is a repeat, given when its id was accepted (None: never) and the stream time."""
    return accepted_ms is not None and stream_time_ms - accepted_ms <= within_ms


def accept(ids: Sequence[bytes], timestamps_ms: Sequence[int], within_ms: int, now_ms: int) -> Iterator[bool]:
    """Return whether each record of a whole input partition is accepted, in order: the rule without an engine."""
    accepted: dict[bytes, int] = {}
    time_ms = NO_TIME
    for each, timestamp_ms in zip(ids, timestamps_ms, strict=True):
        time_ms = stream_time(time_ms, timestamp_ms, now_ms)
        if is_repeat(accepted.get(each), time_ms, within_ms):
            yield False
        else:
            accepted[each] = time_ms
            yield True


# ---- ids as bytes -------------------------------------------------------------------------------------------------------


def id_bytes(value: Any) -> bytes:
    """Return an id as 16 bytes: the bytes of a UUID or of its usual text, else a BLAKE2b hash of type and value.

    Raises:
        NoId: It is missing, or neither text, bytes, an int nor a UUID.
    """
    if isinstance(value, str):
        packed = _uuid_bytes(value)
        return packed if packed is not None else _hashed(_TEXT, _utf8(value))
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, bytes):
        return _hashed(_BYTES, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _hashed(_INT, b"%d" % value)
    if value is None:
        raise NoId("the event has no id (it is None)")
    raise NoId(f"the event's id is a {type(value).__name__}; ids are text, bytes, ints or UUIDs")


def many_id_bytes(values: Sequence[Any]) -> list[bytes]:
    """Return `id_bytes` of each; fast if all or none are the usual text of UUIDs. Raises `NoId`."""
    try:
        text = "".join(values)
    except TypeError:
        return list(map(id_bytes, values))
    if "-" not in text:  # none is a UUID's usual text
        # Text that is ASCII has no surrogates to let pass.
        return [
            _hashed(_TEXT, each)
            for each in (map(str.encode, values) if text.isascii() else map(_utf8, values))
        ]
    size = len(values)
    dashes = "-" * size
    if (
        len(text) == _UUID_TEXT * size
        and all(text[at::_UUID_TEXT] == dashes for at in _DASHES)
        and text.count("-") == 4 * size
        and set(map(len, values)) == {_UUID_TEXT}
    ):
        packed = _unhexed(text.replace("-", ""))
        if packed is not None:
            return [packed[at : at + ID_BYTES] for at in range(0, len(packed), ID_BYTES)]
    return list(map(id_bytes, values))


def ids_of(once: Once[Any], events: Sequence[Any]) -> tuple[list[bytes], dict[int, Exception]]:
    """Return the ids of events, without those that have none, and by index the errors of these."""
    try:
        return many_id_bytes(_raw_ids(once, events)), {}
    except Exception:  # noqa: BLE001 - user code may raise anything; whose fault it is comes out one by one
        return _ids_one_by_one(once, events)


def _raw_ids(once: Once[Any], events: Sequence[Any]) -> Sequence[Any]:
    """Return `id_of` of each. Of records that are still encoded only the field is decoded."""
    if not isinstance(once.by, str):
        return mapped(once.by, events)
    if isinstance(events, Fields):
        return events.field(once.by)
    return list(map(_getter(events[0] if events else None)(once.by), events))


def _getter(event: object) -> Any:
    """Return the function that makes a getter of a field: by its name, as of a dict, or as an attribute."""
    return itemgetter if hasattr(type(event), "__getitem__") else attrgetter


def _ids_one_by_one(once: Once[Any], events: Sequence[Any]) -> tuple[list[bytes], dict[int, Exception]]:
    ids: list[bytes] = []
    failed: dict[int, Exception] = {}
    for index, event in enumerate(events):
        try:
            ids.append(id_bytes(once.id_of(event)))
        except Exception as error:  # noqa: BLE001 - the same
            failed[index] = error
    return ids, failed


def _uuid_bytes(text: str) -> bytes | None:
    if len(text) != _UUID_TEXT or any(text[at] != "-" for at in _DASHES):
        return None
    return _unhexed(text.replace("-", ""))


def _unhexed(digits: str) -> bytes | None:
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        return None
    return packed if packed.hex() == digits else None  # else it is text that no UUID is written as


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hashed(begun: blake2b, data: bytes) -> bytes:
    found = begun.copy()  # two thirds of the time of making it
    found.update(data)
    return found.digest()


# ---- chunks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdChunk:
    """Ids that were accepted one after the other, stored as one record of the `<group>-ids` topic.

    Attributes:
        newest_ms: Stream time when the last of them was accepted.
        runs: Stream times, and how many of the ids were accepted then.
        ids: The ids one after the other, 16 bytes each.
    """

    newest_ms: int
    runs: list[tuple[int, int]]
    ids: bytes

    def __len__(self) -> int:
        return len(self.ids) // ID_BYTES

    @staticmethod
    def of(ids: Sequence[bytes], times_ms: Sequence[int]) -> "IdChunk":
        """Return a chunk of ids in the order of their acceptance, with stream times that never decrease."""
        runs = list(Counter(times_ms).items())  # in order of arrival
        return IdChunk(times_ms[-1], runs, b"".join(ids))

    def encode(self) -> bytes:
        head = _HEAD.pack(_VERSION, self.newest_ms, len(self.runs))
        return b"".join([head, *(_RUN.pack(*run) for run in self.runs), self.ids])

    @staticmethod
    def decode(data: bytes) -> "IdChunk":
        """Return the chunk of a record. Raises `UnreadableIds`."""
        if len(data) >= _HEAD.size:
            version, newest_ms, count = _HEAD.unpack_from(data)
            start = _HEAD.size + count * _RUN.size
            if version == _VERSION and len(data) >= start:
                runs = list(_RUN.iter_unpack(data[_HEAD.size : start]))
                ids = data[start:]
                if len(ids) == ID_BYTES * sum(size for _, size in runs):
                    return IdChunk(newest_ms, runs, ids)
        raise UnreadableIds(f"a chunk of {len(data)} bytes is none of ours: {data[:40]!r}")

    @staticmethod
    def newest_of(data: bytes) -> int:
        """Return the time when the last id of an encoded chunk was accepted. Raises `UnreadableIds`."""
        if len(data) < _HEAD.size or data[0] != _VERSION:
            raise UnreadableIds(f"a chunk of {len(data)} bytes is none of ours: {data[:40]!r}")
        newest_ms: int = _HEAD.unpack_from(data)[1]
        return newest_ms

    def each(self) -> Iterator[tuple[bytes, int]]:
        """Yield each id with the stream time of its acceptance."""
        starts = iter(range(0, len(self.ids), ID_BYTES))
        for time_ms, size in self.runs:
            for start in islice(starts, size):
                yield self.ids[start : start + ID_BYTES], time_ms
