"""Makes the tasks of a process, and opens each partition's ledger under a new epoch when the partition recovers."""

from collections.abc import Mapping

from microbatch.committed_state import committed_state_of, refuse_offsets
from microbatch.kinds import Kinds
from microbatch.metrics import MeteredDriver
from microbatch.partition_rows import CentralRows
from microbatch.stores.port import Driver, Row
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import PLAIN, CommittedState, Ledger, ledger_key, reset_error
from microbatch.task import BatchTask, Surroundings
from streamtable.base.types import Committed
from streamtable.errors import Migrated, RetryLater, StateLost
from streamtable.tables.position import TablePosition

_EMBEDDED = (
    "the group has committed with the embedded store, and its rows are in its changelog: a central store would start "
    "empty. Run it without a central store (STREAMTABLE_STORE=embedded:), or give the group another name, or delete its "
    "offsets to start from the beginning of its inputs"
)
_EMPTIED = (
    "the group has committed offset {}, but the central store has nothing of this partition: it was emptied, lost its rows, "
    "or is another store. Counting would start empty: restore the store, or delete the group's offsets to start from the "
    "beginning of its inputs"
)


class BatchTasks:
    """Tasks of a micro-batch over one tenant of a central store; implements `CustomTasks`.

    Args:
        around: The parts that all tasks of the process share. Its tracer also gets a span for each call of the store.
        driver: The driver of the store; closed with this.
        plain: Whether rows have no versions and are written without condition.
        deadline: The seconds for a call of the store with all its attempts.
        attempt: The seconds for one attempt.
    """

    def __init__(
        self,
        around: Surroundings,
        driver: Driver,
        *,
        plain: bool = False,
        deadline: float = 10.0,
        attempt: float = 3.0,
    ) -> None:
        metered = MeteredDriver(driver, around.metrics, around.group.name, around.tracer)
        self._store = RemoteStore(metered, deadline=deadline, attempt=attempt, clock=around.clock)
        self._around = around
        self._plain = plain
        self._refused: dict[int, CommittedState] = {}

    def recover(self, partition: int, committed: Mapping[str, Committed | None]) -> BatchTask:
        """Open the partition's ledger. It is read after the committed offsets, so it is not older.

        Raises:
            RetryLater: The store does not answer, or a later owner may have written meanwhile.
            StateLost: Store and offsets do not match.
        """
        refuse_offsets(partition, committed, TablePosition.decode, _EMBEDDED)
        kinds = Kinds(self._around.group, partition, committed)
        found = self._store.get_many([ledger_key(partition), kinds.key])
        self._around.failpoint("ledger-read")
        mark, before = found.get(ledger_key(partition)), found.get(kinds.key)
        if mark is not None and (mark.data == PLAIN) != self._plain:
            raise StateLost(
                f"the rows of the central store {'have' if self._plain else 'are plain, without'} versions: with "
                f"plain_writes={self._plain} they would be misread. Give plain_writes={not self._plain}, or clear the tenant "
                "and start the group from the beginning of its inputs",
                partition=partition,
            )
        ledger = None
        if self._plain:
            refuse_offsets(partition, committed, lambda _: mark is None, _EMPTIED)
        else:
            ledger = self._opened(partition, committed_state_of(partition, committed), mark)
        record = {kinds.key: kinds.record(before.data if before is not None else None)}
        if self._plain:
            # Without a ledger, its place marks the store as existing since the first commit.
            self._store.put_many({**record, ledger_key(partition): PLAIN}, None)
        self._around.beginnings.note(partition, committed)
        rows = CentralRows(self._store, partition, ledger, record, self._around.failpoint)
        return BatchTask(self._around, partition, rows)

    def close(self) -> None:
        self._store.close()

    def _opened(self, partition: int, committed_state: CommittedState, row: Row | None) -> Ledger:
        try:
            ledger = Ledger.open(committed_state, row)
        except Migrated as error:
            # A later owner may have committed since the offsets were read. Reading them again shows that, unless
            # they have been reset.
            if row is not None and self._refused.get(partition) == committed_state:
                raise reset_error(row, committed_state) from error
            self._refused[partition] = committed_state
            raise RetryLater(error.message) from error
        self._refused.pop(partition, None)
        return ledger
