"""The embedded store: rows in the group's own compacted changelog, with a copy of each partition in local RocksDB.

Rows of batches are stored like the table of any group: the engine writes changed rows to `<group>-table` in the Kafka
transaction that commits the input offsets, and to the local store after it; recovery reads what the local store lacks.
This needs no server, and neither versions nor ledgers: the transaction covers the rows as well.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from zlib import crc32

from microbatch.batch import Batch
from microbatch.committed_state import over_central_store, refuse_offsets
from microbatch.kinds import Kinds
from microbatch.partition_rows import Changes
from microbatch.rows import BatchWrites, StoredRows, written
from microbatch.stores.port import Row
from microbatch.task import BatchTask, Surroundings
from streamtable.base.types import Committed, NextOffset
from streamtable.errors import GraphError, SerializationError
from streamtable.graph.custom_task import TaskServices

_KEYS_CHECKED = 64  # of each batch: about a millisecond for 10,000 rows
_KEYS_REMEMBERED = 8_192
_CENTRAL = (
    "the group has committed with a central store, which has its rows: the embedded store would start empty. Run it with "
    "that store (STREAMTABLE_STORE), or give the group another name, or delete its offsets to start from the beginning of "
    "its inputs"
)


@dataclass(frozen=True)
class LocalRows:
    """Reads rows of one partition from the engine's table, as `RemoteStore` reads them from a server.

    Attributes:
        get: Reads the committed row of a key.
    """

    get: Callable[[bytes], bytes | None]

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, Row]:
        """Return the rows of those keys that have one."""
        return {key: Row(0, data) for key in keys if (data := self.get(key)) is not None}


class KeyOwners:
    """Detects rows that two partitions of this process write: each partition would have its own incomplete row.

    It checks a sample: the keys of each batch with the lowest checksums, which are the same in every partition.
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
                    "store each of them would keep its own row. Derive the keys of rows from the keys of "
                    "records, or send data for another key to a topic with that key"
                )
        while len(self._owners) > _KEYS_REMEMBERED:
            del self._owners[next(iter(self._owners))]


class EmbeddedRows:
    """The rows of one partition in its changelog and a local store; a `PartitionRows`.

    Args:
        kinds: The kinds of rows of the program, and their partition.
        owners: The key owners of the process.
    """

    def __init__(self, kinds: Kinds, owners: KeyOwners) -> None:
        self.unproved = bool(kinds.group.rows)
        self._kinds = kinds
        self._owners = owners
        self._record: dict[bytes, bytes] = {}

    def begin(self, services: TaskServices) -> None:
        if self.unproved or self._record:
            before = services.get(self._kinds.key)
            record = self._kinds.record(before)
            self._record = {} if record == before else {self._kinds.key: record}

    def stored(self, services: TaskServices) -> StoredRows:
        return StoredRows(LocalRows(services.get), self._kinds.partition, None)

    def written(self, batch: Batch, stored: StoredRows, services: TaskServices) -> BatchWrites:
        found = written(batch.used_rows, stored, None)
        changed = {key: data for key, data in found.rows.items() if not stored.holds(key, data)}
        if changed and services.row_bytes_max is not None:
            self._refuse_too_large(changed, services.row_bytes_max)
            self._owners.check(self._kinds.partition, changed)
        return replace(found, rows=changed)

    def _refuse_too_large(self, rows: Mapping[bytes, bytes | None], bytes_max: int) -> None:
        sizes = {key: len(key) + len(data or b"") for key, data in rows.items()}
        largest = max(sizes, key=sizes.__getitem__)
        if sizes[largest] > bytes_max:
            raise SerializationError(
                f"row {largest[:100]!r} of the changelog {self._kinds.group.table.name!r} has {sizes[largest]:,} bytes, "
                f"more than the {bytes_max:,} that its topic accepts"
            )

    def changes(self, writes: BatchWrites) -> Changes:
        return sorted({**self._record, **writes.rows}.items())

    def write(self, writes: BatchWrites, committed: Mapping[str, NextOffset]) -> None:
        """Do nothing: the commit itself writes the rows, and then the local store."""

    def applied(self, writes: BatchWrites) -> bool:  # noqa: ARG002 - nothing is left to write
        self.unproved = False
        return True


class EmbeddedTasks:
    """Tasks of a micro-batch over its own changelog; implements `CustomTasks`.

    Args:
        around: The parts that all tasks of the process share; its group has a table.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._owners = KeyOwners()

    def recover(self, partition: int, committed: Mapping[str, Committed | None]) -> BatchTask:
        """Check that the offsets were not committed over a central store; the engine loads the rows.

        Raises:
            StateLost: The group's rows are in a central store.
        """
        refuse_offsets(partition, committed, over_central_store, _CENTRAL)
        self._around.beginnings.note(partition, committed)
        kinds = Kinds(self._around.group, partition, committed)
        return BatchTask(self._around, partition, EmbeddedRows(kinds, self._owners))

    def close(self) -> None:
        """Do nothing: the engine closes the stores."""
