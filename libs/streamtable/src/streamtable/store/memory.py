"""Stores in memory: for tests, the Tester, and tables that need not survive the process."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock

from streamtable.errors import RetryLater, StoreInUse


@dataclass
class _Contents:
    rows: dict[bytes, bytes] = field(default_factory=dict)
    checkpoint: bytes | None = None


class MemoryStores:
    """Stores that live as long as this object: one that is closed and opened again still has its rows.

    With `crash()` it behaves as a process that is killed: bulk writes are lost, all others are kept.

    Args:
        now: Wall time in seconds, for `present`.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._used: dict[tuple[str, int], float] = {}
        self._kept: dict[tuple[str, int], _Contents] = {}
        self._open: dict[tuple[str, int], MemoryStore] = {}

    def open(self, table: str, partition: int, *, spare: bool = False) -> "MemoryStore":
        del spare  # there are no other processes
        place = (table, partition)
        if place in self._open:
            raise StoreInUse("the store is open in this process already").at(table, partition)
        store = self._open[place] = MemoryStore(self, place, self._kept.get(place, _Contents()))
        self._used[place] = self._now()
        return store

    def destroy(self, table: str, partition: int) -> None:
        if (table, partition) in self._open:
            raise StoreInUse("the store is open: close it before it is destroyed").at(table, partition)
        self._kept.pop((table, partition), None)
        self._used.pop((table, partition), None)

    def present(self) -> Mapping[tuple[str, int], float]:
        return dict(self._used)

    def close(self) -> None:
        for store in list(self._open.values()):
            store.close()

    def crash(self) -> None:
        """Drop the writes that a kill would lose, and take all open stores away from their owners."""
        for store in list(self._open.values()):
            store.drop()

    def _closed(self, place: tuple[str, int], kept: _Contents) -> None:
        self._kept[place] = kept
        self._used[place] = self._now()
        del self._open[place]


class MemoryStore:
    """See `ports.Store`. A scan sorts all rows first: made for thousands of rows, not for millions."""

    def __init__(self, stores: MemoryStores, place: tuple[str, int], contents: _Contents) -> None:
        self._stores = stores
        self._place = place
        self._lock = Lock()  # a scan must not see half of a write
        self._now: _Contents | None = contents
        self._durable: _Contents | None = None  # the state before the bulk writes since the last other write

    def get(self, key: bytes) -> bytes | None:
        return self._contents().rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._contents().rows.get, keys))

    def write(
        self, changes: Iterable[tuple[bytes, bytes | None]], checkpoint: bytes, *, bulk: bool = False
    ) -> None:
        changes = list(changes)  # an error of the caller's iterable must leave no half of it
        contents = self._contents()
        if not bulk:
            self._durable = None
        elif self._durable is None:
            self._durable = _Contents(dict(contents.rows), contents.checkpoint)
        with self._lock:
            for key, value in changes:
                if value is None:
                    contents.rows.pop(key, None)
                else:
                    contents.rows[key] = value
            contents.checkpoint = checkpoint

    def checkpoint(self) -> bytes | None:
        return self._contents().checkpoint

    @contextmanager
    def scan(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Iterator[tuple[bytes, bytes]]]:
        with self._lock:
            rows = dict(self._contents().rows)
        keys = sorted(rows)
        first = 0 if start is None else bisect_left(keys, start)
        after = len(keys) if end is None else bisect_left(keys, end)
        chosen = keys[first:after]
        yield self._walk(rows, reversed(chosen) if reverse else chosen)

    def ranges(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
        with self.scan() as rows:
            found = list(rows)
        return [
            found[bisect_left(found, (start, b"")) : bisect_left(found, (end, b""))] for start, end in bounds
        ]

    def rows_in(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return list(chain.from_iterable(self.ranges(bounds)))

    def _walk(self, rows: dict[bytes, bytes], keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for key in keys:
            self._contents()
            yield key, rows[key]

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self._contents().rows.items())

    @property
    def release_requested(self) -> bool:
        return False

    def close(self) -> None:
        if self._now is not None:
            self._stores._closed(self._place, self._now)  # noqa: SLF001 - one unit
            self._now = None

    def drop(self) -> None:
        """Close as a kill would: without the latest bulk writes."""
        if self._durable is not None:
            self._now = self._durable
        self.close()

    def _contents(self) -> _Contents:
        if self._now is None:
            raise RetryLater("the store is closed here").at(*self._place)
        return self._now
