"""A broker that dies or stands still under load; the processors go on by themselves when it is back."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.arena import Arena
from tests.faults.conftest import BROKER_SETTINGS

from streamtable.testing.fixtures import OwnBroker

KILLS = 3
FROZEN_SECONDS = 15.0  # longer than sessions and transactions live


def attacked(arena: Arena, seconds: float, attack: Callable[[], None]) -> str:
    """Attack while two processes work; then everything is handled by the same two. Returns what was seen."""
    processes = [arena.start(name) for name in ("a", "b")]
    arena.wait_at_work()
    load = arena.load(seconds)
    arena.wait_begun()
    attack()
    ended = time.monotonic()
    load.finish()
    arena.wait_handled(90)
    back = time.monotonic() - ended
    assert all(process.running for process in processes)
    arena.finish()
    arena.verify()
    logs = [event["event"] for process in processes for event in process.events()]
    return (
        f"all handled {back:.1f} s after the last attack; {logs.count('commit undone')} commits undone, "
        f"{logs.count('outcome of a commit unknown: all tables recover again')} of unknown outcome"
    )


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_a_broker_killed_three_times_and_then_frozen_costs_nothing(
    own_broker: OwnBroker, folder: Path, seed: int, tell: Callable[[str], None]
) -> None:
    rng = random.Random(seed)
    broker = own_broker(BROKER_SETTINGS)

    def kill_and_freeze() -> None:
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.5, 2.5))  # the moment of the attack is what is random here, not a wait
            broker.kill()
            broker.start()
        time.sleep(rng.uniform(0.5, 2.5))
        broker.pause()
        time.sleep(FROZEN_SECONDS)
        broker.resume()

    with Arena(broker.bootstrap_servers, folder, seed=seed, kind="handler", events=12_000) as arena:
        tell(attacked(arena, 40, kill_and_freeze))
