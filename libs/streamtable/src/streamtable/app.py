"""The library put together: the core with the real Kafka, RocksDB and clock. The only module that knows them all."""

import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar, cast

from prometheus_client import CollectorRegistry

from streamtable.clock import SystemClock
from streamtable.codec import Avro
from streamtable.codec.avro import warm_up
from streamtable.engine.failpoint import failpoint_at, no_failpoint
from streamtable.engine.handling import Around
from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.graph import Group
from streamtable.inhand import InHandFile
from streamtable.kafka import Kafka
from streamtable.memory import fewer_collections, hand_back
from streamtable.observe import Metrics, Progress, log_as_set, progress_on
from streamtable.ports import Log, Stores
from streamtable.settings import Settings
from streamtable.tables.position import Guarantee
from streamtable.topics import Table
from streamtable.tracing import tracer_of
from streamtable.views import several, view
from streamtable.views.host import Host

K = TypeVar("K")
V = TypeVar("V")


def kafka_from(settings: Settings) -> Kafka:
    """The cluster that the settings name. Connects to nothing."""
    log_as_set(settings.log_format, settings.log_level)  # a process that reads settings comes by here
    return Kafka(
        settings.bootstrap_servers,
        settings.kafka,
        group_protocol=settings.group_protocol,
        static_membership=settings.static_membership,
    )


def local_stores(folder: Path, memory_bytes: int) -> Stores:
    """Stores in RocksDB below a folder."""
    from streamtable.store.rocksdb import RocksStores  # noqa: PLC0415 - 7 MB, of use to tables only

    return RocksStores(folder, memory_bytes=memory_bytes)


class Processor(GroupProcessor):
    """One process of a group, on Kafka and RocksDB.

        Processor(CLICK_COUNT, kafka, state_dir=Path("state")).run()

    Args:
        group: the graph.
        kafka: the cluster.
        state_dir: tables are kept in `<state_dir>/<group>/<table>/<partition>`, copies of those that are looked
            up in `<state_dir>/<group>/lookups/<instance_id>/<table>/<partition>`.
        instance_id: names this process among the group's; the host name unless given.
        guarantee: exactly once unless said otherwise.
        commit_interval: seconds.
        start_timeout: seconds to wait for the broker; None waits for ever.
        stall_timeout: Seconds without progress after which the processor is not ready. Give more than the longest call
            of a handler takes.
        stall_exit: Seconds without progress after which the process exits with code 75; None: it never does.
        hanging_transaction_timeout: Seconds that partitions wait for a transaction that has not ended before that is
            reported, and the processor is not ready.
        state_retention: seconds that the state of partitions that left is kept.
        standby: keep a warm copy of every partition of the group's tables, also of those at work elsewhere.
        memory_bytes: for RocksDB's caches, for those of looked-up tables if there are any, and for decoded rows, each.
        metrics: where numbers go; a registry of its own unless given.
        progress: where recovery is shown; bars on standard error if that is a terminal.
        defer_timeout: seconds that what a handler has deferred may take.
        around: makes a handler of each handler of the graph, for tracing and the like; see `engine.handling.Around`.
        failpoint: where the process kills or freezes itself, for tests; see `engine.failpoint.failpoint_at`.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        kafka: Log,
        *,
        state_dir: Path,
        instance_id: str | None = None,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        commit_interval: float = 0.2,
        start_timeout: float | None = None,
        stall_timeout: float = 30.0,
        stall_exit: float | None = None,
        hanging_transaction_timeout: float = 90.0,
        state_retention: float = 24 * 3600.0,
        standby: bool = False,
        memory_bytes: int = 64 << 20,
        defer_timeout: float = 10.0,
        around: Around | None = None,
        metrics: Metrics | None = None,
        progress: Progress | None = None,
        failpoint: str | None = None,
    ) -> None:
        settings = ProcessorSettings(
            instance_id=instance_id or socket.gethostname(),
            guarantee=guarantee,
            commit_interval=commit_interval,
            start_timeout=start_timeout,
            stall_timeout=stall_timeout,
            stall_exit=stall_exit,
            hanging_transaction_timeout=hanging_transaction_timeout,
            state_retention=state_retention,
            standby=standby,
            cache_bytes=memory_bytes,
            defer_timeout=defer_timeout,
            around=around,
            tracer=tracer_of(kafka),
        )
        note = InHandFile(state_dir / group.name / "in-hand" / settings.instance_id)
        settings = replace(settings, in_hand=note)
        # Of each process, as each holds them whole: it may share its state_dir with others.
        copies = state_dir / group.name / "lookups" / settings.instance_id
        super().__init__(
            group,
            kafka,
            local_stores(state_dir / group.name, memory_bytes),
            settings,
            SystemClock(),
            metrics or Metrics.register(CollectorRegistry()),
            progress or progress_on(sys.stderr),
            failpoint_at(failpoint) if failpoint else no_failpoint,
            local_stores(copies, memory_bytes) if group.lookups else None,
        )

    @classmethod
    def from_settings(
        cls,
        group: Group[Any, Any],
        settings: Settings,
        *,
        kafka: Log | None = None,
        metrics: Metrics | None = None,
    ) -> "Processor":
        """A processor as the environment's settings say; `kafka` only if theirs is there already."""
        return cls(
            group,
            kafka or kafka_from(settings),
            state_dir=settings.state_dir,
            instance_id=settings.instance_id,
            guarantee=Guarantee(settings.guarantee),
            commit_interval=settings.commit_interval,
            start_timeout=settings.start_timeout,
            stall_timeout=settings.stall_timeout,
            stall_exit=settings.stall_exit,
            hanging_transaction_timeout=settings.hanging_transaction_timeout,
            state_retention=settings.state_retention,
            standby=settings.standby == "all",
            metrics=metrics,
            failpoint=settings.failpoint,
        )

    def run(self) -> None:
        """As `GroupProcessor.run`; in the main thread, SIGTERM and SIGINT stop it in order, a second one at once."""
        if any(isinstance(edge.stream.value, Avro) for edge in self.group.inputs):
            threading.Thread(target=warm_up, name="warm-up", daemon=True).start()  # while the group is joined
        hand_back()
        with stop_on_signals(self.stop), fewer_collections():
            super().run()


class View(view.View[K, V], Generic[K, V]):
    """A whole, local, current copy of a table, on Kafka and RocksDB.

        with View(CLICK_COUNT.table, kafka, state_dir=Path("state")) as clicks:
            clicks.wait_ready()
            clicks.get("alice")

    Args:
        table: what is copied.
        kafka: the cluster.
        state_dir: the copy is kept in `<state_dir>/views/<name>/<table>/<partition>`.
        name: tells apart the views of several processes that share a `state_dir`.
        memory_bytes: for RocksDB's caches.
        metrics: where position and age go, with `name` for a group; a registry of its own unless given.
        host: `Views` give theirs; of several tables in one process, ask `Views` for each.
    """

    def __init__(
        self,
        table: Table[K, V],
        kafka: Log,
        *,
        state_dir: Path,
        name: str = "view",
        memory_bytes: int = 64 << 20,
        metrics: Metrics | None = None,
        host: Host | None = None,
    ) -> None:
        stores = host.stores if host else local_stores(state_dir / "views" / name, memory_bytes)
        metrics = metrics or Metrics.register(CollectorRegistry())
        super().__init__(table, kafka, stores, SystemClock(), metrics, name, host=host)


class Views(several.Views):
    """Views of several tables in one process, with one consumer, one thread, and one budget of memory for all.

        with Views(kafka, state_dir=Path("state")) as views:
            clicks, statuses = views.view(CLICK_COUNT.table), views.view(STATUS.table)
            views.wait_ready()

    Args:
        kafka: the cluster.
        state_dir: copies are kept in `<state_dir>/views/<name>/<table>/<partition>`, as those of single views are.
        name: tells apart what shares a `state_dir`.
        memory_bytes: for RocksDB's caches, of all the views together.
        metrics: where positions and ages go, with `name` for a group; a registry of its own unless given.
    """

    def __init__(
        self,
        kafka: Log,
        *,
        state_dir: Path,
        name: str = "views",
        memory_bytes: int = 64 << 20,
        metrics: Metrics | None = None,
    ) -> None:
        stores = local_stores(state_dir / "views" / name, memory_bytes)
        metrics = metrics or Metrics.register(CollectorRegistry())
        super().__init__(kafka, stores, SystemClock(), metrics, name)
        self._state_dir = state_dir

    def view(self, table: Table[K, V]) -> View[K, V]:
        return cast("View[K, V]", super().view(table))

    def _make(self, table: Table[K, V]) -> View[K, V]:
        return View(
            table, self.log, state_dir=self._state_dir, name=self.name, metrics=self.metrics, host=self
        )


@contextmanager
def stop_on_signals(stop: Any) -> Iterator[None]:
    """Within, the first SIGTERM or SIGINT calls `stop`; a second one ends the process at once, whatever it is doing."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python allows handlers in the main thread only; whoever runs us elsewhere calls `stop`
        return

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's signature
        # The default action needs no Python code to run, so it also ends a process that waits inside of librdkafka.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
