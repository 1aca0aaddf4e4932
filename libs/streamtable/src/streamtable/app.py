"""The library put together: the core with the real Kafka, RocksDB and clock. The only module that knows them all."""

import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry

from streamtable import view
from streamtable.clock import SystemClock
from streamtable.engine.failpoint import failpoint_at, no_failpoint
from streamtable.engine.position import Guarantee
from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.graph import Group
from streamtable.kafka import Kafka
from streamtable.observe import Metrics, Progress, progress_on
from streamtable.ports import Log
from streamtable.settings import Settings
from streamtable.store.rocksdb import RocksStores
from streamtable.topics import Table

K = TypeVar("K")
V = TypeVar("V")


def kafka_from(settings: Settings) -> Kafka:
    """The cluster that the settings name. Connects to nothing."""
    return Kafka(
        settings.bootstrap_servers,
        settings.kafka,
        group_protocol=settings.group_protocol,
        static_membership=settings.static_membership,
    )


class Processor(GroupProcessor):
    """One process of a group, on Kafka and RocksDB.

        Processor(CLICK_COUNT, kafka, state_dir=Path("state")).run()

    Args:
        group: the graph.
        kafka: the cluster.
        state_dir: tables are kept in `<state_dir>/<group>/<table>/<partition>`.
        instance_id: names this process among the group's; the host name unless given.
        guarantee: exactly once unless said otherwise.
        commit_interval: seconds.
        start_timeout: seconds to wait for the broker; None waits for ever.
        state_retention: seconds that the state of partitions that left is kept.
        memory_bytes: for RocksDB's caches and for decoded rows, each.
        metrics: where numbers go; a registry of its own unless given.
        progress: where recovery is shown; bars on standard error if that is a terminal.
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
        state_retention: float = 24 * 3600.0,
        memory_bytes: int = 64 << 20,
        metrics: Metrics | None = None,
        progress: Progress | None = None,
        failpoint: str | None = None,
    ) -> None:
        settings = ProcessorSettings(
            instance_id=instance_id or socket.gethostname(),
            guarantee=guarantee,
            commit_interval=commit_interval,
            start_timeout=start_timeout,
            state_retention=state_retention,
            cache_bytes=memory_bytes,
        )
        super().__init__(
            group,
            kafka,
            RocksStores(state_dir / group.name, memory_bytes=memory_bytes),
            settings,
            SystemClock(),
            metrics or Metrics.register(CollectorRegistry()),
            progress or progress_on(sys.stderr),
            failpoint_at(failpoint) if failpoint else no_failpoint,
        )

    @classmethod
    def from_settings(
        cls, group: Group[Any, Any], settings: Settings, *, metrics: Metrics | None = None
    ) -> "Processor":
        """A processor as the environment's settings say."""
        return cls(
            group,
            kafka_from(settings),
            state_dir=settings.state_dir,
            instance_id=settings.instance_id,
            guarantee=Guarantee(settings.guarantee),
            commit_interval=settings.commit_interval,
            start_timeout=settings.start_timeout,
            state_retention=settings.state_retention,
            metrics=metrics,
            failpoint=settings.failpoint,
        )

    def run(self) -> None:
        """As `GroupProcessor.run`; in the main thread, SIGTERM and SIGINT stop it in order, a second one at once."""
        with stop_on_signals(self.stop):
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
    ) -> None:
        stores = RocksStores(state_dir / "views" / name, memory_bytes=memory_bytes)
        metrics = metrics or Metrics.register(CollectorRegistry())
        super().__init__(table, kafka, stores, SystemClock(), metrics, name)


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
