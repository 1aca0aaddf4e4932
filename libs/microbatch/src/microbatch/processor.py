"""One process of a micro-batch, on Kafka and RocksDB or a central store."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from prometheus_client import CollectorRegistry

from microbatch.embedded import EmbeddedTasks
from microbatch.graph import MicroBatch
from microbatch.metrics import BatchMetrics
from microbatch.store_settings import service_driver
from microbatch.stores.port import Driver
from microbatch.task import Surroundings
from microbatch.tasks import BatchTasks
from streamtable import Guarantee, Kafka, Settings
from streamtable.app import MEMORY_BYTES, CommonOptions, common_options, local_stores
from streamtable.base.clock import SystemClock
from streamtable.base.failpoint import failpoint_at, no_failpoint
from streamtable.base.instance_id import instance_id as own_instance_id
from streamtable.base.ports import Log, Stores
from streamtable.base.settings import default_of
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
        plain_writes: Whether rows in the central store have no versions, for idempotent updates. Needed for at least once.
        memory_bytes: The size of RocksDB's caches.
        store_deadline: The seconds for a call of the central store with all its attempts; after that the batch is
            undone and retried.
        store_attempt: The seconds for one attempt.
        metrics: The engine's metrics; default: metrics in a new registry.
        batch_metrics: The metrics of batches and the store; default: metrics in a new registry.
        options: `instance_id`, `guarantee`, `standby`, `state_retention`, `start_timeout`, `stall_timeout`, `stall_exit`,
            `hanging_transaction_timeout` and `failpoint` as in `streamtable.ProcessorOptions`. Rows with versions need exactly
            once.

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
        plain_writes: bool = False,
        memory_bytes: int = MEMORY_BYTES,
        store_deadline: float = 10.0,
        store_attempt: float = 3.0,
        metrics: Metrics | None = None,
        batch_metrics: BatchMetrics | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        guarantee = Guarantee(options.get("guarantee", default_of("guarantee")))
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
        given = cast("dict[str, Any]", options)
        failpoint = given.pop("failpoint", None)
        clock, reached = SystemClock(), failpoint_at(failpoint) if failpoint else no_failpoint
        numbers, tracer = batch_metrics or BatchMetrics.register(CollectorRegistry()), tracer_of(kafka)
        shared = clock, reached, numbers, tracer
        if store is not None:
            group, stores = group.over_central_store(), local_stores(None)
            tasks: CustomTasks = BatchTasks(
                Surroundings(group, *shared),
                store,
                plain=plain_writes,
                deadline=store_deadline,
                attempt=store_attempt,
            )
        else:
            stores = _local_stores(group, state_dir, memory_bytes)
            tasks = EmbeddedTasks(Surroundings(group, *shared))
        instance = own_instance_id(group.name, given.pop("instance_id", None))
        settings = ProcessorSettings(
            instance.name,
            release=instance.release,
            commit_interval=_DUE_IS_DUE_S,
            poll_records=group.limits.records,
            tracer=tracer,
            **given,
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
            plain_writes=plain_writes,
            metrics=metrics,
            batch_metrics=batch_metrics,
            **common_options(settings),
        )


def _local_stores(group: MicroBatch, state_dir: Path | str | None, memory_bytes: int) -> Stores:
    if group.persist is None:
        return local_stores(None)
    if state_dir is None:
        raise ConfigurationError(
            f"micro-batch {group.name!r} keeps rows: give state_dir= for the embedded store, or store= for a central one"
        )
    return local_stores(Path(state_dir) / group.name, memory_bytes)
