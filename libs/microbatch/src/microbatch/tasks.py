"""Makes the tasks of a process: opens each partition's ledger under a new token when its recovery asks for it."""

from collections import defaultdict
from collections.abc import Mapping

from microbatch.buffer import Suspects
from microbatch.graph import MicroBatch
from microbatch.metrics import BatchMetrics, metered
from microbatch.standing import last_token, standing_of
from microbatch.stores.port import Driver
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import NOTHING, Ledger, Standing, ledger_key, reset_error
from microbatch.task import BatchTask, Surroundings
from streamtable.clock import Clock
from streamtable.engine.failpoint import Failpoint
from streamtable.engine.restore import Restore
from streamtable.errors import ConfigurationError, Migrated, RetryLater
from streamtable.tracing import UNTRACED, Tracer
from streamtable.types import Committed


class BatchTasks:
    """Tasks of a micro-batch over one tenant of a central store; an `engine.basetask.Tasks`.

    Args:
        group: the graph.
        driver: of the store; closed with this.
        clock: monotonic time, and pauses between attempts.
        metrics: where the numbers go.
        failpoint: called between any two steps.
        plain: rows without versions, written without condition.
        start_over: each partition begins at the start of its inputs in each life of the process, whatever was
            committed: for a store that is gone with the process.
        deadline: seconds for a call of the store, all its attempts together.
        attempt: seconds for one of them.
        tracer: told of batches, and of what they ask of the store.
    """

    def __init__(
        self,
        group: MicroBatch,
        driver: Driver,
        clock: Clock,
        metrics: BatchMetrics,
        failpoint: Failpoint,
        *,
        plain: bool = False,
        start_over: bool = False,
        deadline: float = 10.0,
        attempt: float = 3.0,
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._store = RemoteStore(
            metered(driver, metrics, group.name, tracer), deadline=deadline, attempt=attempt, clock=clock
        )
        self._around = Surroundings(group, self._store, clock, metrics, failpoint, tracer)
        self._plain = plain
        self._start_over = start_over
        self._begun: set[int] = set()
        self._ledgers: dict[int, Ledger] = {}
        self._refused: dict[int, Standing] = {}
        self._suspects: defaultdict[int, Suspects] = defaultdict(Suspects)

    def recover(
        self, partition: int, committed: Mapping[str, Committed | None]
    ) -> Mapping[str, Committed | None]:
        """Open the partition's ledger. The offsets are known, so what is read here is not older.

        Raises:
            RetryLater: the store does not answer, or a later owner may have been there meanwhile.
            StateLost: store and offsets do not fit together.
        """
        over = self._start_over and partition not in self._begun
        self._begun.add(partition)
        if not self._plain:
            if over and self._store.get(ledger_key(partition)) is not None:
                raise ConfigurationError(
                    "start_over is for a store that is gone with the process, and this one holds rows: leave it out, "
                    "or clear the tenant",
                    partition=partition,
                )
            standing = Standing(last_token(committed), NOTHING) if over else standing_of(partition, committed)
            self._ledgers[partition] = self._open(partition, standing)
        return dict.fromkeys(committed) if over else committed

    def make(self, recovered: Restore) -> BatchTask:
        assert recovered.plan is not None, "asked for before it is ready"
        partition = recovered.partition
        ledger = None if self._plain else self._ledgers.pop(partition)
        return BatchTask(
            self._around,
            recovered.topics,
            partition,
            next_offsets=recovered.plan.next_offsets,
            ledger=ledger,
            uncommitted=recovered.plan.uncommitted or ledger is not None,
            suspects=self._suspects[partition],
        )

    def close(self) -> None:
        self._store.close()

    def _open(self, partition: int, standing: Standing) -> Ledger:
        row = self._store.get(ledger_key(partition))
        self._around.failpoint("ledger-read")
        try:
            ledger = Ledger.open(standing, row)
        except Migrated as error:
            # An owner after us may have committed since the offsets were asked for. Asked again, they say so, unless
            # they have been reset.
            if row is not None and self._refused.get(partition) == standing:
                raise reset_error(row, standing) from error
            self._refused[partition] = standing
            raise RetryLater(error.message) from error
        self._refused.pop(partition, None)
        return ledger
