"""Detects overload by the waiting time of requests, not by their number.

As in CoDel (RFC 8289): a queue exists to absorb bursts, so some requests wait. If even the shortest wait of an interval
is long, it is a standing queue, and requests that join it wait in vain.
"""

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from math import inf
from threading import Lock
from typing import Any, Final

from streamtable.errors import RetryLater

_INTERVAL_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 0.1
_FEW: Final = 16
"""The number of requests below which a delay means a slow machine: rejecting some requests would not help the others."""


class DelayMeter:
    """The least delay of the last interval. Any thread.

    Args:
        interval: The length of the interval in seconds.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, interval: float = _INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._lock = Lock()
        self._begun = clock()
        self._least = inf
        self._of_last = 0.0

    def measure(self, seconds: float) -> None:
        """Record a wait."""
        with self._lock:
            self._roll()
            self._least = min(self._least, seconds)

    @property
    def standing(self) -> float:
        """The shortest wait of all requests in the last interval; 0 if none was measured."""
        with self._lock:
            self._roll()
            return self._of_last

    def _roll(self) -> None:
        now = self._clock()
        passed = now - self._begun
        if passed < self._interval:
            return
        fresh = passed < 2 * self._interval and self._least < inf
        self._of_last = self._least if fresh else 0.0
        self._begun, self._least = now, inf


class Turn:
    """The turn of a request that waits for a thread: it is either begun or given up. Any thread.

    Args:
        waits: Records the waiting time when the request begins.
    """

    def __init__(self, waits: DelayMeter) -> None:
        self._waits = waits
        self._since = time.monotonic()
        self._lock = Lock()
        self._is_open = True

    def begin(self, *, in_thread: bool) -> None:
        """Begin. Raises `RetryLater` if the request was given up: its caller has been answered already.

        Args:
            in_thread: Whether it has waited for a thread, so that its waiting time is recorded.
        """
        if not self._close():
            raise RetryLater("the request was given up before it was begun")
        if in_thread:
            self._waits.measure(time.monotonic() - self._since)

    def give_up(self) -> bool:
        """Give the request up; false if it has begun."""
        if not self._close():
            return False
        self._waits.measure(time.monotonic() - self._since)
        return True

    def _close(self) -> bool:
        with self._lock:
            was_open, self._is_open = self._is_open, False
            return was_open


TURN: Final[ContextVar[Turn | None]] = ContextVar("turn", default=None)
"""The turn of the current request; None: it needs no turn."""


def beginning(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler so that it begins its request's turn."""
    if iscoroutinefunction(endpoint):

        @wraps(endpoint)
        async def in_loop(*arguments: Any, **named: Any) -> Any:
            _begin(in_thread=False)
            return await endpoint(*arguments, **named)

        return in_loop

    @wraps(endpoint)
    def in_thread(*arguments: Any, **named: Any) -> Any:
        _begin(in_thread=True)
        return endpoint(*arguments, **named)

    return in_thread


def _begin(*, in_thread: bool) -> None:
    if (turn := TURN.get()) is not None:
        turn.begin(in_thread=in_thread)


class Overload:
    """The measured delays of one server, in its event loop.

    Args:
        target: The shortest waiting time, in seconds, above which a queue counts as standing.
        queue_seconds: The longest time that a request waits for a thread while there is no standing queue.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, target: float, queue_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._target = target
        self._queue_seconds = queue_seconds
        self.waits = DelayMeter(clock=clock)
        self.loop_delays = DelayMeter(clock=clock)
        self._working = 0
        self._beats = False

    @property
    def patience(self) -> float:
        """The seconds that a request may wait for a thread."""
        return min(self._target, self._queue_seconds) if self._stands(self.waits) else self._queue_seconds

    @property
    def refuses(self) -> bool:
        """Whether a new request must be rejected at once, because the event loop itself is behind."""
        return self._working > _FEW and self._stands(self.loop_delays)

    def __enter__(self) -> None:
        """Count a request, and measure the event loop while there are any."""
        self._working += 1
        if not self._beats:
            self._beats = True
            self._beat_at(asyncio.get_running_loop())

    def __exit__(self, *_: object) -> None:
        self._working -= 1

    def _stands(self, meter: DelayMeter) -> bool:
        return meter.standing > self._target

    def _beat_at(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + _BEAT_SECONDS

        def beat() -> None:
            self.loop_delays.measure(loop.time() - due)
            self._beats = self._working > 0
            if self._beats:
                self._beat_at(loop)

        loop.call_at(due, beat)
