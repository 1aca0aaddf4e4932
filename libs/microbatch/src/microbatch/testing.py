"""Micro-batches in tests without servers: with embedded rows, or with a central store in memory."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry

from microbatch.committed_state import committed_state_of
from microbatch.graph import MicroBatch
from microbatch.metrics import BatchMetrics
from microbatch.rows import Rows
from microbatch.stores.memory import MemoryDriver, MemoryServer
from microbatch.stores.port import Driver, Row
from microbatch.stores.versions import Ledger, VersionedCell, ledger_key
from microbatch.tasks import BatchTasks
from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint
from streamtable.base.types import Committed, TopicPartition

V = TypeVar("V")


class InMemoryStore:
    """A central store in memory for tests. It makes the tasks of a micro-batch and outlives the group's processes.

        store = InMemoryStore(AUTHORS)
        tester.run(AUTHORS, tasks=store)
        tester.emit(TWEETS, "alice", tweet)
        assert store.rows(PIECES, tester.kafka.committed(AUTHORS.name)) == {...}

    Args:
        group: The graph.
        plain: Whether rows are plain, as with `BatchProcessor`'s `plain_writes`.
        driver: Makes the driver of each process; over `server` by default.
    """

    def __init__(
        self, group: MicroBatch, *, plain: bool = False, driver: Callable[[], Driver] | None = None
    ) -> None:
        self.server = MemoryServer()
        self._group = group.over_central_store()
        self._plain = plain
        self._driver = driver or (lambda: MemoryDriver(self.server, tenant=group.name))

    def __call__(self, clock: Clock, failpoint: Failpoint) -> BatchTasks:
        """Make the tasks of a process that starts."""
        metrics = BatchMetrics.register(CollectorRegistry())
        return BatchTasks(self._group, self._driver(), clock, metrics, failpoint, plain=self._plain)

    def rows(self, rows: Rows[V], committed: Mapping[TopicPartition, Committed]) -> dict[str, V]:
        """Return the committed rows of a kind, by key.

        Args:
            rows: The kind of rows.
            committed: The committed offsets of the group.
        """
        driver, prefix = MemoryDriver(self.server, tenant=self._group.name), rows.key("")
        keys = [key for _, key in self.server.rows if key.startswith(prefix)]
        stored = driver.read(keys, 0).rows
        values = {
            key: row.data if self._plain else self._counting(driver, row, committed)
            for key, row in stored.items()
        }
        return {
            key[len(prefix) :].decode(): rows.value.decode(value)
            for key, value in values.items()
            if value is not None
        }

    def _counting(
        self, driver: Driver, row: Row, committed: Mapping[TopicPartition, Committed]
    ) -> bytes | None:
        partition = VersionedCell.decode(row).partition
        offsets = {place.topic: each for place, each in committed.items() if place.partition == partition}
        own = ledger_key(partition)
        return (
            Ledger.open(committed_state_of(partition, offsets), driver.read([own], 0).rows.get(own))
            .read(row)
            .value
        )
