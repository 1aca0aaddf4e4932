"""A replica of one changelog partition on this machine: its rows, its position, and whether it can be used.

All replicas use this class: views and lookups follow theirs for ever, a task restores the replicas of its tables before
it starts, a standby keeps replicas of other members' partitions.

    OPENING ── follow ──> LOADING ── caught up ──> CURRENT        a new or half-loaded store
    OPENING ── follow ──> STALE   ── caught up ──> CURRENT        a store that was complete in an earlier life
    LOADING, STALE, CURRENT ── fail ──> FAILED                    damaged, or the next records are gone
    any ── stop ──> OPENING                                       its owner changes, or its plan
    any ── discard ──> OPENING, empty                             the only place where local state is discarded
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from enum import Enum

import structlog

from streamtable.base.clock import Clock
from streamtable.base.message import latest, with_prefixes
from streamtable.base.ports import Store, Stores, TopicInfo
from streamtable.base.tracing import Span
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.errors import StoreCorrupted
from streamtable.tables.position import LocalPosition
from streamtable.tables.recovery import Changelog, behind_start, why_discard

log = structlog.get_logger()

_ENDS_KEPT = 120
_FOLLOWED_LEAST_S, _LOADED_LEAST_S = 60.0, 3600.0
_SAVE_SECONDS = 60.0

Listener = Callable[[int, Mapping[bytes, bytes | None], int], None]
"""Called with partition, changed rows (None: deleted), and the offset after the last of them."""

Rows = Iterable[tuple[bytes, bytes | None]]
Expand = Callable[[Store, Rows], Rows]
"""Makes the rows of the local store from the records of a changelog; their order does not matter to the store."""

Applying = Callable[[RecordBatch], Span]
"""Makes the trace span of applying a batch."""


class ReplicaState(Enum):
    """The state of a replica; see the module's drawing."""

    OPENING = "opening"
    """The store is open. Whether its rows can be used is decided when they are compared with the topic."""
    LOADING = "loading"
    """It reads the changelog and has never been complete: nothing is answered from it."""
    STALE = "stale"
    """It was complete in an earlier life and reads what it has missed. It answers only readers who accept that."""
    CURRENT = "current"
    """It has reached an end that the changelog had in this life, and keeps up."""
    FAILED = "failed"
    """It is no longer followed; `failure` is the reason. It must be discarded."""


class PartitionReplica:
    """The rows of one changelog partition. One thread writes; any thread may read.

    Args:
        stores: The local stores.
        table: The changelog topic.
        partition: Its number.
        clock: The wall clock.
        store: The open store; opened unless given. A damaged one is discarded.
        spare: Not for work: another process that holds the store is not asked to release it.
        expand: Makes the rows of the store; None: they are the records.
        listener: Called with every batch after it is in the store, once the replica has been complete.
        applying: Makes the span around every batch, once the replica has been complete.
        prefix_header: See `ports.HeaderPrefix`. A store whose values were written with another one is discarded.

    Attributes:
        position: The next changelog offset to apply.
        begins: The topic's first offset when its rows were loaded.
        complete: It has been complete once, now or in an earlier life.
        current_at: The wall time when it last held everything that the changelog had.
        end: The end of the changelog when it was last requested; None: not yet.
        low: The first offset of the changelog at that time.
        failure: The error that made the replica fail; None if it has not failed.
    """

    def __init__(
        self,
        stores: Stores,
        table: str,
        partition: int,
        clock: Clock,
        *,
        store: Store | None = None,
        spare: bool = False,
        expand: Expand | None = None,
        listener: Listener | None = None,
        applying: Applying | None = None,
        prefix_header: str = "",
    ) -> None:
        self.place = TopicPartition(table, partition)
        self.partition = partition
        self.low = 0
        self._stores = stores
        self._clock = clock
        self._expand = expand
        self._listener = listener
        self._applying = applying
        self._prefix_header = prefix_header
        self._writing = threading.Lock()
        self._topic: TopicInfo | None = None
        self._limit: int | None = None
        self._ends: deque[tuple[float, int]] = deque(maxlen=_ENDS_KEPT)  # with the time it was asked for
        self.begins: int | None = None
        self.end: int | None = None
        self.failure: Exception | None = None
        try:
            self.store = stores.open(table, partition, spare=spare) if store is None else store
        except StoreCorrupted as error:
            self.store = self._emptied(error.message)
        try:
            self.stop()
        except StoreCorrupted as error:
            self.discard(error.message)

    @property
    def state(self) -> ReplicaState:
        """The state of the replica."""
        return self._state if self.failure is None else ReplicaState.FAILED

    @property
    def current(self) -> bool:
        """Whether it has caught up since it was opened. It stays so while its owner decides about a failure."""
        return self._state is ReplicaState.CURRENT

    @property
    def lag(self) -> int:
        """The offsets between its position and the last known end of the changelog."""
        return max(0, self.end - self.position) if self.end is not None else 0

    @property
    def topic_id(self) -> str:
        """The id of the topic that it follows."""
        assert self._topic is not None, "it is not followed"
        return self._topic.topic_id

    def local(self) -> LocalPosition | None:
        """Return the checkpoint of the store; None if it is new.

        Raises:
            StoreCorrupted: It is damaged, or holds values as another codec reads them.
        """
        if (checkpoint := self.store.checkpoint()) is None:
            return None
        local, header = LocalPosition.decode(checkpoint), self._prefix_header
        if (loaded := local.prefix_header) != header:
            raise StoreCorrupted(f"it was loaded with prefixes from header {loaded!r}, not from {header!r}")
        return local

    # ---- transitions -----------------------------------------------------------------------------------------------

    def follow(self, topic: TopicInfo, start: int, limit: int | None = None) -> None:
        """Leave OPENING: its rows can be used and are followed from there.

        Args:
            topic: The changelog.
            start: The offset to read from; it moves an empty replica past records that are gone.
            limit: Records from this offset on are skipped.
        """
        self._topic, self._limit = topic, limit
        if not self._has_rows:
            self.begins = start
        self._state = ReplicaState.STALE if self.complete else ReplicaState.LOADING
        self.advance(start)

    def stop(self) -> LocalPosition | None:
        """Return to OPENING. Returns the checkpoint of the store; None if it is new. Raises `StoreCorrupted`."""
        local = self.local()
        self._reset(local)
        return local

    def fail(self, error: Exception) -> None:
        """Record an error that stops it. Any thread: a reader may be the first to find corruption."""
        self.failure = error

    def discard(self, reason: str) -> None:
        """Delete its rows and return to OPENING with an empty store.

        Raises:
            StoreInUse: Another process has taken the store meanwhile; this replica is closed.
        """
        self.complete, self._state = False, ReplicaState.OPENING  # from here on nothing is answered from it
        self.store.close()
        self.store = self._emptied(reason)
        self._reset(None)

    def close(self) -> None:
        """Close the store. May be called twice."""
        self.store.close()

    # ---- following -------------------------------------------------------------------------------------------------

    def apply(self, records: RecordBatch) -> None:
        """Write a batch: the last value of each key and the new position, atomically."""
        if self._limit is not None and records.last_offset >= self._limit:
            records = records.part(0, bisect_left(records.offsets, self._limit))
            if not records:
                return
        records = with_prefixes(records, self._prefix_header)
        with self._applying(records) if self._applying is not None and self.complete else nullcontext():
            self._apply(records)

    def _apply(self, records: RecordBatch) -> None:
        rows = latest(records)
        position = records.last_offset + 1
        with self._writing:
            written: Rows = rows.items()
            if self._expand is not None:
                written = self._expand(self.store, written)
            # Loading is bulk; once complete, rows are written through, so that a crash costs no reload.
            checkpoint = replace(self._live(), changelog=position).encode()
            self.store.write(written, checkpoint, bulk=not self.complete)
            # Last: a reader that takes the position and then a row finds at least the state of that position.
            self.position = position
        if self._listener is not None and self.complete:
            self._listener(self.partition, rows, position)

    def advance(self, position: int) -> bool:
        """Record that the log has no more records below `position`, only markers and compacted gaps.

        Returns:
            Whether this has made it CURRENT.
        """
        if self._limit is not None:
            position = min(position, self._limit)
        self.position = max(self.position, position)
        reached = False
        while self._ends and self._ends[0][1] <= self.position:
            self.current_at, _ = self._ends.popleft()
            reached = True
        return reached and self._state is not ReplicaState.CURRENT and self.mark_current(self.current_at)

    def observe_end(self, asked_at: float, low: int, end: int) -> bool:
        """Record the first and the end offset of the changelog as reported by the broker. Returns like `advance`."""
        self.low, self.end = low, end
        self._ends.append((asked_at, end))
        became_current = self.advance(self.position)
        # Also where nothing changes: the age of the store decides later whether it can be used.
        unsaved_s = self.current_at - self._saved_at  # below 0 after the clock was set back
        if self.current and not self.lag and not 0 <= unsaved_s < _SAVE_SECONDS:
            self.save(self.current_at)
        return became_current

    def mark_current(self, at: float) -> bool:
        """Become CURRENT as of this wall time. Returns False if the store cannot record that, and has failed."""
        self.complete, self._state = True, ReplicaState.CURRENT
        return self.save(at)

    def save(self, at: float, rows: Rows = ()) -> bool:
        """Record in the store that it was current at this wall time: its age decides later whether it can be used.

        Args:
            at: The time, in seconds since 1970.
            rows: Rows to write with it.
        """
        self.current_at = self._saved_at = at
        try:
            self.store.write(rows, self._live().encode())
        except StoreCorrupted as error:
            self.fail(error)
            return False
        return True

    def why_discard(self, changelog: Changelog, now: float) -> str | None:
        """Return the reason why it must be loaded again, given the changelog; None if it need not be."""
        return why_discard(changelog, self._live(), self.current_at) or self.outlived(now)

    def outlived(self, now: float) -> str | None:
        """Return the reason why it must be loaded again while it is followed: tombstones may have gone before it read them.

        What a topic keeps for less than it takes to ask Kafka, or to load, would be loaded again for ever.
        """
        age, kept_s = now - self.current_at, (self._topic.delete_retention_ms if self._topic else 0) / 1_000
        if age <= max(kept_s, _FOLLOWED_LEAST_S if self.current else _LOADED_LEAST_S):
            return None
        return f"it was last complete {age:.0f} s ago, and the topic keeps tombstones for {kept_s:.0f} s: deleted keys could stay for ever"

    def behind_start(self, low: int) -> str | None:
        """Return the reason why it must be loaded again, now that the topic begins at `low`; None if it need not be."""
        return behind_start(low, self._live())

    # ---- reading ---------------------------------------------------------------------------------------------------

    @contextmanager
    def pinned(self) -> Iterator[tuple[int, Iterator[tuple[bytes, bytes]]]]:
        """Return a position and all rows exactly as of it, unaffected by later writes. Any thread."""
        with ExitStack() as scan:
            with self._writing:
                position, rows = self.position, scan.enter_context(self.store.scan())
            yield position, rows

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _emptied(self, reason: str) -> Store:
        log.warning(
            "local copy discarded, loading it from the changelog",
            table=self.place.topic,
            partition=self.partition,
            reason=reason,
        )
        self._stores.destroy(*self.place)
        return self._stores.open(*self.place)

    def _reset(self, local: LocalPosition | None) -> None:
        """Begin with the checkpoint of the store."""
        self._state = ReplicaState.OPENING
        self._has_rows: bool = local is not None
        # Until it has caught up, its age does not improve, however many records are applied. A first load is as old as
        # its beginning: tombstones of that time may be deleted before the load reaches their offsets.
        local = local or LocalPosition(0, "", self._clock.now(), whole=False)
        self.position, self.begins = local.changelog, local.begins
        self.complete, self.current_at = local.whole, local.current_at
        self._saved_at = local.current_at
        self.end = self._limit = self.failure = None
        self._ends.clear()

    def _live(self) -> LocalPosition:
        assert self._topic is not None, "it is not followed"
        more = {"whole": self.complete, "begins": self.begins, "prefix_header": self._prefix_header}
        return LocalPosition.of(self._topic, self.position, self.current_at, **more)
