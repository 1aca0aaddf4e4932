"""Fault injection between the clients of each process and the virtual broker.

Every request of a client goes through `Wire.ask`, which first gets a fault from `Faults`. By default there are none; a
simulation overrides `before` and draws from its seed.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from streamtable.base.clock import Clock
from streamtable.errors import StreamtableError

T = TypeVar("T")

CALLS = (
    # consumer
    "heartbeat", "fetch", "commit-offsets", "leave",
    # transactional producer; "records" is the delivery of queued records, by `flush` or before a commit
    "open", "records", "send-offsets", "commit", "abort",
    # cluster, table reader, producer
    "topics", "watermarks", "stable-ends", "stable-offsets", "read", "produce",
)  # fmt: skip
"""The names of the requests to the broker."""


class Fault(Enum):
    """The fault of one request. The caller gets the result of the real adapter: `RetryLater` from queries,
    `OutcomeUnknown` from a commit without an answer, [] from polls.
    """

    REFUSED = "refused"
    """The request has no effect, and the caller gets an error: `RewindNeeded` within a transaction, else `RetryLater`."""
    REQUEST_LOST = "request lost"
    """The request has no effect, and no response comes."""
    ANSWER_LOST = "answer lost"
    """The request takes effect, but no response comes."""
    LATE = "late"
    """No response comes. The request takes effect later (see `VirtualKafka.deliver_late`), if the broker still accepts it."""


class Faults:
    """The faults to inject: none, unless overridden."""

    def before(self, process: str, call: str) -> Fault | None:
        """Called before each request; returns the fault to inject.

        Args:
            process: The name given to `VirtualKafka.process`; "" for clients of the `VirtualKafka` itself.
            call: One of `CALLS`.
        """
        del process, call
        return None

    def marker_late(self, transactional_id: str, topic: str) -> bool:
        """Called at the end of a transaction for each partition. Returns whether its marker is written after the response.

        Until then, readers stop before the transaction. `topic` is "__consumer_offsets" for the offsets, which stay pending.
        """
        del transactional_id, topic
        return False

    def removal_told_as_revocation(self, process: str) -> bool:
        """Return whether a member that was removed from its group gets `revoked` instead of `lost`, as was observed."""
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
        process: The name of the process.
        faults: Returns the fault of each request.
        late: The delayed requests.
        tick: Lets the broker do its due work.
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
            call: One of `CALLS`.
            effect: The broker's action; its errors are the broker's refusals.
            silent: The error to raise if no response comes.
            refused: The error to raise for `Fault.REFUSED`; None: `silent`.
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
