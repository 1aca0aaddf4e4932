"""A broker that is killed, restarted or frozen under load; the processors continue by themselves when it is back."""

import random
import time
from pathlib import Path

import pytest
from tests.faults.arena import Arena, Process, wait_until
from tests.faults.aside import ArenaMaker, aside
from tests.faults.full_disk import BALLAST, fill, small_disk
from tests.faults.oracle import parts
from tests.faults.own_broker import on_own_broker, own_broker
from tests.faults.patience import patiently
from tests.faults.reader import Reader

from localkafka.broker import Broker
from localkafka.fixtures import PATIENT, Topics
from streamtable import Kafka
from streamtable.base.types import TopicPartition

KILLS_LONG = 3
# After a start that took this long, as on a very busy machine, the next kill waits until records are accepted:
# they must not expire. (The emitter's delivery timeout is two minutes.)
SLOW_START_SECONDS = 20.0
FROZEN_SECONDS = 15.0  # longer than sessions and transactions live


def sent(arena: Arena) -> int:
    """Return the number of events that the broker has accepted."""
    places = arena.places(arena.input)
    return sum(marks.high for marks in patiently(lambda: arena.cluster.watermarks(places)).values())


def restart(arena: Arena, broker: Broker) -> None:
    before, began = sent(arena), time.monotonic()
    broker.kill()
    broker.start()
    if time.monotonic() - began > SLOW_START_SECONDS:
        wait_until(lambda: sent(arena) > min(before, len(arena.events) - 1), "events get through again")


def attacked(arena: Arena, broker: Broker, rng: random.Random, kills: int) -> str:
    """Attack while two processes work; then the same two handle everything. Returns a summary."""
    processes = [arena.start(name) for name in ("a", "b")]
    arena.wait_at_work()
    load = arena.load(seconds=27 + 7 * kills)
    arena.wait_begun()
    for _ in range(kills):
        time.sleep(rng.uniform(0.5, 2.5))  # a random moment of attack, not a wait for a condition
        restart(arena, broker)
    time.sleep(rng.uniform(0.5, 2.5))
    # A broker that stands still for longer than its session is fenced by its own controller; see PATIENT. It has the long
    # session from here on only: a killed broker is not let in again before its old session has ended.
    broker.restart(PATIENT)
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
        f"all handled {back:.1f} s after the last attack; {logs.count('commit aborted')} commits undone, "
        f"{logs.count('outcome of a commit unknown: all tables recover again')} of unknown outcome"
    )


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [1, pytest.param(KILLS_LONG, marks=pytest.mark.faults_long)])
@aside
def test_a_broker_that_is_killed_then_restarted_and_frozen_costs_nothing(make: ArenaMaker, kills: int) -> str:
    def attack(broker: Broker) -> str:
        address = broker.bootstrap_servers
        arena = make(bootstrap_servers=address, delete_topics=False, kind="order", events=12_000)
        with arena.cleared_if_it_fails(), Reader.of(arena, address) as reader:
            line = attacked(arena, broker, random.Random(arena.seed), kills)
            wait_until(reader.shows_all, "the view shows all counts")
        return f"{line}; {reader}"

    return on_own_broker(attack)


@pytest.mark.faults_long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [60, 300])
@aside
def test_a_broker_that_is_away_for_minutes_costs_nothing_and_nothing_piles_up(
    make: ArenaMaker, seconds: int
) -> str:
    with own_broker() as broker:
        arena = make(bootstrap_servers=broker.bootstrap_servers, delete_topics=False, kind="order")
        first, second = parts(arena.events, 2)
        processes = [arena.start(name) for name in ("a", "b")]
        arena.wait_at_work()
        load = arena.load(3, first)
        arena.wait_begun()
        load.finish()
        before = [held(process) for process in processes]
        broker.kill()
        time.sleep(seconds)  # the broker's downtime, not a wait for a condition
        assert all(process.running for process in processes)
        after = [held(process) for process in processes]
        broker.start()
        back = time.monotonic()
        arena.feed(second)
        arena.wait_handled(60)
        back = time.monotonic() - back
        arena.finish()
        arena.verify()
        for (files, threads), (files_then, threads_then) in zip(before, after, strict=True):
            assert files_then <= files + 10, f"{files} files before, {files_then} after"
            assert threads_then <= threads + 5, f"{threads} threads before, {threads_then} after"
        return f"all handled {back:.1f} s after the broker was back; files and threads {before}, then {after}"


def held(process: Process) -> tuple[int, int]:
    """Return the numbers of open files and threads of a process."""
    proc = Path(f"/proc/{process.child.pid}")
    return len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir()))


@pytest.mark.faults_long  # the load gives up when the broker answers UNKNOWN before it ends: it must not yet be sent again
@pytest.mark.needs_mount
@pytest.mark.timeout(300)
@aside
def test_a_broker_whose_disk_is_full_goes_on_with_more_room_and_nothing_is_lost(make: ArenaMaker) -> str:
    with small_disk(96) as disk, own_broker(disk / "kafka") as broker:
        arena = make(bootstrap_servers=broker.bootstrap_servers, delete_topics=False, kind="order")
        first, second = parts(arena.events, 2)
        processes = [arena.start(name) for name in ("a", "b")]
        arena.feed(first)
        arena.wait_handled()
        fill(disk)
        load = arena.load(2, second)
        wait_until(lambda: not broker.running, "the broker ends, as its disk is full", 60)
        (disk / BALLAST).unlink()
        broker.kill()  # it is dead: this only reaps it
        broker.start()
        load.finish()
        arena.wait_handled(90)
        assert all(process.running for process in processes)
        arena.finish()
        arena.verify()
        return f"{len(arena.events)} events"


@pytest.mark.faults
@aside
def test_the_ends_of_partitions_are_known_again_soon_after_the_broker_was_killed(folder: Path) -> None:
    with Broker(folder, brief=True) as broker:
        topics = Topics(broker.bootstrap_servers)
        topic = topics.create("in", partitions=4)
        places = [TopicPartition(topic, number) for number in range(4)]
        cluster = Kafka(broker.bootstrap_servers).cluster()
        stable = patiently(lambda: cluster.stable_ends(places))
        marks = patiently(lambda: cluster.watermarks(places))
        broker.kill()
        broker.start()
        assert patiently(lambda: cluster.stable_ends(places)) == stable
        assert patiently(lambda: cluster.watermarks(places)) == marks
        cluster.close()
