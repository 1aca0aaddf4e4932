"""The calls of a group under test: they run nothing, and the test gives their results."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from streamtable.base.clock import Clock
from streamtable_testing.instance import Instance

Q = TypeVar("Q")


class HeldCalls(Generic[Q]):
    """The calls of one `Call` that a group has made and that have no result.

    Args:
        call: The call.
        instances: All processes.
        clock: The clock.
        work: Lets all processes work.
    """

    def __init__(
        self, call: Any, instances: Callable[[], Sequence[Instance]], clock: Clock, work: Callable[[], None]
    ) -> None:
        self._call = call
        self._instances = instances
        self._clock = clock
        self._work = work

    @property
    def pending(self) -> Sequence[Q]:
        """The requests that may run now, in the order of their starts: not those that wait for a retry or for their key."""
        return [attempt.request for _, attempt in self._ready()]

    @property
    def ids(self) -> Sequence[str]:
        """The `call_id()` of each of `pending`."""
        return [attempt.id for _, attempt in self._ready()]

    def answer(self, result: Any, *, request: Q | None = None) -> None:
        """Give a call its result, and let all processes work.

        Args:
            result: The result.
            request: The request that is answered; None: the first one.

        Raises:
            AssertionError: No such call may run now.
        """
        executor, attempt = self._one(request)
        executor.answer(attempt, result)
        self._work()

    def fail(self, error: Exception, *, request: Q | None = None) -> None:
        """Let an attempt of a call fail, and let all processes work. Arguments as of `answer`."""
        executor, attempt = self._one(request)
        executor.fail(attempt, error)
        self._work()

    def _one(self, request: Q | None) -> tuple[Any, Any]:
        found = [each for each in self._ready() if request is None or each[1].request == request]
        asked = "" if request is None else f" for {request!r}"
        assert found, f"no call {self._call.name!r}{asked} may run now: pending are {self.pending!r}"
        return found[0]

    def _ready(self) -> list[tuple[Any, Any]]:
        now_ms = int(self._clock.now() * 1000)
        return [
            (executor, attempt)
            for executor in (each.executor for each in self._instances() if each.executor is not None)
            for attempt in executor.attempts
            if attempt.call.name == self._call.name and attempt.pending.next_ms <= now_ms
        ]
