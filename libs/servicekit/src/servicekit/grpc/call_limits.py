"""Bounds on calls, and on callers who begin and do not go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Lock


class CallSlots:
    """A bounded number of them. Any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self.taken = 0

    def take(self) -> bool:
        """Take one; false if all are taken."""
        with self._lock:
            free = self.taken < self._limit
            self.taken += free
            return free

    def give_back(self) -> None:
        with self._lock:
            self.taken -= 1


class Patience:
    """Waits for callers, in one event loop: each for a bounded time, and when there are too many, the first ones no longer.

    A caller who does as it should sends its message with the headers. One that does not costs a little memory, no
    thread; so a newer one takes its place, rather than being refused because of it.

    Args:
        seconds: How long a caller is waited for.
        limit: How many callers are waited for at a time.
    """

    def __init__(self, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._waits: dict[asyncio.Timeout, None] = {}

    def __len__(self) -> int:
        return len(self._waits)

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Wait within the block. Raises `TimeoutError` there when it has taken too long."""
        if len(self._waits) >= self._limit:
            oldest = next(iter(self._waits))
            del self._waits[oldest]
            if not oldest.expired():  # its time may be over already, and its task not yet have noticed
                oldest.reschedule(asyncio.get_running_loop().time())
        async with asyncio.timeout(self._seconds) as wait:
            self._waits[wait] = None
            try:
                yield
            finally:
                self._waits.pop(wait, None)
