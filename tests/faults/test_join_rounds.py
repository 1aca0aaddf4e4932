"""A flow with an outer join of streams and a foreign-key join, whose processes are killed and frozen under load."""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.faults.aside import ArenaMaker, aside
from tests.faults.chain_arena import listed
from tests.faults.join_arena import JoinArena

from streamtable.base.failpoint import COMMIT_STEPS

LONG_SECONDS = float(os.environ.get("FAULTS_SECONDS", "120"))
SHORT = ("kill", "freeze", "disk")
LONG = ("kill", "kill", "disk", "freeze", "failpoint", "failpoint")
FROZEN_SECONDS = 5.0  # longer than a session lives
NAMES = ("a", "b")


def join_rounds(arena: JoinArena, kinds: Iterator[str]) -> str:
    """Attack one of two processes in each round. Returns a summary."""
    began, done = time.monotonic(), Counter[str]()
    for name in NAMES:
        arena.start(name)
    arena.processes["a"].wait_joined()
    for kind in kinds:
        arena.feed_for(arena.rng.uniform(0.5, 2))  # until a random moment of attack
        arena.revive()
        process = arena.processes[arena.rng.choice(NAMES)]
        if kind == "freeze":
            process.child.pause()
            arena.feed_for(FROZEN_SECONDS)
            process.child.resume()
        else:
            process.kill()
            if kind == "disk":
                shutil.rmtree(process.state, ignore_errors=True)
            step = f"{arena.rng.choice(COMMIT_STEPS)}:{arena.rng.randint(1, 6)}"
            arena.start(process.name, step if kind == "failpoint" else None)
        done[kind] += 1
    arena.feed_for(1)
    for process in arena.processes.values():  # also those that have not reached their failpoint
        process.kill()
        arena.start(process.name)
    arena.close_windows()
    arena.wait_all_handled()
    said = arena.verify_joins()
    return f"{listed(done)}; {said}; {time.monotonic() - began:.0f} s"


def made(make: ArenaMaker) -> JoinArena:
    arena = make(JoinArena, partitions=2)
    assert isinstance(arena, JoinArena)
    return arena


@pytest.mark.faults
@pytest.mark.timeout(300)
@aside
def test_joins_are_those_of_the_definition_after_a_kill_a_freeze_and_a_lost_disk(make: ArenaMaker) -> str:
    return join_rounds(made(make), iter(SHORT))


@pytest.mark.faults_long("rounds for as long as requested")
@pytest.mark.timeout(LONG_SECONDS + 600)
@aside
def test_joins_are_those_of_the_definition_after_many_attacks(make: ArenaMaker) -> str:
    ends = time.monotonic() + LONG_SECONDS

    def kinds(rng: random.Random) -> Iterator[str]:
        while time.monotonic() < ends:
            yield rng.choice(LONG)

    arena = made(make)
    return join_rounds(arena, kinds(random.Random(arena.seed)))
