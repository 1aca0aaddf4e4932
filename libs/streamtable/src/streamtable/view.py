"""A view: a whole copy of a table in this process, kept current, to be asked (after Goka's views).

A view never answers with part of a table as if it were all of it: until every partition has reached the end that the
log had when the view was started, it raises `NotReady`. One that was whole once, also before a restart, keeps
answering while the broker is away; its answers say how old they are.
"""

import heapq
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import structlog

from streamtable.clock import Clock
from streamtable.copies import Copies, Copy, Gauges
from streamtable.errors import NotReady, StoreCorrupted
from streamtable.observe import Metrics
from streamtable.partitioner import partition_for
from streamtable.ports import Log, Stores
from streamtable.topics import Table
from streamtable.watch import Watch

K = TypeVar("K")
V = TypeVar("V")
log = structlog.get_logger()

_STALE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """A row, and how far to trust it.

    Attributes:
        value: None if the key has no row.
        partition: of the key.
        offset: of the table's topic, up to which the answer holds everything.
        age_seconds: since the copy was last known to hold everything that the broker had.
        stale: it is older than a broker at work would let it become.
    """

    value: V | None
    partition: int
    offset: int
    age_seconds: float
    stale: bool


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition of a view stands; see `Answer`. `lag` counts offsets, markers included."""

    offset: int
    lag: int
    age_seconds: float
    ready: bool


class View(Generic[K, V]):
    """A whole, local, current copy of a table. Any thread may read.

    Every question raises `RetryLater`: mostly as `NotReady`, or bare if the copy is closed or replaced in the middle of
    an answer. A view that has stopped for good raises what stopped it.

    Args:
        table: what is copied.
        log_: Kafka.
        stores: where the copy lives; of this view alone.
        clock: wall and monotonic time.
        metrics: where position and age go.
        name: of the view, on the metrics and in the log.
        stale_after: seconds of age from which answers are marked stale. Positions are compared with the broker once
            a second.
    """

    def __init__(
        self,
        table: Table[K, V],
        log_: Log,
        stores: Stores,
        clock: Clock,
        metrics: Metrics,
        name: str,
        stale_after: float = _STALE_SECONDS,
    ) -> None:
        self.table = table
        self._stale_after = stale_after
        self._clock = clock
        self._watches: set[Watch[K, V]] = set()
        self._watches_lock = threading.Lock()
        self._copies = Copies(
            table.name,
            log_,
            stores,
            clock,
            self._changed,
            Gauges(metrics, name, table.name),
            self._end_watches,
        )

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open what is on disk and begin to follow the table, in a thread. Does not wait for the broker."""
        self._copies.start()
        return self

    def close(self) -> None:
        """End all watches, stop following, close the copy. May be called twice."""
        self._copies.close()
        self._end_watches()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready(self) -> bool:
        """Every partition is whole."""
        return self._copies.whole

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the view is whole.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            NotReady: it is not, after that time, or it was closed; the message says how much is missing.
            StreamtableError: it cannot become so: what stopped it.
        """
        if not self._copies.wait_whole(timeout):
            after = "" if timeout is None else f" after {timeout:g} s"
            raise NotReady(f"view of {self.table.name!r} is not whole{after}: {self._copies.missing()}")

    # ---- questions -------------------------------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        """The row of a key, None if there is none. Raises `NotReady`."""
        data = self.table.key.encode(key)
        copies = self._whole()
        try:
            value = copies[partition_for(data, len(copies))].store.get(data)
        except StoreCorrupted as error:
            raise self._copies.damaged(error) from error
        return None if value is None else self.table.value.decode(value)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """The rows of those keys that have one."""
        return {key: row for key in keys if (row := self.get(key)) is not None}

    def answer(self, key: K) -> Answer[V]:
        """The row of a key with partition, offset and age."""
        data = self.table.key.encode(key)
        copies = self._whole()
        copy = copies[partition_for(data, len(copies))]
        # Position and age before the row: the answer may hold more than it says, never less.
        offset, age = copy.position, self._age(copy)
        try:
            value = copy.store.get(data)
        except StoreCorrupted as error:
            raise self._copies.damaged(error) from error
        row = None if value is None else self.table.value.decode(value)
        return Answer(row, copy.partition, offset, age, age > self._stale_after)

    def range(
        self, start: K | None = None, end: K | None = None, limit: int | None = None
    ) -> list[tuple[K, V]]:
        """Rows with start <= key < end in the order of the encoded keys, at most `limit` of them."""
        encode = self.table.key.encode
        bounds = (None if start is None else encode(start), None if end is None else encode(end))
        rows: list[tuple[K, V]] = []
        for row in self._scan(*bounds):
            if limit is not None and len(rows) >= limit:
                break
            rows.append(row)
        return rows

    def iterate(self, prefix: K | None = None, after: K | None = None) -> Iterator[tuple[K, V]]:
        """All rows whose encoded key begins with `prefix`, in key order, those after key `after` only.

        Each partition is read as it stands when the first row is asked for.
        """
        encode = self.table.key.encode
        start = b"" if prefix is None else encode(prefix)
        end = _after_prefix(start)
        if after is not None:
            start = max(start, encode(after) + b"\0")
        return self._scan(start, end)

    def position(self) -> Mapping[int, Position]:
        """Where each partition stands."""
        return {
            copy.partition: Position(copy.position, copy.lag, self._age(copy), copy.whole)
            for copy in self._copies.all()
        }

    def lag(self) -> int:
        """Offsets that the table's topic is ahead of the view, as of the last look."""
        return sum(copy.lag for copy in self._copies.all())

    def watch(self, key: K | None = None, prefix: K | None = None, capacity: int = 10_000) -> Watch[K, V]:
        """Changes from now on: of one key, of all that begin with `prefix`, or of all.

        To miss nothing: begin to watch, then read the rows.

        Args:
            key: only this one.
            prefix: only those whose encoded key begins with this one's bytes.
            capacity: changes that may wait to be taken; a slower reader's watch is ended with `TooSlow`.

        Returns:
            The watch; it ends when the view is closed or stopped by an error.
        """
        encode = self.table.key.encode
        watch: Watch[K, V] = Watch(
            self.table,
            None if key is None else encode(key),
            b"" if prefix is None else encode(prefix),
            capacity,
            self._unwatch,
        )
        with self._watches_lock:
            self._watches.add(watch)
        if self._copies.ended:
            watch.close()
        return watch

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _whole(self) -> "list[Copy]":
        if not self._copies.whole:
            raise NotReady(f"view of {self.table.name!r} cannot answer: {self._copies.missing()}")
        return self._copies.all()

    def _age(self, copy: "Copy") -> float:
        return max(0.0, self._clock.now() - copy.current_at)

    def _scan(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[K, V]]:
        decode_key, decode = self.table.key.decode, self.table.value.decode
        copies = self._whole()
        try:
            with ExitStack() as scans:
                # Keys of different partitions are different, so the merge never compares values.
                merged = heapq.merge(*(scans.enter_context(copy.store.scan(start, end)) for copy in copies))
                for key, value in merged:
                    yield decode_key(key), decode(value)
        except StoreCorrupted as error:
            raise self._copies.damaged(error) from error

    def _changed(self, partition: int, rows: Mapping[bytes, bytes | None], offset: int) -> None:
        with self._watches_lock:
            watches = list(self._watches)
        for watch in watches:
            watch.offer(partition, rows, offset)

    def _end_watches(self) -> None:
        with self._watches_lock:
            watches = list(self._watches)
        for watch in watches:
            watch.close()

    def _unwatch(self, watch: Watch[K, V]) -> None:
        with self._watches_lock:
            self._watches.discard(watch)


def _after_prefix(prefix: bytes) -> bytes | None:
    """The first byte string after all that begin with `prefix`; None if there is none."""
    shortened = prefix.rstrip(b"\xff")
    return shortened[:-1] + bytes([shortened[-1] + 1]) if shortened else None
