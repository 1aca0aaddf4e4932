"""The base of all edges of a group graph: the types, and the policy for records whose handler raises."""

from enum import Enum
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


def checked_on_error(on_error: object, what: str) -> OnError:
    """Return the argument `on_error`. Raises `GraphError` for anything but an `OnError`."""
    if isinstance(on_error, OnError):
        return on_error
    choices = ", ".join(f"OnError.{each.name}" for each in OnError)
    raise GraphError(f"{what} has on_error={on_error!r}: give one of {choices}")
