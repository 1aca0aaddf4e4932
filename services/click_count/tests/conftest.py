"""A table of counts in memory, for tests of what stands in front of it."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition

import pytest

from streamtable.errors import NotReady, StreamtableError


@dataclass(frozen=True)
class MemoryAnswer:
    value: int | None
    partition: int
    offset: int
    age_seconds: float
    stale: bool


@dataclass(frozen=True)
class MemoryChange:
    key: str
    value: int | None
    partition: int
    offset: int


@dataclass(frozen=True)
class MemoryPosition:
    age_seconds: float


@dataclass(eq=False)
class MemoryWatch:
    key: str | None
    prefix: str | None
    changed: Condition
    queue: deque[MemoryChange] = field(default_factory=deque)
    overrun: bool = False
    ended: bool = False

    def next(self, timeout: float) -> MemoryChange | None:
        with self.changed:
            self.changed.wait_for(lambda: self.queue or self.overrun, timeout)
            if self.overrun:
                raise StreamtableError("the reader is too slow")
            return self.queue.popleft() if self.queue else None


class MemoryCounts:
    """One partition; `put` is what a processor's commit would be."""

    def __init__(self) -> None:
        self.ready = True
        self.rows: dict[str, int] = {}
        self.age_seconds = 0.25
        self.stale = False
        self.scans = 0
        self.watches: list[MemoryWatch] = []
        self._offset = 0
        self._changed = Condition()

    def reset(self) -> None:
        """Begin again, as far as callers can see; whoever watches is told."""
        for key in list(self.rows):
            self.put(key, None)
        self.ready, self.stale, self.age_seconds = True, False, 0.25
        self._offset = 0

    def put(self, key: str, value: int | None) -> None:
        with self._changed:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
            change = MemoryChange(key, value, 0, self._offset)
            self._offset += 1
            for watch in self.watches:
                if watch.key == key or (watch.prefix is not None and key.startswith(watch.prefix)):
                    watch.queue.append(change)
            self._changed.notify_all()

    def overrun(self) -> None:
        """All present watches have missed changes."""
        with self._changed:
            for watch in self.watches:
                watch.overrun = True
            self._changed.notify_all()

    def get(self, key: str) -> int | None:
        self._check()
        return self.rows.get(key)

    def answer(self, key: str) -> MemoryAnswer:
        self._check()
        return MemoryAnswer(self.rows.get(key), 0, self._offset, self.age_seconds, self.stale)

    def iterate(self, prefix: str | None = None, after: str | None = None) -> Iterator[tuple[str, int]]:
        self._check()
        self.scans += 1
        rows = sorted(self.rows.items(), key=lambda row: row[0].encode())
        return (
            row
            for row in rows
            if row[0].startswith(prefix or "") and (after is None or row[0].encode() > after.encode())
        )

    @contextmanager
    def watch(self, key: str | None = None, prefix: str | None = None) -> Iterator[MemoryWatch]:
        watch = MemoryWatch(key, prefix, self._changed)
        self.watches.append(watch)
        try:
            yield watch
        finally:
            self.watches.remove(watch)

    def position(self) -> Mapping[int, MemoryPosition]:
        return {0: MemoryPosition(self.age_seconds)}

    def _check(self) -> None:
        if not self.ready:
            raise NotReady("the table is being loaded")


@pytest.fixture(scope="session")
def make_counts() -> type[MemoryCounts]:
    return MemoryCounts


@pytest.fixture
def counts() -> MemoryCounts:
    return MemoryCounts()
