"""The timers of a key, as handlers set and cancel them, and the rows that keep those that are pending."""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple, Protocol, TypeVar

from streamtable.base.clock import Clock
from streamtable.base.ports import Codec
from streamtable.errors import GraphError
from streamtable.handlers.state_table import StateRows, StateTable

P = TypeVar("P")

_TIME, _LENGTH = Struct(">Q"), Struct(">I")
NEVER_MS = (1 << 63) - 1
"""The time of a timer that does not fire until it is set again."""


class DeclaredTimer(Protocol[P]):
    """A timer as a graph declares it. `graph.timer.Timer` implements it."""

    @property
    def name(self) -> str: ...
    @property
    def payload(self) -> Codec[P]: ...
    @property
    def table(self) -> str: ...


Placed = Callable[[str, bytes, int | None], None]
"""Takes note of a timer that was set or cancelled (None): its table, the key of its row, its time in milliseconds."""


class Timers:
    """The timers of a key, as `Context.timers` returns them. Valid only during the call of the handler.

    Args:
        declared: The timers of the group, by name.
        tables: The pending timers, by the name of their table.
        placed: Called with each timer that is set or cancelled.
        clock: The wall clock.
    """

    def __init__(
        self,
        declared: Mapping[str, DeclaredTimer[Any]],
        tables: Mapping[str, StateTable[bytes, bytes]],
        placed: Placed,
        clock: Clock,
    ) -> None:
        self._declared, self._tables = declared, tables
        self._placed, self._clock = placed, clock
        self._key = b""

    def at(self, timer: DeclaredTimer[P], when_ms: int, payload: P, id: str = "") -> None:  # noqa: A002 - its name to users
        """Set a timer for the key; it replaces one with the same name and id.

        Args:
            timer: The timer, which the graph has among its edges.
            when_ms: The time, in milliseconds since 1970. A timer for a time that has passed is due immediately.
            payload: The payload that the handler is called with.
            id: Distinguishes timers of the same name and key.

        Raises:
            GraphError: The graph does not have the timer.
            SerializationError: The payload does not fit its schema.
        """
        row_key = self._row_key(timer, id)
        data = _TIME.pack(min(max(when_ms, 0), NEVER_MS)) + timer.payload.encode(payload)
        self._tables[timer.table].raw.put(row_key, data)
        self._placed(timer.table, row_key, when_ms)

    def cancel(self, timer: DeclaredTimer[Any], id: str = "") -> None:  # noqa: A002 - as above
        """Remove the timer of this name and id from the key; nothing happens if there is none. Raises `GraphError` as `at`."""
        row_key = self._row_key(timer, id)
        self._tables[timer.table].raw.put(row_key, None)
        self._placed(timer.table, row_key, None)

    def rows(self, timer: DeclaredTimer[Any]) -> StateRows[bytes]:
        """Return the rows of all timers of its table in this partition. Raises as `at`."""
        self._row_key(timer, "")
        return self._tables[timer.table].raw

    @property
    def now_ms(self) -> int:
        """The wall clock, which timers with `clock="wall"` follow, in milliseconds since 1970."""
        return int(self._clock.now() * 1000)

    def of(self, raw_key: bytes) -> "Timers":
        """Move to a key. Returns itself."""
        self._key = raw_key
        return self

    def _row_key(self, timer: DeclaredTimer[Any], id: str) -> bytes:  # noqa: A002 - as above
        declared = self._declared.get(timer.name)
        if declared is not timer and declared != timer:
            raise GraphError(
                f"the graph of this group does not have the timer {timer.name!r}: add it to its edges"
            )
        return PendingTimer(timer.name, self._key, id).encode()


class PendingTimer(NamedTuple):
    """The key of a row of pending timers."""

    name: str
    raw_key: bytes
    id: str

    def encode(self) -> bytes:
        """Return the key of its row: the name, NUL, the length of the key in 4 bytes, the key, the id."""
        return b"%b\0%b%b%b" % (
            self.name.encode(),
            _LENGTH.pack(len(self.raw_key)),
            self.raw_key,
            self.id.encode(),
        )

    @staticmethod
    def decode(row_key: bytes) -> "PendingTimer":
        """Return the pending timer of a row's key. Raises `ValueError` if it is none."""
        name, _, rest = row_key.partition(b"\0")
        if len(rest) < _LENGTH.size:
            raise ValueError("it is too short")
        end = _LENGTH.size + _LENGTH.unpack_from(rest)[0]
        if len(rest) < end:
            raise ValueError("it is too short")
        return PendingTimer(name.decode(), rest[_LENGTH.size : end], rest[end:].decode())


def payload_of(data: bytes) -> bytes:
    """Return the encoded payload of a row of pending timers, which begins with the time in 8 bytes."""
    return data[_TIME.size :]


def time_of(data: bytes) -> int:
    """Return the time of a row of pending timers, in milliseconds since 1970."""
    time: int = _TIME.unpack_from(data)[0]
    return time
