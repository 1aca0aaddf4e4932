"""Two chained groups with joins, changes and loops, attacked in every way while events come in."""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.faults.aside import ArenaMaker, aside
from tests.faults.chain_arena import ChainArena, listed
from tests.faults.own_broker import on_own_broker

from localkafka.broker import Broker
from streamtable.base.failpoint import COMMIT_STEPS, RECOVERY_STEPS

LONG_SECONDS = float(os.environ.get("FAULTS_SECONDS", "120"))
SHORT_SECONDS = 10.0
EVENTS_PER_SECOND = 250
PAUSE_SECONDS = (0.2, 2.0)  # between two attacks
FROZEN_SECONDS = (4.0, 7.0)  # longer than a session lives
MEMBERS, GUESTS = ("a1", "a2", "b1", "b2"), ("a3", "b3")
# The broker is attacked once, the others as often as time allows.
SHORT = ("failpoint", "disk", "freeze", "broker")
LONG = ("failpoint",) * 4 + ("kill",) * 3 + ("guest",) * 2 + ("disk", "freeze")


class Attack:
    """Injects faults into the processes, at random moments.

    Args:
        arena: The arena, with both groups running.
        broker: The broker, which only this arena uses.
        rng: The random choices.
    """

    def __init__(self, arena: ChainArena, broker: Broker, rng: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._arena = arena
        self._kafka = broker
        self._rng = rng

    def round(self, kind: str) -> None:
        """Attack once, after a pause and often after all processes have partitions again."""
        self._arena.revive()
        time.sleep(self._rng.uniform(*PAUSE_SECONDS))  # a random moment, not a wait for a condition
        self._arena.revive()
        getattr(self, f"_{kind}")(self._rng.choice(MEMBERS))
        self.done[kind] += 1

    def _kill(self, name: str) -> None:
        process = self._arena.processes[name]
        process.kill()
        assert process.returncode == -signal.SIGKILL, f"{name} had ended by itself: {process.log[-2000:]}"
        self._arena.start(name)

    def _disk(self, name: str) -> None:
        self._arena.processes[name].kill()
        shutil.rmtree(self._arena.processes[name].state, ignore_errors=True)
        self._arena.start(name)

    def _failpoint(self, name: str) -> None:
        """Kill the process, and again at a failpoint of one of the next commits or of its recovery."""
        self._arena.processes[name].kill()
        in_commit = self._rng.random() < 0.7
        place = self._rng.choice(COMMIT_STEPS if in_commit else RECOVERY_STEPS[1:])
        self._arena.start(name, f"{place}:{self._rng.randint(2, 8) if in_commit else 1}")

    def _guest(self, _: str) -> None:
        name = self._rng.choice(GUESTS)
        guest = self._arena.processes.get(name)
        if guest is None or not guest.running:
            self._arena.start(name).wait_joined()
        else:
            assert guest.stop() == 0, f"{name} did not shut down gracefully: {guest.log[-2000:]}"

    def _freeze(self, name: str) -> None:
        if name in self._arena.armed:  # it might die before it is frozen
            self._kill(name)
            self._arena.processes[name].wait_joined()
        self._arena.freeze(name)
        time.sleep(self._rng.uniform(*FROZEN_SECONDS))
        self._arena.processes[name].child.resume()

    def _broker(self, _: str) -> None:
        self._kafka.kill()
        self._kafka.start()


def joined_rounds(arena: ChainArena, broker: Broker, seconds: float, kinds: Iterator[str]) -> str:
    """Attack both groups for this many seconds, or until the kinds of attack are used up. Returns a summary."""
    rng = random.Random(arena.seed)
    began = time.monotonic()
    for name in MEMBERS:
        arena.start(name)
    arena.wait_at_work()
    load = arena.load(seconds, arena.early)
    ends = time.monotonic() + seconds
    attack = Attack(arena, broker, rng)
    for kind in kinds:
        attack.round(kind)
        if seconds > SHORT_SECONDS and time.monotonic() > ends:
            break
    load.finish()
    arena.disarm()
    arena.wait_handled()
    arena.feed(arena.late)
    arena.wait_handled()
    arena.finish()
    copies = arena.verify_chain()
    return f"{listed(attack.done)}; {arena.log_summary()}; {copies} copies checked, {time.monotonic() - began:.0f} s"


def long_kinds(seed: int) -> Iterator[str]:
    """Yield kinds of attacks without end, with the broker as the fifth target."""
    rng = random.Random(seed)
    yield from rng.choices(LONG, k=4)
    yield "broker"
    while True:
        yield rng.choice(LONG)


def run(make: ArenaMaker, seconds: float, kinds: Callable[[int], Iterator[str]]) -> str:
    """Run the rounds on their own broker."""

    def rounds(broker: Broker) -> str:
        arena = make(
            ChainArena,
            bootstrap_servers=broker.bootstrap_servers,
            keys_per_partition=10,
            events=int(seconds * EVENTS_PER_SECOND),
        )
        assert isinstance(arena, ChainArena)
        with arena.cleared_if_it_fails():
            return joined_rounds(arena, broker, seconds, kinds(arena.seed))

    return on_own_broker(rounds)


@pytest.mark.faults
@pytest.mark.timeout(300)
@aside
def test_four_attacks_leave_joins_changes_and_loops_exact(make: ArenaMaker) -> str:
    return run(make, SHORT_SECONDS, lambda _: iter(SHORT))


@pytest.mark.faults_long
@pytest.mark.timeout(LONG_SECONDS + 600)
@aside
def test_many_attacks_leave_joins_changes_and_loops_exact(make: ArenaMaker) -> str:
    return run(make, LONG_SECONDS, long_kinds)
