"""A local copy of one changelog partition: a store, and how far it has come.

Recovery brings a replica up to a position, a view keeps one current for ever.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import structlog

from streamtable.clock import Clock
from streamtable.errors import StoreCorrupted
from streamtable.ports import Store, Stores, TopicInfo
from streamtable.tables.position import LocalPosition
from streamtable.tables.recovery import behind_start
from streamtable.tracing import Span
from streamtable.types import RecordBatch, TopicPartition

log = structlog.get_logger()

Listener = Callable[[int, Mapping[bytes, bytes | None], int], None]
"""Called with partition, changed rows (None: deleted), and the offset after the last of them."""

Rows = Iterable[tuple[bytes, bytes | None]]
Expand = Callable[[Store, Rows], Rows]
"""Makes the rows of the local store of the records of a changelog; their order does not matter to the store."""

Applying = Callable[[RecordBatch], Span]
"""Makes the span in which a batch is applied."""


class Replica:
    """Rows of one changelog partition on this machine. One thread writes.

    Args:
        topic: the changelog.
        partition: its number.
        store: where the rows go.
        clock: for the time at which a first load begins.
        listener: told of every batch after it is in the store.
        end: what lies beyond this offset is left out.
        applying: told of every batch once the copy is whole; loading it is nobody's doing.
        begins: the topic's first offset now, if the store is empty; a loaded one knows its own.
        expand: makes the rows of the store; None: they are the records.
    """

    def __init__(
        self,
        topic: TopicInfo,
        partition: int,
        store: Store,
        clock: Clock,
        listener: Listener | None = None,
        end: int | None = None,
        applying: Applying | None = None,
        begins: int | None = None,
        expand: Expand | None = None,
    ) -> None:
        self.place = TopicPartition(topic.name, partition)
        self.store = store
        self._topic = topic
        self._listener = listener
        self._end = end
        self._applying = applying
        self._expand = expand
        self._writing = threading.Lock()
        checkpoint = store.checkpoint()
        self.local = LocalPosition.decode(checkpoint) if checkpoint is not None else None
        self.position = self.local.changelog if self.local else 0
        self.begins = self.local.begins if self.local else begins
        self.whole = self.local.whole if self.local else False
        # Until it is known to be complete it is as old as it was, however many records are applied, and a first load
        # is as old as its beginning: tombstones of that time may be gone when the load comes to where they were.
        self.current_at = self.local.current_at if self.local else clock.now()
        self.failure: Exception | None = None

    def apply(self, records: RecordBatch) -> None:
        """Write a batch: the last value of each key, and the new position, all or nothing."""
        if self._end is not None and records.last_offset >= self._end:
            records = records.part(0, bisect_left(records.offsets, self._end))
            if not records:
                return
        with self._applying(records) if self._applying is not None and self.whole else nullcontext():
            self._apply(records)

    def _apply(self, records: RecordBatch) -> None:
        rows = dict(zip(records.keys, records.values, strict=True))
        if None in rows:
            del rows[None]
            log.warning(
                "record without a key in a table left out",
                topic=self.place.topic,
                partition=self.place.partition,
            )
        position = records.last_offset + 1
        with self._writing:
            # Loading is bulk; once whole, a view's rows are written through, so that a crash costs no reload.
            written: Rows = rows.items()  # type: ignore[assignment] # None popped
            if self._expand is not None:
                written = self._expand(self.store, written)
            self.store.write(written, self._checkpoint(position), bulk=not self.whole)
            # Last: who reads the position and then a row finds no less than the position says.
            self.position = position
        if self._listener is not None and self.whole:
            self._listener(self.place.partition, rows, self.position)  # type: ignore[arg-type] # the same

    @contextmanager
    def still(self) -> Iterator[int]:
        """The position; within, no rows are written, so a scan that begins here is exactly of that position."""
        with self._writing:
            yield self.position

    def advance(self, position: int) -> None:
        """The log holds nothing more for us below `position` (markers and compacted gaps are passed)."""
        if self._end is not None:
            position = min(position, self._end)
        self.position = max(self.position, position)

    def mark_whole(self, at: float) -> None:
        """It has been complete at this wall time, and stays so from now on. Written at once."""
        self.whole = True
        self.save(at)

    def save(self, at: float) -> None:
        """Note that it was complete at this wall time, without new rows."""
        self.current_at = at
        self.store.write((), self._checkpoint(self.position))

    def behind_start(self, low: int) -> str | None:
        """Why it must be loaded again, now that the topic begins at `low`; None if it need not."""
        local = LocalPosition(self.position, self._topic.topic_id, self.current_at, begins=self.begins)
        return behind_start(low, local)

    def failed(self, error: Exception) -> None:
        """Called by the follower, which follows it no more."""
        self.failure = error

    def _checkpoint(self, position: int) -> bytes:
        return LocalPosition(
            changelog=position,
            topic_id=self._topic.topic_id,
            current_at=self.current_at,
            partitions=self._topic.partitions,
            whole=self.whole,
            begins=self.begins,
        ).encode()


def open_store(
    stores: Stores, table: str, partition: int, *, spare: bool = False
) -> tuple[Store, LocalPosition | None]:
    """Open a partition's store; a damaged one is thrown away, loudly, and made anew."""
    try:
        store = stores.open(table, partition, spare=spare)
        try:
            checkpoint = store.checkpoint()
            return store, LocalPosition.decode(checkpoint) if checkpoint is not None else None
        except StoreCorrupted:
            store.close()
            raise
    except StoreCorrupted as error:
        return discard_store(stores, table, partition, error.message), None


def discard_store(stores: Stores, table: str, partition: int, reason: str) -> Store:
    """Throw a closed store away and make it anew."""
    log.warning(
        "local copy thrown away, loading it from the log", table=table, partition=partition, reason=reason
    )
    stores.destroy(table, partition)
    return stores.open(table, partition)
