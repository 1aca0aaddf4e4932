"""The shape of a schedule, drawn from its seed: the size of the world, and its hazards.

Each schedule has only some of the hazards, each at its own rate (swarm testing): a world where everything fails at
once makes no progress, and hides the effects of single faults.
"""

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from zlib import crc32

from streamtable.base.types import Guarantee
from streamtable.graph.group import OnError

FOREVER = 1e6


JOINS = ("join", "left_join", "outer_join", "join_as_of", "left_join_as_of", "key_join", "key_left_join")


class Kind(Enum):
    """The three kinds of handlers."""

    RECORD = "record"
    BATCH = "batch"
    AGGREGATE = "aggregate"


@dataclass(frozen=True)
class JobShape:
    """A group: the relevant parts of its graph.

    Attributes:
        kind: The kind of all its handlers.
        inputs: The number of streams that it reads, beside its retry topic.
        on_error: The error handling of all its inputs.
        deletes: Whether some events delete their row.
        members: The number of processes at the beginning.
        spare: The number of processes that may be started later.
        joins: Whether it joins a table.
        changes: Whether it handles the changes of the joined table.
        loops: Whether its handlers send some events to other keys.
        visits: Whether every row is visited now and then.
        once: The seconds within which its inputs count events of the same number once; 0: no deduplication.
        failing: The percentage of events whose handlers fail; 0: every thirteenth.
        chokes: Whether some of these make too large outputs, that only the broker's rejection reveals.
        defers: Nothing any more. It is drawn, and in the repr, which keeps the shapes of all seeds.
        due: Whether its handlers write rows that fall due, and set timers.
        idle_after: The seconds without records after which an input is idle; 0: it does not follow event time.
    """

    kind: Kind
    inputs: int
    on_error: OnError
    deletes: bool
    members: int
    spare: int
    joins: bool = False
    changes: bool = False
    loops: bool = False
    visits: bool = False
    once: float = 0.0
    failing: int = 0
    chokes: bool = False
    defers: bool = False
    idle_after: float = field(default=0.0, repr=False)  # not in the repr, which keeps the shapes of all seeds
    due: bool = field(default=False, repr=False)  # the same


@dataclass(frozen=True)
class JoinShape:
    """A join of the simulation. Times are in milliseconds.

    Attributes:
        kind: One of `JOINS`.
        before: The most that a right record may be before a left one; for a temporal join, its history.
        after: The most that it may be after it.
        grace: The additional time that records wait.
        keys: The number of keys.
    """

    kind: str
    before: int
    after: int
    grace: int
    keys: int

    @classmethod
    def drawn(cls, rng: Random, keys: int) -> "JoinShape":
        """Draw a join."""
        before, after = (rng.choice((0, 300, 2_000, 6_000)) for _ in range(2))
        return cls(rng.choice(JOINS), before, after, rng.choice((0, 1_000, 5_000)), keys)

    @property
    def timed(self) -> bool:
        """Whether the join uses event time."""
        return not self.kind.startswith("key_")

    def partition(self, topic: str, key: bytes, partitions: int) -> int:
        """Return the partition an event is sent to; -1: its key's. The left table of a foreign key may be in any."""
        # Drawn separately, so that other shapes do not change.
        if topic != "in0" or self.timed or Random(f"partitions of {self!r}").random() < 0.5:
            return -1
        return crc32(key) % partitions

    def foreign_key(self, value: int) -> str | None:
        """Return the key that a left row names, if it names one."""
        number = value % (self.keys + 1)
        return f"k{number}" if number < self.keys else None


@dataclass(frozen=True)
class Shape:
    """A schedule. Times are in seconds.

    Attributes:
        jobs: The groups; the second one, if any, reads the output of the first.
        standby: Whether each process keeps standby replicas of the partitions of other processes; a number: for as many losses.
        calls: The probabilities of hazards at each request to the broker and at each failpoint.
        turns: The weights of the scheduler's choices at each turn.
        length: The turns of each phase, at whose end everything is healed and compared.
        join: The groups belong to a flow with this join; None: they are made by `jobs`.
    """

    guarantee: Guarantee
    partitions: int
    jobs: tuple[JobShape, ...]
    view: bool
    keys: int
    poison: float
    session_timeout: float
    transaction_timeout: float
    late_seconds: float
    commit_interval: float
    commit_bytes: int
    poll_records: int
    cache_bytes: int
    state_retention: float
    delete_retention: float
    calls: Mapping[str, float]
    turns: Mapping[str, float]
    length: int
    phases: int
    standby: bool | int
    join: JoinShape | None = field(default=None, repr=False)  # not in the repr, as above

    @property
    def exactly_once(self) -> bool:
        return self.guarantee is Guarantee.EXACTLY_ONCE


# The maximum probability of each.
_CALLS = {
    "crash": 0.008,
    "fault": 0.03,
    "freeze": 0.005,
    "interleave": 0.1,
    "burst": 1.0,
    "late": 0.3,
    "marker-late": 0.8,
    "reported-as-revoked": 1.0,
    "deliver-again": 0.2,
}
_TURNS = {
    "kill": 4.0,
    "start": 8.0,
    "stop": 4.0,
    "replace": 1.0,
    "cut": 2.0,
    "cut-all": 0.5,
    "compact": 2.0,
    "damage": 2.0,
    "fill-disk": 0.5,
    "flaky": 1.0,
    "retry": 3.0,
    "jump": 1.0,
}
_WORK = {"step": 60.0, "load": 25.0, "emit": 10.0, "pass": 3.0}
# A process that was removed from its group overlaps with its successor; at least once guarantees nothing then.
_EXACTLY_ONCE_ONLY = ("replace", "jump", "reported-as-revoked")


def draw(rng: Random) -> Shape:
    """A schedule's shape."""
    exactly_once = rng.random() < 0.85
    calls = {name: _rate(rng, most) for name, most in _CALLS.items()}
    calls["late"] *= rng.random() ** 2  # rare in most schedules
    turns = {name: _rate(rng, most) for name, most in _TURNS.items()}
    if not exactly_once:
        for name in _EXACTLY_ONCE_ONLY:
            (calls if name in calls else turns)[name] = 0.0
    turns["start"] = _TURNS["start"]
    view = rng.random() < 0.3
    jobs = [_job(rng, inputs=rng.choice((1, 1, 2)))]
    if jobs[0].kind is not Kind.AGGREGATE and rng.random() < 0.2:
        jobs.append(_job(rng, inputs=1))
    shape = Shape(
        guarantee=Guarantee.EXACTLY_ONCE if exactly_once else Guarantee.AT_LEAST_ONCE,
        partitions=rng.randint(1, 4),
        jobs=tuple(jobs),
        view=view,
        keys=rng.choice((3, 10, 30)),
        poison=rng.choice((0.0, 0.0, 0.05)),
        session_timeout=rng.choice((3.0, 6.0, 15.0)) if exactly_once else FOREVER,
        transaction_timeout=rng.choice((2.0, 5.0, 10.0)),
        late_seconds=rng.choice((0.3, 1.0, 3.0, 8.0)),
        commit_interval=rng.choice((0.01, 0.05, 0.2)),
        commit_bytes=rng.choice((200, 2_000, 1 << 20)),
        poll_records=rng.choice((1, 4, 20, 10_000)),
        cache_bytes=rng.choice((1, 3_000, 1 << 20)),
        state_retention=rng.choice((20.0, 86_400.0)),
        delete_retention=rng.choice((30.0, 86_400.0)),
        calls=calls,
        turns={**_WORK, **turns, **({"view": 8.0} if view else {})},
        length=rng.choice((100, 300, 500)),
        phases=rng.choice((1, 1, 2)),
        standby=(True, 1, False)[bisect((0.2, 0.4), rng.random())],
    )
    return _with_due(_with_event_time(_with_once(_with_failures(_with_retention(_with_more(shape))))))


def draw_join(rng: Random) -> Shape:
    """Return a shape with the groups of a flow with joins; all sent events can be handled."""
    while not (shape := draw(rng)).exactly_once:
        pass
    join = JoinShape.drawn(rng, shape.keys)
    job = JobShape(Kind.BATCH, inputs=2, on_error=OnError.STOP, deletes=False, members=1, spare=1)
    jobs = tuple(
        replace(job, members=rng.randint(1, 3), spare=rng.randint(0, 1))
        for _ in range(1 if join.timed else 2)
    )
    apart = ("view", "visit", "change", "flaky", "retry")
    turns = {name: rate for name, rate in shape.turns.items() if name not in apart}
    return replace(shape, jobs=jobs, view=False, poison=0.0, turns=turns, join=join)


def _with_retention(shape: Shape) -> Shape:
    """Retention deletes inputs behind the groups, in half of the shapes; drawn apart, as above."""
    rng = Random(f"retention of {shape!r}")
    if rng.random() < 0.5:
        return shape
    return replace(shape, turns={**shape.turns, "expire": 4.0 * rng.random()})


def _with_event_time(shape: Shape) -> Shape:
    """Groups that follow event time, in a third of the shapes; drawn apart, so that the others are as they were."""
    rng = Random(f"event time {shape!r}")
    if not shape.exactly_once or rng.random() < 0.65:
        return shape
    idle_after = rng.choice((0.5, 2.0))
    if len(shape.jobs) > 1:
        idle_after += 8.0  # all tasks of the first group write marks this often: the second must keep up with one per turn
    return replace(shape, jobs=tuple(replace(job, idle_after=idle_after) for job in shape.jobs))


def _with_due(shape: Shape) -> Shape:
    """Rows that fall due and timers, in half of the shapes whose handlers have records; drawn apart, as above."""
    rng = Random(f"due {shape!r}")
    if not shape.exactly_once or rng.random() < 0.5:
        return shape
    jobs = tuple(replace(job, due=job.kind is Kind.RECORD and not job.deletes) for job in shape.jobs)
    return replace(shape, jobs=jobs)


def _with_once(shape: Shape) -> Shape:
    """Events that count once, in a third of the shapes; drawn apart, so that the others are as they were."""
    rng = Random(f"once {shape!r}")
    if not shape.exactly_once or rng.random() < 0.65:
        return shape
    within = rng.choice((2.0, 10.0, 60.0, 600.0))
    return replace(shape, jobs=tuple(replace(job, once=within) for job in shape.jobs))


def _with_failures(shape: Shape) -> Shape:
    """Few or many failing events, and refused outputs, in half of the shapes; drawn apart."""
    rng = Random(f"failures {shape!r}")
    if rng.random() < 0.5:
        return shape
    jobs = tuple(
        replace(
            job,
            failing=rng.choice((1, 30)),
            chokes=shape.exactly_once and job.kind is not Kind.AGGREGATE and rng.random() < 0.6,
            defers=job.kind is Kind.RECORD and rng.random() < 0.5,
        )
        for job in shape.jobs
    )
    return replace(shape, jobs=jobs)


def _with_more(shape: Shape) -> Shape:
    """Joins, changes, loops and visits, in half of the shapes; drawn apart, so that the others are as they were."""
    rng = Random(repr(shape))
    if rng.random() < 0.5:
        return shape
    jobs = tuple(_more(job, rng, visits=shape.exactly_once) for job in shape.jobs)
    more = {"change": 6.0 * any(job.joins for job in jobs), "visit": 1.0 * any(job.visits for job in jobs)}
    return replace(
        shape, jobs=jobs, turns={**shape.turns, **{name: rate for name, rate in more.items() if rate}}
    )


def _more(job: JobShape, rng: Random, *, visits: bool) -> JobShape:
    joins, changes, loops, visited = (rng.random() < 0.6 for _ in range(4))
    if job.kind is Kind.AGGREGATE or job.deletes:  # then the order is unknown
        return replace(job, joins=joins)
    loops = loops and job.kind is Kind.RECORD
    return replace(job, joins=joins, changes=joins and changes, loops=loops, visits=visits and visited)


def _rate(rng: Random, most: float) -> float:
    return 0.0 if rng.random() < 0.4 else most * rng.random()


def _job(rng: Random, inputs: int) -> JobShape:
    return JobShape(
        kind=rng.choice(tuple(Kind)),
        inputs=inputs,
        on_error=rng.choice(tuple(OnError)),
        deletes=inputs == 1 and rng.random() < 0.5,
        members=rng.randint(1, 3),
        spare=rng.randint(0, 1),
    )
