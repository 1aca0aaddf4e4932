"""For tests of services: a table in memory instead of a view, and commands as processes."""

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from threading import Condition, Thread
from typing import Generic, TypeVar

from servicekit.prefork import prefork_of
from servicekit.tables import OnUnreadable
from streamtable.errors import NotReady, StreamtableError, UnreadableRow
from streamtable.types import Ack

V = TypeVar("V")


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
    """As `streamtable.Watch`; a test may set `overrun` and `ended`."""

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


class MemoryTable(Generic[V]):
    """Rows by user in one partition, as `streamtable.View` shows them; `put` is what a processor's commit would be.

    Attributes:
        ready: false: what asks for rows raises `NotReady`.
        shown: places of the events that the rows show.
        spoiled: keys whose row cannot be decoded.
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

    def reset(self) -> None:
        """Begin again, as far as callers can see; whoever watches is told."""
        for key in [*self.rows, *self.spoiled]:
            self.put(key, None)
        self.ready, self.stale, self.age_seconds = True, False, 0.25
        self.shown.clear()
        self.spoiled.clear()
        self._offset = 0

    def put(self, key: str, value: V | None, shows: Ack | None = None) -> None:
        """Change a row; None deletes it. `shows` is the event that it comes from."""
        with self._changed:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
            self.spoiled.discard(key)
            self._tell(key, MemoryChange(key, value, 0, self._offset))
            if shows is not None:
                self.shown.add(shows)

    def spoil(self, key: str) -> None:
        """Write a row that cannot be decoded."""
        with self._changed:
            self.rows.pop(key, None)
            self.spoiled.add(key)
            self._tell(key, self._unreadable(key))

    def _tell(self, key: str, change: MemoryChange[V] | UnreadableRow) -> None:
        self._offset += 1
        for watch in self.watches:
            if watch.key == key or (watch.prefix is not None and key.startswith(watch.prefix)):
                watch.queue.append(change)
        self._changed.notify_all()

    def _unreadable(self, key: str) -> UnreadableRow:
        return UnreadableRow(
            "not Avro", key=key.encode(), topic="counts", partition=0, position=self._offset + 1
        )

    def overrun(self) -> None:
        """All present watches have missed changes, and are ended by that, as `streamtable.Watch` is."""
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
        self,
        key: str | None = None,
        prefix: str | None = None,
        *,
        on_unreadable: OnUnreadable | None = None,
    ) -> Iterator[MemoryWatch[V]]:
        watch: MemoryWatch[V] = MemoryWatch(key, prefix, self._changed, on_unreadable=on_unreadable)
        self.watches.append(watch)
        try:
            yield watch
        finally:
            self.watches.remove(watch)

    def wait_for(self, ack: Ack, timeout: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: ack in self.shown, timeout):
                raise NotReady("it does not show")

    def position(self) -> Mapping[int, MemoryPosition]:
        return {0: MemoryPosition(self.age_seconds)}

    def _check(self, key: str | None = None) -> None:
        if not self.ready:
            raise NotReady("the table is being loaded")
        if key in self.spoiled:
            raise self._unreadable(key)


class Process:
    """A command of a service, running; none of its settings comes from this process.

    Args:
        module: that is run.
        arguments: command and options.
        environment: its settings.

    Attributes:
        output: the lines that it has written so far.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        settings = re.compile(r"STREAMTABLE_|SERVICEKIT_|OTEL_|[A-Z_]+_GROUP$")
        clean = {name: value for name, value in os.environ.items() if not settings.match(name)}
        read, write = os.pipe()
        try:
            self.process = prefork_of(module).start(arguments, {**clean, **environment}, write)
        finally:
            os.close(write)
        self.output: list[str] = []
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read, args=(read,))
        self._reader.start()

    def _read(self, output: int) -> None:
        with open(output, encoding="utf-8") as lines:
            for line in lines:
                self.output.append(line)
                self._lines.put(line)

    def address(self) -> str:
        """What it says that it listens on; when called again, the next one."""
        while True:
            found = re.match(r"listening on (http|grpc)://(\S+)", self._lines.get(timeout=90))
            if found is not None:
                return found.group(2)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop. Returns the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end, a minute at most, then end it. Returns the exit code; raises TimeoutError."""
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.close()
            raise TimeoutError(f"it has not ended; it said: {''.join(self.output)}") from None
        self._reader.join()
        return code

    def close(self) -> None:
        """Make sure that it has ended."""
        self.process.kill()
        self.ended()
