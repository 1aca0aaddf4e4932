"""Micro-batches in tests without servers: with embedded rows, or with a central store in memory."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import TypeVar

from microbatch.committed_state import committed_state_of
from microbatch.graph import MicroBatch
from microbatch.rows import Rows
from microbatch.stores.memory import MemoryDriver, MemoryServer
from microbatch.stores.port import Driver, Row
from microbatch.stores.versions import Ledger, VersionedCell, ledger_key
from microbatch.task import Surroundings
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
        return BatchTasks(Surroundings(self._group, clock, failpoint), self._driver(), plain=self._plain)

    def of(self, group: MicroBatch) -> "InMemoryStore":
        """Return the same store for the next version of the program: `tester.start(NEXT, tasks=store.of(NEXT))`."""
        found = copy(self)
        found._group = group.over_central_store()  # noqa: SLF001 - its own copy
        return found

    def rows(self, rows: Rows[V], committed: Mapping[TopicPartition, Committed]) -> dict[str, V]:
        """Return the committed rows of a kind, by key.

        Args:
            rows: The kind of rows.
            committed: The committed offsets of the group.
        """
        driver, prefix = MemoryDriver(self.server, tenant=self._group.name), rows.key("")
        keys = [key for _, key in self.server.rows if key.startswith(prefix)]
        found = {}
        for key, row in driver.read(keys, 0).rows.items():
            value = row.data if self._plain else self._counting(driver, row, committed)
            if value is not None:
                found[key[len(prefix) :].decode()] = rows.value.decode(value)
        return found

    def _counting(
        self, driver: Driver, row: Row, committed: Mapping[TopicPartition, Committed]
    ) -> bytes | None:
        partition = VersionedCell.decode(row).partition
        offsets = {place.topic: each for place, each in committed.items() if place.partition == partition}
        own = ledger_key(partition)
        ledger = Ledger.open(committed_state_of(partition, offsets), driver.read([own], 0).rows.get(own))
        return ledger.read(row).value
