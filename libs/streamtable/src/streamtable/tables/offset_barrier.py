"""Lets callers wait until a partition has reached an offset."""

import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)
T = TypeVar("T")


class OffsetBarrier(Generic[P, T]):
    """Wakes each caller when a partition has reached the offset that it waits for. Any thread.

    The futures are `concurrent.futures.Future`: a thread waits with `result`, a coroutine with `asyncio.wrap_future`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[P, dict[Future[T], int]] = {}
        self._ended: Exception | None = None

    @contextmanager
    def waiting(self, place: P, offset: int) -> Iterator[Future[T]]:
        """Return a future that is done when the partition has reached `offset`. Raises the error that ended the barrier."""
        future: Future[T] = Future()
        with self._lock:
            if self._ended is not None:
                raise self._ended
            self._waiting.setdefault(place, {})[future] = offset
        try:
            yield future
        finally:
            with self._lock:
                if (others := self._waiting.get(place)) is not None:
                    others.pop(future, None)
                    if not others:
                        del self._waiting[place]

    def arrived(self, place: P, offset: int, answer: T) -> None:
        """Wake the callers that wait for the partition to reach `offset`, with this answer."""
        if place not in self._waiting:
            return  # the usual case, and it costs no lock
        with self._lock:
            waiting = self._waiting.get(place, {})
            there = [future for future, needed in waiting.items() if needed <= offset]
            for future in there:
                del waiting[future]
        for future in there:
            if future.set_running_or_notify_cancel():
                future.set_result(answer)

    def places(self) -> list[P]:
        """Return the partitions that callers wait for."""
        with self._lock:
            return [place for place, waiting in self._waiting.items() if waiting]

    def end(self, error: Exception) -> None:
        """Raise this error in all callers that wait, now and from now on."""
        with self._lock:
            self._ended = self._ended or error
            futures = [future for waiting in self._waiting.values() for future in waiting]
            self._waiting.clear()
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
