"""Long-lived responses (watches, server-sent events): limits on their number and duration, and their end at shutdown."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock
from typing import Any, Final, TypeVar

from streamtable.errors import RetryLater

T = TypeVar("T")
STILL_VALID: Final = "servicekit.still_valid"
"""The name in a request's scope of the function that returns whether its credential is still valid."""
RECHECK_SECONDS: Final = 5.0


class TooManyStreams(RetryLater):
    """The maximum number of streams is open."""


class Stopping(RetryLater):
    """The server is stopping: retry on another one."""


class Streams:
    """Admits streams and ends them. Any thread.

    Args:
        limit: The maximum number of open streams.
        seconds_max: The maximum duration of a stream; its caller then reconnects.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, limit: int = 64, seconds_max: float = 1800.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = limit
        self._seconds_max = seconds_max
        self._clock = clock
        self._stopping = Event()
        self._lock = Lock()
        self._open = 0
        self._on_stop: set[Callable[[], None]] = set()

    @property
    def open_count(self) -> int:
        return self._open

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @contextmanager
    def admit(self) -> Iterator[Callable[[], bool]]:
        """Admit a stream. Yields a function that returns whether the stream may continue, to be called about every second.

        Raises:
            TooManyStreams: The limit is reached; retry later.
            Stopping: The server is stopping; retry on another one.
        """
        with self._lock:
            if self._stopping.is_set():
                raise Stopping("the server is stopping; retry the request")
            if self._open >= self.limit:
                raise TooManyStreams("too many streams are open; retry the request later")
            self._open += 1
        end = self._clock() + self._seconds_max
        try:
            yield lambda: self._clock() < end and not self._stopping.is_set()
        finally:
            with self._lock:
                self._open -= 1

    @contextmanager
    def admit_in_loop(self) -> Iterator["asyncio.Future[RetryLater | None]"]:
        """Admit a stream of the running event loop. Yields a future that is done when the stream must end.

        The caller may set it too, such as when the peer has disconnected, to a reason other than that of `ended`. Raises
        like `admit`.
        """
        loop = asyncio.get_running_loop()
        over: asyncio.Future[RetryLater | None] = loop.create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        def stop() -> None:
            with suppress(RuntimeError):  # the loop is closed, and the stream with it
                loop.call_soon_threadsafe(end)

        with self.admit():
            timer = loop.call_later(self._seconds_max, end)
            with self._lock:
                self._on_stop.add(stop)
            if self.stopping:
                end()  # stopped since it was admitted
            try:
                yield over
            finally:
                timer.cancel()
                with self._lock:
                    self._on_stop.discard(stop)

    def ended(self) -> RetryLater:
        """Return the error for a stream that may not continue."""
        if self.stopping:
            return Stopping("the server is stopping; retry the request")
        return RetryLater("the stream has reached its maximum age; retry the request")

    def stop(self) -> None:
        """End all streams soon and admit no more."""
        self._stopping.set()
        with self._lock:
            waiting = list(self._on_stop)
        for stop in waiting:
            stop()


@contextmanager
def ended_when_invalid(
    still_valid: Callable[[], bool] | None, end: Callable[[], None], seconds: float = RECHECK_SECONDS
) -> Iterator[None]:
    """Call `end` once the credential of a stream of the running event loop is no longer valid, checked at this interval."""
    if still_valid is None:
        yield
        return
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def check() -> None:
        nonlocal timer
        if still_valid():
            timer = loop.call_later(seconds, check)
        else:
            end()

    timer = loop.call_later(seconds, check)
    try:
        yield
    finally:
        timer.cancel()


async def unless(over: "asyncio.Future[Any]", work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`; None if `over` is done first, which cancels the work."""
    task = asyncio.ensure_future(work)
    try:
        either: set[asyncio.Future[Any]] = {task, over}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
