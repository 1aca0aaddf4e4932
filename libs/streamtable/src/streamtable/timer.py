"""Timers: a handler that is called for a key at a time, in event time or wall-clock time.

    REMIND = Timer("remind", remind, clock="wall", payload=String())
    CARTS = Group("carts", Input(CART_EVENTS, on_event), Persist(CART), REMIND)

    def on_event(ctx: Context[str, Cart], event: CartEvent) -> None:
        ctx.timers.at(REMIND, ctx.timestamp_ms + 3_600_000, "an hour later")

    def remind(ctx: Context[str, Cart], payload: str) -> None:
        ctx.emit(REMINDERS, ctx.key, payload)

A timer is set, and fires, in the commit of everything else that its handler does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from streamtable.due import Due, DueRows
from streamtable.edge import Edge, OnError, checked_on_error
from streamtable.errors import GraphError
from streamtable.ports import Codec, Decoded
from streamtable.state import State, StateTable
from streamtable.topics import legal_codec

if TYPE_CHECKING:
    from streamtable.context import Context

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

NAME_CHARACTERS_MAX = 64
TIMERS: Mapping[str, str] = {"event": "timers", "wall": "wall-timers"}
"""The names of the state tables that hold pending timers, by their clock."""
_TIME, _LENGTH = Struct(">Q"), Struct(">I")


@dataclass(frozen=True)
class Timer(Edge[K, V], Generic[K, P, V]):
    """A handler for timers that `Context.timers` sets. Each timer fires exactly once, also across crashes.

    Timers fire in the order of their times. With `clock="event"` a timer fires as soon as the watermark has reached its
    time, before the next record is handled. With `clock="wall"` it fires when the wall clock has reached it, and those
    that were missed while no process ran fire at the start.

    Args:
        name: The name, under which pending timers are kept: a timer that is still pending needs its handler.
        handler: Called with the context of the key, and the payload. It may do all that the handler of a record may,
            except to defer.
        payload: The codec of the payloads.
        clock: The clock that has to reach the time: "event", the watermark of the task, or "wall".
        on_error: The policy for a failure of the handler. A dead letter holds the pending timer.
    """

    name: str
    handler: "Callable[[Context[K, V], P], None]"
    payload: Codec[P]
    clock: Literal["event", "wall"] = "event"
    on_error: OnError = OnError.STOP

    def __post_init__(self) -> None:
        checked_on_error(self.on_error, f"timer {self.name!r}")
        if not 0 < len(self.name) <= NAME_CHARACTERS_MAX or "\0" in self.name:
            raise GraphError(
                f"the name of timer {self.name!r} must have 1 to {NAME_CHARACTERS_MAX} characters"
            )
        if self.clock not in TIMERS:
            raise GraphError(f"timer {self.name!r} has clock={self.clock!r}: give 'event' or 'wall'")
        legal_codec(self.payload, "payload", f"timer {self.name!r}")


class Placed(Protocol):
    """Take note of a timer that was set or cancelled (`when_ms` None), by the key of its row."""

    def __call__(self, clock: str, row_key: bytes, when_ms: int | None) -> None: ...


class Timers:
    """The timers of a key, as `Context.timers` returns them. Valid only during the call of the handler.

    Args:
        declared: The timers of the group, by name.
        tables: The pending timers, by clock.
        placed: Called with each timer that is set or cancelled.
    """

    def __init__(
        self,
        declared: Mapping[str, Timer[Any, Any, Any]],
        tables: Mapping[str, StateTable[bytes, bytes]],
        placed: Placed,
    ) -> None:
        self._declared = declared
        self._tables = tables
        self._placed = placed
        self._key = b""

    def at(self, timer: Timer[Any, P, Any], when_ms: int, payload: P, id: str = "") -> None:  # noqa: A002 - its name to users
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
        data = _TIME.pack(min(max(when_ms, 0), (1 << 63) - 1)) + timer.payload.encode(payload)
        self._tables[timer.clock].raw.put(row_key, data)
        self._placed(timer.clock, row_key, when_ms)

    def cancel(self, timer: Timer[Any, Any, Any], id: str = "") -> None:  # noqa: A002 - as above
        """Remove the timer of this name and id from the key; nothing happens if there is none. Raises `GraphError` as `at`."""
        row_key = self._row_key(timer, id)
        self._tables[timer.clock].raw.delete(row_key)
        self._placed(timer.clock, row_key, None)

    def of(self, raw_key: bytes) -> "Timers":
        """Move to a key. Returns itself."""
        self._key = raw_key
        return self

    def _row_key(self, timer: Timer[Any, Any, Any], id: str) -> bytes:  # noqa: A002 - as above
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


class AsBytes:
    """A codec that leaves bytes as they are."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        return data

    def decode_many(self, data: Sequence[bytes | None]) -> Decoded[bytes]:
        return Decoded(data, {})


class PendingTimers(State[bytes, bytes]):
    """The pending timers of a group."""

    def __post_init__(self) -> None:
        """Accept the reserved name."""


def payload_of(data: bytes) -> bytes:
    """Return the encoded payload of a row of pending timers, which begins with the time in 8 bytes."""
    return data[_TIME.size :]


def timer_states(timers: Iterable[Timer[Any, Any, Any]]) -> tuple[State[bytes, bytes], ...]:
    """Return the state tables that hold the pending timers of a group."""
    clocks = dict.fromkeys(timer.clock for timer in timers)
    return tuple(
        PendingTimers(TIMERS[clock], key=AsBytes(), value=AsBytes(), due=Due(_when, _not_called, clock=clock))
        for clock in clocks
    )


def _when(key: bytes, data: bytes) -> int:
    del key
    when: int = _TIME.unpack_from(data)[0]
    return when


def _not_called(due: DueRows[bytes, bytes]) -> None:
    raise AssertionError(f"the engine calls the handlers of {len(due)} timers itself")
