"""The base of all edges of a group graph: the types, and the policy for records whose handler raises."""

from enum import Enum
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Generic, TypeVar

from streamtable.errors import GraphError

K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)


class Edge(Generic[K_contra, V_contra]):
    """A part of a group, with the types of its keys and its rows; `object` where any fits."""


class OnError(Enum):
    """The policy for a record whose handler raises. In each case the effects of this record, and of no other, are undone."""

    STOP = "stop"
    """The process stops with the error, after a commit of the records before it; it starts again at this record."""
    DEAD_LETTER = "dead letter"
    """The record goes to the group's dead letters with the reason."""
    SKIP = "skip"
    """The record is logged and skipped."""


def checked_function(function: object, what: str) -> None:
    """Raise `GraphError` for anything but a function, and for a coroutine or generator function: nothing runs what a call of it returns.

    Its records would count as handled, and its result, an object, as true. None is no function yet.
    """
    if function is not None and not callable(function):
        raise GraphError(f"{what} is {function!r}: give a function")
    for each in (function, type(function).__call__):
        if iscoroutinefunction(each) or isgeneratorfunction(each) or isasyncgenfunction(each):
            raise GraphError(
                f"{what} is async or has a yield, so nothing would run it: give a plain function"
            )


def checked_handler(handler: object, on_error: object, what: str) -> None:
    """Raise `GraphError` for a handler that `checked_function` refuses, and for a policy that is not an `OnError`."""
    checked_function(handler, f"the handler of {what}")
    if not isinstance(on_error, OnError):
        choices = ", ".join(f"OnError.{each.name}" for each in OnError)
        raise GraphError(f"{what} has on_error={on_error!r}: give one of {choices}")
