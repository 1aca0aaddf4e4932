"""The table of rows by user that services read; implemented by `streamtable.View` and by tests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self, TypeVar

from streamtable.errors import NotReady, UnreadableRow

OnUnreadable = Callable[[UnreadableRow], object]
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)

STALE_SECONDS: Final = 5.0
"""The age in seconds from which a response about several users is marked stale; the view does it itself for single ones."""


class PlacedRow(Protocol[V_co]):
    """A row with its place in the topic; None: there is none, or it was deleted."""

    @property
    def value(self) -> V_co | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class TableAnswer(PlacedRow[V_co], Protocol[V_co]):
    """A row with its freshness."""

    @property
    def age_seconds(self) -> float: ...
    @property
    def stale(self) -> bool: ...


class KeyedRow(PlacedRow[V_co], Protocol[K_co, V_co]):
    """A row with its key."""

    @property
    def key(self) -> K_co: ...


class TableWatch(Protocol[V_co]):
    """The changes since it was opened."""

    @property
    def ended(self) -> bool: ...

    def next(self, timeout: float) -> KeyedRow[str, V_co] | None:
        """Return the next change; None after `timeout` seconds, or when the watch has ended.

        Raises:
            ChangesMissed: The reader was too slow, or the local copy is loaded again; the watch has ended.
        """

    async def next_async(self) -> KeyedRow[str, V_co] | None:
        """Return the next change; None when the watch has ended. Raises like `next`; cancelling it loses no change."""


class PartitionAge(Protocol):
    """The position and the age of one partition."""

    @property
    def age_seconds(self) -> float: ...


class Readable(Protocol):
    """A source of rows that says whether it can be read, and how old its partitions are."""

    @property
    def ready(self) -> bool: ...
    @property
    def not_ready(self) -> str: ...

    def position(self) -> Mapping[int, PartitionAge]: ...


class UserTable(Readable, Protocol[V_co]):
    """Rows by user. Reads raise `NotReady` until the copy is complete.

    A row that cannot be decoded raises `UnreadableRow` if it is asked for by its key. Lists and watches skip it, and
    call `on_unreadable` with the error.
    """

    def get(self, key: str) -> V_co | None: ...

    def answer(self, key: str) -> TableAnswer[V_co]: ...

    def iterate(
        self, prefix: str | None = None, after: str | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Iterator[tuple[str, V_co]]:
        """Iterate over users in the order of their ids' UTF-8 bytes."""

    def watch(
        self, key: str | None = None, prefix: str | None = None, *, on_unreadable: OnUnreadable | None = None
    ) -> AbstractContextManager[TableWatch[V_co]]:
        """Watch changes from now on, even while the copy is still loading."""


class WindowBounds(Protocol):
    """A key in a window, like `streamtable.flow.Windowed`."""

    @property
    def start_ms(self) -> int: ...
    @property
    def end_ms(self) -> int: ...


class FoundWindows(Protocol[V_co]):
    """Windows and their rows, as a view returns them."""

    @property
    def unreadable(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[WindowBounds, V_co]]: ...


class WindowTable(Readable, Protocol[V_co]):
    """Rows by key and window: a view of a windowed table."""

    def windows(self, key: str, since_ms: int, until_ms: int) -> FoundWindows[V_co]:
        """Return the windows of a key that overlap a range of time. Raises `NotReady`."""


class WindowFollowing(Protocol[V_co]):
    """The windows of a key as they close; a reader that resumes from `offset` misses none."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...

    async def next_async(self) -> KeyedRow[WindowBounds, V_co]:
        """Return the next window once it has closed. Cancelling it loses none.

        Raises:
            ChangesMissed: Some were deleted before they were read; the next call continues after them.
            DeserializationError: It cannot be decoded; the next call continues after it.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class ClosedWindows(Protocol[V_co]):
    """A topic of closed windows; `streamtable.Tail` implements it."""

    @property
    def ready(self) -> bool: ...

    def follow(
        self, key: str, partition: int | None = None, offset: int | None = None
    ) -> WindowFollowing[V_co]:
        """Follow the windows of a key from a position, or from now on. Raises `NotReady`, and `BadToken` for a wrong position."""


def age_seconds(table: Readable) -> float:
    """Return the age of the copy in seconds: that of its oldest partition. Raises `NotReady`."""
    if reason := table.not_ready:
        raise NotReady(reason)
    return max(position.age_seconds for position in table.position().values())


def freshness(table: Readable, behind_seconds: float = 0.0) -> dict[str, Any]:
    """Return the members of an answer about several users that say how current it is. Raises `NotReady`."""
    age = age_seconds(table) + behind_seconds
    return {"age_seconds": age, "stale": age > STALE_SECONDS}


def place_of(answer: TableAnswer[object]) -> dict[str, Any]:
    """Return the members of an answer about one user that say where its row is, and how current it is."""
    current = {"age_seconds": answer.age_seconds, "stale": answer.stale}
    return {"partition": answer.partition, "offset": answer.offset, **current}


def why_not_ready(*tables: Readable) -> str:
    """Return the reason why some of these tables are not ready; empty if all are."""
    return "; ".join(reason for table in tables if (reason := table.not_ready))
