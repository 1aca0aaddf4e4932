"""One process of a micro-batch, on Kafka and RocksDB or a central store."""

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
from streamtable.base.clock import SystemClock
from streamtable.base.failpoint import failpoint_at, no_failpoint
from streamtable.base.instance_id import instance_id as own_instance_id
from streamtable.base.ports import Log, Stores
from streamtable.base.tracing import tracer_of
from streamtable.engine import GroupProcessor, ProcessorSettings
from streamtable.errors import ConfigurationError
from streamtable.observe import Metrics, progress_on

if TYPE_CHECKING:
    from streamtable.graph.custom_task import CustomTasks

_DUE_IS_DUE_S = 0.001  # the commit interval: batches decide themselves when they are due


class BatchProcessor(GroupProcessor):
    """One process of a `MicroBatch`.

        BatchProcessor(AUTHORS, "127.0.0.1:9092", state_dir="state").run()
        BatchProcessor(AUTHORS, kafka, store=RedisDriver(url, tenant="authors")).run()

    The rows, the output and the input offsets of a batch are committed atomically. Without `store` the rows are
    embedded: in the group's table and in RocksDB below `state_dir`, restored like any table.

    Args:
        group: The graph.
        kafka: The Kafka cluster, or its bootstrap servers.
        store: A central store with the group's tenant, closed at the end; None: the rows are embedded.
        state_dir: The folder of embedded rows: `<state_dir>/<group>/<table>/<partition>`.
        instance_id: The id of this process, unique in the group; default: STREAMTABLE_INSTANCE_ID, or the host name, with a
            number if another process of this host has that already.
        guarantee: The guarantee of offsets and output. Rows with versions need exactly once.
        plain_writes: Whether rows in the central store have no versions, for idempotent updates. Needed for at least once.
        standby: Whether to keep a standby replica of every partition of embedded rows that another process owns.
        state_retention: How many seconds embedded rows of revoked partitions are kept.
        memory_bytes: The size of RocksDB's caches.
        store_deadline: The seconds for a call of the central store with all its attempts; after that the batch is
            undone and retried.
        store_attempt: The seconds for one attempt.
        start_timeout: The seconds to wait for the broker at the start; None: no limit.
        stall_timeout: The seconds without progress after which the processor is not ready. Must exceed the longest call
            of a handler.
        stall_exit: The seconds without progress after which the process exits with code 75; None: never.
        hanging_transaction_timeout: The seconds that partitions wait for an open transaction before it is reported and
            the processor is not ready.
        metrics: The engine's metrics; default: metrics in a new registry.
        batch_metrics: The metrics of batches and the store; default: metrics in a new registry.
        failpoint: The place where the process kills or freezes itself in tests; see `streamtable.base.failpoint`.

    Raises:
        ConfigurationError: The arguments contradict each other.
    """

    def __init__(
        self,
        group: MicroBatch,
        kafka: Log | str,
        *,
        store: Driver | None = None,
        state_dir: Path | str | None = None,
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
                "rows with versions need Kafka's transactions: give guarantee=EXACTLY_ONCE, or plain_writes=True for state that "
                "is the same when a batch is applied twice"
            )
        if not 0 < store_attempt <= store_deadline:
            raise ConfigurationError(
                f"store_attempt={store_attempt!r}: more than 0 and at most store_deadline, {store_deadline!r}"
            )
        kafka = Kafka(kafka) if isinstance(kafka, str) else kafka
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
        instance = own_instance_id(group.name, instance_id)
        settings = ProcessorSettings(
            instance_id=instance.name,
            release=instance.release,
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
        """Return a processor with the settings of the environment; `kafka` and `store` override the settings.

        Raises:
            ConfigurationError: `STREAMTABLE_STORE` is malformed, or is `memory:`.
        """
        return cls(
            group,
            kafka or Kafka.from_settings(settings),
            store=store or service_driver(settings.store, group.name),
            state_dir=settings.state_dir,
            instance_id=settings.instance_id if "instance_id" in settings.model_fields_set else None,
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


def _local_stores(group: MicroBatch, state_dir: Path | str | None, memory_bytes: int) -> Stores:
    if group.persist is None:
        return local_stores(None)
    if state_dir is None:
        raise ConfigurationError(
            f"micro-batch {group.name!r} keeps rows: give state_dir= for the embedded store, or store= for a central one"
        )
    return local_stores(Path(state_dir) / group.name, memory_bytes)
