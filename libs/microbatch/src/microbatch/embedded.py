"""The embedded store: rows in the group's own compacted changelog, with a copy of each partition in local RocksDB.

It is the way of a group's table, used for the rows of batches: the engine writes the changed rows to `<group>-table` in
the Kafka transaction that commits the input offsets, and to the local store after it; recovery reads what the local
store lacks. No server is needed, and neither versions nor ledgers: the transaction decides about rows as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from heapq import nsmallest
from zlib import crc32

from microbatch.batch import Batch
from microbatch.beginnings import Beginnings
from microbatch.buffer import PoisonBisectors
from microbatch.committed_state import decode as decode_committed_state
from microbatch.graph import MicroBatch
from microbatch.metrics import BatchMetrics
from microbatch.rows import StoredRows
from microbatch.rows import Written as WrittenRows
from microbatch.stores.port import Row
from microbatch.task import BatchTask, Cut, Surroundings
from streamtable.clock import Clock
from streamtable.deadletter import RECORD_OVERHEAD_BYTES
from streamtable.engine.basetask import Work
from streamtable.engine.restore import Restore
from streamtable.errors import GraphError, RewindNeeded, StateLost, StoreCorrupted
from streamtable.failpoint import Failpoint
from streamtable.ports import Store, TopicInfo
from streamtable.tables.position import LocalPosition, TablePosition
from streamtable.tables.working_table import refuse_if_larger
from streamtable.tracing import UNTRACED, Tracer
from streamtable.types import Committed, TopicPartition

_KEYS_CHECKED = 64  # of each batch: about a millisecond for 10,000 rows
_KEYS_REMEMBERED = 8_192


class LocalRows:
    """Reads rows of one partition from its local store, as `RemoteStore` reads them from a server.

    Args:
        store: None for a group that keeps no rows.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """The rows of those keys that have one."""
        if self._store is None:
            return {}
        get = self._store.get
        found = ((key, get(key)) for key in keys)
        return {key: Row(0, data) for key, data in found if data is not None}


class KeyOwners:
    """Notices rows that two partitions of this process write: each would have a row of its own, and neither the whole.

    A sample: of each batch the keys with the lowest checksums, the same ones in every partition.
    """

    def __init__(self) -> None:
        self._owners: dict[bytes, int] = {}

    def check(self, partition: int, keys: Iterable[bytes]) -> None:
        """Raise `GraphError` if another partition of this process has written one of these rows."""
        for key in nsmallest(_KEYS_CHECKED, keys, key=crc32):
            owner = self._owners.setdefault(key, partition)
            if owner != partition:
                raise GraphError(
                    f"row {key[:100]!r} is written by partition {partition} and by partition {owner}: in the embedded "
                    "store each of them would keep a row of its own. Let the keys of rows follow from the keys of "
                    "records, or send what belongs to another key to a topic keyed by it"
                )
        while len(self._owners) > _KEYS_REMEMBERED:
            del self._owners[next(iter(self._owners))]


class EmbeddedTask(BatchTask):
    """The task of one partition of a `MicroBatch` whose rows are in its changelog and a local store.

    Args:
        around: The parts that all tasks of the process share.
        recovered: the partition, with its store open and complete.
        bisectors: The bisectors by partition; each outlives the partition's task.
        owners: The key owners of the process.
    """

    def __init__(
        self, around: Surroundings, recovered: Restore, bisectors: PoisonBisectors, owners: KeyOwners
    ) -> None:
        assert recovered.plan is not None, "asked for before it is ready"
        self._table = around.group.table.name if around.group.persist else ""
        super().__init__(
            around,
            recovered.topics,
            recovered.partition,
            next_offsets=recovered.plan.next_offsets,
            ledger=None,
            uncommitted=recovered.plan.uncommitted,
            bisector=bisectors[recovered.partition],
            stores=recovered.stores,
            changelog_position=recovered.position(self._table),
        )
        self._owners = owners
        self._topic: TopicInfo | None = recovered.topics.get(self._table)

    def _stored_rows(self) -> StoredRows:
        return StoredRows(LocalRows(self.stores.get(self._table)), self.partition, None)

    @contextmanager
    def _blamed(self, cut: Cut) -> Iterator[None]:
        with super()._blamed(cut):
            try:
                yield
            except StoreCorrupted as error:
                self.failure = error  # the engine throws the store away, and loads it from the changelog
                raise RewindNeeded("the local store is damaged", topic=self._table) from error

    def _written(self, batch: Batch, stored: StoredRows) -> WrittenRows:
        found = super()._written(batch, stored)
        changed = {key: data for key, data in found.rows.items() if not stored.holds(key, data)}
        if changed and self._topic is not None:
            bytes_max = self._topic.max_message_bytes - RECORD_OVERHEAD_BYTES
            largest = max(changed, key=lambda key: len(key) + len(changed[key] or b""))
            size = len(largest) + len(changed[largest] or b"")
            refuse_if_larger(size, bytes_max, f"row {largest[:100]!r} of the changelog {self._table!r}")
            self._owners.check(self.partition, changed)
        return replace(found, rows=changed)

    # ---- commit ----------------------------------------------------------------------------------------------------

    def work(self) -> Work:
        work, done = super().work(), self._done
        return replace(work, changes=sorted(done.written.rows.items())) if done is not None else work

    def write_ahead(self, work: Work) -> None:
        """Rows are written by the commit itself, and locally after it."""

    def offsets(self, work: Work, position: TablePosition) -> dict[TopicPartition, Committed]:
        seen = self.seen(work.next_offsets)
        return {
            TopicPartition(topic, self.partition): Committed(
                offset, replace(position, seen=seen.get(topic)).encode()
            )
            for topic, offset in work.next_offsets.items()
        }

    def committed(self, work: Work, position: TablePosition) -> None:
        self._write(work.changes, position.changelog, work)
        # Not before the write: if that failed for good, `save` must not say that the store is as far as Kafka.
        self.changelog_position = position.changelog
        super().committed(work, position)

    def save(self) -> None:
        self._write((), self.changelog_position, None)

    def _write(
        self, rows: Iterable[tuple[bytes, bytes | None]], changelog_position: int, work: Work | None
    ) -> None:
        if self._topic is None:
            return
        position = LocalPosition(
            changelog=changelog_position,
            topic_id=self._topic.topic_id,
            current_at=self._around.clock.now(),
            inputs=work.next_offsets if work is not None else self.committed_offsets,
            partitions=self._topic.partitions,
        )
        try:
            self.stores[self._table].write(rows, position.encode())
        except StoreCorrupted as error:
            self.failure = error  # the commit stands, and so do those of the other tasks


class EmbeddedTasks:
    """Tasks of a micro-batch over its own changelog; an `engine.basetask.Tasks`.

    Args:
        group: the graph, with its table.
        clock: wall and monotonic time.
        metrics: The metrics to update.
        failpoint: called between any two steps.
        tracer: Traces batches.
    """

    def __init__(
        self,
        group: MicroBatch,
        clock: Clock,
        metrics: BatchMetrics,
        failpoint: Failpoint,
        *,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._around = Surroundings(group, None, clock, metrics, failpoint, tracer)
        self._owners = KeyOwners()
        self._bisectors = PoisonBisectors()
        self._beginnings = Beginnings(group)

    def recover(
        self, partition: int, committed: Mapping[str, Committed | None]
    ) -> Mapping[str, Committed | None]:
        """The engine loads the rows; offsets that were committed over a central store do not fit them.

        Raises:
            StateLost: the group's rows are in a central store.
        """
        for topic, each in committed.items():
            if each is not None and decode_committed_state(each.metadata) is not None:
                raise StateLost(
                    "the group has committed over a central store, and its rows are there: the embedded store would "
                    "count from nothing. Run it with that store (STREAMTABLE_STORE), or give the group another name, "
                    "or delete its offsets to start from the beginning of its inputs",
                    topic=topic,
                    partition=partition,
                    offset=each.next_offset,
                )
        self._beginnings.note(partition, committed)
        return committed

    def make(self, recovered: Restore) -> EmbeddedTask:
        assert recovered.plan is not None, "asked for before it is ready"
        self._beginnings.check(recovered.partition, recovered.plan.next_offsets)
        return EmbeddedTask(self._around, recovered, self._bisectors, self._owners)

    def close(self) -> None:
        """The engine closes the stores."""
