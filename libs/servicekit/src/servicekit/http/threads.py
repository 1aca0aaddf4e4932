"""The work of requests that waits, each in a thread: a request waits for one no longer than it may."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial, wraps
from inspect import iscoroutinefunction
from math import inf
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter, WouldBlock
from anyio.to_thread import current_default_thread_limiter, run_sync

from servicekit.http.problems import overloaded

T = TypeVar("T")
BEGIN_BY: Final[ContextVar[float]] = ContextVar("begin_by", default=inf)
"""The time on the event loop's clock by which the current request must have a thread, or is answered with 503."""


async def in_time(place: Coroutine[Any, Any, object], until: float) -> None:
    """Wait for a place for a request, at most until this time; then it is answered with 503."""
    try:
        async with asyncio.timeout_at(until):
            await place
    except TimeoutError:
        raise overloaded() from None


async def run_in_thread(work: Callable[..., T], *arguments: Any, threads: CapacityLimiter | None = None) -> T:
    """Run the work of a request in a thread, as soon as there is one. Raises a `Problem` of status 503.

    Args:
        work: The work.
        arguments: Its arguments.
        threads: The threads that the work may take; None: the threads of all requests.
    """
    threads = threads or current_default_thread_limiter()
    try:
        threads.acquire_nowait()
    except WouldBlock:
        await in_time(threads.acquire(), BEGIN_BY.get())
    try:
        # This call alone has its limiter, and a thread already.
        return await run_sync(work, *arguments, limiter=CapacityLimiter(1))
    finally:
        threads.release()


def in_thread(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that runs the endpoint in a thread; a coroutine function is returned as it is."""
    if iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def run(*arguments: Any, **named: Any) -> Any:
        return await run_in_thread(partial(endpoint, *arguments, **named))

    return run
