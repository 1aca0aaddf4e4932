"""A simulation of owners of one partition that crash, freeze, lose answers and overlap, over a store with late writes.

Each process is a generator that yields wherever another one, the network or a crash could intervene. The schedule is
drawn from a seed. Kafka is modelled by its guarantee: only the current owner commits, atomically. At each commit it is
checked that the batch has read, for each of its keys, exactly what the last committed batch left. A sweep removes
deleted rows meanwhile. For its sake nothing stalls for ever: batches and late writes end in time. Handlers are not
deterministic, so a version that counts by accident is seen.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from random import Random

import pytest

from microbatch.stores.port import Deletion, Row
from microbatch.stores.sweep import may_go
from microbatch.stores.versions import (
    UNOWNED,
    CommittedState,
    Ledger,
    Version,
    VersionedCell,
    WriteId,
    replace,
)
from streamtable.errors import Migrated

LEDGER = "ledger"
KEYS = "abcd"
MANY_KEYS = "abcdefg"  # for sweeps: enough that some keys are unused for a while
STALL = 150  # for sweeps: the longest stall, in moves
Steps = Generator[None, None, None]


class Aborted(Exception):
    """The batch was aborted or its outcome is unknown: the owner starts again from the committed state."""


@dataclass(frozen=True)
class Rules:
    """The rules that the library follows. A test breaks one of them to show that the simulation detects it."""

    proof: bool = True  # a commit that moves no offset precedes the first write
    proof_first: bool = True  # it also precedes the ledger's row
    new_token: bool = True  # an abort is followed by a new epoch
    fenced: bool = True  # the store rejects lower numbers
    keeps_read: bool = True  # the previous version is the one that was read
    swept_old: bool = True  # rows are swept only when no write can be in flight
    swept_counting: bool = True  # only committed deletions are swept
    swept_same: bool = True  # only rows with an unchanged number are swept


@dataclass
class World:
    """Kafka, the store, and the requests on their way to the store."""

    random: Random
    rules: Rules
    length: int
    keys: str = KEYS
    owner: int = 0
    offset: int = 0
    committed_state: CommittedState = UNOWNED
    committed: dict[str, bytes | None] = field(default_factory=dict)
    commits: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    late: list[tuple[str, Row, int]] = field(default_factory=list)  # and when it was sent
    now: int = 0
    began: dict[int, int] = field(default_factory=dict)  # the time of each owner's last request
    swept: int = 0
    calm: bool = False
    values: "count[int]" = field(default_factory=count)

    def key_at(self, offset: int) -> str:
        return self.keys[offset * 7919 % 13 % len(self.keys)]

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    def commit(self, owner: int, offset: int, committed_state: CommittedState) -> bool:
        if owner != self.owner:
            return False
        self.offset, self.committed_state = offset, committed_state
        return True

    def arrives(self, key: str, row: Row) -> bool:
        """Whether the store takes the write."""
        if self.rules.fenced and key in self.rows and self.rows[key].number > row.number:
            return False
        self.rows[key] = row
        return True

    def write(self, key: str, row: Row) -> Steps:
        """Until the store has answered. Raises Migrated when it refuses."""
        while True:
            yield
            if self.chance(0.15):  # no answer; the write may arrive later, even after the retry
                self.late.append((key, row, self.now))
                if self.chance(0.4):
                    raise Aborted
                continue
            taken = self.arrives(key, row)
            if self.chance(0.1):  # the answer is lost
                self.late.append((key, row, self.now))
                continue
            if not taken:
                raise Migrated("refused")
            return


def claim(world: World, owner: int) -> Generator[None, None, tuple[int, Ledger]]:
    world.began[owner] = world.now
    offset, committed_state = world.offset, world.committed_state
    yield
    row = world.rows.get(LEDGER)
    yield
    ledger = Ledger.open(committed_state, row)
    if not world.rules.proof_first:
        yield from world.write(LEDGER, Row(ledger.opening, ledger.encode()))
    yield
    if world.rules.proof and not world.commit(owner, offset, ledger.committed_state):
        raise Migrated("not ours")
    if world.chance(0.1):
        raise Aborted
    if world.rules.proof_first:
        yield from world.write(LEDGER, Row(ledger.opening, ledger.encode()))
    return offset, ledger


def batch(world: World, owner: int, offset: int, ledger: Ledger) -> Generator[None, None, tuple[int, Ledger]]:
    world.began[owner] = world.now
    end = min(world.length, offset + (5 if world.calm else world.random.randint(1, 5)))
    keys = sorted({world.key_at(at) for at in range(offset, end)})
    read: dict[str, Version] = {}
    for key in keys:
        yield
        read[key] = ledger.read(world.rows.get(key))
    write_id = ledger.next_write_id
    new: dict[str, bytes | None] = {}
    world.random.shuffle(keys)
    for key in keys:
        if world.chance(0.2):
            continue  # this handler does not write
        value = None if world.chance(0.2) else b"%d" % next(world.values)
        before = read[key]
        if not world.rules.keeps_read and key in world.rows:
            before = VersionedCell.decode(world.rows[key]).current
        cell = replace(before, write_id, value, 0) if before.write_id < write_id else None
        new[key] = value
        if cell is not None:
            yield from world.write(key, Row(write_id.number, cell.encode()))
    yield
    if world.chance(0.1):
        raise Aborted  # the transaction was refused
    after = ledger.committed()
    if not world.commit(owner, end, after.committed_state):
        raise Migrated("not ours")
    for key, version in read.items():
        assert version.value == world.committed.get(key), f"{key} at {offset}"
    world.committed.update(new)
    world.commits += 1
    if world.chance(0.1):
        raise Aborted  # the commit has happened, but the response is lost
    return end, after


def process(world: World, owner: int) -> Steps:
    """One process that believes to own the partition, until it learns better or is through."""
    ledger: Ledger | None = None
    while True:
        try:
            if ledger is None or world.rules.new_token:
                offset, ledger = yield from claim(world, owner)
            else:
                end = world.committed_state.end
                offset, ledger = world.offset, Ledger(ledger.epoch, {**ledger.ends, end.epoch: end.batch})
            while offset < world.length:
                offset, ledger = yield from batch(world, owner, offset, ledger)
        except Aborted:
            continue
        except Migrated:
            assert owner != world.owner, "the owner was taken for a zombie"
        return


def sweeper(world: World) -> Steps:
    """Sweeps for ever, as `microbatch.stores.sweep` does."""
    notes = [(0, 0)]
    while True:
        yield
        row = world.rows.get(LEDGER)
        ledger, epoch = Ledger.seen(UNOWNED, row), WriteId.of(row.number).epoch if row else 0
        over = max(epoch for time, epoch in notes if time == 0 or world.now - time > STALL)
        if not world.rules.swept_old:
            over = epoch
        chosen = []
        for key in world.keys:
            yield
            row = world.rows.get(key)
            if row is None or VersionedCell.decode(row).current.value is not None:
                continue
            write_id = WriteId.of(row.number)
            judge = ledger if world.rules.swept_counting else Ledger(epoch, {write_id.epoch: write_id.batch})
            if may_go(Deletion(key.encode(), row.number, 0), judge, {0: over}):
                chosen.append((key, row.number))
        for key, number in chosen:
            for _ in range(5):
                yield
            if key in world.rows and (world.rows[key].number == number or not world.rules.swept_same):
                del world.rows[key]
                world.swept += 1
        notes.append((world.now, epoch))


def run(seed: int, rules: Rules = Rules(), *, length: int = 40, sweeping: bool = False) -> World:
    world = World(Random(seed), rules, length, MANY_KEYS if sweeping else KEYS)
    live = {world.owner: process(world, world.owner)}
    sweep = sweeper(world)
    for world.now in range(50 * length):
        move = world.random.random()
        if move < 0.02 or not live:  # a new owner; the old one may not have noticed
            world.owner += 1
            live[world.owner] = process(world, world.owner)
        elif move < 0.03:
            del live[world.random.choice(list(live))]  # kill -9
        elif move < 0.08 and world.late:
            world.arrives(*world.late.pop(world.random.randrange(len(world.late)))[:2])
        elif move < 0.3 and sweeping:
            next(sweep)
        else:
            name = world.random.choice(list(live))
            if next(live[name], sweep) is sweep:
                del live[name]
        if sweeping:  # without sweeps, stalls are unlimited
            live = {
                name: each
                for name, each in live.items()
                if world.now - world.began.get(name, world.now) < STALL
            }
            world.late = [each for each in world.late if world.now - each[2] < STALL]
    world.calm = True
    world.owner += 1
    for _ in process(world, world.owner):
        if world.late:
            world.arrives(*world.late.pop()[:2])
    assert world.offset == world.length
    check_rows(world)
    return world


def check_rows(world: World) -> None:
    """A reader that starts after all others finds the committed rows."""
    ledger = Ledger.open(world.committed_state, world.rows.get(LEDGER))
    for key in world.keys:
        assert ledger.read(world.rows.get(key)).value == world.committed.get(key), key


@pytest.mark.parametrize(
    "block", [*range(4), *(pytest.param(block, marks=pytest.mark.faults_long) for block in range(4, 10))]
)
def test_every_batch_reads_what_the_last_committed_one_left(block: int) -> None:
    epochs = commits = 0
    for seed in range(block * 60, block * 60 + 60):
        world = run(seed)
        epochs += world.committed_state.epoch
        commits += world.commits
    # The runs must be eventful: several owners or aborts in each, and commits with few records.
    assert epochs > 60 * 5
    assert commits > 60 * 10


@pytest.mark.parametrize(
    "rules",
    [
        Rules(proof=False),
        Rules(proof_first=False),
        Rules(new_token=False),
        Rules(fenced=False),
        Rules(keeps_read=False),
    ],
    ids=[
        "no proof",
        "the ledger before the proof",
        "the same epoch after an abort",
        "no fencing",
        "an uncommitted version is kept",
    ],
)
def test_without_one_of_its_rules_the_simulation_finds_an_error(rules: Rules) -> None:
    def fails(seed: int) -> bool:
        try:
            run(seed, rules)
        except Exception:  # noqa: BLE001 - whichever way it shows
            return True
        return False

    assert any(fails(seed) for seed in range(200))


@pytest.mark.parametrize(
    "block", [*range(2), *(pytest.param(block, marks=pytest.mark.faults_long) for block in range(2, 5))]
)
def test_a_sweep_never_changes_what_a_reader_sees(block: int) -> None:
    swept = sum(run(seed, length=120, sweeping=True).swept for seed in range(block * 40, block * 40 + 40))
    assert swept > 20


@pytest.mark.parametrize(
    "rules",
    [Rules(swept_old=False), Rules(swept_counting=False), Rules(swept_same=False)],
    ids=["too early", "an uncommitted deletion", "a changed number"],
)
def test_without_one_of_its_rules_a_sweep_is_detected_as_faulty(rules: Rules) -> None:
    def fails(seed: int) -> bool:
        try:
            run(seed, rules, length=120, sweeping=True)
        except Exception:  # noqa: BLE001 - whichever way it shows
            return True
        return False

    assert any(fails(seed) for seed in range(400))
