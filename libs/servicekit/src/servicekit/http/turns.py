"""The turn of a request that waits for a thread: it is begun by its handler or given up by the guard, and never both."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from threading import Lock
from typing import Any, Final

from streamtable.errors import RetryLater


class Turn:
    """The turn of one request. Any thread."""

    def __init__(self) -> None:
        self._taken = Lock()

    def take(self) -> bool:
        """Begin the request, or give it up; false if the other was done before."""
        return self._taken.acquire(blocking=False)


TURN: Final[ContextVar[Turn | None]] = ContextVar("turn", default=None)
"""The turn of the current request; None: it needs no turn."""


def beginning(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler so that it begins its request's turn."""
    if iscoroutinefunction(endpoint):

        @wraps(endpoint)
        async def in_loop(*arguments: Any, **named: Any) -> Any:
            _begin()
            return await endpoint(*arguments, **named)

        return in_loop

    @wraps(endpoint)
    def in_thread(*arguments: Any, **named: Any) -> Any:
        _begin()
        return endpoint(*arguments, **named)

    return in_thread


def _begin() -> None:
    turn = TURN.get()
    if turn is not None and not turn.take():
        raise RetryLater("the request was given up before it was begun")
