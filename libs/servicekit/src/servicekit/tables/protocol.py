"""What services ask of a table of rows by user: `streamtable.View` is one, a test's dictionary another."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar

from streamtable.errors import NotReady, UnreadableRow

OnUnreadable = Callable[[UnreadableRow], object]
V_co = TypeVar("V_co", covariant=True)

STALE_SECONDS: Final = 5.0
"""Age from which an answer about many users is marked stale; the view does it itself for single ones."""


class TableAnswer(Protocol[V_co]):
    """A row with how current it is."""

    @property
    def value(self) -> V_co | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def age_seconds(self) -> float: ...
    @property
    def stale(self) -> bool: ...


class TableChange(Protocol[V_co]):
    """A user's new row; None: deleted."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> V_co | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class TableWatch(Protocol[V_co]):
    """Changes from the moment it was opened."""

    @property
    def ended(self) -> bool: ...

    def next(self, timeout: float) -> TableChange[V_co] | None:
        """The next change; None after `timeout` seconds, or when it has ended.

        Raises:
            ChangesMissed: the reader was too slow, or the local copy is loaded again; the watch has ended.
        """
        ...

    async def next_async(self) -> TableChange[V_co] | None:
        """The next change; None when it has ended. Raises as `next`; may be cancelled without losing a change."""
        ...


class PartitionAge(Protocol):
    """How far one partition has come."""

    @property
    def age_seconds(self) -> float: ...


class UserTable(Protocol[V_co]):
    """Rows by user. Until the copy is complete, what asks for rows raises `NotReady`.

    A row that cannot be decoded raises `UnreadableRow` if it is asked for by its key. Lists and watches leave it out, and
    call `on_unreadable` with the error.
    """

    @property
    def ready(self) -> bool: ...

    def get(self, key: str) -> V_co | None: ...

    def answer(self, key: str) -> TableAnswer[V_co]: ...

    def iterate(
        self, prefix: str | None = None, after: str | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Iterator[tuple[str, V_co]]:
        """Users in the order of their ids' UTF-8 bytes."""
        ...

    def watch(
        self,
        key: str | None = None,
        prefix: str | None = None,
        *,
        on_unreadable: OnUnreadable | None = None,
    ) -> AbstractContextManager[TableWatch[V_co]]:
        """Changes from now on; also while the copy is not complete."""
        ...

    def position(self) -> Mapping[int, PartitionAge]: ...


class WindowBounds(Protocol):
    """A key in a window, as `streamtable.flow.Windowed`."""

    @property
    def start_ms(self) -> int: ...
    @property
    def end_ms(self) -> int: ...


class FoundWindows(Protocol[V_co]):
    """Windows and their rows, as a view returns them."""

    @property
    def unreadable(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[WindowBounds, V_co]]: ...


class WindowTable(Protocol[V_co]):
    """Rows by key and window: a view of a windowed table."""

    @property
    def ready(self) -> bool: ...

    def windows(self, key: str, since_ms: int, until_ms: int) -> FoundWindows[V_co]:
        """Return the windows of a key that overlap a range of time. Raises `NotReady`."""
        ...

    def position(self) -> Mapping[int, PartitionAge]: ...


def age_seconds(table: UserTable[object] | WindowTable[object]) -> float:
    """The age of the copy: that of its oldest partition. Raises `NotReady`."""
    if not table.ready:
        raise NotReady("the table is being loaded")
    return max(position.age_seconds for position in table.position().values())
