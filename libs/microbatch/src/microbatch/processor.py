"""One process of a micro-batch, on Kafka and RocksDB or a central store."""

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from microbatch.embedded import EmbeddedTasks
from microbatch.graph import MicroBatch
from microbatch.metrics import BatchMetrics
from microbatch.store_settings import service_driver
from microbatch.stores.port import Driver
from microbatch.tasks import BatchTasks
from streamtable import Guarantee, Kafka, Settings
from streamtable.app import local_stores
from streamtable.clock import SystemClock
from streamtable.errors import ConfigurationError
from streamtable.failpoint import failpoint_at, no_failpoint
from streamtable.group_processor import GroupProcessor, ProcessorSettings
from streamtable.observe import Metrics, progress_on
from streamtable.ports import Log, Stores
from streamtable.tracing import tracer_of

if TYPE_CHECKING:
    from streamtable.custom_task import CustomTasks

_DUE_IS_DUE_S = 0.001  # between two commits: batches say themselves when they are due


class BatchProcessor(GroupProcessor):
    """One process of a `MicroBatch`.

        BatchProcessor(AUTHORS, kafka, state_dir=Path("state")).run()
        BatchProcessor(AUTHORS, kafka, store=RedisDriver(url, tenant="authors")).run()

    Rows that a batch leaves, its output and its input offsets count together or not at all. Without `store` the rows
    are embedded: in the group's table and in RocksDB below `state_dir`, from which they are restored as any table is.

    Args:
        group: the graph.
        kafka: the cluster.
        store: a central store, of the group's tenant; closed at the end. None: the rows are embedded.
        state_dir: embedded rows are kept in `<state_dir>/<group>/<table>/<partition>`.
        instance_id: names this process among the group's; the host name unless given.
        guarantee: The guarantee of offsets and output. Rows with versions need exactly once.
        plain_writes: rows in the central store without versions: for state that comes out the same when a batch is
            applied twice. It is also what allows at least once.
        standby: Whether to keep a standby replica of every partition of embedded rows that another process owns.
        state_retention: seconds that embedded rows of partitions that left are kept.
        memory_bytes: The size of RocksDB's caches.
        store_deadline: seconds for a call of the central store, with all its attempts; then the batch is undone, and
            comes again.
        store_attempt: seconds for one of them.
        start_timeout: seconds to wait for the broker; None: no limit.
        stall_timeout: Seconds without progress after which the processor is not ready. Give more than the longest call
            of a handler takes.
        stall_exit: Seconds without progress after which the process exits with code 75; None: it never does.
        hanging_transaction_timeout: Seconds that partitions wait for a transaction that has not ended before that is
            reported, and the processor is not ready.
        metrics: The registry of the metrics; one of its own by default.
        batch_metrics: those of batches and store; the same.
        failpoint: The place where the process kills or freezes itself in tests; see `streamtable.failpoint`.

    Raises:
        ConfigurationError: the arguments contradict each other.
    """

    def __init__(
        self,
        group: MicroBatch,
        kafka: Log,
        *,
        store: Driver | None = None,
        state_dir: Path | None = None,
        instance_id: str | None = None,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        plain_writes: bool = False,
        standby: bool = False,
        state_retention: float = 24 * 3600.0,
        memory_bytes: int = 64 << 20,
        store_deadline: float = 10.0,
        store_attempt: float = 3.0,
        start_timeout: float | None = None,
        stall_timeout: float = 30.0,
        stall_exit: float | None = None,
        hanging_transaction_timeout: float = 90.0,
        metrics: Metrics | None = None,
        batch_metrics: BatchMetrics | None = None,
        failpoint: str | None = None,
    ) -> None:
        if guarantee is not Guarantee.EXACTLY_ONCE and not plain_writes:
            raise ConfigurationError(
                "rows count by Kafka's transactions: give guarantee=EXACTLY_ONCE, or plain_writes=True for state that "
                "comes out the same when a batch is applied twice"
            )
        if not 0 < store_attempt <= store_deadline:
            raise ConfigurationError(
                f"store_attempt={store_attempt!r}: more than 0 and at most store_deadline, {store_deadline!r}"
            )
        clock, reached = SystemClock(), failpoint_at(failpoint) if failpoint else no_failpoint
        numbers, tracer = batch_metrics or BatchMetrics.register(CollectorRegistry()), tracer_of(kafka)
        tasks: CustomTasks
        stores: Stores
        if store is not None:
            group, stores = group.over_central_store(), local_stores(None)
            tasks = BatchTasks(
                group,
                store,
                clock,
                numbers,
                reached,
                plain=plain_writes,
                deadline=store_deadline,
                attempt=store_attempt,
                tracer=tracer,
            )
        else:
            stores = _local_stores(group, state_dir, memory_bytes)
            tasks = EmbeddedTasks(group, clock, numbers, reached, tracer=tracer)
        settings = ProcessorSettings(
            instance_id=instance_id or socket.gethostname(),
            guarantee=guarantee,
            commit_interval=_DUE_IS_DUE_S,
            poll_records=group.limits.records,
            start_timeout=start_timeout,
            stall_timeout=stall_timeout,
            stall_exit=stall_exit,
            hanging_transaction_timeout=hanging_transaction_timeout,
            state_retention=state_retention,
            standby=standby,
            tracer=tracer,
        )
        super().__init__(
            group,
            kafka,
            stores,
            settings,
            clock,
            metrics or Metrics.register(CollectorRegistry()),
            progress_on(sys.stderr),
            reached,
            tasks=tasks,
        )

    @classmethod
    def from_settings(
        cls,
        group: MicroBatch,
        settings: Settings,
        *,
        store: Driver | None = None,
        kafka: Log | None = None,
        plain_writes: bool = False,
        metrics: Metrics | None = None,
        batch_metrics: BatchMetrics | None = None,
    ) -> "BatchProcessor":
        """Return a processor with the settings of the environment; `kafka` and `store` only if they exist already.

        Raises:
            ConfigurationError: `STREAMTABLE_STORE` is malformed, or names the memory of this process.
        """
        return cls(
            group,
            kafka or Kafka.from_settings(settings),
            store=store or service_driver(settings.store, group.name),
            state_dir=settings.state_dir,
            instance_id=settings.instance_id,
            guarantee=Guarantee(settings.guarantee),
            plain_writes=plain_writes,
            standby=settings.standby == "all",
            state_retention=settings.state_retention,
            start_timeout=settings.start_timeout,
            stall_timeout=settings.stall_timeout,
            stall_exit=settings.stall_exit,
            hanging_transaction_timeout=settings.hanging_transaction_timeout,
            metrics=metrics,
            batch_metrics=batch_metrics,
            failpoint=settings.failpoint,
        )


def _local_stores(group: MicroBatch, state_dir: Path | None, memory_bytes: int) -> Stores:
    if group.persist is None:
        return local_stores(None)
    if state_dir is None:
        raise ConfigurationError(
            f"micro-batch {group.name!r} keeps rows: give state_dir= for the embedded store, or store= for a central one"
        )
    return local_stores(state_dir / group.name, memory_bytes)
