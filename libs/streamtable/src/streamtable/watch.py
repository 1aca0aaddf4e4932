"""Live changes of a view's rows, taken one after the other by a reader of any speed."""

import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from streamtable.errors import StreamtableError
from streamtable.topics import Table

K = TypeVar("K")
V = TypeVar("V")


class TooSlow(StreamtableError):
    """The watch has ended because its reader did not keep up: read the rows, then watch again."""


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
        table: for its codecs.
        key: encoded; None for all keys with the prefix.
        prefix: encoded; empty for all.
        capacity: changes that may wait.
        closed: called once when it ends.
    """

    def __init__(
        self,
        table: Table[K, V],
        key: bytes | None,
        prefix: bytes,
        capacity: int,
        closed: "Callable[[Watch[K, V]], None]",
    ) -> None:
        self._table = table
        self._key = key
        self._prefix = prefix
        self._closed = closed
        self._ended = False
        self._too_slow = False
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
                self._too_slow = True
                self.close()
                return
            self._queue.put((key, rows[key], partition, offset))

    def next(self, timeout: float | None = None) -> Change[K, V] | None:
        """The next change, or None when `timeout` seconds have passed without one, or the watch was closed.

        Raises:
            TooSlow: changes have been left out because too many were waiting.
        """
        try:
            item = None if self._ended and self._queue.empty() else self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if self._too_slow:
            raise TooSlow(
                f"more than {self._capacity} changes of {self._table.name!r} were waiting, and the watch was ended: "
                "read the rows, then watch again"
            )
        if item is None:
            return None
        key, value, partition, offset = item
        row = None if value is None else self._table.value.decode(value)
        return Change(self._table.key.decode(key), row, partition, offset)

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
