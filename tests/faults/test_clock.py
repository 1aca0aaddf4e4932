"""A machine whose clock is set forwards and backwards by hours during work: ids, counts and ages stay right."""

import random
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from tests.system.bench import Bench, until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable.base.clock import SystemClock
from streamtable.codec.plain import Long
from streamtable.graph.group import Group, Input, Persist
from streamtable.graph.once import Once

EVENTS = 400
TIMES_SENT = 3
HOUR = 3600.0


class WrongClock(SystemClock):
    """Wall time that is wrong by `ahead` seconds; monotonic time is right, as the operating system promises."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.faults_long("1,600 events in small commits; the simulation's clocks step as well")
def test_events_are_counted_once_while_the_clock_of_the_machine_steps_forwards_and_back_by_hours(
    fault_broker: Broker, folder: Path, seed: int
) -> None:
    rng = random.Random(seed)
    topics = Topics(fault_broker.bootstrap_servers)
    bench = Bench(fault_broker.bootstrap_servers, topics, folder)
    clock = WrongClock()
    over = threading.Event()

    def step() -> None:
        while not over.wait(rng.uniform(0.02, 0.2)):
            clock.ahead = rng.choice([-24 * HOUR, -HOUR, -1.0, 0.0, 1.0, HOUR, 24 * HOUR])

    stepping = threading.Thread(target=step)
    try:
        group: Group[str, int] = Group(
            bench.name("g"),
            Input(
                bench.stream(),
                lambda ctx, _: ctx.set((ctx.value or 0) + 1),
                once=Once(by=lambda event: event, within=timedelta(hours=2)),
            ),
            Persist(Long()),
        )
        bench.create(group)
        stepping.start()
        running = bench.run(group, clock=clock, commit_interval=0.05)
        until(lambda: running.processor.ready or running.error, "the processor is ready")
        for _ in range(TIMES_SENT):
            for start in range(0, EVENTS, 50):
                names = range(start, start + 50)
                bench.send(bench.name("in"), *((f"k{number % 7}", f"event-{number}") for number in names))
        bench.wait_handled(group, running)
        running.stop()
        assert sum(bench.rows(group).values()) == EVENTS
        # And after a restart, with the stored times of the ids.
        clock.ahead = -HOUR
        bench.send(bench.name("in"), *((f"k{number % 7}", f"event-{number}") for number in range(EVENTS)))
        bench.work_off(group, clock=clock)
        assert sum(bench.rows(group).values()) == EVENTS
    finally:
        over.set()
        if stepping.is_alive():
            stepping.join()
        bench.close()
        topics.delete_all()
