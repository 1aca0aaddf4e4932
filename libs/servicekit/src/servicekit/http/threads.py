"""Handlers written as plain functions, each in a thread: a request waits for one no longer than it may."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from inspect import iscoroutinefunction
from math import inf
from typing import Any, Final

from anyio import CapacityLimiter, WouldBlock
from anyio.to_thread import current_default_thread_limiter, run_sync

from servicekit.http.problems import overloaded

BEGIN_BY: Final[ContextVar[float]] = ContextVar("begin_by", default=inf)
"""The time on the event loop's clock by which the current request must have a thread, or is answered with 503."""


def in_thread(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that runs the endpoint in a thread; a coroutine function is returned as it is."""
    if iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def run(*arguments: Any, **named: Any) -> Any:
        threads = current_default_thread_limiter()
        try:
            threads.acquire_nowait()
        except WouldBlock:
            try:
                async with asyncio.timeout_at(BEGIN_BY.get()):
                    await threads.acquire()
            except TimeoutError:
                raise overloaded() from None
        try:
            # Its limiter is that of this call alone, which has a thread already.
            return await run_sync(partial(endpoint, *arguments, **named), limiter=CapacityLimiter(1))
        finally:
            threads.release()

    return run
