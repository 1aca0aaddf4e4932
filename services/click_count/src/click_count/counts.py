"""What the view and the query service ask of the table: `streamtable.View` is one, a test's dictionary another."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol

from streamtable.errors import NotReady

STALE_SECONDS: Final = 5.0
"""Age from which an answer about many users is marked stale; the view does it itself for single ones."""


class Answer(Protocol):
    """A count with how current it is."""

    @property
    def value(self) -> int | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def age_seconds(self) -> float: ...
    @property
    def stale(self) -> bool: ...


class Change(Protocol):
    """A user's new count; None: deleted."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> int | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class Watch(Protocol):
    """Changes from the moment it was opened."""

    @property
    def ended(self) -> bool: ...

    def next(self, timeout: float) -> Change | None:
        """The next change; None after `timeout` seconds, or when it has ended.

        Raises:
            StreamtableError: changes were missed, because the reader was too slow.
        """
        ...


class Position(Protocol):
    """How far one partition has come."""

    @property
    def age_seconds(self) -> float: ...


class Counts(Protocol):
    """Clicks by user. Until the copy is complete, what asks for rows raises `NotReady`."""

    @property
    def ready(self) -> bool: ...

    def get(self, key: str) -> int | None: ...

    def answer(self, key: str) -> Answer: ...

    def iterate(self, prefix: str | None = None, after: str | None = None) -> Iterator[tuple[str, int]]:
        """Users in the order of their ids' UTF-8 bytes."""
        ...

    def watch(self, key: str | None = None, prefix: str | None = None) -> AbstractContextManager[Watch]:
        """Changes from now on; also while the copy is not complete."""
        ...

    def position(self) -> Mapping[int, Position]: ...


def age_seconds(counts: Counts) -> float:
    """The age of the copy: that of its oldest partition. Raises `NotReady`."""
    if not counts.ready:
        raise NotReady("the table is being loaded")
    return max(position.age_seconds for position in counts.position().values())
