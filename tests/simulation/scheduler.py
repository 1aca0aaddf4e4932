"""Decides from the seed alone which process runs next, and which faults happen between turns."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from tests.simulation.disk import Disk
from tests.simulation.healing import heal
from tests.simulation.invariants import Books
from tests.simulation.life import BACKGROUND, MAIN, Life, ViewLife
from tests.simulation.oracle import FAR_MS
from tests.simulation.world import World

from streamtable.base.deadletter import Origin
from streamtable.base.types import Ack, TopicPartition
from streamtable.codec.plain import Long
from streamtable.graph.group import OnError
from streamtable.graph.visiting import VisitProgress

_POISON: Sequence[tuple[bytes | None, bytes | None]] = (
    (b"k1", b"short"),
    (b"k1", None),
    (None, bytes(8)),
    (b"\xff", bytes(8)),
)


class Scheduler:
    """Runs the turns of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._rng = world.rng
        chosen = {name: weight for name, weight in world.shape.turns.items() if weight}
        self._weights = list(accumulate(chosen.values()))
        self._actions: list[Callable[[], None]] = [
            getattr(self, f"_{name.replace('-', '_')}") for name in chosen
        ]
        self._visits = 0
        self._sent_again: set[tuple[str, int, int]] = set()
        self._sent: list[tuple[str, bytes | None, bytes | None]] = []  # records that may be sent again
        self._keys = [b"k%d" % number for number in range(world.shape.keys)]
        world.turn = self.turn

    def run(self) -> None:
        """Run the whole schedule. Raises `Violation`."""
        for job in self.world.jobs:
            machines = [machine for machine in self.world.machines if machine.job is job]
            for machine in machines[: job.shape.members]:
                self.world.start(machine)
        for _ in range(self.world.shape.phases):
            self.world.adversary.active = True
            for _ in range(self.world.shape.length):
                self.turn()
            heal(self.world)

    def turn(self) -> None:
        """Run one turn of a drawn process."""
        self._rng.choices(self._actions, cum_weights=self._weights)[0]()

    # ---- work ------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._go_on(MAIN)

    def _load(self) -> None:
        self._go_on(BACKGROUND)

    def _go_on(self, thread: str) -> None:
        able = [life for life in self.world.living if life.can(thread)]
        if able:
            life = self._rng.choice(able)
            for _ in range(self._rng.randint(1, 4)):
                if life.can(thread):
                    self.world.step(life, thread)

    def _view(self) -> None:
        if self.world.view is not None and self.world.view.can(MAIN):
            self.world.step(self.world.view, MAIN)

    def _emit(self) -> None:
        world, rng = self.world, self._rng
        for _ in range(rng.randint(1, 8)):
            topic = f"in{rng.randrange(world.shape.jobs[0].inputs)}"
            if rng.random() < world.shape.poison:
                key, value = rng.choice(_POISON)
            else:
                key, value = rng.choice(self._keys), Long().encode(rng.getrandbits(32))
            ack = self._append(topic, key, value)
            world.trace.add("", "sent", f"{topic}[{ack.partition}]@{ack.offset}")

    def _append(self, topic: str, key: bytes | None, value: bytes | None) -> Ack:
        """Send an event, dated out of order; where events count once, sometimes one that was sent before."""
        world, rng = self.world, self._rng
        if not (world.shape.jobs[0].once or world.shape.jobs[0].idle_after or world.shape.join):
            return world.kafka.append(topic, key, value)
        if world.shape.jobs[0].once:
            if self._sent and rng.random() < 0.4:
                topic, key, value = rng.choice(self._sent)
            self._sent = [*self._sent[-40:], (topic, key, value)]
        now_ms = int(world.clock.now() * 1000)
        late_ms = rng.choice((0, 0, 0, 500, 5_000, 100_000))
        at_ms = FAR_MS if rng.random() < 0.02 else max(1, now_ms - late_ms)
        join = world.shape.join
        to = -1 if join is None or key is None else join.partition(topic, key, world.shape.partitions)
        return world.kafka.append(topic, key, value, partition=to, timestamp_ms=at_ms)

    def _change(self) -> None:
        """Write some rows like the owner of a joined table."""
        rng = self._rng
        topic = rng.choice([job.joined for job in self.world.jobs if job.joined])
        for _ in range(rng.randint(1, 4)):
            value = None if rng.random() < 0.2 else Long().encode(rng.getrandbits(32))
            ack = self.world.kafka.append(topic, rng.choice(self._keys), value)
            self.world.trace.add("", "row sent", f"{topic}[{ack.partition}]@{ack.offset}")

    def _visit(self) -> None:
        """Request a visit of all rows."""
        job = self._rng.choice([job for job in self.world.jobs if job.visits])
        self._visits += 1
        run = f"run {self._visits}"
        for partition in range(self.world.shape.partitions):
            books = self.world.books[self.world.jobs.index(job)]
            assert isinstance(books, Books)
            books.visit_begins(run, partition)
            self.world.kafka.append(
                job.visits or "", b"visit", VisitProgress(run).encode(), partition=partition
            )
        self.world.trace.add("", "visit begins", job.group.name, run)

    def _pass(self) -> None:
        self.world.clock.advance(self._rng.random())

    def _jump(self) -> None:
        seconds = self._rng.choice((1.5, 4.0, 11.0, 70.0))
        self.world.trace.add("", "time passes", f"{seconds:.0f} s")
        self.world.clock.advance(seconds)

    # ---- faults --------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        lives: list[Life | ViewLife] = [*self.world.living]
        if self.world.view is not None:
            lives.append(self.world.view)
        if lives:
            life = self._rng.choice(lives)
            self.world.crash(life)

    def _start(self) -> None:
        if machines := [machine for machine in self.world.machines if machine.life is None]:
            self.world.start(self._rng.choice(machines))

    def _stop(self) -> None:
        if lives := [life for life in self.world.living if not (life.running or life.frozen)]:
            life = self._rng.choice(lives)
            self.world.trace.add(life.name, "is stopped")
            life.stop()
            self.world.check()

    def _replace(self) -> None:
        """Start another process with the same name while the first one is alive."""
        if machines := [machine for machine in self.world.machines if machine.life is not None]:
            machine = self._rng.choice(machines)
            self.world.trace.add(machine.name, "is replaced")
            self.world.start(machine)

    def _cut(self) -> None:
        if lives := self.world.living:
            life = self._rng.choice(lives)
            life.cut_until = self.world.clock.monotonic() + self._seconds()
            self.world.trace.add(life.name, "is cut off")

    def _cut_all(self) -> None:
        self.world.adversary.cut_until = self.world.clock.monotonic() + self._seconds()
        self.world.trace.add("", "broker away")

    def _seconds(self) -> float:
        return self._rng.choice((0.1, 1.0, 4.0, 12.0)) * self._rng.random()

    def _compact(self) -> None:
        job = self._rng.choice(self.world.jobs)
        self.world.trace.add("", "compaction", job.group.name)
        for table in job.group.tables:
            self.world.kafka.compact(table)

    def _expire(self) -> None:
        """Let retention delete a partition of an input up to the committed offsets of all groups, so nothing is lost."""
        world, rng = self.world, self._rng
        world.check()  # reads records that may be gone afterwards
        topics = sorted({topic for job in world.jobs for topic in job.topics if topic != job.joined})
        place = TopicPartition(rng.choice(topics), rng.randrange(world.shape.partitions))
        partition = world.kafka.topics[place.topic].partitions[place.partition]
        readers = [job.group.name for job in world.jobs if place.topic in job.topics]
        committed = [world.kafka.committed(group).get(place) for group in readers]
        known = [each.next_offset for each in committed if each is not None]
        if len(known) == len(readers) and (end := min(known)) > partition.low:
            world.kafka.delete_records(place, end)
            world.trace.add("", "retention", place, end)

    def _damage(self) -> None:
        disk, name = self._disk()
        if places := sorted(disk.present()):
            place = self._rng.choice(places)
            disk.damaged.add(place)
            self.world.trace.add(name, "disk damaged", *place)

    def _fill_disk(self) -> None:
        disk, name = self._disk()
        disk.full = not disk.full
        self.world.trace.add(name, "disk full" if disk.full else "disk has room")

    def _disk(self) -> tuple[Disk, str]:
        disks = [(machine.disk, machine.name) for machine in self.world.machines]
        if self.world.view is not None:
            disks.append((self.world.view.disk, self.world.view.name))
        return self._rng.choice(disks)

    def _flaky(self) -> None:
        if all(job.shape.on_error is OnError.STOP for job in self.world.jobs):
            self.world.flaky = 1

    def _retry(self) -> None:
        """Replay a dead letter."""
        job = self._rng.choice(self.world.jobs)
        letters = self.world.kafka.records(job.group.dead_letters)
        if job.shape.deletes or not letters:
            return  # the oracle cannot know whether it comes before or after a deletion
        place, letter = self._rng.choice(letters)
        headers = letter.headers() or ()
        origin = Origin.read(headers)
        name = (place.topic, place.partition, letter.offset())
        if origin is not None and origin.attempt == 1 and name not in self._sent_again:
            self._sent_again.add(name)
            self.world.kafka.append(
                job.group.retry, letter.key(), letter.value(), partition=origin.partition, headers=headers
            )
            self.world.trace.add("", "sent again", *name)
