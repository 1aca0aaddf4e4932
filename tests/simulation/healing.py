"""The end of a phase: without faults, all work must be done soon, and all copies must be equal."""

from bisect import bisect_left
from collections.abc import Iterator

from tests.simulation.due import AHEAD_MS_MAX, KEPT_MS
from tests.simulation.invariants import Books
from tests.simulation.join_books import JoinBooks
from tests.simulation.life import BACKGROUND, MAIN
from tests.simulation.oracle import Wrong
from tests.simulation.world import World

from streamtable.base.watermarks import Mark
from streamtable_testing.topic import InMemoryMessage, Partition

IDLE_ROUNDS_MAX = 600  # without a commit
ROUNDS_MAX = 10_000


def heal(world: World) -> None:
    """End all faults, and let all processes work until nothing is left to do. Raises `Violation`."""
    world.trace.add("", "HEAL")
    world.adversary.active = False
    world.adversary.cut_until = 0.0
    for machine in world.machines:
        machine.disk.heal()
    for life in (*world.living, *([world.view] if world.view else ())):
        life.disk.heal()
        life.cut_until = 0.0
    world.kafka.deliver_late()
    if world.shape.exactly_once:
        world.clock.advance(world.shape.session_timeout + 1)  # expires the sessions of dead members
    if world.shape.join is not None:
        world.close_windows()
    due = any(job.due for job in world.shape.jobs)
    # The effects of a watermark take longer if it travels from one group to the next.
    every = 20 if any(job.carried for job in world.jobs) else 5
    rounds = commits = progress_at = 0
    while not (rounds % every == every - 1 and next(undone(world), None) is None):
        rounds += 1
        if commits != (commits := sum(books.commits for books in world.books)):
            progress_at = rounds
        if rounds - progress_at > IDLE_ROUNDS_MAX or rounds > ROUNDS_MAX:
            raise world.broken(f"not quiet after {rounds} rounds without a fault: {next(undone(world))}")
        if due and rounds % every == 0:  # pending rows and timers fall due, also those set meanwhile
            world.clock.advance((AHEAD_MS_MAX + KEPT_MS) / 1000 / 20)
        _round(world)
    world.trace.add("", "quiet", rounds)
    _compare(world)


def _round(world: World) -> None:
    for machine in world.machines:
        if machine.life is None:
            world.start(machine)
    for life in world.living:
        for thread in (BACKGROUND, MAIN):
            if life.can(thread):
                world.step(life, thread)
    if world.view is not None:
        world.step(world.view, MAIN)


def undone(world: World) -> Iterator[str]:
    """Yield descriptions of unfinished work."""
    for job, books in zip(world.jobs, world.books, strict=True):
        committed = world.kafka.committed(job.group.name)
        for topic in job.topics:
            for partition in world.kafka.topics[topic].partitions:
                at = committed.get(partition.place)
                if at is not None and job.carried and _only_marks(partition, at.next_offset):
                    continue  # as time passes there are always new ones
                if at is None or at.next_offset < partition.high:
                    yield f"{partition.place} has a lag: {at} is committed of {partition.high}, and it is quiet"
                applied = books.expected[partition.place.partition].next[topic]
                if any(record.offset() >= applied for record in reversed(partition.committed())):
                    yield f"{partition.place} is not applied beyond {applied}"
                if partition.stable_end != partition.high:
                    yield f"{partition.place} has an open transaction"
    held = {job.group.name: list[int]() for job in world.jobs}
    for life in world.living:
        member = life.processor.member
        if member is None or member.assignment.restores or life.failure is not None:
            yield f"{life.name} is not working"
            continue
        held[life.job.group.name] += member.assignment.tasks
        if left := world.books[world.jobs.index(life.job)].due_left():
            yield left
        if not life.job.carried and any(task.dirty for task in member.assignment.tasks.values()):
            yield f"{life.name} has something to commit"
        if (times := world.books[world.jobs.index(life.job)].times) is not None:
            for number, task in member.assignment.tasks.items():
                reached = None if task.event_clock is None else task.event_clock.watermark_ms
                if times.behind(number, reached):
                    yield f"watermark {reached} of {number} has not passed all events, and its inputs are silent"
        standby = member.restorer.standby
        ends = {
            place: world.kafka.topics[place.topic].partitions[place.partition] for place in standby.positions
        }
        if not standby.settled or any(at < ends[place].stable_end for place, at in standby.positions.items()):
            yield f"the copies of {life.name} are behind: {standby.positions}"
    for name, partitions in held.items():
        if sorted(partitions) != list(range(world.shape.partitions)):
            yield f"the working partitions of {name} are {sorted(partitions)}"
    if world.view is not None and (not world.view.view.ready or world.view.view.lag()):
        yield "the view is not ready"


def _only_marks(partition: Partition, start: int) -> bool:
    """Return whether an input has only watermarks from this offset on, and no open transaction."""
    records = partition.records[bisect_left(partition.records, start, key=InMemoryMessage.offset) :]
    return partition.stable_end == partition.high and all(Mark.read(each.headers() or ()) for each in records)


def _compare(world: World) -> None:
    """Compare local tables, changelogs, the view, and the oracle (I1, I2, I4)."""
    try:
        for books in world.books:
            books.check_end()
    except Wrong as wrong:
        raise world.broken(str(wrong)) from wrong
    for life in world.living:
        books = world.books[world.jobs.index(life.job)]
        if isinstance(books, JoinBooks):
            continue  # it has only named tables
        assert life.processor.member is not None
        for partition, task in life.processor.member.assignment.tasks.items():
            with task.stores[life.job.group.table.name].scan() as rows:
                if dict(rows) != books.tables[partition]:
                    raise world.broken(f"I4: {life.name}: table {partition} is not its changelog, replayed")
        for place, copy in life.processor.member.restorer.standby._replicas.items():
            with copy.store.scan() as rows:
                own = place.topic == life.job.group.table.name
                if own and dict(rows) != books.tables[place.partition]:
                    raise world.broken(f"I4: {life.name}: the copy of {place} is not its changelog, replayed")
    first = world.books[0]
    if world.view is not None and isinstance(first, Books):
        for copy in world.view.view._replicas.all():
            with copy.store.scan() as rows:
                if dict(rows) != first.tables[copy.partition]:
                    raise world.broken(
                        f"I4: the view's partition {copy.partition} is not the changelog, replayed"
                    )
