"""Members that come and go every few seconds under load."""

import os
import random
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import pytest
from tests.faults.arena import LOST, Arena, Process
from tests.faults.aside import ArenaMaker, aside
from tests.faults.committed_records import Change
from tests.faults.oracle import parts

SHORT_SECONDS = 15.0
LONG_SECONDS = float(os.environ.get("FAULTS_SECONDS", "120"))
PARTITIONS = 12
EVENTS_PER_SECOND = 1_200
PAUSE_SECONDS_MAX = 0.5


@dataclass(frozen=True)
class Stint:
    """The ownership of one partition by one process, from its first record to the revocation."""

    partition: int
    begin: float
    end: float


def stints(process: Process, until: float) -> Iterator[Stint]:
    """Yield the assignments of partitions in the process's log; an unfinished one lasts until `until`. Times are seconds since 1970."""
    began: dict[int, float] = {}
    for event in process.events():
        at = datetime.fromisoformat(event["time"]).timestamp()
        if event["event"] == "task started":
            began[event["partition"]] = at
        elif event["event"] in {"partitions revoked", LOST}:
            for partition in event["partitions"]:
                if partition in began:
                    yield Stint(partition, began.pop(partition), at)
    yield from (Stint(partition, begin, until) for partition, begin in began.items())


def longest_pause(
    all_stints: Sequence[Stint],
    commits: Mapping[int, Sequence[Change]],
    inputs: Mapping[int, Sequence[float]],
) -> tuple[float, Stint | None]:
    """Return the longest time in which a partition that did not move had pending input and committed nothing.

    A pause begins when the first event after a commit arrives, and ends with the changes of the next commit, so a pause
    of the load does not count.
    """
    longest: tuple[float, Stint | None] = (0.0, None)
    for stint in all_stints:
        times = sorted({c.time for c in commits[stint.partition] if stint.begin <= c.time <= stint.end})
        arrivals = inputs[stint.partition]
        position = 0
        for before, after in pairwise(times):
            while position < len(arrivals) and arrivals[position] <= before:
                position += 1
            if position < len(arrivals):
                longest = max(
                    longest, (after - max(before, arrivals[position]), stint), key=lambda each: each[0]
                )
    return longest


def storm(arena: Arena, seconds: float, pace: tuple[float, float], seed: int) -> tuple[float, str]:
    """Let members join and leave while one stays. Returns the longest pause, and a summary."""
    rng = random.Random(seed)
    guests = ["b", "c", "d"]
    arena.start("a").wait_log("task started")
    load = arena.load(seconds)
    ends = time.monotonic() + seconds
    joined = left = 0
    while time.monotonic() < ends:
        guest = arena.processes.get(name := rng.choice(guests))
        if guest is not None and guest.running:
            assert guest.stop() == 0, guest.log[-2000:]
            left += 1
        else:
            arena.start(name).wait_joined()
            joined += 1
        time.sleep(rng.uniform(*pace))  # the random duration of a membership, not a wait for a condition
    load.finish()
    arena.wait_handled()
    arena.finish()
    arena.verify()
    inputs: defaultdict[int, list[float]] = defaultdict(list)
    for partition, changes in arena.records(arena.input).items():
        inputs[partition] = [change.time for change in changes]
    found = [s for process in arena.processes.values() for s in stints(process, time.time())]
    pause, where = longest_pause(found, arena.records(arena.table), inputs)
    return pause, (
        f"{joined} joined, {left} left in {seconds:.0f} s, {len(found)} stints of a partition with a process; longest "
        f"pause of one that stayed {pause * 1000:.0f} ms (with commits each {arena.commit_interval * 1000:.0f} ms) "
        f"in partition {where.partition if where else '-'}"
    )


@pytest.mark.faults
@pytest.mark.timeout(300)
@aside
def test_members_that_come_and_go_lose_double_and_reorder_nothing(make: ArenaMaker) -> str:
    events = int(SHORT_SECONDS * EVENTS_PER_SECOND)
    made = make(kind="order", partitions=PARTITIONS, events=events, keys_per_partition=10)
    _, line = storm(made, SHORT_SECONDS, (0.5, 2.5), made.seed)
    return line


@pytest.mark.faults_long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("protocol", "static"), [("classic", False), ("classic", True), ("consumer", True)], ids=str
)
def test_members_of_the_classic_protocol_and_static_ones_come_and_go_and_nothing_is_lost(
    quiet: None, arena: ArenaMaker, seed: int, tell: Callable[[str], None], protocol: str, *, static: bool
) -> None:
    events = int(SHORT_SECONDS * EVENTS_PER_SECOND)
    made = arena(
        kind="order",
        partitions=PARTITIONS,
        events=events,
        keys_per_partition=10,
        protocol=protocol,
        static=static,
    )
    _, line = storm(made, SHORT_SECONDS, (0.5, 2.5), seed)
    tell(line)


@pytest.mark.faults_long("a table of 18,000 rows is loaded nine times")
@pytest.mark.timeout(240)
@aside
def test_members_that_come_and_go_while_a_large_table_is_loading_lose_nothing(make: ArenaMaker) -> str:
    made = make(partitions=6, keys_per_partition=3_000, events=54_000)
    first, second = parts(made.events, 2)
    names = ("a", "b", "c")
    made.start("a")
    made.feed(first)
    made.wait_handled()
    made.finish()
    shutil.rmtree(made.processes["a"].state)
    load = made.load(5, second)
    # Frozen during its restore until its session expires; its heir is killed during its restore.
    frozen = made.start("a", "stop@copy-loading")
    frozen.wait_stopped()
    heir = made.start("b", "copy-loading:3")
    assert heir.wait_end(60) == -signal.SIGKILL
    made.start("c").wait_log("table is loading")
    frozen.child.resume()
    rng = random.Random(made.seed)
    for _ in range(6):
        process = made.processes[rng.choice(names)]
        if process.running and rng.random() < 0.5:
            assert process.stop() == 0, process.log[-2000:]
        process.kill()
        shutil.rmtree(process.state, ignore_errors=True)
        process.start()
        process.wait_joined()
    load.finish()
    made.wait_handled()
    made.finish()
    made.verify()
    logs = [event["event"] for name in names for event in made.processes[name].events()]
    return f"{logs.count('table is loading')} tables loaded, {logs.count('partitions revoked')} revocations"


@pytest.mark.faults_long
@pytest.mark.timeout(LONG_SECONDS + 600)
def test_a_partition_that_stays_is_not_held_up_by_those_that_move(
    quiet: None, arena: ArenaMaker, seed: int, tell: Callable[[str], None]
) -> None:
    events = int(LONG_SECONDS * EVENTS_PER_SECOND)
    made = arena(kind="order", partitions=PARTITIONS, events=events, keys_per_partition=10)
    pause, line = storm(made, LONG_SECONDS, (9.0, 11.0), seed + 1)
    tell(line)
    assert pause < PAUSE_SECONDS_MAX, line
