"""Processes of the simulation: a machine keeps its disk, a life on it ends with a crash, a stop, or an error."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import Disk, DiskStore, Mounted
from tests.simulation.faults import Crash
from tests.simulation.jobs import Job

from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.engine.processor import GroupProcessor
from streamtable.engine.settings import ProcessorSettings
from streamtable.errors import Fenced, RetryLater, StoreBroken, StreamtableError
from streamtable.observe import SilentProgress
from streamtable.tables.replica import PartitionReplica, ReplicaState
from streamtable.views.updater import ViewUpdater
from streamtable.views.view import View
from streamtable_testing.clock import VirtualClock
from streamtable_testing.consumer import VirtualGroupConsumer
from streamtable_testing.log import VirtualProcess

if TYPE_CHECKING:
    from tests.simulation.world import World

MAIN, BACKGROUND = "main", "background"
_SLEEPERS = 10


class Machine:
    """The successive lives of one process of a group.

    Attributes:
        known: A disk and its last observed changelog position, by partition.
    """

    def __init__(self, world: "World", job: Job, name: str) -> None:
        self.world = world
        self.job = job
        self.name = name
        self.life: Life | None = None
        self.lives = 0
        self.disk = Disk(world.clock.now)
        self.known: dict[int, tuple[Disk, int]] = {}
        shape = world.shape
        self.settings = ProcessorSettings(
            name,
            guarantee=shape.guarantee,
            commit_interval=shape.commit_interval,
            commit_bytes=shape.commit_bytes,
            poll_records=shape.poll_records,
            cache_bytes=shape.cache_bytes,
            state_retention=shape.state_retention,
            standby=shape.standby,
        )

    def new_disk(self, instead_of: Disk | None = None) -> None:
        if instead_of in {None, self.disk}:
            self.disk = Disk(self.world.clock.now)


class Life:
    """A process from its start to its end.

    Attributes:
        running: Its threads in the middle of a turn, further down on the stack.
        frozen: Whether it is frozen there.
        doubled: Whether another process with the same name was started.
        telling_lost: Whether its `lost` callback is running.
        failure: The error that ended it while it could not be closed yet.
        at: The last request or failpoint that it reached.
        cut_until: The time until which it cannot reach the broker.
        unlucky: The number of faults still to come.
        checked: The changelog position where each local table was last compared.
        checked_joined: The same for joined tables: their offsets, and the number of rewinds before.
        checked_named: The same for named tables.
    """

    def __init__(self, machine: Machine) -> None:
        world = machine.world
        machine.lives += 1
        self.machine = machine
        self.job = machine.job
        self.name = f"{machine.name}/{machine.lives}"
        self.disk = machine.disk
        self.dead = self.frozen = self.doubled = self.telling_lost = False
        self.running: set[str] = set()
        self.failure: StreamtableError | None = None
        self.at: Sequence[str] = ()
        self.checked: dict[int, int] = {}
        self.checked_joined: dict[int, tuple[int, int]] = {}
        self.checked_named: dict[tuple[str, int], int] = {}
        self.cut_until = 0.0
        self.unlucky = 0
        world.lives[self.name] = self
        self.processor = GroupProcessor(
            machine.job.group,
            _Process(world.kafka, self.name, self),
            Mounted(self.disk, lambda: self.dead, lambda partition: machine.known.pop(partition, None)),
            machine.settings,
            _Side(world.clock),
            world.metrics,
            SilentProgress(),
            self._reached,
        )

    @property
    def excused(self) -> tuple[type[StreamtableError], ...]:
        """Return the errors that may end it."""
        full: tuple[type[StreamtableError], ...] = (StoreBroken,) if self.disk.refused else ()
        return (*full, Fenced) if self.doubled else full

    def can(self, thread: str) -> bool:
        """Return whether the thread may take a turn."""
        if self.dead or self.frozen or thread in self.running:
            return False
        return thread == MAIN or self.processor.member is not None

    def turn(self, thread: str) -> None:
        if self.failure is not None:
            if not self.running:
                self._close()
        elif thread == BACKGROUND:
            self._attempt(BACKGROUND, lambda: self.processor.step_background(0))
        elif self.processor.member is None:
            self._attempt(MAIN, self._start)
        else:
            self._attempt(MAIN, self.processor.step)

    def stop(self) -> None:
        """Stop the process as SIGTERM does."""
        if self.failure is None:
            self._attempt(MAIN, self._end)
        if self.failure is not None:
            self._close()
        elif not self.dead:
            self.machine.world.forget(self)

    def copies(self) -> Iterator[tuple[int, int, DiskStore]]:
        """Return partition, position and rows of each working table, and of each replica that has caught up."""
        if self.processor.member is not None and self.job.group.persist is not None:
            for place, copy in self.processor.member.restorer.standby._replicas.items():
                own = place.topic == self.job.group.table.name
                if own and self._good(copy) and isinstance(copy.store, DiskStore):
                    yield place.partition, copy.position, copy.store
            for partition, task in self.processor.member.assignment.tasks.items():
                store = task.stores[self.job.group.table.name]
                assert isinstance(store, DiskStore)
                self.machine.known[partition] = (self.disk, task.changelog_position)
                yield partition, task.changelog_position, store

    def joined(self) -> Iterator[tuple[int, int, DiskStore]]:
        """Yield partition, position and rows of each working joined table, and of each replica that has caught up."""
        name = self.job.joined
        if self.processor.member is not None and name is not None:
            for place, copy in self.processor.member.restorer.standby._replicas.items():
                if place.topic == name and self._good(copy) and isinstance(copy.store, DiskStore):
                    yield place.partition, copy.position, copy.store
            for partition, task in self.processor.member.assignment.tasks.items():
                store = task.stores[name]
                assert isinstance(store, DiskStore)
                if task.failure is None:
                    yield partition, task.committed_offsets[name], store

    def named(self) -> Iterator[tuple[str, int, int, DiskStore]]:
        """Return name, partition, position and rows of the working named tables."""
        if self.processor.member is not None:
            for partition, task in self.processor.member.assignment.tasks.items():
                for name, position in task.named_positions.items():
                    store = task.stores[self.job.group.named_topic(name)]
                    assert isinstance(store, DiskStore)
                    if task.failure is None:
                        yield name, partition, position, store

    def _good(self, copy: PartitionReplica) -> bool:
        """Return whether it has caught up, and has not slept so long since that its next check must discard it."""
        world = self.machine.world
        age = world.clock.now() - copy.current_at
        return copy.current and age < world.shape.delete_retention

    def _start(self) -> None:
        try:
            self.processor.start()
        except RetryLater:
            self.machine.world.clock.sleep(0.25)

    def _end(self) -> None:
        if self.processor.member is not None:
            self.processor.commit()
        self.processor.close()

    def _attempt(self, thread: str, doing: Callable[[], object]) -> None:
        world = self.machine.world
        self.running.add(thread)
        try:
            doing()
        except Crash:
            pass
        except StreamtableError as error:
            if not self.dead:
                world.stopped(self, error)
                self.failure = error
        except Exception as error:
            if not self.dead:
                raise world.broken(f"{self.name} raised {type(error).__name__}: {error}") from error
        finally:
            self.running.discard(thread)
        if self.failure is not None and not self.running:
            self._close()

    def _close(self) -> None:
        """Clean up after an error, like `run` in its `finally`."""
        if self.dead:
            return
        if self.processor.member is not None:
            self.processor.member.abandon()
        self.running.add(MAIN)
        try:
            self.processor.close()
        except (Crash, StreamtableError):
            pass  # it was closed as far as possible; the error that ended it is the relevant one
        finally:
            self.running.discard(MAIN)
        if not self.dead:
            self.dead = True
            self.disk.crash(lose_bulk=False)
            self.machine.world.forget(self)

    def _reached(self, name: str) -> None:
        if name == "plan-made" and not self.dead:
            self.machine.world.plan_made(self)
        self.machine.world.adversary.at_failpoint(self, name)


@dataclass(frozen=True)
class _Side:
    """The clock of one process. While it sleeps, others may sleep at the same time."""

    clock: VirtualClock

    def now(self) -> float:
        return self.clock.now()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds / _SLEEPERS)


@dataclass(frozen=True)
class _Process(VirtualProcess):
    """The clients of a process; its consumer may redeliver records."""

    life: Life

    def group_consumer(self, group: str, instance_id: str) -> VirtualGroupConsumer:
        member_id = f"{instance_id}-{self.kafka.unique()}"
        consumer = _Consumer(
            member_id, self.kafka.group(group), self.kafka.partition, self._wire(), self.kafka.clock
        )
        consumer.life = self.life
        return consumer


class _Consumer(VirtualGroupConsumer):
    """A consumer that sometimes redelivers its last records, as clients have done after a change of the leader."""

    life: Life
    _before: list[RecordBatch] = []  # noqa: RUF012 - replaced, never changed

    def seek(self, place: TopicPartition, offset: int) -> None:
        super().seek(place, offset)
        self._before = [batch for batch in self._before if batch.place != place]

    def _fetch(self, max_records: int) -> list[RecordBatch]:
        batches = super()._fetch(max_records)
        again: list[RecordBatch] = []
        if self._before and self.life.machine.world.adversary.delivers_again(self.life):
            at_work = self._next.keys() - self._paused
            again = [batch for batch in self._before if batch.place in at_work]
        self._before = batches
        return [*again, *batches]

    def _tell(self, callback: Any, places: frozenset[TopicPartition]) -> None:
        if places:
            self.life.machine.world.trace.add(self.life.name, callback, sorted({p.partition for p in places}))
        self.life.telling_lost = callback == "lost"
        super()._tell(callback, places)
        self.life.telling_lost = False


class ViewLife:
    """A view of a group's table, from its start to a crash. The attributes are the same as in `Life`."""

    def __init__(self, world: "World", job: Job, disk: Disk | None) -> None:
        self.world = world
        self.job = job
        self.name = f"view/{len(world.lives)}"
        self.disk = disk or Disk(world.clock.now)
        self.dead = self.frozen = False
        self.running: set[str] = set()
        self.at: Sequence[str] = ()
        self.cut_until = 0.0
        self.unlucky = 0
        self.telling_lost = False
        self.checked: dict[int, int] = {}
        world.lives[self.name] = self
        self._updater = ViewUpdater(
            world.kafka.process(self.name),
            Mounted(self.disk, lambda: self.dead),
            world.clock,
            world.metrics,
            "view",
        )
        self.view: View[Any, Any] = View(job.group.table, self._updater)
        self._turns: Iterator[float] | None = None

    def can(self, thread: str) -> bool:
        return thread == MAIN and not (self.dead or self.frozen or self.running)

    def turn(self, thread: str) -> None:
        self.running.add(thread)
        try:
            if self._turns is None:
                self._updater.open()
                self._turns = self._updater.turns()
            next(self._turns, None)
            if (failure := self.view._replicas._failure) is not None and not self.dead:
                if self.disk.refused and isinstance(failure, StoreBroken):
                    self.world.crash(self)
                else:
                    raise self.world.broken(
                        f"the view stopped with {type(failure).__name__}: {failure}"
                    ) from failure
        except Crash:
            pass
        finally:
            self.running.discard(thread)

    def copies(self) -> Iterator[tuple[int, int, DiskStore]]:
        """Yield partition, position and rows of each partition that is reported as complete."""
        for copy in self.view._replicas.all():
            if copy.complete and copy.state is not ReplicaState.OPENING and isinstance(copy.store, DiskStore):
                yield copy.partition, copy.position, copy.store

    def end(self) -> None:
        """Release the resources of its turns; one in the middle of a turn does so when it resumes."""
        self.dead = True
        if isinstance(self._turns, Generator) and not self.running:
            self._turns.close()
