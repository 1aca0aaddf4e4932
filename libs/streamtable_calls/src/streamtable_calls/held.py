"""Records that are retried, as they are kept: each in a row of its own, those of a key in the order of their numbers.

The first row of a key has the time of its next attempt; those behind it have none. A mark beside them says that the key waits, so
that a record is looked up by one read. The mark stays until the last of them is gone, whatever has deleted the others.
"""

from itertools import chain
from struct import Struct
from typing import NamedTuple

from streamtable.base.keys import after_prefix
from streamtable.base.types import Header, Headers
from streamtable.errors import DeserializationError
from streamtable.handlers.state_table import StateRows
from streamtable.handlers.timers import NEVER_MS, PendingTimer, payload_of, time_of
from streamtable_calls.pending import PendingCall

_PLACE, _LENGTH = Struct(">Qqq"), Struct(">i")
_MARK = PendingCall(b"", 0).row()


class HeldRecord(NamedTuple):
    """A record of an input.

    Attributes:
        number: Its number among all that are kept in its partition: the id of its row.
        topic: Its topic: the input's, or the group's retry topic.
        offset: Its offset there.
        timestamp_ms: Milliseconds since 1970; -1 if it has none.
        value: Its encoded value; None: it is a tombstone.
        headers: Its headers.
    """

    number: int
    topic: str
    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: Headers

    @property
    def id(self) -> str:
        return f"{self.number:016x}"

    def encode(self) -> bytes:
        headers = chain.from_iterable((name.encode(), value) for name, value in self.headers)
        fields = [self.topic.encode(), self.value, *headers]
        return _PLACE.pack(self.number, self.offset, self.timestamp_ms) + b"".join(map(_field, fields))

    @staticmethod
    def decode(data: bytes) -> "HeldRecord":
        """Return the record of these bytes. Raises `DeserializationError`."""
        try:
            number, offset, timestamp_ms = _PLACE.unpack_from(data)
            topic, value, *rest = _fields(data[_PLACE.size :])
            headers: list[Header] = [
                ((name or b"").decode(), found) for name, found in zip(rest[::2], rest[1::2], strict=True)
            ]
            return HeldRecord(number, (topic or b"").decode(), offset, timestamp_ms, value, headers)
        except Exception as error:
            raise DeserializationError(f"the row is no record that is retried: {error}") from error


def waits(rows: StateRows[bytes], timer: PendingTimer) -> bool:
    """Return whether records of a key wait.

    Args:
        rows: The pending rows of the partition.
        timer: The name of the retries, and the key.
    """
    return rows.get(_mark_of(timer)) is not None


def hold(rows: StateRows[bytes], timer: PendingTimer) -> None:
    """Let all later records of a key wait, until `release` finds no more of them."""
    rows.put(_mark_of(timer), _MARK)


def release(rows: StateRows[bytes], timer: PendingTimer, now_ms: int) -> bool:
    """Let the first waiting record of a key be handled now, unless it has a time already; without one, free the key.

    Args:
        rows: The pending rows of the partition.
        timer: The name of the retries, and the key.
        now_ms: The time, in milliseconds since 1970.

    Returns:
        Whether a row was written.
    """
    prefix = timer._replace(id="").encode()
    for row_key, data in rows.scan(prefix, after_prefix(prefix), at_once=1):
        if time_of(data) != NEVER_MS:
            return False
        rows.put(row_key, PendingCall.decode(payload_of(data)).row(now_ms))
        return True
    if freed := waits(rows, timer):
        rows.put(_mark_of(timer), None)
    return freed


def _mark_of(timer: PendingTimer) -> bytes:
    return PendingTimer("", timer.raw_key, timer.name).encode()


def _field(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


def _fields(data: bytes) -> list[bytes | None]:
    found: list[bytes | None] = []
    begin = 0
    while begin < len(data):
        (length,) = _LENGTH.unpack_from(data, begin)
        begin += _LENGTH.size
        end = begin + max(length, 0)
        if end > len(data):
            raise ValueError("it is cut off")
        found.append(None if length < 0 else data[begin:end])
        begin = end
    return found
