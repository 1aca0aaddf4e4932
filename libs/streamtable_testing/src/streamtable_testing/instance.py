"""One process of a group under test, over several lives: a kill ends a life, and the disk stays."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry

from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint
from streamtable.engine import GroupProcessor, ProcessorSettings
from streamtable.errors import ConfigurationError, StreamtableError
from streamtable.graph.custom_task import CustomTasks
from streamtable.graph.group import Group
from streamtable.observe import Metrics, SilentProgress
from streamtable.store.memory import MemoryStores
from streamtable.views.lookup import LookupTables
from streamtable_testing.faults import Fault, Faults
from streamtable_testing.log import VirtualKafka

MakeTasks = Callable[[Clock, Failpoint], CustomTasks | None]
"""Makes the task factory of a process."""


def progress_of(positions: Mapping[int, Any]) -> object:
    """Return a value that does not change while a view reads nothing, of its positions."""
    return {partition: (each.offset, each.ready) for partition, each in positions.items()}


class Killed(BaseException):
    """Unwinds the stack of a process that was killed."""


class Graves(Faults):
    """Drops requests that killed processes make in `finally` or `with` blocks."""

    def __init__(self) -> None:
        self.dead: set[str] = set()

    def before(self, process: str, call: str) -> Fault | None:
        del call
        return Fault.REQUEST_LOST if process in self.dead else None


class Instance:
    """A process: the real engine, run turn by turn, on the virtual Kafka and a disk in memory.

    It is killed when it reaches the failpoint `kill_at` for the n-th of `times`.

    Args:
        group: The graph.
        kafka: The broker.
        graves: The registry of killed processes.
        settings: The settings of the process.
        make_tasks: Makes the task factory of each life; None: tasks over local tables.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        kafka: VirtualKafka,
        graves: Graves,
        settings: ProcessorSettings,
        make_tasks: MakeTasks | None = None,
    ) -> None:
        self.group = group
        self.processor: GroupProcessor | None = None
        self.settings = settings
        self.make_tasks = make_tasks
        self._kafka = kafka
        self._graves = graves
        self._stores = MemoryStores(kafka.clock.now)
        self._copies = MemoryStores(kafka.clock.now)  # of tables that are looked up
        self._name = ""
        self.registries: list[CollectorRegistry] = []  # with the metrics of each life
        self.kill_at: str | None = None
        self.times = 0

    @property
    def running(self) -> GroupProcessor:
        """The processor of this life. Raises `ConfigurationError` between two lives."""
        if self.processor is None:
            raise ConfigurationError(f"this process of group {self.group.name!r} has stopped: start it again")
        return self.processor

    def start(self, *, disk: bool) -> None:
        """Begin a life; `disk`: keep the disk of the previous one. Raises like `Processor.run`."""
        if not disk:
            self._stores = MemoryStores(self._kafka.clock.now)
            self._copies = MemoryStores(self._kafka.clock.now)
        coordinator = self._kafka.group(self.group.name)
        for member_id in list(coordinator.members):
            if member_id.rpartition("-")[0] == self.settings.instance_id:
                coordinator.leave(member_id)  # as if its session had ended meanwhile
        self._name = f"{self.group.name}/{self.settings.instance_id}/{self._kafka.unique()}"
        self.registries.append(CollectorRegistry())
        log, clock = self._kafka.process(self._name), self._kafka.clock
        metrics = Metrics.register(self.registries[-1])
        lookups = LookupTables(log, self._copies, clock, metrics, self.group.name)
        self.processor = GroupProcessor(
            self.group,
            log,
            self._stores,
            self.settings,
            clock,
            metrics,
            SilentProgress(),
            self._reached,
            lookups if self.group.lookups else None,
            self.make_tasks(self._kafka.clock, self._reached) if self.make_tasks else None,
        )
        self._attempt(GroupProcessor.start)

    def turn(self) -> None:
        """Run a turn of each of its threads. Raises the error that ends it, after its work was undone and it left the group."""
        self._attempt(lambda processor: processor.step_background(0))
        self._attempt(GroupProcessor.step)

    def commit(self) -> None:
        self._attempt(GroupProcessor.commit)

    def stop(self) -> None:
        """Stop cleanly."""
        self.commit()
        self._attempt(GroupProcessor.close)
        self.processor = None

    def kill(self) -> None:
        """End this life like SIGKILL."""
        self._graves.dead.add(self._name)
        self._stores.crash()
        self._copies.crash()
        self.processor = self.kill_at = None

    @property
    def executor(self) -> Any:
        """Return what runs the calls of the group; None if it has none, or is down."""
        if self.processor is None or self.processor.member is None:
            return None
        return getattr(self.processor.member.assignment.companions, "executor", None)

    @property
    def busy(self) -> bool:
        """Return whether work is in progress that ends by itself, possibly only when time passes."""
        return self.restores or bool(self.commits_due)

    @property
    def restores(self) -> bool:
        """Return whether tables or standby replicas are being loaded."""
        if self.processor is None or self.processor.member is None:
            return False
        member = self.processor.member
        return not member.restorer.standby.settled or bool(member.assignment.restores)

    @property
    def commits_due(self) -> list[float]:
        """Return the times when tasks are committed that have something to commit; none while commits are on request."""
        if self.processor is None or self.processor.member is None or self.settings.commit_interval > 1:
            return []
        tasks = self.processor.member.assignment.tasks.values()
        return [task.commit_due.at for task in tasks if task.dirty]

    @property
    def progress(self) -> object:
        """Return a value that does not change while nothing happens in the process."""
        if self.processor is None or self.processor.member is None:
            return None
        tasks = self.processor.member.assignment.tasks
        standby = self.processor.member.restorer.standby.positions
        copies = {name: progress_of(view.position()) for name, view in self.processor.lookups.items()}
        return (
            {partition: dict(task.next_offsets) for partition, task in tasks.items()},
            copies,
            standby,
            self.processor.member.undone,
        )

    def _attempt(self, doing: Callable[[GroupProcessor], None]) -> None:
        processor = self.processor
        if processor is None:
            return
        try:
            doing(processor)
        except Killed:
            pass
        except BaseException:
            self.processor = None
            if processor.member is not None:
                processor.member.abandon()
            with suppress(StreamtableError):
                processor.close()
            raise

    def _reached(self, name: str) -> None:
        if name == self.kill_at:
            self.times -= 1
            if self.times == 0:
                self.kill()
                raise Killed
