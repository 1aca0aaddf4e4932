"""Fault injection between the clients of each process and the virtual broker.

Everything that a client asks of the broker passes `Wire.ask`, which first asks the `Faults` for its fault. The
default is that nothing does; a simulation overrides `before`, and decides from its seed.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from streamtable.clock import Clock
from streamtable.errors import StreamtableError

T = TypeVar("T")

CALLS = (
    # consumer
    "heartbeat", "fetch", "commit-offsets", "leave",
    # outbox; "records" is the delivery of what was produced, by `flush` or before a commit
    "open", "records", "send-offsets", "commit", "abort",
    # cluster, table reader, producer
    "topics", "watermarks", "stable-ends", "stable-offsets", "read", "produce",
)  # fmt: skip
"""The names of what can be asked of the broker."""


class Fault(Enum):
    """The fault of one request. The caller gets the error of the real adapter: as `RetryLater` by questions, as
    `OutcomeUnknown` by a commit without an answer, as [] by polls.
    """

    REFUSED = "refused"
    """The request has no effect, and the caller gets an error: `RewindNeeded` within a transaction, else `RetryLater`."""
    REQUEST_LOST = "request lost"
    """Nothing happens, and no answer comes."""
    ANSWER_LOST = "answer lost"
    """The request takes effect, but no response comes."""
    LATE = "late"
    """No answer comes. It happens later (see `VirtualKafka.deliver_late`), if the broker still accepts it then."""


class Faults:
    """The faults to inject: none, unless overridden."""

    def before(self, process: str, call: str) -> Fault | None:
        """Called before each request; returns the fault to inject.

        Args:
            process: the name given to `VirtualKafka.process`; "" for clients of the `VirtualKafka` itself.
            call: one of `CALLS`.
        """
        del process, call
        return None

    def marker_late(self, transactional_id: str, topic: str) -> bool:
        """Called at the end of a transaction for each partition: whether its marker is written after the answer.

        Until it is, readers stop before the transaction. `topic` is "__consumer_offsets" for the offsets, which stay
        pending as long.
        """
        del transactional_id, topic
        return False

    def removal_told_as_revocation(self, process: str) -> bool:
        """Whether a member that was removed from its group hears `revoked` instead of `lost`, as has been seen."""
        del process
        return False


class LateEffects:
    """The delayed requests to the broker in order, each with its latest time of arrival."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._waiting: list[tuple[float, Callable[[], object]]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, effect: Callable[[], object]) -> None:
        self._waiting.append((self._clock.monotonic() + self._seconds, effect))

    def deliver(self, *, due_only: bool = False) -> None:
        now = self._clock.monotonic()
        while self._waiting and (not due_only or self._waiting[0][0] <= now):
            _, effect = self._waiting.pop(0)
            with suppress(StreamtableError):  # there is no caller to report it to
                effect()


class Wire:
    """The connection between the clients of one process and the broker.

    Args:
        process: its name.
        faults: asked before each request.
        late: takes what happens later.
        tick: lets the broker do what time has made due.
    """

    def __init__(self, process: str, faults: Faults, late: LateEffects, tick: Callable[[], None]) -> None:
        self.process = process
        self.faults = faults
        self._late = late
        self._tick = tick

    def ask(
        self,
        call: str,
        effect: Callable[[], T],
        *,
        silent: type[StreamtableError],
        refused: type[StreamtableError] | None = None,
    ) -> T:
        """Send a request, or inject a fault.

        Args:
            call: one of `CALLS`.
            effect: The broker's action; its errors are the broker's refusals.
            silent: raised if no answer comes.
            refused: raised for `Fault.REFUSED`, if not the same.
        """
        self._tick()
        fault = self.faults.before(self.process, call)
        if fault is None:
            return effect()
        if fault is Fault.REFUSED:
            raise (refused or silent)(f"{call} was refused by the virtual broker")
        if fault is Fault.ANSWER_LOST:
            with suppress(StreamtableError):
                effect()
        elif fault is Fault.LATE:
            self._late.add(effect)
        raise silent(f"{call} was not answered by the virtual broker")
