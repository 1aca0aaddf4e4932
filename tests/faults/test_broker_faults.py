"""A broker that dies or stands still under load; the processors go on by themselves when it is back."""

import random
import tempfile
import time
from pathlib import Path

import pytest
from tests.faults.arena import BROKER_SETTINGS, Arena
from tests.faults.aside import ArenaMaker, aside

from localkafka.broker import Broker

KILLS = 3
FROZEN_SECONDS = 15.0  # longer than sessions and transactions live


def attacked(arena: Arena, broker: Broker, rng: random.Random) -> str:
    """Attack while two processes work; then everything is handled by the same two. Returns what was seen."""
    processes = [arena.start(name) for name in ("a", "b")]
    arena.wait_at_work()
    load = arena.load(seconds=40)
    arena.wait_begun()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.5, 2.5))  # the moment of the attack is what is random here, not a wait
        broker.kill()
        broker.start()
    time.sleep(rng.uniform(0.5, 2.5))
    broker.pause()
    time.sleep(FROZEN_SECONDS)
    broker.resume()
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
@aside
def test_a_broker_killed_three_times_and_then_frozen_costs_nothing(make: ArenaMaker) -> str:
    with tempfile.TemporaryDirectory(prefix="streamtable-faults-") as data:
        broker = Broker(Path(data), overrides=BROKER_SETTINGS)
        try:
            broker.start()
            address = broker.bootstrap_servers
            arena = make(bootstrap_servers=address, delete_topics=False, kind="handler", events=12_000)
            return attacked(arena, broker, random.Random(arena.seed))
        finally:
            broker.kill()
            broker.close()
