"""Live changes of a view's rows, taken one after the other by a reader of any speed."""

import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from streamtable.errors import StreamtableError, UnreadableRow
from streamtable.topics import Table
from streamtable.views.rows import OnUnreadable, RowReader

K = TypeVar("K")
V = TypeVar("V")


class ChangesMissed(StreamtableError):
    """The watch has ended, and changes have been left out: watch again, then read the rows."""


class TooSlow(ChangesMissed):
    """The watch has ended because its reader did not keep up: watch again, then read the rows."""


class CopyReloaded(ChangesMissed):
    """The watch has ended because the local copy was discarded and is loaded again: watch again, then read the rows."""


@dataclass(frozen=True, slots=True)
class Change(Generic[K, V]):
    """A row's newest state. Of several changes that arrive together only the last of each key is told.

    Attributes:
        key: of the row.
        value: None: deleted.
        partition: of the table.
        offset: up to which the view holds everything now.
    """

    key: K
    value: V | None
    partition: int
    offset: int


class Watch(Generic[K, V]):
    """An endless iterator of changes; a context manager. One reader.

    Args:
        table: for its name.
        key: encoded; None for all keys with the prefix.
        prefix: encoded; empty for all.
        capacity: changes that may wait.
        closed: called once when it ends.
        reader: decodes the changes.
        on_unreadable: called with the error of each change that is left out because it cannot be decoded.

    Attributes:
        unreadable: how many changes have been left out for that.
    """

    def __init__(
        self,
        table: Table[K, V],
        key: bytes | None,
        prefix: bytes,
        capacity: int,
        closed: "Callable[[Watch[K, V]], None]",
        reader: RowReader[K, V],
        on_unreadable: OnUnreadable | None = None,
    ) -> None:
        self._table = table
        self._key = key
        self._prefix = prefix
        self._closed = closed
        self._ended = False
        self._missed: ChangesMissed | None = None
        self._reader = reader
        self._on_unreadable = on_unreadable
        self.unreadable = 0
        self._capacity = capacity
        self._queue: queue.SimpleQueue[tuple[bytes, bytes | None, int, int] | None] = queue.SimpleQueue()

    def offer(self, partition: int, rows: Mapping[bytes, bytes | None], offset: int) -> None:
        """Called by the view with each batch of changed rows."""
        if self._ended:
            return
        if self._key is not None:
            told = [self._key] if self._key in rows else []
        else:
            told = [key for key in rows if key.startswith(self._prefix)]
        for key in told:
            if self._queue.qsize() >= self._capacity:
                self._missed = TooSlow(
                    f"more than {self._capacity} changes of {self._table.name!r} were waiting, and the watch was "
                    "ended: watch again, then read the rows",
                    topic=self._table.name,
                )
                self.close()
                return
            self._queue.put((key, rows[key], partition, offset))

    def next(self, timeout: float | None = None) -> Change[K, V] | None:
        """The next change, or None when `timeout` seconds have passed without one, or the watch was closed.

        Raises:
            ChangesMissed: changes have been left out, as `TooSlow` if too many were waiting, or `CopyReloaded`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                item = None if self._ended and self._queue.empty() else self._queue.get(timeout=left)
            except queue.Empty:
                return None
            if self._missed is not None:
                raise self._missed
            if item is None:
                return None
            if (change := self._decoded(*item)) is not None:
                return change

    def _decoded(self, key: bytes, data: bytes | None, partition: int, offset: int) -> Change[K, V] | None:
        reader = self._reader
        try:
            value = None if data is None else reader.value(key, data, offset)
            return Change(reader.key(key, data, offset), value, partition, offset)
        except UnreadableRow as error:
            self.unreadable += 1
            if self._on_unreadable is not None:
                self._on_unreadable(error)
            return None

    def reloaded(self, partition: int, reason: str) -> None:
        """End it: the copy of a partition was discarded, and changes until it is loaded again are not delivered."""
        if not self._ended:
            self._missed = CopyReloaded(
                f"the local copy was discarded and is loaded again ({reason}), and the watch was ended: watch again, "
                "then read the rows",
                topic=self._table.name,
                partition=partition,
            )
            self.close()

    @property
    def ended(self) -> bool:
        """Closed; what was waiting can still be taken."""
        return self._ended

    def close(self) -> None:
        """End it; a reader that waits is woken. May be called twice, from any thread."""
        if not self._ended:
            self._ended = True
            self._queue.put(None)
            self._closed(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change[K, V]:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
