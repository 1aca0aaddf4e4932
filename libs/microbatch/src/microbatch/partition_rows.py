"""The rows of one partition of a micro-batch, as its task asks for them: embedded, or in a central store."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from microbatch.batch import Batch
from microbatch.committed_state import document
from microbatch.rows import BatchWrites, StoredRows, written
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import Ledger, ledger_key
from streamtable.base.failpoint import Failpoint
from streamtable.base.types import NextOffset
from streamtable.errors import Migrated, RetryLater
from streamtable.graph.custom_task import TaskServices, Written

log = structlog.get_logger()

Changes = Sequence[tuple[bytes, bytes | None]]
OwnRows = Mapping[bytes, bytes]


class PartitionRows(Protocol):
    """The rows that a task reads and writes. `CentralRows` and `embedded.EmbeddedRows` implement it.

    Attributes:
        unproved: A commit must come before the first record: it proves that the partition has no other owner, or the kinds of
            its rows have not been compared yet.
    """

    unproved: bool

    def begin(self, services: TaskServices) -> None:
        """Compare embedded rows with the record of their kinds, before each commit. Raises as `Kinds.record`."""

    def stored(self, services: TaskServices) -> StoredRows:
        """Return the committed rows, for the next batch."""

    def written(self, batch: Batch, stored: StoredRows, services: TaskServices) -> BatchWrites:
        """Return the rows that a batch has written. Raises as `rows.written`, and `GraphError` for rows of others."""

    def changes(self, writes: BatchWrites) -> Changes:
        """Return the rows that the commit of a batch writes to the group's own table, with the record of kinds if it is new."""

    def write(self, writes: BatchWrites, committed: Mapping[str, NextOffset]) -> Written | None:
        """Write the rows of a batch, or none, ahead of the commit. See `CustomTask.write`.

        Args:
            writes: The rows.
            committed: The offsets that were committed last.

        Raises:
            SerializationError: The store does not take a row.
        """

    def applied(self, writes: BatchWrites) -> bool:
        """Note that Kafka has committed these writes. See `CustomTask.applied`."""


class CentralRows:
    """The rows of one partition in a central store; a `PartitionRows`.

    Args:
        store: The store.
        partition: The number of the partition.
        ledger: The partition's ledger, under a new epoch; None if rows are plain. Its first commit proves the epoch.
        own: The row of the record of kinds, to be written with the ledger's row.
        failpoint: Called between any two steps.
    """

    def __init__(
        self, store: RemoteStore, partition: int, ledger: Ledger | None, own: OwnRows, failpoint: Failpoint
    ) -> None:
        self.unproved = ledger is not None
        self._store = store
        self._partition = partition
        self._ledger = ledger
        self._own = own
        self._failpoint = failpoint

    def begin(self, services: TaskServices) -> None:
        """Do nothing: the rows were compared when the ledger was opened."""

    def stored(self, services: TaskServices) -> StoredRows:  # noqa: ARG002 - of embedded rows
        return StoredRows(self._store, self._partition, self._ledger, expire=self._store.expire)

    def written(self, batch: Batch, stored: StoredRows, services: TaskServices) -> BatchWrites:  # noqa: ARG002 - the same
        return written(batch.used_rows, stored, self._ledger)

    def changes(self, writes: BatchWrites) -> Changes:  # noqa: ARG002 - the same
        return ()

    def write(self, writes: BatchWrites, committed: Mapping[str, NextOffset]) -> Written:
        """Write the rows, with the number that becomes valid by the commit."""
        if writes.rows:
            self._store.put_many(writes.rows, writes.number, writes.fields)
            self._failpoint("rows-written")
        ledger = self._next_ledger(writes)
        state = ledger.committed_state if ledger is not None else None
        return Written(document(state, committed), ahead=bool(writes.rows) and ledger is not None)

    def applied(self, writes: BatchWrites) -> bool:
        """Move to the next ledger. Returns False if its row could not be written."""
        self._ledger = self._next_ledger(writes)
        good = self._ledger is None or not self.unproved or self._write_ledger(self._ledger)
        self.unproved = False
        return good

    def _next_ledger(self, writes: BatchWrites) -> Ledger | None:
        """Return the ledger after the next commit."""
        return self._ledger.committed() if self._ledger is not None and writes.rows else self._ledger

    def _write_ledger(self, ledger: Ledger) -> bool:
        """Write the ledger's row after the commit that proved the epoch. Returns False if the store did not accept it.

        Until then the metadata have the one end that the row lacks.
        """
        good = True
        try:
            own = {**self._own, ledger_key(self._partition): ledger.encode()}
            self._store.put_many(own, ledger.opening)
        except (RetryLater, Migrated) as error:
            what = "ledger not written: the partition recovers again"
            log.warning(what, partition=self._partition, reason=str(error))
            good = False
        self._failpoint("ledger-written")
        return good
