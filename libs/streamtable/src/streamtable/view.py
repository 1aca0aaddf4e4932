"""A view: a whole copy of a table in this process, kept current, to be asked (after Goka's views).

A view never answers with part of a table as if it were all of it: until every partition has reached the end that the
log had when the view was started, it raises `NotReady`. One that was whole once, also before a restart, keeps
answering while the broker is away; its answers say how old they are.
"""

import heapq
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Self, TypeVar

import structlog

from streamtable.clock import Clock
from streamtable.copies import Copies, Copy, Gauges
from streamtable.engine.position import TablePosition
from streamtable.errors import ConfigurationError, GraphError, NotReady, StoreCorrupted
from streamtable.host import Host
from streamtable.observe import Metrics
from streamtable.partitioner import hash_of
from streamtable.ports import Log, Stores
from streamtable.topics import Table
from streamtable.tracing import tracer_of
from streamtable.types import Ack, BadToken, TopicPartition
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


@dataclass(frozen=True)
class Snapshot(Generic[K, V]):
    """A partition's rows exactly as of an offset; to be iterated, once, within the `with` block that gave it.

    Attributes:
        partition: of the table.
        offset: of the table's topic: all before it is in the rows, and nothing from it on.
        age_seconds: since the copy was last known to hold everything that the broker had.
    """

    partition: int
    offset: int
    age_seconds: float
    _rows: Iterator[tuple[K, V]] = field(repr=False)

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._rows


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
        host: that keeps it current, together with others, and owns `stores`; one of its own unless given.
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
        host: Host | None = None,
    ) -> None:
        self.table = table
        self._hash = hash_of(table.partitioner)
        self._stale_after = stale_after
        self._clock = clock
        self._watches: set[Watch[K, V]] = set()
        self._watches_lock = threading.Lock()
        self._copies = Copies(
            table.name,
            stores,
            clock,
            self._changed,
            Gauges(metrics, name, table.name),
            self._end_watches,
            partial(tracer_of(log_).apply, name),
        )
        self._alone = host is None
        self._host = host or Host(log_, stores, clock, metrics, name)
        self._host.add(self._copies)

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Open what is on disk and begin to follow the table, in a thread. Does not wait for the broker.

        A view of `Views` is started, and closed, with them.
        """
        if self._alone:
            self._host.start()
        return self

    def turns(self) -> Iterator[float]:
        """As `start`, but without a thread: the table is followed by a turn whenever the iterator is advanced. For tests."""
        self._host.open()
        return self._host.turns()

    def close(self) -> None:
        """End all watches, stop following, close the copy. May be called twice."""
        if self._alone:
            self._host.close()

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

    def wait_for(self, ack: Ack, timeout: float = 10.0) -> None:
        """Wait until the view shows what the table's group has done for an event: read your writes.

            ack = emitter.emit("alice", click).result()
            clicks.wait_for(ack)
            clicks.get("alice")

        Any number of threads may wait at the same time; they share the questions to Kafka. What the group does for the
        event through its loop, or another group for what this one emits, is not waited for.

        Over HTTP: the service that emits answers with `ack.token` in a header, and the client sends it along when he
        reads. There, `Ack.parse` gives the ack or raises `BadToken` (a 422, as for an ack of any topic but those that the
        table is made of), and `wait_for` waits, for less than the request's own time limit; `NotReady` is a 504 with
        `Retry-After`. Bound how many requests wait at a time: each holds a thread.

        Args:
            ack: of an event in an input of the group that keeps the table.
            timeout: seconds.

        Raises:
            NotReady: it does not after that time, or the view was closed; the message says how far it is.
            RetryLater: Kafka does not answer.
            GraphError: the table does not say which group keeps it.
            BadToken: the table has no partition of that number.
            StreamtableError: the view has stopped for good: what stopped it.
        """
        if not self.table.group:
            raise GraphError(
                f"the table {self.table.name!r} does not say which group keeps it, so nobody knows when an event is in "
                "it: use Group.table, or Table(..., group=...)"
            )
        count = len(self._copies.all())
        if count and ack.partition >= count:
            raise BadToken(
                f"no event in partition {ack.partition} has an effect on {self.table.name!r}, which has {count}"
            ).at(*ack)
        deadline = self._clock.monotonic() + timeout
        place = TopicPartition(ack.topic, ack.partition)
        committed = self._host.commits.wait(self.table.group, place, ack.offset, timeout)
        written = TablePosition.decode(committed.metadata)
        # An offset that was set by a tool does not say where the table stood: then it is in what there is by now.
        end = (
            self._host.end_of(TopicPartition(self.table.name, ack.partition))
            if written is None
            else written.changelog
        )
        with self._copies.arrivals.waiting(ack.partition, end) as there:
            if self._copies.position(ack.partition) >= end:
                return
            try:
                there.result(max(0.0, deadline - self._clock.monotonic()) if self._host.threaded else 0)
            except TimeoutError:
                at = self._copies.position(ack.partition)
                raise NotReady(
                    f"the effect of the event is in the table at offset {end}, and the view is at {at} after {timeout:g} s"
                ).at(self.table.name, ack.partition, end) from None

    # ---- questions -------------------------------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        """The row of a key, None if there is none. Raises `NotReady`."""
        value = self._read(self.table.key.encode(key))
        return None if value is None else self.table.value.decode(value)

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """The rows of those keys that have one."""
        return {key: row for key in keys if (row := self.get(key)) is not None}

    def answer(self, key: K) -> Answer[V]:
        """The row of a key with partition, offset and age."""
        data = self.table.key.encode(key)
        copies = self._whole()
        copy = copies[self._hash(data) % len(copies)]
        # Position and age before the row: the answer may hold more than it says, never less.
        offset, age = copy.position, self._age(copy)
        try:
            value = copy.store.get(data)
        except StoreCorrupted as error:
            raise self._copies.damaged(error) from error
        row = None if value is None else self.table.value.decode(value)
        return Answer(row, copy.partition, offset, age, age > self._stale_after)

    def answers(self, keys: Iterable[K]) -> dict[K, Answer[V]]:
        """As `answer`, for many keys; also for those that have no row."""
        return {key: self.answer(key) for key in keys}

    @contextmanager
    def snapshot(self, partition: int) -> Iterator[Snapshot[K, V]]:
        """The rows of a partition, in key order, exactly as of one offset, while the copy goes on.

            with clicks.snapshot(0) as rows:
                print(rows.offset, dict(rows))

        Args:
            partition: of the table.

        Raises:
            NotReady: the view is not whole.
            ConfigurationError: the table has no such partition.
        """
        copies = self._whole()
        if not 0 <= partition < len(copies):
            raise ConfigurationError(
                f"the table {self.table.name!r} has {len(copies)} partitions, from 0 on, and none is {partition}"
            )
        copy, age = copies[partition], self._age(copies[partition])
        decode_key, decode = self.table.key.decode, self.table.value.decode
        try:
            with copy.pinned() as (offset, rows):
                self._whole()  # a damaged copy may have been replaced by an empty one just before
                yield Snapshot(
                    partition, offset, age, ((decode_key(key), decode(value)) for key, value in rows)
                )
        except StoreCorrupted as error:
            raise self._copies.damaged(error) from error

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

    def _read(self, key: bytes) -> bytes | None:
        copies = self._whole()
        try:
            return copies[self._hash(key) % len(copies)].store.get(key)
        except StoreCorrupted as error:
            raise self._copies.damaged(error) from error

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
