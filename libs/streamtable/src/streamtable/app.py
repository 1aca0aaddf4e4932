"""The library assembled: the core with the real Kafka, RocksDB and clock. Only this module knows them all."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypedDict, TypeVar, Unpack, cast

from prometheus_client import CollectorRegistry

from streamtable.base.clock import SystemClock
from streamtable.base.closing import Closing
from streamtable.base.crash_marker import InHandFile
from streamtable.base.failpoint import failpoint_at, no_failpoint
from streamtable.base.instance_id import instance_id
from streamtable.base.ports import Log, Stores, TopicDescription, TopicInfo
from streamtable.base.settings import COPIES, HostName, Settings
from streamtable.base.topics import Stream, Table, check_kind
from streamtable.base.tracing import tracer_of
from streamtable.base.types import Guarantee
from streamtable.emitter import Emitter
from streamtable.engine.local_queries import Freshness, LocalAnswer
from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.errors import ConfigurationError
from streamtable.graph.custom_task import CustomTasks
from streamtable.graph.group import Group, Topology, groups_in
from streamtable.graph.topic_check import partition_counts, required_topics
from streamtable.graph.topic_owners import refuse_shared_topics, refuse_topics_of_others
from streamtable.graph.topic_settings import settings_of_topics
from streamtable.kafka import Kafka
from streamtable.observe import Metrics, Progress, progress_on
from streamtable.store.memory import MemoryStores
from streamtable.views.lookup import LookupTables
from streamtable.views.tail import Tail
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View
from streamtable_supervisor.threads import run_together

if TYPE_CHECKING:
    from streamtable.kafka.admin import KafkaAdmin

K = TypeVar("K")
V = TypeVar("V")

MEMORY_BYTES = 64 << 20


class Processor(Protocol):
    """One process of a group. `App.processor` makes it."""

    @property
    def group(self) -> Group[Any, Any]:
        """The group that it processes."""

    def run(self) -> None:
        """Work until `stop` is called. Everything that was handled by then is committed.

        In the main thread, SIGTERM, SIGINT and SIGHUP stop it in order, a second one ends the process at once.

        Raises:
            ConfigurationError: Topics are missing or do not fit; nothing was started.
            StreamtableError: Continuing would lose or duplicate records; what was committed stays committed.
        """

    def stop(self) -> None:
        """Let `run` return after the current step. May be called by any thread or a signal handler."""

    @property
    def ready(self) -> bool:
        """Whether it has joined, all assigned partitions have tasks that make progress, and Kafka answers."""

    @property
    def not_ready(self) -> str:
        """The reason why the processor is not ready; empty if it is ready."""

    @property
    def recovering(self) -> Mapping[int, int]:
        """The number of changelog offsets still to read before a task starts, by partition."""

    @property
    def working(self) -> tuple[int, ...]:
        """The partitions of the group whose tasks run here."""

    def get(self, table: Table[K, V], key: K, *, partition: int | None = None) -> LocalAnswer[V]:
        """Return the row of a key as of the last commit, if its partition's task runs in this process. Any thread may call it.

        It costs no copy of the table, as a view does, and answers for this process's partitions alone. A process that Kafka
        has removed from the group, such as one that was frozen, can answer until it notices; `LocalAnswer.age_seconds` says how long ago its
        last commit was.

        Args:
            table: A table that the group keeps: `group.table`, `group.state_table(state)`, or the `table` of a flow's step.
            key: The key of the row.
            partition: The partition to look in; by default that of the key. A state that handlers write under keys of their
                own has its rows in the partitions of the records.

        Raises:
            PartitionNotAssigned: The task of the partition runs in another process, or in none; `partition` is its number.
            NotReady: The partition is being restored here, or the processor has not joined its group.
            UnreadableRow: The row cannot be decoded.
            GraphError: The group does not keep this table.
        """

    def range(
        self,
        table: Table[K, V],
        start: K | None = None,
        end: K | None = None,
        *,
        partition: int | None = None,
    ) -> Iterator[tuple[K, V]]:
        """Iterate over committed rows of the partitions whose tasks run in this process, one partition after the other.

        Within a partition rows come in the order of the encoded keys. Commits continue meanwhile: a row written after it
        was passed is not seen. If a partition is revoked during the iteration, it ends with `PartitionNotAssigned`.

        Args:
            table: As in `get`.
            start: The first key; None: from the beginning.
            end: The key behind the last one; None: to the end.
            partition: Only this partition. Default: all partitions whose tasks run here now.

        Raises:
            PartitionNotAssigned: As in `get`; also while it is iterated.
            NotReady: As in `get`.
            UnreadableRow: As in `get`, while it is iterated.
            GraphError: As in `get`.
        """

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """The topics of the group, as Kafka described them when it was started; none before that."""

    def freshness(self, table: Table[Any, Any]) -> Mapping[int, Freshness]:
        """Return the freshness of the rows of each partition whose task runs in this process.

        Args:
            table: As in `get`.

        Raises:
            NotReady: The processor has not joined its group.
            GraphError: As in `get`.
        """


class CommonOptions(TypedDict, total=False):
    """The options of each kind of processor; see `ProcessorOptions`."""

    instance_id: str
    guarantee: Guarantee
    start_timeout: float | None
    stall_timeout: float
    stall_exit: float | None
    hanging_transaction_timeout: float
    state_retention: float
    standby: bool | int
    failpoint: str | None


def common_options(settings: Settings) -> CommonOptions:
    """Return the options of each kind of processor, as the settings give them."""
    options = {name: getattr(settings, name) for name in CommonOptions.__annotations__}
    options |= {"guarantee": Guarantee(settings.guarantee), "standby": COPIES[settings.standby]}
    if isinstance(settings.instance_id, HostName):
        del options["instance_id"]
    return cast("CommonOptions", options)


class ProcessorOptions(CommonOptions, total=False):
    """The options of a processor that differ from the App's settings, with the [defaults](settings.md) of the settings.

    Attributes:
        instance_id: Distinguishes this process from the others of the group. Default: STREAMTABLE_INSTANCE_ID, or the host
            name, with a number if another process of this host has that already.
        guarantee: The processing guarantee.
        commit_interval: The seconds between commits.
        start_timeout: The seconds to wait for the broker at start; None: no limit.
        stall_timeout: Seconds without progress after which the processor is not ready. Give more than the longest call
            of a handler takes.
        stall_exit: Seconds without progress after which the process exits with code 75; None: it never does.
        hanging_transaction_timeout: Seconds that partitions wait for a transaction that has not ended before that is
            reported, and the processor is not ready.
        state_retention: Seconds that the state of partitions that left is kept.
        standby: Keep a replica of each partition of the group's tables that would be assigned to this process if as many others
            left; True: of every partition. A replica gives a takeover little to load, and answers queries meanwhile.
        purge: Whether to delete the records of topics between the groups of a flow once the group that reads them has committed
            them, every 30 seconds.
        around: Wraps each handler of the graph, for example for tracing.
        tasks: Makes the tasks of a group with its own kind of task, and is closed in the end. See `CustomTask`. Default: what
            the group makes, as a sink does.
        failpoint: The point at which the process kills or freezes itself, for tests.
    """

    commit_interval: float
    purge: bool
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None
    tasks: CustomTasks | None


class App(Closing):
    """The entry point of the library: the Kafka cluster and the state folder that a process uses.

        app = App(Kafka("127.0.0.1:9092"), "state")
        app.run(CLICK_COUNT)  # in one process

        with app.view(CLICK_COUNT.table) as clicks:  # in another
            clicks.wait_ready()
            clicks.get("alice")

    Creating an `App` opens no connection. All its views share one consumer, one thread and one budget of memory.

    Args:
        kafka: The cluster, or its bootstrap servers.
        state_dir: The folder of local state. Tables are kept in `<state_dir>/<group>/<table>/<partition>`, replicas of
            looked-up tables in `<state_dir>/<group>/lookups/<instance_id>/<table>/<partition>`, and those of views in
            `<state_dir>/views/<name>/<table>/<partition>`.
        name: Distinguishes the views of programs that share a `state_dir`; it also labels their metrics, as the group.
        memory_bytes: The memory for RocksDB's caches, for those of looked-up tables if there are any, and for decoded
            rows, each.
        metrics: The metrics of its processors and views. Default: metrics with their own registry.
        progress: The display of recovery. Default: bars on standard error if that is a terminal.
        options: The default options of its processors.
        stores: Makes the stores of local state below a folder. Default: RocksDB, with `memory_bytes`.
    """

    def __init__(
        self,
        kafka: Log | str,
        state_dir: Path | str,
        *,
        name: str = "view",
        memory_bytes: int = MEMORY_BYTES,
        metrics: Metrics | None = None,
        progress: Progress | None = None,
        options: ProcessorOptions | None = None,
        stores: Callable[[Path], Stores] | None = None,
    ) -> None:
        self.kafka: Log = Kafka(kafka) if isinstance(kafka, str) else kafka
        self.state_dir = Path(state_dir)
        self.name = name
        self._memory_bytes = memory_bytes
        self.metrics = metrics or Metrics.register(CollectorRegistry())
        self._progress = progress
        self.options: ProcessorOptions = options or {}
        self._stores_in = stores or partial(local_stores, memory_bytes=memory_bytes)
        self._lock = threading.Lock()
        self._groups: dict[str, Group[Any, Any]] = {}  # for which processors were made
        self._updater: ViewUpdater | None = None
        self._views: dict[str, View[Any, Any]] = {}
        self._tails: set[Tail[Any, Any]] = set()

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Return an App with the settings of the environment (`STREAMTABLE_...`). Raises `ConfigurationError`."""
        return cls.from_settings(Settings.from_environment(environment))

    @classmethod
    def from_settings(
        cls, settings: Settings, *, kafka: Log | None = None, metrics: Metrics | None = None
    ) -> Self:
        """Return an App with these settings; `kafka` only if it has been made from them already."""
        own = {"commit_interval": settings.commit_interval, "purge": settings.purge}
        options = cast("ProcessorOptions", {**common_options(settings), **own})
        return cls(
            kafka or Kafka.from_settings(settings), settings.state_dir, metrics=metrics, options=options
        )

    # ---- groups ----------------------------------------------------------------------------------------------------

    def run(
        self,
        program: Group[Any, Any] | Topology,
        *,
        processes: int | Literal["auto"] = 1,
        **options: Unpack[ProcessorOptions],
    ) -> None:
        """Process a group, or all groups of a flow, until a signal stops it (SIGTERM, SIGINT, SIGHUP).

        Groups of a flow run side by side; when one of them ends, the others are stopped. Raises like `Processor.run`.

        Args:
            program: The group or flow.
            processes: The number of processes on this machine, at most one for each partition; `auto`: one for each core. With
                several, each imports the main module, so call this below `if __name__ == "__main__":`, with App and program
                assigned at the top level of a module. Each has the instance id `<id>-<number>` and the state folder
                `<state_dir>/<number>`; one that dies is started again after 1 to 60 s. Their pages are together at
                STREAMTABLE_METRICS_ADDRESS: `/metrics`, `/livez` and `/readyz`.
            options: The options of the processors that differ from the App's.
        """
        if processes != 1:
            # Loaded here: it stands on this module, and most programs need no other process.
            from streamtable_supervisor.processes import run_in_processes  # noqa: PLC0415

            run_in_processes(self, program, processes, options)
            return
        self.run_all([self.processor(group, **options) for group in groups_in([program])])

    @staticmethod
    def run_all(processors: Sequence[Processor]) -> None:
        """Run processors concurrently until one of them ends, or SIGTERM, SIGINT or SIGHUP comes; then all are stopped.

        Raises:
            StreamtableError: The error that the first of them has raised, as `Processor.run`.
        """
        if len(processors) == 1:
            processors[0].run()
        else:
            run_together(processors)

    def processor(self, group: Group[Any, Any], **options: Unpack[ProcessorOptions]) -> Processor:
        """Return a processor of a group that is not running yet, to be run, stopped and observed by any thread.

        Raises:
            GraphError: A topic would belong to this group and to another one of this App.
        """
        with self._lock:
            self._groups[group.name] = group
            refuse_shared_topics(list(self._groups.values()))
        given = cast("dict[str, Any]", {**self.options, **options})
        named, tasks = given.pop("failpoint", None), given.pop("tasks", None)
        failpoint = failpoint_at(named) if named else no_failpoint
        instance = instance_id(group.name, given.get("instance_id"))
        given["instance_id"] = instance.name
        folder, clock = self.state_dir / group.name, SystemClock()
        settings = ProcessorSettings(
            **given,
            cache_bytes=self._memory_bytes,
            in_hand=InHandFile(folder / "in-hand" / instance.name),
            release=instance.release,
            tracer=tracer_of(self.kafka),
        )
        lookups = None
        if group.lookups:
            # Of each process, as each holds them whole: it may share its state_dir with others.
            stores = self._stores_in(folder / "lookups" / settings.instance_id)
            lookups = LookupTables(self.kafka, stores, clock, self.metrics, group.name)
        tasks = tasks or (group.custom_tasks(clock, failpoint) if group.runs_by_app else None)
        stores, progress = self._stores_in(folder), self._progress or progress_on(sys.stderr)
        return GroupProcessor(
            group, self.kafka, stores, settings, clock, self.metrics, progress, failpoint, lookups, tasks
        )

    def create_topics(self, *programs: Group[Any, Any] | Topology, partitions: int = 4) -> None:
        """Create the missing topics of these groups and flows, with replication factor 1: for development.

        In production topics are declared in `topics.yaml` and created by `streamtable topics apply`, since partitions
        and replication are decisions. Outputs whose timestamps are the times of events, as those of flows, keep their
        records for ever (`retention.ms=-1`): Kafka would delete results of old events as soon as they are written.

        Args:
            programs: The groups and flows.
            partitions: The number of partitions of each new topic, unless the group that reads it has a topic already.

        Raises:
            RetryLater: Kafka does not answer.
            ConfigurationError: Kafka refuses, or a topic would belong to two groups.
        """
        cluster = cast("KafkaAdmin", self.kafka.cluster())
        try:
            groups = groups_in(programs)
            refuse_shared_topics(groups)
            for group in groups:
                refuse_topics_of_others(group, cluster)
            names = dict.fromkeys(name for group in groups for name in required_topics(group))
            found = cluster.topics(names)
            sizes = {name: topic.partitions for name, topic in found.items()}
            counts = partition_counts(groups, sizes, partitions)
            settings = settings_of_topics(groups)
            cluster.create_topics(
                TopicDescription(name, counts[name], 1, settings.get(name, {}))
                for name in names
                if name not in sizes
            )
        finally:
            cluster.close()

    # ---- tables and streams ----------------------------------------------------------------------------------------

    def view(self, table: Table[K, V]) -> View[K, V]:
        """Return the view of a table, which follows the table until the view or the App is closed.

        For the same table it is always the same view. An error that stops one view permanently does not affect the others.

        Raises:
            ConfigurationError: Another table of that name is viewed here.
        """
        check_kind(table, "view()", Table)
        with self._lock:
            found = self._views.get(table.name)
            if found is None:
                if self._updater is None:
                    stores = self._stores_in(self.state_dir / "views" / self.name)
                    self._updater = ViewUpdater(self.kafka, stores, SystemClock(), self.metrics, self.name)
                    self._updater.start()
                found = self._views[table.name] = View(table, self._updater, closed=self._closed)
        if found.table != table:
            raise ConfigurationError(
                f"the table {table.name!r} is viewed here already as {found.table}, and now asked for as {table}: "
                "use one of them for both (Group.table, if you have the group)"
            )
        return cast("View[K, V]", found)

    def tail(self, stream: Stream[K, V]) -> Tail[K, V]:
        """Follow the records of a stream by key, live or from any offset on, until the tail or the App is closed."""
        check_kind(stream, "tail()", Stream)
        tail = Tail(stream, self.kafka, self.name, closed=self._forget_tail)
        with self._lock:
            self._tails.add(tail)
        tail.start()
        return tail

    def emitter(self, stream: Stream[K, V], *, delivery_timeout: float = 120.0) -> Emitter[K, V]:
        """Return an emitter of a stream. `delivery_timeout`: the seconds after which an unacknowledged record fails."""
        check_kind(stream, "emitter()", Stream)
        return Emitter(stream, self.kafka, delivery_timeout=delivery_timeout)

    def close(self) -> None:
        """Close all views and tails. May be called twice."""
        with self._lock:
            opened: list[View[Any, Any] | Tail[Any, Any]] = [*self._views.values(), *self._tails]
        for each in opened:
            each.close()

    def _forget_tail(self, tail: Tail[Any, Any]) -> None:
        with self._lock:
            self._tails.discard(tail)

    def _closed(self, view: View[Any, Any]) -> None:
        """Forget a view, and after the last one the resources that views share."""
        with self._lock:
            if self._views.get(view.table.name) is view:
                del self._views[view.table.name]
            updater = self._updater
            if self._views or updater is None:
                return
            self._updater = None
            updater.close()


def local_stores(folder: Path | None, memory_bytes: int = 64 << 20) -> Stores:
    """Return stores in RocksDB below a folder, or in memory if there is none and the group keeps no tables here."""
    if folder is None:
        return MemoryStores()
    from streamtable.store.rocksdb import RocksStores  # noqa: PLC0415 - 7 MB, of use to tables only

    return RocksStores(folder, memory_bytes=memory_bytes)
