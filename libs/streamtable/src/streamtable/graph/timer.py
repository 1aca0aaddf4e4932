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
from typing import Any, Generic, Literal, TypeVar

from streamtable.base.ports import Codec, Decoded
from streamtable.base.topics import legal_codec
from streamtable.errors import GraphError
from streamtable.graph.due import Due
from streamtable.graph.edge import Edge, OnError, checked_handler
from streamtable.graph.state import State
from streamtable.handlers.context import Context
from streamtable.handlers.due_rows import DueRows
from streamtable.handlers.timers import NEVER_MS, time_of

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

NAME_CHARACTERS_MAX = 64
TIMERS: Mapping[str, str] = {"event": "timers", "wall": "wall-timers"}
"""The names of the state tables that hold pending timers, by their clock."""


@dataclass(frozen=True)
class Timer(Edge[K, V], Generic[K, P, V]):
    """A handler for timers that `Context.timers` sets. Each timer fires exactly once, also across crashes.

    Timers fire in the order of their times. With `clock="event"` a timer fires as soon as the watermark has reached its
    time, after the record that has moved it there and before the next one: if that record replaces or cancels the timer, it does
    not fire. With `clock="wall"` it fires when the wall clock has reached it, and those that were missed while no process ran fire
    at the start.

    Args:
        name: The name, under which pending timers are kept: a timer that is still pending needs its handler.
        handler: Called with the context of the key, and the payload. It may do all that the handler of a record may.
        payload: The codec of the payloads.
        clock: The clock that has to reach the time: "event", the watermark of the task, or "wall".
        on_error: The policy for a failure of the handler. A dead letter holds the pending timer.
    """

    name: str
    handler: Callable[[Context[K, V], P], None]
    payload: Codec[P]
    clock: Literal["event", "wall"] = "event"
    on_error: OnError = OnError.STOP

    def __post_init__(self) -> None:
        checked_handler(self.handler, self.on_error, f"timer {self.name!r}")
        if not 0 < len(self.name) <= NAME_CHARACTERS_MAX or "\0" in self.name:
            raise GraphError(f"the name of timer {self.name!r} needs 1 to {NAME_CHARACTERS_MAX} characters")
        if self.clock not in TIMERS:
            raise GraphError(f"timer {self.name!r} has clock={self.clock!r}: give 'event' or 'wall'")
        legal_codec(self.payload, "payload", f"timer {self.name!r}")

    @property
    def codecs(self) -> Sequence[Codec[Any]]:
        """The codecs that its rows are written with."""
        return (self.payload,)

    @property
    def table(self) -> str:
        """The name of the state table that holds the pending timers."""
        return TIMERS[self.clock]


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


def timer_states(timers: Iterable[Timer[Any, Any, Any]]) -> tuple[State[bytes, bytes], ...]:
    """Return the state tables that hold the pending timers of a group."""
    clocks = {timer.table: timer.clock for timer in timers}
    return tuple(
        PendingTimers(name, key=AsBytes(), value=AsBytes(), due=Due(_when, _not_called, clock=clock))
        for name, clock in clocks.items()
    )


def _when(key: bytes, data: bytes) -> int | None:
    del key
    time_ms = time_of(data)
    return None if time_ms == NEVER_MS else time_ms


def _not_called(due: DueRows[bytes, bytes]) -> None:
    raise AssertionError(f"the engine calls the handlers of {len(due)} timers itself")
