"""A table in memory, in place of a view."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from typing import Generic, TypeVar

from servicekit.tables.protocol import OnUnreadable
from streamtable.base.types import Ack
from streamtable.errors import NotReady, StreamtableError, UnreadableRow

V = TypeVar("V")
_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class MemoryAnswer(Generic[V]):
    value: V | None
    partition: int
    offset: int
    age_seconds: float
    stale: bool


@dataclass(frozen=True)
class MemoryChange(Generic[V]):
    key: str
    value: V | None
    partition: int
    offset: int


@dataclass(frozen=True)
class MemoryPosition:
    age_seconds: float


@dataclass(eq=False)
class MemoryWatch(Generic[V]):
    """A watch like `streamtable.Watch`; tests may set `overrun` and `ended`."""

    key: str | None
    prefix: str | None
    changed: Condition
    queue: deque[MemoryChange[V] | UnreadableRow] = field(default_factory=deque)
    on_unreadable: OnUnreadable | None = None
    overrun: bool = False
    ended: bool = False

    def next(self, timeout: float) -> MemoryChange[V] | None:
        with self.changed:
            self.changed.wait_for(lambda: self.queue or self.overrun, timeout)
            if self.overrun:
                raise StreamtableError("the reader is too slow")
            while self.queue:
                change = self.queue.popleft()
                if not isinstance(change, UnreadableRow):
                    return change
                if self.on_unreadable is not None:
                    self.on_unreadable(change)
            return None

    async def next_async(self) -> MemoryChange[V] | None:
        while True:
            ended = self.ended
            if (change := self.next(0)) is not None or ended:
                return change
            await asyncio.sleep(_LOOK_SECONDS)


class MemoryTable(Generic[V]):
    """Rows by user in one partition, like those of a `streamtable.View`; `put` stands for a processor's commit.

    Attributes:
        ready: Whether reads succeed; if false, they raise `NotReady`.
        shown: The positions of the events that the rows show.
        spoiled: The keys whose row cannot be decoded.
    """

    def __init__(self) -> None:
        self.ready = True
        self.rows: dict[str, V] = {}
        self.age_seconds = 0.25
        self.stale = False
        self.scans = 0
        self.watches: list[MemoryWatch[V]] = []
        self.shown: set[Ack] = set()
        self.spoiled: set[str] = set()
        self._offset = 0
        self._changed = Condition()

    @property
    def not_ready(self) -> str:
        """The reason that a view would give."""
        return "" if self.ready else "Kafka does not answer"

    def reset(self) -> None:
        """Delete all rows; watches get the deletions."""
        for key in [*self.rows, *self.spoiled]:
            self.put(key, None)
        self.ready, self.stale, self.age_seconds = True, False, 0.25
        self.shown.clear()
        self.spoiled.clear()
        self._offset = 0

    def put(self, key: str, value: V | None, shows: Ack | None = None) -> None:
        """Change a row; None deletes it. `shows` is the event that caused the change."""
        with self._changed:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
            self.spoiled.discard(key)
            self._notify(key, MemoryChange(key, value, 0, self._offset + 1))
            if shows is not None:
                self.shown.add(shows)

    def spoil(self, key: str) -> None:
        """Write a row that cannot be decoded."""
        with self._changed:
            self.rows.pop(key, None)
            self.spoiled.add(key)
            self._notify(key, self._unreadable(key))

    def _notify(self, key: str, change: MemoryChange[V] | UnreadableRow) -> None:
        self._offset += 1
        for watch in self.watches:
            if watch.key in (None, key) and key.startswith(watch.prefix or ""):
                watch.queue.append(change)
        self._changed.notify_all()

    def _unreadable(self, key: str) -> UnreadableRow:
        return UnreadableRow(
            "not Avro", key=key.encode(), topic="counts", partition=0, position=self._offset + 1
        )

    def overrun(self) -> None:
        """Make all open watches miss changes, which ends them, like a `streamtable.Watch`."""
        with self._changed:
            for watch in self.watches:
                watch.overrun = watch.ended = True
            self._changed.notify_all()

    def get(self, key: str) -> V | None:
        self._check(key)
        return self.rows.get(key)

    def answer(self, key: str) -> MemoryAnswer[V]:
        self._check(key)
        return MemoryAnswer(self.rows.get(key), 0, self._offset, self.age_seconds, self.stale)

    def iterate(
        self, prefix: str | None = None, after: str | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Iterator[tuple[str, V]]:
        self._check()
        self.scans += 1
        rows = dict(self.rows)
        for key in sorted({*rows, *self.spoiled}, key=lambda key: key.encode()):
            if not key.startswith(prefix or "") or (after is not None and key.encode() <= after.encode()):
                continue
            if key not in self.spoiled:
                yield key, rows[key]
            elif on_unreadable is not None:
                on_unreadable(self._unreadable(key))

    @contextmanager
    def watch(
        self, key: str | None = None, prefix: str | None = None, *, on_unreadable: OnUnreadable | None = None
    ) -> Iterator[MemoryWatch[V]]:
        watch: MemoryWatch[V] = MemoryWatch(key, prefix, self._changed, on_unreadable=on_unreadable)
        self.watches.append(watch)
        try:
            yield watch
        finally:
            self.watches.remove(watch)

    async def wait_for_async(self, ack: Ack, timeout: float) -> None:  # noqa: ASYNC109 - as `streamtable.View`
        end = time.monotonic() + timeout
        while ack not in self.shown:
            if time.monotonic() >= end:
                raise NotReady("the table does not show the event yet")
            await asyncio.sleep(_LOOK_SECONDS)

    def position(self) -> Mapping[int, MemoryPosition]:
        return {0: MemoryPosition(self.age_seconds)}

    def _check(self, key: str | None = None) -> None:
        if not self.ready:
            raise NotReady("the table is being loaded")
        if key in self.spoiled:
            raise self._unreadable(key)
