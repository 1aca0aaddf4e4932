"""Limits on calls, and on clients that start a call and do not send its message."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Lock


class CallSlots:
    """A limited number of slots for calls, of which one peer gets at most a share. Any thread.

    Args:
        limit: The number of slots.
        per_peer: The number of slots of one peer.
    """

    def __init__(self, limit: int, per_peer: int) -> None:
        self._limit = limit
        self._per_peer = per_peer
        self._lock = Lock()
        self._of_peer: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """The number of slots that are taken."""
        return self._of_peer.total()

    def take(self, peer: str) -> bool:
        """Take a slot; false if all are taken, or all that this peer may have."""
        with self._lock:
            free = self.taken < self._limit and self._of_peer[peer] < self._per_peer
            self._of_peer[peer] += free
            return free

    def release(self, peer: str) -> None:
        """Release a slot of this peer."""
        with self._lock:
            self._of_peer -= Counter([peer])  # forgets the peer with its last slot


class Patience:
    """Waits for clients in one event loop: each for a limited time, and if there are too many, ends the longest wait early.

    A well-behaved caller sends its message with the headers. A caller that does not occupies a little memory and no
    thread, and a newer caller replaces it instead of being rejected.

    Args:
        seconds: The maximum time to wait for a caller.
        limit: The maximum number of callers to wait for at a time.
    """

    def __init__(self, seconds: float, limit: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._waits: dict[asyncio.Timeout, None] = {}

    def __len__(self) -> int:
        return len(self._waits)

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Wait within the block. Raises `TimeoutError` there after too long."""
        if len(self._waits) >= self._limit:
            oldest = next(iter(self._waits))
            del self._waits[oldest]
            if not oldest.expired():  # it may have expired already without its task having run
                oldest.reschedule(asyncio.get_running_loop().time())
        async with asyncio.timeout(self._seconds) as wait:
            self._waits[wait] = None
            try:
                yield
            finally:
                self._waits.pop(wait, None)
