"""A broker that dies or stands still under load; the processors go on by themselves when it is back."""

import random
import tempfile
import time
from pathlib import Path

import pytest
from tests.faults.arena import BROKER_SETTINGS, Arena, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.patience import patiently

from localkafka.broker import Broker

KILLS = 3
# After a start that took so long, as on a machine that is very busy, the next kill waits until records get through:
# they must not grow too old to be sent. (The emitter gives them up after two minutes.)
SLOW_START_SECONDS = 20.0
FROZEN_SECONDS = 15.0  # longer than sessions and transactions live


def sent(arena: Arena) -> int:
    """How many events the broker has taken."""
    places = arena.places(arena.input)
    return sum(marks.high for marks in patiently(lambda: arena.cluster.watermarks(places)).values())


def restart(arena: Arena, broker: Broker) -> None:
    before, began = sent(arena), time.monotonic()
    broker.kill()
    broker.start()
    if time.monotonic() - began > SLOW_START_SECONDS:
        wait_until(lambda: sent(arena) > min(before, len(arena.events) - 1), "events get through again")


def attacked(arena: Arena, broker: Broker, rng: random.Random) -> str:
    """Attack while two processes work; then everything is handled by the same two. Returns what was seen."""
    processes = [arena.start(name) for name in ("a", "b")]
    arena.wait_at_work()
    load = arena.load(seconds=40)
    arena.wait_begun()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.5, 2.5))  # the moment of the attack is what is random here, not a wait
        restart(arena, broker)
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
        broker = Broker(Path(data), overrides=BROKER_SETTINGS, brief=True)
        try:
            broker.start()
            address = broker.bootstrap_servers
            arena = make(bootstrap_servers=address, delete_topics=False, kind="handler", events=12_000)
            return attacked(arena, broker, random.Random(arena.seed))
        finally:
            broker.kill()
            broker.close()
