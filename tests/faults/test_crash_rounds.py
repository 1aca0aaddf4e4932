"""Two processes of a group, killed again and again under load."""

import os
import random
import shutil
import signal
import time
from collections import Counter

import pytest
from tests.faults.arena import Arena
from tests.faults.aside import ArenaMaker, aside
from tests.faults.worker import THIRDS, TOTALS

from streamtable import Long

ROUNDS = int(os.environ.get("FAULTS_ROUNDS", "50"))
DISK_LOST = 0.3
JOIN_FIRST = 0.8  # otherwise a process may be killed again before it has got anywhere


def crash_rounds(arena: Arena, rounds: int) -> str:
    """Kill one of two processes at random moments, this many times. Returns a summary.

    With at least once, the events that were not committed at each kill may have been counted twice.
    """
    rng = random.Random(f"{arena.seed} {arena.kind} {arena.exactly_once}")
    began = time.monotonic()
    names = ["a", "b"]
    for name in names:
        arena.start(name)
    arena.processes["a"].wait_joined()
    load = arena.load(seconds=rounds * 3.5)
    lost_disks = over_max = 0
    for _ in range(rounds):
        if rng.random() < JOIN_FIRST:
            for name in names:
                arena.processes[name].wait_joined()
        time.sleep(rng.uniform(0.2, 3))  # a random moment of the kill, not a wait for a condition
        victim = arena.processes[rng.choice(names)]
        assert victim.running, f"{victim.name} has ended by itself with {victim.returncode}"
        victim.kill()
        assert victim.returncode == -signal.SIGKILL
        over_max += 0 if arena.exactly_once else arena.unhandled()
        if rng.random() < DISK_LOST:
            shutil.rmtree(victim.state, ignore_errors=True)
            lost_disks += 1
        arena.start(victim.name)
    load.finish()
    arena.wait_handled(60 + rounds)
    arena.finish()
    verdict = arena.verify(over_max)
    logs = [event for process in arena.processes.values() for event in process.events()]
    loaded = sum(event["event"] == "table is loading" for event in logs)
    undone = sum(event["event"] == "commit aborted" for event in logs)
    return (
        f"{rounds} kills, {lost_disks} disks lost, {loaded} tables loaded, {undone} commits undone, "
        f"{verdict.events} events, {verdict.over} counted twice (at most {over_max}), "
        f"{verdict.copies} copies checked, {time.monotonic() - began:.0f} s"
    )


@pytest.mark.faults
@aside
def test_five_kills_lose_and_double_nothing(make: ArenaMaker) -> str:
    return crash_rounds(make(kind="count", partitions=8, events=15_000), 5)


@pytest.mark.faults
@aside
def test_state_tables_hold_what_the_table_does_after_kills(make: ArenaMaker) -> str:
    arena = make(kind="states", partitions=4, events=4_000)
    said = crash_rounds(arena, 3)
    table, totals, thirds = (
        rows_of(arena, arena.group.named_topic(name)) for name in ("table", TOTALS.name, THIRDS.name)
    )
    assert totals == table
    summed: Counter[tuple[int, bytes]] = Counter()
    for (partition, key), count in thirds.items():
        summed[partition, key.rpartition(b" ")[0]] += count
    assert summed == table
    return f"{said}, {len(thirds)} rows of states"


def rows_of(arena: Arena, topic: str) -> dict[tuple[int, bytes], int]:
    """Return the rows of a table of counts, by partition and key."""
    return {
        (partition, change.key): Long().decode(change.value or b"")
        for partition, changes in arena.records(topic).items()
        for change in changes
    }


@pytest.mark.faults_long
@pytest.mark.timeout(300 + 20 * ROUNDS)
@pytest.mark.parametrize("kind", ["count", "handler", "order"])
@aside
def test_many_kills_lose_and_double_nothing(make: ArenaMaker, kind: str) -> str:
    return crash_rounds(make(kind=kind, partitions=8, events=3_000 * ROUNDS, keys_per_partition=20), ROUNDS)


@pytest.mark.faults_long
@pytest.mark.timeout(300 + 20 * ROUNDS)
@aside
def test_many_at_least_once_kills_lose_nothing_and_double_only_what_was_not_committed(
    make: ArenaMaker,
) -> str:
    made = make(guarantee="at_least_once", partitions=8, events=3_000 * ROUNDS, keys_per_partition=20)
    return crash_rounds(made, ROUNDS)
