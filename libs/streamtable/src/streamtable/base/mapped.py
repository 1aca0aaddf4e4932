"""Calls a user's function for each item of columns."""

from collections.abc import Callable, Sequence
from typing import Any


def mapped(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return the results of a function, called with the items of the columns, which are of one length.

    Raises:
        RuntimeError: The function has raised StopIteration, which `map` takes for its end: the other results would be missing.
        Exception: Whatever else the function raises.
    """
    found = list(map(function, *columns))
    if len(found) < len(columns[0]):
        raise RuntimeError("the function has raised StopIteration: give next() a default")
    return found
