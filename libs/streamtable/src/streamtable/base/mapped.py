"""Calls a user's function for each item of columns, and checks what functions have returned."""

from collections.abc import Callable, Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from streamtable.errors import GraphError

_ASYNC = frozenset[type]({AsyncGeneratorType, CoroutineType})
_UNRUN = _ASYNC | {GeneratorType}


def mapped(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return the results of a function, called with the items of the columns, which are of one length.

    Raises:
        RuntimeError: The function has raised StopIteration, which `map` takes for its end: the other results would be missing.
        GraphError: The function has returned a coroutine.
        Exception: Whatever else the function raises.
    """
    found = list(map(function, *columns))
    if len(found) < len(columns[0]):
        raise RuntimeError("the function has raised StopIteration: give next() a default")
    check_results(found, _ASYNC)
    return found


def check_results(results: Sequence[object], unrun: frozenset[type] = _UNRUN) -> None:
    """Raise `GraphError` if a function has returned a coroutine or a generator, which nothing would run.

    `checked_function` sees no async function behind a decorator or a lambda.
    """
    if not unrun.isdisjoint(map(type, results)):
        raise GraphError(
            "a function has returned a coroutine or a generator, as one that is async or has a yield behind a decorator, and "
            "nothing would run it: give a plain function"
        )
