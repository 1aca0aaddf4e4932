"""The parts of a schedule: the broker, the groups, their processes over several lives, and a view."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

from tests.simulation.faults import Adversary, Crash
from tests.simulation.invariants import Books, check_plan
from tests.simulation.jobs import ENFORCED_BYTES_MAX, ROW_BYTES_MAX, Flaky, Job, make_job
from tests.simulation.join_books import JoinBooks
from tests.simulation.joins import LEFT, REACH_MS, RIGHT, flow_of
from tests.simulation.life import Life, Machine, ViewLife
from tests.simulation.oracle import Wrong
from tests.simulation.shape import Shape
from tests.simulation.trace import Trace

from streamtable.base.partitioner import partition_for
from streamtable.base.types import TopicPartition
from streamtable.engine.recovery.restore import Stage
from streamtable.errors import InputLost, RetryLater, StoreCorrupted, StreamtableError
from streamtable.graph.topic_check import required_topics
from streamtable.observe import Metrics
from streamtable.tables.position import LocalPosition
from streamtable_testing.clock import VirtualClock
from streamtable_testing.log import VirtualKafka

_TURN_SECONDS = 0.005


class Violation(BaseException):
    """An invariant is violated. Not an `Exception`, so that the engine does not handle it."""


class World:
    """The state of a schedule.

    Args:
        shape: The shape of the job, the topics and the faults.
        rng: The only source of randomness.
        metrics: Metrics that are never read.
    """

    def __init__(self, shape: Shape, rng: Random, metrics: Metrics) -> None:
        self.shape = shape
        self.rng = rng
        self.metrics = metrics
        self.clock = VirtualClock()
        self.trace = Trace(self.clock)
        self.adversary = Adversary(self, shape.calls)
        self.kafka = VirtualKafka(
            self.clock,
            self.adversary,
            session_timeout=shape.session_timeout,
            transaction_timeout=shape.transaction_timeout,
            late_seconds=shape.late_seconds,
        )
        self.flaky = 0  # the number of handler calls that will fail
        self.turn: Callable[[], None] = lambda: None  # a turn of the scheduler
        self.depth = 0  # processes that are frozen in the middle of a turn
        self.lives: dict[str, Life | ViewLife] = {}  # by their name at the broker, including dead ones
        self.violation: Violation | None = None
        self.steps = self.crashes = 0
        self.jobs = list(self._make_jobs())
        self.books: Sequence[Books | JoinBooks] = [self._books_of(job) for job in self.jobs]
        self.machines = [
            Machine(self, job, f"{job.group.name}-{chr(ord('a') + number)}")
            for job in self.jobs
            for number in range(job.shape.members + job.shape.spare)
        ]
        self.zombies: list[Life] = []  # alive, but replaced by another process with their name
        self.view: ViewLife | None = ViewLife(self, self.jobs[0], None) if shape.view else None

    @property
    def living(self) -> Sequence[Life]:
        return [machine.life for machine in self.machines if machine.life] + self.zombies

    def _make_jobs(self) -> Iterator[Job]:
        if self.shape.join is not None:
            yield from self._make_flow()
            return
        reads: Sequence[str] = [f"in{number}" for number in range(self.shape.jobs[0].inputs)]
        for number, shape in enumerate(self.shape.jobs):
            job = make_job(
                f"g{number}",
                shape,
                reads,
                exact=self.shape.exactly_once,
                flaky=self._flaky,
                carried=bool(shape.idle_after and number),
                passes_on=bool(shape.idle_after and number + 1 < len(self.shape.jobs)),
            )
            self._create_topics(job)
            if job.output and shape.chokes:
                self.kafka.topics[job.output].untold_bytes_max = ENFORCED_BYTES_MAX
            reads = [job.output] if job.output else []
            yield job

    def _make_flow(self) -> Iterator[Job]:
        assert self.shape.join is not None
        for shape, group in zip(self.shape.jobs, flow_of("g0", self.shape.join).groups, strict=True):
            output = next((each.stream.name for each in group.outputs if each.stream.name == "g0-out"), None)
            job = Job(shape, True, group, (), group.input_topics, output=output, joined=None, visits=None)
            self._create_topics(job)
            yield job

    def _create_topics(self, job: Job) -> None:
        for topic in required_topics(job.group):
            if topic not in self.kafka.topics:
                self.kafka.create_topic(
                    topic,
                    self.shape.partitions,
                    compacted=topic in job.group.tables,
                    delete_retention_ms=int(self.shape.delete_retention * 1000),
                    max_message_bytes=ROW_BYTES_MAX,
                )

    def _books_of(self, job: Job) -> Books | JoinBooks:
        if self.shape.join is None:
            return Books(job, self.kafka, self.trace)
        return JoinBooks(job, self.kafka, self.trace, self.shape.join)

    def close_windows(self) -> None:
        """Send a record far ahead to each partition of both inputs of a join, which ends the waits of all others."""
        at_ms = int(self.clock.now() * 1000) + REACH_MS
        for topic in (LEFT, RIGHT):
            for partition in range(self.shape.partitions):
                keys = (f"end of {topic} {number}".encode() for number in count())
                key = next(key for key in keys if partition_for(key, self.shape.partitions) == partition)
                self.kafka.append(topic, key, bytes(8), timestamp_ms=at_ms)
        self.clock.advance(REACH_MS / 1000)

    def _flaky(self) -> bool:
        if self.flaky and self.adversary.active:
            self.flaky -= 1
            self.trace.add("", "handler fails")
            return True
        return False

    def close(self) -> None:
        """Nothing goes on."""
        for life in self.lives.values():
            if isinstance(life, ViewLife):
                life.end()

    # ---- turns -----------------------------------------------------------------------------------------------------

    def step(self, life: Life | ViewLife, thread: str) -> None:
        """Run a turn of a thread of a process, and check the result."""
        self.steps += 1
        self.clock.advance(_TURN_SECONDS)
        life.turn(thread)
        self.check()
        self._check_copies(life)

    def check(self) -> None:
        """Raises `Violation`."""
        try:
            for books in self.books:
                books.check()
        except Wrong as wrong:
            raise self.broken(str(wrong)) from wrong
        if self.violation is not None:
            raise self.violation

    def broken(self, what: str) -> Violation:
        """Record the violation; `check` raises it again, however the engine handled the exception."""
        self.violation = self.violation or Violation(what)
        self.trace.add("", "VIOLATION", what)
        return self.violation

    def _check_copies(self, life: Life | ViewLife) -> None:
        """Check local copies of tasks or of the view that have advanced."""
        if life.dead or not self.shape.exactly_once:
            return  # at least once: the changelog may have rows of an undone commit until it is repeated
        if isinstance(life, Life):
            self._check_named(life)
        books = self.books[self.jobs.index(life.job)]
        if isinstance(books, JoinBooks):
            return  # it has only named tables
        if isinstance(life, Life):
            self._check_joined(life, books)
        for partition, position, store in life.copies():
            if life.checked.get(partition) != position and (rows := store.rows()) is not None:
                life.checked[partition] = position
                try:
                    books.check_copy(position, partition, rows)
                except Wrong as wrong:
                    raise self.broken(f"{life.name}: {wrong}") from wrong

    def _check_named(self, life: Life) -> None:
        for name, partition, position, store in life.named():
            if life.checked_named.get((name, partition)) != position and (rows := store.rows()) is not None:
                life.checked_named[name, partition] = position
                try:
                    self.books[self.jobs.index(life.job)].check_named(name, position, partition, rows)
                except Wrong as wrong:
                    raise self.broken(f"{life.name}: {wrong}") from wrong

    def _check_joined(self, life: Life, books: Books) -> None:
        undone = life.processor.member.undone if life.processor.member is not None else 0
        for partition, position, store in life.joined():
            mark = position, undone  # undone work must not have reached the disk either
            if life.checked_joined.get(partition) != mark and (rows := store.rows()) is not None:
                life.checked_joined[partition] = mark
                try:
                    books.check_joined(position, partition, rows)
                except Wrong as wrong:
                    raise self.broken(f"{life.name}: {wrong}") from wrong

    # ---- faults of processes -----------------------------------------------------------------------------------------

    def start(self, machine: Machine) -> None:
        """Start a new life. A present one continues as a zombie with its disk; the new one gets another disk."""
        if machine.life is not None:
            machine.life.doubled = True
            self.zombies.append(machine.life)
            machine.new_disk()
        if not self.shape.exactly_once or self.rng.random() < 0.3:
            self._forget_member(machine)
        machine.life = Life(machine)
        # A zombie that creates a new producer fences its successor.
        machine.life.doubled = any(zombie.machine is machine for zombie in self.zombies)
        self.trace.add(machine.life.name, "starts")

    def _forget_member(self, machine: Machine) -> None:
        """End the previous session."""
        if machine.life is not None:
            return
        coordinator = self.kafka.group(machine.job.group.name)
        for member_id in list(coordinator.members):
            if member_id.rpartition("-")[0] == machine.name:
                coordinator.leave(member_id)

    def crash(self, life: Life | ViewLife) -> None:
        """Kill the process like SIGKILL. Its frames raise `Crash` at their next call to the adversary."""
        fate = self.rng.choices(("kept", "bulk lost", "lost"), (2, 6, 1))[0]
        self.crashes += 1
        self.trace.add(life.name, "CRASH", f"disk {fate}", *life.at)
        life.dead = True
        life.disk.crash(lose_bulk=fate != "kept")
        if isinstance(life, ViewLife):
            life.end()
            self.view = ViewLife(self, life.job, None if fate == "lost" else life.disk)
            return
        if fate == "lost":
            life.machine.new_disk(life.disk)
        self.forget(life)

    def forget(self, life: Life) -> None:
        """Remove a dead process."""
        if life.machine.life is life:
            life.machine.life = None
        if life in self.zombies:
            self.zombies.remove(life)

    def freeze(self, life: Life | ViewLife) -> None:
        """Freeze it in the middle of its work, while others continue and time passes."""
        if self.depth >= 2:
            return
        self.depth += 1
        life.frozen = True
        shape, rng = self.shape, self.rng
        seconds = 0.0
        if shape.exactly_once:
            longest = (0.0, 1.0, shape.transaction_timeout + 1, shape.session_timeout + 1)
            seconds = rng.choice(longest)
        turns = rng.randint(2, 40)
        self.trace.add(life.name, "freezes", *life.at, f"{turns} turns, {seconds:.0f} s more")
        for left in range(turns, 0, -1):
            passed = min(seconds, rng.random() * 2 * seconds / left)
            seconds -= passed
            self.clock.advance(passed)
            self.turn()
        life.frozen = False
        self.depth -= 1
        self.kafka.tick()
        self.trace.add(life.name, "thaws", *life.at)

    def stopped(self, life: Life, error: StreamtableError) -> None:
        """Check that the error that stopped a process is an allowed one."""
        if not (
            isinstance(error, life.excused) or isinstance(error.__cause__, Flaky) or self._outrun(error, life)
        ):
            raise self.broken(f"{life.name} stopped with {type(error).__name__}: {error}") from error
        self.trace.add(life.name, "stops", type(error).__name__, error.message)

    def _outrun(self, error: StreamtableError, life: Life) -> bool:
        """Return whether it was frozen while others continued and its next records expired."""
        if not isinstance(error, InputLost) or error.topic is None or error.offset is None:
            return False
        committed = self.kafka.committed(life.job.group.name)
        at = committed.get(TopicPartition(error.topic, error.partition or 0))
        return at is not None and at.next_offset > error.offset

    def plan_made(self, life: Life) -> None:
        """Check a recovery of this process that is about to start."""
        member = life.processor.member
        assert member is not None
        if life.job.group.persist is None:
            return
        table = self.kafka.topics[life.job.group.table.name]
        for partition, restore in member.assignment.restores.items():
            load = restore.loads.get(table.info.name)
            if restore.stage is not Stage.ASKING or load is None:
                continue
            try:
                checkpoint = restore.stores[table.info.name].checkpoint()
            except StoreCorrupted:
                continue
            except RetryLater as error:
                raise self.broken(f"{life.name} recovers into a closed store") from error
            disk, known = life.machine.known.pop(partition, (None, 0))
            local = LocalPosition.decode(checkpoint) if checkpoint is not None else None
            place = TopicPartition(table.info.name, partition)
            self.trace.add(life.name, "recovers", place, load.read_from, "to", load.read_to)
            kept = disk is life.disk and local is not None
            try:
                check_plan(
                    local,
                    known if kept else 0,
                    load.read_from,
                    table.partitions[partition].low,
                    discarded=load.discard is not None,
                )
            except Wrong as wrong:
                raise self.broken(f"{life.name}, {place}: {wrong}") from wrong


__all__ = ["Crash", "Violation", "World"]
