"""Live changes of a view's rows, for readers of any speed, blocking or in a coroutine."""

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from streamtable.base.closing import Closing
from streamtable.base.keys import prefix_span
from streamtable.base.own_process import OwnProcess
from streamtable.errors import ChangesMissed, UnreadableRow
from streamtable.views.rows import OnUnreadable, RowReader

K = TypeVar("K")
V = TypeVar("V")
_Waiting = tuple[bytes, bytes | None, int, int]
Wake = Callable[[], object]
CAPACITY_BYTES: Final = 64 << 20
"""Bytes of changes that may wait for a reader, where a view's watch is not given another number."""


class TooSlow(ChangesMissed):
    """The watch has ended because its reader did not keep up: watch again, then read the rows."""


class CopyReloaded(ChangesMissed):
    """The watch has ended because the local copy is being loaded again: watch again, then read the rows."""


@dataclass(frozen=True, slots=True)
class Change(Generic[K, V]):
    """The newest state of a row. Of several changes that arrive together only the last of each key is delivered.

    Attributes:
        key: The key of the row.
        value: The row; None if it was deleted.
        partition: The partition of the table.
        offset: The view holds everything up to this offset now.
    """

    key: K
    value: V | None
    partition: int
    offset: int


@dataclass(eq=False, repr=False)
class Watch(Closing, Iterator[Change[K, V]], AsyncIterator[Change[K, V]], Generic[K, V]):
    """The endless changes of a view's rows; a context manager. Made by `View.watch`.

        for change in view.watch("alice"):  # a thread of its own
            print(change.value)

        async for change in view.watch("alice"):  # any number of them in one event loop
            print(change.value)

    It has one reader: a thread, or a coroutine. Neither polls; both are woken by the view's thread when a change comes.

    Attributes:
        unreadable: The number of changes that were skipped because they cannot be decoded.
    """

    _reader: RowReader[K, V]
    watched: bytes
    by_prefix: bool
    _capacity: int
    _capacity_bytes: int
    _closed: "Callable[[Watch[K, V]], None]"
    _on_unreadable: OnUnreadable | None = None
    unreadable: int = 0
    _waiting_bytes: int = 0
    _missed: ChangesMissed | None = None
    _ended: bool = False
    _wake: Wake | None = None

    def __post_init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()  # guards the pending changes, `_ended` and `_wake`
        self._table = self._reader.table
        self._here = OwnProcess(f"the watch of {self._table.name!r}")

    # ---- its reader ------------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Change[K, V] | None:
        """Return the next change; None when `timeout` seconds have passed without one, or the watch was closed.

        Raises:
            ChangesMissed: Changes were missed, as `TooSlow` if too many were waiting, or `CopyReloaded`.
        """
        self._here.check()
        end = None if timeout is None else time.monotonic() + timeout
        while (change := self._take()) is None and not self._drained:
            if timeout is not None and timeout <= 0:
                return None
            woken = threading.Event()
            left = None if end is None else max(0.0, end - time.monotonic())
            if self._wake_by(woken.set) and not woken.wait(left):
                return self._take()
        return change

    async def next_async(self) -> Change[K, V] | None:
        """Return the next change, without blocking the event loop; None when the watch was closed. Raises like `next`.

        It can be cancelled, as by `asyncio.timeout`, without losing a change.
        """
        self._here.check()
        loop = asyncio.get_running_loop()
        while (change := self._take()) is None and not self._drained:
            woken = loop.create_future()
            if self._wake_by(LoopWake(loop, woken)):
                await woken
        return change

    @property
    def ended(self) -> bool:
        """Whether it is closed; pending changes can still be taken."""
        return self._ended

    @property
    def _drained(self) -> bool:
        return self._ended and not self._waiting and self._missed is None

    def close(self) -> None:
        """End the watch and wake its reader. May be called twice, from any thread."""
        with self._lock:
            before, self._ended = self._ended, True
        if not before:
            self._closed(self)
            if (wake := self._waiting_reader()) is not None:
                wake()

    def __next__(self) -> Change[K, V]:
        change = self.next()
        if change is None:
            raise StopIteration
        return change

    async def __anext__(self) -> Change[K, V]:
        change = await self.next_async()
        if change is None:
            raise StopAsyncIteration
        return change

    def _take(self) -> Change[K, V] | None:
        """Return the first pending change that can be decoded; None if there is none."""
        while self._missed is None:
            with self._lock:
                if not self._waiting:
                    return None
                waiting = self._waiting.popleft()
                self._waiting_bytes -= len(waiting[1] or b"")
            if (change := self._decoded(*waiting)) is not None:
                return change
        raise self._missed

    def _wake_by(self, wake: Wake) -> bool:
        """Have `wake` called when a change is pending; False if one is already, or the watch has ended."""
        with self._lock:
            if self._waiting or self._ended:
                return False
            self._wake = wake
            return True

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

    # ---- the view's thread -----------------------------------------------------------------------------------------

    def offer(self, changes: list[_Waiting]) -> Wake | None:
        """Add changes; called by the view. Changes beyond the capacity end the watch.

        Returns:
            The call that wakes the reader, if one waits.
        """
        if self._ended:
            return None
        with self._lock:
            for change in changes:
                size = len(change[1] or b"")
                many = len(self._waiting) >= self._capacity
                # One change always has room: a row may be larger than the capacity.
                large = bool(self._waiting) and self._waiting_bytes + size > self._capacity_bytes
                if many or large:
                    break
                self._waiting.append(change)
                self._waiting_bytes += size
            else:
                many = large = False
        if many or large:
            limit = f"{self._capacity} changes" if many else f"{self._capacity_bytes} bytes of changes"
            self._miss(
                TooSlow(
                    f"more than {limit} of {self._table.name!r} were waiting, and the watch was "
                    "ended: watch again, then read the rows",
                    topic=self._table.name,
                )
            )
            return None
        return self._waiting_reader()

    def reloaded(self, partition: int | None, reason: str) -> None:
        """End the watch; called by the view, as changes are not delivered while a replica is loaded again."""
        if not self._ended:
            self._miss(
                CopyReloaded(
                    f"changes of {self._table.name!r} were missed ({reason}), and the watch was ended: watch again, "
                    "then read the rows"
                ).at(self._table.name, partition)
            )

    def _miss(self, missed: ChangesMissed) -> None:
        with self._lock:
            self._missed = missed
            self._waiting.clear()  # its reader gets none of them
            self._waiting_bytes = 0
        self.close()

    def _waiting_reader(self) -> Wake | None:
        """Return the call that wakes the reader, if it waits; it is returned once."""
        with self._lock:
            wake, self._wake = self._wake, None
        return wake


class Watches(Generic[K, V]):
    """The open watches of a view, indexed by key and prefix: a change costs only the watches that get it. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[bytes, set[Watch[K, V]]] = {}
        self._by_prefix: dict[bytes, set[Watch[K, V]]] = {}

    def open(
        self,
        reader: RowReader[K, V],
        key: K | None,
        prefix: K | None,
        on_unreadable: OnUnreadable | None = None,
        capacity: int = 10_000,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> Watch[K, V]:
        """Return a watch that gets changes from now on. The arguments are as of `View.watch`."""
        table = reader.table
        start = b"" if prefix is None else prefix_span(table.key, prefix, table.name)[0]
        watched = start if key is None else table.key.encode(key)
        watch = Watch(reader, watched, key is None, capacity, capacity_bytes, self.discard, on_unreadable)
        self.add(watch)
        return watch

    def add(self, watch: Watch[K, V]) -> None:
        """Deliver changes to this watch from now on."""
        with self._lock:
            self._index_of(watch).setdefault(watch.watched, set()).add(watch)

    def discard(self, watch: Watch[K, V]) -> None:
        """Deliver no more changes to this watch."""
        index = self._index_of(watch)
        with self._lock:
            if (watches := index.get(watch.watched)) is not None:
                watches.discard(watch)
                if not watches:
                    del index[watch.watched]

    def _index_of(self, watch: Watch[K, V]) -> dict[bytes, set[Watch[K, V]]]:
        return self._by_prefix if watch.by_prefix else self._by_key

    def watched(self, key: bytes) -> bool:
        """Return whether some watch may get the changes of a key."""
        return bool(self._by_prefix) or key in self._by_key

    def changed(self, partition: int, rows: Mapping[bytes, bytes | None], offset: int) -> None:
        """Deliver the changed rows to the watches of them."""
        if not self._by_key and not self._by_prefix:
            return
        found: list[tuple[Watch[K, V], list[_Waiting]]] = []
        with self._lock:
            for key in rows.keys() & self._by_key.keys():
                change = [(key, rows[key], partition, offset)]
                found += [(watch, change) for watch in self._by_key[key]]
            for prefix, changes in self._with_prefixes(partition, rows, offset).items():
                found += [(watch, changes) for watch in self._by_prefix[prefix]]
        wake_all([wake for watch, changes in found if (wake := watch.offer(changes)) is not None])

    def _with_prefixes(
        self, partition: int, rows: Mapping[bytes, bytes | None], offset: int
    ) -> dict[bytes, list[_Waiting]]:
        """Return the changes for each watched prefix, in the order of the rows."""
        found: dict[bytes, list[_Waiting]] = {}
        lengths = sorted({len(prefix) for prefix in self._by_prefix})
        if lengths:
            for key, data in rows.items():
                for length in lengths:
                    prefix = key[:length]
                    if length <= len(key) and prefix in self._by_prefix:
                        found.setdefault(prefix, []).append((key, data, partition, offset))
        return found

    def close(self) -> None:
        """End all watches."""
        for watch in self._all():
            watch.close()

    def reloaded(self, partition: int | None, reason: str) -> None:
        """End all watches with `CopyReloaded`."""
        for watch in self._all():
            watch.reloaded(partition, reason)

    def _all(self) -> list[Watch[K, V]]:
        with self._lock:
            return [
                watch
                for index in (self._by_key, self._by_prefix)
                for watches in index.values()
                for watch in watches
            ]


@dataclass(frozen=True, slots=True)
class LoopWake:
    """Wakes a coroutine that awaits `woken`, from any thread."""

    loop: asyncio.AbstractEventLoop
    woken: "asyncio.Future[None]"

    def __call__(self) -> None:
        wake_all([self])


def wake_all(wakes: Iterable[Wake]) -> None:
    """Wake readers; those in the same event loop together, as each call into a loop is a system call."""
    of_loop: defaultdict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = defaultdict(list)
    for wake in wakes:
        if isinstance(wake, LoopWake):
            of_loop[wake.loop].append(wake.woken)
        else:
            wake()
    for loop, woken in of_loop.items():
        with suppress(RuntimeError):  # the readers' event loop is closed
            loop.call_soon_threadsafe(_complete, woken)


def _complete(futures: Iterable["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
