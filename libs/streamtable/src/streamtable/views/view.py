"""A view: a full local copy of a table that is kept current and can be queried (after Goka's views).

A view never answers with part of a table as if it were all of it: until every partition has reached the end that the
log had after the view was started, it raises `NotReady`, also after a restart. Once ready, it keeps answering while the
broker is away; its answers say how old they are. The copy on disk of a view that is not ready is read only by callers
who ask for it, with `stale_ok`.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from streamtable.base.closing import Closing
from streamtable.base.keys import encoded_keys, prefix_span, spans_of
from streamtable.base.message import prefix_header
from streamtable.base.topics import Table, hash_of_rows
from streamtable.base.tracing import tracer_of
from streamtable.base.types import Ack, BadToken, Committed, TopicPartition
from streamtable.errors import ConfigurationError, GraphError, NotReady, StoreCorrupted
from streamtable.tables.position import TablePosition
from streamtable.tables.replica import PartitionReplica
from streamtable.tables.replica_set import ReplicaSet
from streamtable.views.rows import OnUnreadable, RowIterator, RowList, RowReader
from streamtable.views.updater import ViewUpdater
from streamtable.views.watch import CAPACITY_BYTES, Watch, Watches
from streamtable.views.windows import END_MS, WindowRange

K = TypeVar("K")
V = TypeVar("V")

_STALE_SECONDS = 5.0  # positions are compared with the broker once a second


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """A row with its offset and age.

    Attributes:
        value: The row; None if the key has none.
        partition: The partition of the key.
        offset: The answer holds everything below this offset in the table's topic.
        age_seconds: Seconds since the copy was last known to hold everything that the broker had.
        stale: Whether the copy is older than a working broker would let it become, or has not been compared with the
            broker since the view was started: newer rows may be missing.
    """

    value: V | None
    partition: int
    offset: int
    age_seconds: float
    stale: bool


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a partition of a view; see `Answer`. `lag` counts offsets, markers included.

    `ready`: it has reached an end that the broker named after the view was started.
    """

    offset: int
    lag: int
    age_seconds: float
    ready: bool


@dataclass(frozen=True)
class Snapshot(Generic[K, V]):
    """The rows of a partition exactly as of an offset, to be iterated once within the `with` block.

    Attributes:
        partition: The partition of the table.
        offset: The offset in the table's topic: all before it is in the rows, and nothing from it on.
        age_seconds: Seconds since the copy was last known to hold everything that the broker had.
        stale: As in `Answer`.
    """

    partition: int
    offset: int
    age_seconds: float
    stale: bool
    _rows: RowIterator[K, V] = field(repr=False)

    @property
    def unreadable(self) -> int:
        """The number of rows skipped so far because they cannot be decoded."""
        return self._rows.unreadable

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._rows


class View(Closing, Generic[K, V]):
    """A full, local, current copy of a table. Made by `App.view`. Any thread may read.

        with app.view(CLICK_COUNT.table) as clicks:
            clicks.wait_ready()
            clicks.get("alice")

    Every read may raise `RetryLater`: usually as `NotReady`, or as itself if the copy is closed or replaced during the
    read. A view that has stopped permanently raises its error.

    A row that cannot be decoded (another program wrote it, or another codec) does not stop the others: a read by its key
    raises `UnreadableRow`; lists and watches skip it, count it in their own `unreadable`, and call
    `on_unreadable` with the error. To get an exception from a list, too, raise it there.
    """

    def __init__(
        self,
        table: Table[K, V],
        updater: ViewUpdater,
        closed: "Callable[[View[K, V]], object]" = bool,
    ) -> None:
        """Make the view; `App.view` does.

        Args:
            table: The table to copy.
            updater: Keeps the copy current, together with others.
            closed: Called when the view is closed.
        """
        self.table = table
        self._hash = hash_of_rows(table)
        self._clock = updater.clock
        self._closed = closed
        self._watches: Watches[K, V] = Watches()
        self._reader: RowReader[K, V] = RowReader(table, self._partition, updater.metrics, updater.name)
        self._updater = updater
        open_replica = partial(
            PartitionReplica,
            updater.stores,
            table.name,
            clock=updater.clock,
            listener=self._changed,
            applying=partial(tracer_of(updater.log).apply, updater.name),
            prefix_header=prefix_header(table.value),
        )
        self._replicas = ReplicaSet(
            table.name,
            updater.stores,
            updater.clock,
            open_replica,
            updater.metrics,
            updater.name,
            self._watches.close,
            self._watches.reloaded,
        )
        updater.add(self._replicas)

    # ---- life ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop following the table, end all watches and close the copy. May be called twice."""
        if self._replicas.here.elsewhere:  # in a forked process there is nothing to close
            return
        self._updater.remove(self._replicas)
        self._closed(self)

    @property
    def ready(self) -> bool:
        """Whether every partition holds all that was committed when the broker was asked after the start."""
        return self._replicas.ready

    @property
    def not_ready(self) -> str:
        """The reason why the view is not ready; empty if it is ready. It names no hosts, so that anybody may see it."""
        return self._replicas.not_ready

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every partition holds all that was committed when the broker was asked after the start.

        A copy that an earlier process has left on disk is not enough: it may lack any number of newer rows. While the
        broker does not answer, no view becomes ready; `answer` and `snapshot` with `stale_ok` read the copy meanwhile.

        Args:
            timeout: Seconds to wait; None: no limit.

        Raises:
            NotReady: It is not, after that time, or it was closed; the message says how much is missing.
            StreamtableError: It cannot become ready: the error that has stopped it.
        """
        if not self._replicas.wait_ready(timeout):
            after = "" if timeout is None else f" after {timeout:g} s"
            raise NotReady(f"view of {self.table.name!r} is not ready{after}: {self._replicas.missing()}")

    def wait_for(self, ack: Ack, timeout: float = 10.0) -> None:
        """Wait until the view shows the effect of an event on the table: read your writes.

            ack = emitter.emit("alice", click).result()
            clicks.wait_for(ack)
            clicks.get("alice")

        Any number of threads may wait at the same time; they share the requests to Kafka. It does not wait for the
        effects of the event through the group's loop, or in other groups that read its outputs, nor for the next attempt of
        a record that `retried` keeps, or the result of a call (`streamtable-calls`).

        Over HTTP: the service that emits answers with `ack.token` in a header, and the client sends it along when it
        reads. There, `Ack.parse` gives the ack or raises `BadToken` (a 422, as for an ack of a topic that is not an input
        of the table's group), and `wait_for` waits, for less than the request's own time limit; `NotReady` is a 504 with
        `Retry-After`. Each caller holds a thread: use `wait_for_async` for many.

        Args:
            ack: The place of an event in an input of the group that keeps the table.
            timeout: Seconds to wait; 0: Kafka is asked once.

        Raises:
            NotReady: It does not show it after that time, or the view was closed; the message says its position.
            RetryLater: Kafka does not answer.
            GraphError: The table does not say which group keeps it.
            BadToken: The table has no partition of that number.
            StreamtableError: The error that has stopped the view permanently.
        """
        deadline = self._clock.monotonic() + timeout
        group, place = self._source(ack)
        end = self._end_for(ack, self._updater.commits.wait(group, place, ack.offset, timeout))
        with self._arriving(ack, end, timeout) as arrived:
            arrived.result(max(0.0, deadline - self._clock.monotonic()) if self._updater.threaded else 0)

    async def wait_for_async(self, ack: Ack, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - as `wait_for`
        """Wait as `wait_for` does, without blocking the event loop; any number of coroutines may wait."""
        deadline = self._clock.monotonic() + timeout
        group, place = self._source(ack)
        committed = await self._updater.commits.wait_async(group, place, ack.offset, timeout)
        end = await asyncio.to_thread(self._end_for, ack, committed)
        with self._arriving(ack, end, timeout) as arrived:
            if not arrived.done():
                left = max(0.0, deadline - self._clock.monotonic())
                await asyncio.wait_for(asyncio.wrap_future(arrived), left)

    def _source(self, ack: Ack) -> tuple[str, TopicPartition]:
        """Return the group that keeps the table, and the input's partition. Raises like `wait_for`."""
        self._replicas.here.check()
        if not self.table.group:
            raise GraphError(
                f"the table {self.table.name!r} does not say which group keeps it, so it is not known when an event is in "
                "it: use Group.table, or Table(..., group=...)"
            )
        count = len(self._replicas.all())
        if count and ack.partition >= count:
            raise BadToken(
                f"no event in partition {ack.partition} has an effect on {self.table.name!r}, which has {count}"
            ).at(*ack)
        return self.table.group, TopicPartition(ack.topic, ack.partition)

    def _end_for(self, ack: Ack, committed: Committed) -> int:
        """Return the changelog offset that a view must reach to show the effects of this commit."""
        written = TablePosition.decode(committed.metadata)
        end = None if written is None else written.end_of(self.table.group, self.table.name)
        # An offset set by a tool has no table position: the event is then in the table's current state.
        return self._updater.end_of(TopicPartition(self.table.name, ack.partition)) if end is None else end

    @contextmanager
    def _arriving(self, ack: Ack, end: int, timeout: float) -> Iterator[Future[None]]:
        """Yield a future that is done once the view is at `end`. A wait for it that times out raises `NotReady`."""
        arrivals, partition = self._replicas.arrivals, ack.partition
        with arrivals.waiting(partition, end) as arrived:
            arrivals.arrived(partition, self._replicas.position(partition), None)  # it may be there already
            try:
                yield arrived
            except TimeoutError:
                at = f"the view is at {self._replicas.position(partition)} after {timeout:g} s"
                text = f"the effect of the event is in the table at offset {end}, and {at}"
                raise NotReady(text).at(self.table.name, partition, end) from None

    # ---- questions -------------------------------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        """Return the row of a key, or None. Raises `NotReady`, and `UnreadableRow` if it cannot be decoded."""
        return self._get(self.table.key.encode(key))

    def get_many(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the rows of those keys that have one.

        Raises like `get`, and `ValueError` for keys that are equal in Python and have a row each, such as 1 and True in JSON.
        """
        encoded = encoded_keys(self.table.key, keys)
        return {key: row for key, data in encoded.items() if (row := self._get(data)) is not None}

    def answer(self, key: K, *, stale_ok: bool = False) -> Answer[V]:
        """Return the row of a key with partition, offset and age.

            view.answer("alice", stale_ok=True)  # Answer(value=2, ..., age_seconds=3600.4, stale=True)

        Args:
            key: The key.
            stale_ok: If the view is not ready, answer from the copy that an earlier process has left on disk, if that
                was complete. Such an answer is `stale`.

        Raises:
            NotReady: The view is not ready; with `stale_ok`: there is no complete copy on disk.
            UnreadableRow: The row cannot be decoded.
        """
        return self._answer(self.table.key.encode(key), stale_ok=stale_ok)

    def _answer(self, data: bytes, *, stale_ok: bool) -> Answer[V]:
        loads, copies = self._replicas.loads, self._whole(stale_ok=stale_ok)
        copy = copies[self._hash(data) % len(copies)]
        # Position and age before the row: the answer may hold more than it says, never less.
        offset, (age, stale) = copy.position, self._freshness(copy)
        value = self._read(data, stale_ok=stale_ok)
        self._unchanged(loads)
        row = None if value is None else self._reader.value(data, value, copy.position)
        return Answer(row, copy.partition, offset, age, stale)

    def answers(self, keys: Iterable[K], *, stale_ok: bool = False) -> dict[K, Answer[V]]:
        """Return answers as `answer` does for many keys, also for those that have no row. Equal keys are refused as by `get_many`."""
        encoded = encoded_keys(self.table.key, keys)
        return {key: self._answer(data, stale_ok=stale_ok) for key, data in encoded.items()}

    @contextmanager
    def snapshot(
        self, partition: int, on_unreadable: OnUnreadable | None = None, *, stale_ok: bool = False
    ) -> Iterator[Snapshot[K, V]]:
        """Return the rows of a partition, in key order, exactly as of one offset, while the copy is kept current.

            with clicks.snapshot(0) as rows:
                print(rows.offset, dict(rows))

        Args:
            partition: The partition of the table.
            on_unreadable: Called with the error of each row that is skipped because it cannot be decoded.
            stale_ok: As in `answer`.

        Raises:
            NotReady: As in `answer`.
            ConfigurationError: The table has no such partition.
        """
        loads, copies = self._replicas.loads, self._whole(stale_ok=stale_ok)
        if not 0 <= partition < len(copies):
            raise ConfigurationError(
                f"the table {self.table.name!r} has {len(copies)} partitions, from 0 on, and none is {partition}"
            )
        copy = copies[partition]
        age, stale = self._freshness(copy)
        try:
            with copy.pinned() as (offset, rows):
                self._unchanged(loads)
                yield Snapshot(partition, offset, age, stale, self._rows(rows, on_unreadable))
        except StoreCorrupted as error:
            raise self._replicas.damaged(error) from error

    def range(
        self,
        start: K | None = None,
        end: K | None = None,
        limit: int | None = None,
        on_unreadable: OnUnreadable | None = None,
    ) -> RowList[K, V]:
        """Return the rows with start <= key < end in the order of their keys, at most `limit` of them.

        Without bounds, rows whose keys have no order, as in Avro and JSON, are in the order of their encoded keys.

        Args:
            start: The first key; None: from the beginning.
            end: The key behind the last one; None: to the end.
            limit: The maximum number of rows; None: all.
            on_unreadable: Called with the error of each row that is skipped because it cannot be decoded.

        Returns:
            A list; its `unreadable` counts the skipped rows.

        Raises:
            GraphError: There are bounds, and the keys have no order.
        """
        spans = spans_of(self.table.key, start, end, self.table.name)
        found = (row for span in spans for row in self._scan(*span))
        return self._rows(found, on_unreadable).taken(limit)

    def windows(self, key: object, since_ms: int = 0, until_ms: int = END_MS) -> RowList[K, V]:
        """Return the windows of a key that overlap a range of time, in order of time; for windowed tables of flows.

            with app.view(per_minute.table) as minutes:
                minutes.windows("alice", since_ms=now_ms - 3_600_000)  # [(Windowed("alice", 0, 60_000), 3), ...]

        Args:
            key: The key without a window.
            since_ms: The beginning of the range, in milliseconds since 1970.
            until_ms: Its end, exclusive.

        Returns:
            A list of windowed keys and rows; its `unreadable` counts the skipped rows.

        Raises:
            GraphError: The table has no windows.
        """
        range_ = WindowRange.of(self.table, key, since_ms, until_ms)
        found = range_.of_key(self._scan(range_.start, range_.end, partition_of=range_.start))
        return self._rows(found, None).taken()

    def iterate(
        self, prefix: K | None = None, after: K | None = None, on_unreadable: OnUnreadable | None = None
    ) -> RowIterator[K, V]:
        """Iterate over all rows whose encoded key begins with `prefix`, in the order of encoded keys, those after `after` only.

        Each partition is read as of the time when its first row is requested.

        Args:
            prefix: A key whose encoded bytes all keys begin with; None: all.
            after: The key to begin behind; None: from the first.
            on_unreadable: Called with the error of each row that is skipped because it cannot be decoded.

        Returns:
            An iterator; its `unreadable` counts the rows skipped so far.

        Raises:
            GraphError: No other key can begin with `prefix`, as with Avro and JSON.
        """
        key = self.table.key
        start, end = (b"", None) if prefix is None else prefix_span(key, prefix, self.table.name)
        if after is not None:
            start = max(start, key.encode(after) + b"\0")
        return self._rows(self._scan(start, end), on_unreadable)

    def position(self) -> Mapping[int, Position]:
        """Return the position of each partition."""
        self._replicas.here.check()
        return {
            copy.partition: Position(copy.position, copy.lag, self._age(copy), copy.current)
            for copy in self._replicas.all()
        }

    def lag(self) -> int:
        """Return the lag of the view behind the table's topic in offsets, as of the last check."""
        return sum(copy.lag for copy in self._replicas.all())

    def watch(
        self,
        key: K | None = None,
        prefix: K | None = None,
        capacity: int = 10_000,
        on_unreadable: OnUnreadable | None = None,
        *,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> Watch[K, V]:
        """Watch the changes from now on: of one key, of all that begin with `prefix`, or of all.

        To miss nothing: begin to watch, then read the rows. When the local copy is discarded and loaded again (a damaged
        disk, a topic that was created again, retention), the watch is ended with `CopyReloaded`: begin in the same way.

        Args:
            key: Only changes of this key.
            prefix: Only changes of keys whose encoded bytes begin with this one's. Refused as by `iterate`.
            capacity: The number of changes that may wait to be taken; a slower reader's watch is ended with `TooSlow`.
            on_unreadable: Called with the error of each change that is skipped because it cannot be decoded.
            capacity_bytes: The bytes of the rows in these changes, 64 MiB by default. One change may be larger.

        Returns:
            The watch: iterate over it with `for` or `async for`. It ends when the view is closed or stopped by an error.
        """
        self._replicas.here.check()
        watch = self._watches.open(self._reader, key, prefix, on_unreadable, capacity, capacity_bytes)
        if self._replicas.ended:
            watch.close()
        return watch

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _get(self, key: bytes) -> V | None:
        value = self._read(key)
        return None if value is None else self._reader.value(key, value)

    def _read(self, key: bytes, *, stale_ok: bool = False) -> bytes | None:
        loads, copies = self._replicas.loads, self._whole(stale_ok=stale_ok)
        try:
            value = copies[self._hash(key) % len(copies)].store.get(key)
        except StoreCorrupted as error:
            raise self._replicas.damaged(error) from error
        self._unchanged(loads)
        return value

    def _unchanged(self, loads: int) -> None:
        """Raise `NotReady` if a copy has been discarded: rows may have been read from an empty one."""
        if self._replicas.loads != loads:
            raise NotReady(f"a part of the local copy of {self.table.name!r} is being loaded again")

    def _partition(self, key: bytes) -> int:
        return self._hash(key) % max(1, len(self._replicas.all()))

    def _rows(
        self, rows: Iterable[tuple[bytes, bytes]], on_unreadable: OnUnreadable | None
    ) -> RowIterator[K, V]:
        # `bool` does nothing: the reader counts each of them.
        return RowIterator(rows, self._reader.row, on_unreadable or bool)

    @property
    def unreadable(self) -> int:
        """The number of times that a row was skipped or refused because it cannot be decoded, in all reads together."""
        return self._reader.unreadable

    def _whole(self, *, stale_ok: bool = False) -> list[PartitionReplica]:
        if not (self._replicas.ready or (stale_ok and self._replicas.complete)):
            raise NotReady(f"view of {self.table.name!r} is not ready: {self._replicas.missing()}")
        return self._replicas.all()

    def _freshness(self, copy: PartitionReplica) -> tuple[float, bool]:
        """Return the age of a copy, and whether its rows are stale."""
        age = self._age(copy)
        return age, age > _STALE_SECONDS or not copy.current

    def _age(self, copy: PartitionReplica) -> float:
        return max(0.0, self._clock.now() - copy.current_at)

    def _scan(
        self, start: bytes | None, end: bytes | None, *, partition_of: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in the order of their keys, of all partitions or only of the partition of one key."""
        loads, copies = self._replicas.loads, self._whole()
        if partition_of is not None:
            copies = [copies[self._hash(partition_of) % len(copies)]]
        try:
            with ExitStack() as scans:
                # Keys of different partitions are different, so the merge never compares values.
                found = [scans.enter_context(copy.store.scan(start, end)) for copy in copies]
                self._unchanged(loads)
                yield from heapq.merge(*found)
        except StoreCorrupted as error:
            raise self._replicas.damaged(error) from error

    def _changed(self, partition: int, rows: Mapping[bytes, bytes | None], offset: int) -> None:
        self._watches.changed(partition, rows, offset)
