"""Work that handlers have deferred until the commit: awaited together, finished in the order of the records."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streamtable.base.types import RecordBatch
from streamtable.errors import GraphError
from streamtable.graph.group import OnError

DEFERRED_MAX = 1_000
"""The number of deferred calls waiting in one process that forces a commit."""

_AT_ONCE_MAX = 100


@dataclass(frozen=True, slots=True)
class Deferral:
    """An awaitable and the function that gets its result."""

    work: Awaitable[Any]
    then: Callable[[Any, Any], None]
    records: RecordBatch
    index: int
    raw_key: bytes  # of a visited row it is another one than the record's
    key: Any
    on_error: OnError


class Deferrals:
    """The deferred calls of a task since the last commit.

    Attributes:
        on_error: The `on_error` of the edge whose handler is running.
        finishing: Whether results are being handled, so that nothing more may be deferred.
        room: The maximum number of calls that may wait before a commit.
        taken: The number of calls that were taken last.
    """

    def __init__(self) -> None:
        self.waiting: list[Deferral] = []
        self.room = DEFERRED_MAX
        self.taken = 0
        self.on_error = OnError.STOP
        self.finishing = False
        self.refused = False

    def add(
        self,
        work: Awaitable[Any],
        then: Callable[[Any, Any], None],
        records: RecordBatch,
        index: int,
        raw_key: bytes,
        key: Any,
    ) -> bool:
        """Implements `handler_services.Defer`."""
        deferral = Deferral(work, then, records, index, raw_key, key, self.on_error)
        if self.finishing:
            _close(deferral)
            raise GraphError("a deferred result may not defer again: await both in one coroutine")
        if self.refused:
            _close(deferral)
            raise GraphError("the handler of a timer may not defer: emit an event, and defer in its handler")
        self.waiting.append(deferral)
        return self.full

    @property
    def full(self) -> bool:
        """Whether a commit must come before another call is deferred."""
        return bool(self.waiting) and len(self.waiting) >= self.room

    def back_to(self, count: int) -> None:
        """Drop all but the first `count`: the records that deferred the others were undone."""
        for deferral in self.waiting[count:]:
            _close(deferral)
        del self.waiting[count:]

    def take(self) -> list[Deferral]:
        """Return all and forget them."""
        taken, self.waiting = self.waiting, []
        self.taken = len(taken)
        return taken

    def forget(self) -> None:
        """Drop all: their records were undone."""
        for deferral in self.take():
            _close(deferral)


async def results(deferrals: Sequence[Deferral], seconds: float) -> list[Any]:
    """Await all, at most 100 at a time. Returns the result or the exception of each, in order.

    Args:
        deferrals: The deferred calls of all tasks.
        seconds: The seconds that each of them may take.
    """
    room = asyncio.Semaphore(_AT_ONCE_MAX)

    async def result(deferral: Deferral) -> Any:
        async with room:
            try:
                return await asyncio.wait_for(deferral.work, seconds)
            except TimeoutError as error:
                raise TimeoutError(f"the deferred call has taken longer than {seconds:g} s") from error

    return await asyncio.gather(*map(result, deferrals), return_exceptions=True)


async def together(works: Sequence[Awaitable[None]]) -> list[BaseException | None]:
    """Await all. Returns the exception of each, or None, in order."""
    return await asyncio.gather(*works, return_exceptions=True)


def _close(deferral: Deferral) -> None:
    if inspect.iscoroutine(deferral.work):
        deferral.work.close()  # or Python warns that it was never awaited
