"""Queries while the processes that answer them are restarted, killed and frozen: never a lost, an old, or an empty answer.

Readers allow standby copies; writers read their own writes back. A copy may be as old as it says, and no older.
"""

import os
import random
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.faults import queried
from tests.faults.arena import ROOT, wait_until
from tests.faults.aside import aside
from tests.faults.patience import patiently
from tests.system.bench import Bench, count

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import Child, reserve_port
from streamtable import App, Group, Input, Kafka, Long, Persist
from streamtable_query import Query, QueryAnswer
from streamtable_query.answers import MAX_AGE_SECONDS

PARTITIONS = 6
KEYS = [f"user-{number}" for number in range(24)]
PATIENT = 60.0
READY_SECONDS = 3.0
"""A process is ready for as long before the next one is stopped, as deployments have it (`minReadySeconds`)."""
STALE_SECONDS = 30.0
LONG_SECONDS = float(os.environ.get("FAULTS_SECONDS", "600"))


@dataclass
class Floors:
    """The least value of each key: a counter only rises, and an acknowledged event stays."""

    wrong: list[str] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    fault: str = "none"
    _seen: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def at(self, key: str, time: float) -> int:
        """Return the greatest value of a key that was seen by this monotonic time."""
        with self._lock:
            seen = self._seen[key]
            before = bisect_right(seen, time, key=lambda each: each[0])
            return seen[before - 1][1] if before else 0

    def check(self, key: str, least: int, answer: QueryAnswer[int], asked: str, began: float) -> None:
        found = answer.value or 0
        with self._lock:
            seen = self._seen[key]
            if found < least:
                ago = [(round(time.monotonic() - at, 3), value) for at, value in seen if value >= found]
                self.wrong.append(
                    f"{key}: {asked} gave {answer} in {time.monotonic() - began:.3f} s during {self.fault}, and it was at "
                    f"least {least} before; seen, with seconds ago: {ago}"
                )
            if not seen or seen[-1][1] < found:
                seen.append((time.monotonic(), found))

    def quick(self, fault: str) -> float:
        """Return the share of the answers within a second, of those during a fault."""
        seconds = self.seconds[fault]
        return sum(each <= 1 for each in seconds) / len(seconds)


class Fleet:
    """The processes of a group that answer queries; each has its own disk and port."""

    def __init__(self, kafka: Kafka, prefix: str, folder: Path) -> None:
        self._command = [sys.executable, queried.__file__, kafka.bootstrap_servers, prefix]
        self._group = f"{prefix}g"
        self._admin = kafka.admin()
        self._folder = folder
        self._stack = ExitStack()
        self.children: dict[str, Child] = {}
        self._addresses: dict[str, str] = {}

    def start(self, name: str) -> None:
        if name not in self._addresses:
            held = self._stack.enter_context(reserve_port())
            self._addresses[name] = f"127.0.0.1:{held.getsockname()[1]}"
        command = [*self._command, str(self._folder / name), name, self._addresses[name]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self.children[name] = Child(command, self._folder / f"{name}.log", env=environment)

    def wait_member(self, name: str) -> None:
        """Wait until the process is a member of the group."""

        def listed() -> bool:
            group = self._admin.describe_groups([self._group]).get(self._group)
            clients = [] if group is None else [member.client_id for member in group.members]
            return any(client.endswith(f"@{self._addresses[name]}") for client in clients)

        wait_until(lambda: patiently(listed), f"{name} is a member")

    def close(self) -> None:
        self._admin.close()
        for child in self.children.values():
            if child.returncode is None:
                child.kill()
        self._stack.close()


def restart(fleet: Fleet, rng: random.Random) -> None:
    """Stop each process in order and start it again, one after the other, as a deployment does."""
    for name in rng.sample(sorted(fleet.children), len(fleet.children)):
        time.sleep(
            READY_SECONDS
        )  # without it a fast machine has stopped all before one of them has loaded a copy
        assert fleet.children[name].stop() == 0
        fleet.start(name)
        fleet.wait_member(name)


def kill(fleet: Fleet, rng: random.Random) -> None:
    """Kill a process, and start it again after its session has ended."""
    name = rng.choice(sorted(fleet.children))
    fleet.children[name].kill()
    time.sleep(4)  # the fault lasts as long as this: nothing is waited for
    fleet.start(name)
    fleet.wait_member(name)


def freeze(fleet: Fleet, rng: random.Random) -> None:
    """Freeze a process for longer than its session: its partitions are at work elsewhere when it goes on."""
    name = rng.choice(sorted(fleet.children))
    fleet.children[name].pause()
    time.sleep(6)
    fleet.children[name].resume()


def grow(fleet: Fleet, rng: random.Random) -> None:
    """Start one more process, up to five."""
    if len(fleet.children) < 5:
        name = f"more-{rng.randrange(1 << 30)}"
        fleet.start(name)
        fleet.wait_member(name)


def read(query: Query[str, int], floors: Floors, stop: threading.Event, seed: int) -> None:
    rng = random.Random(seed)
    while not stop.is_set():
        key, fault, began = rng.choice(KEYS), floors.fault, time.monotonic()
        known = floors.at(key, began)
        answer = query.get(key, stale_ok=STALE_SECONDS)
        floors.seconds[fault].append(time.monotonic() - began)
        floors.sources[answer.source] += 1
        # While the coordinator does not answer, a process that was confirmed longer ago answers like a copy.
        copied = answer.source == "standby" or answer.age_seconds > MAX_AGE_SECONDS
        least = floors.at(key, began - answer.age_seconds) if copied else known
        floors.check(key, least, answer, "a read", began)


def write(
    bench: Bench, query: Query[str, int], floors: Floors, stop: threading.Event, emitted: Counter[str]
) -> None:
    """Emit events, and read each write back: its answer counts every event that was acknowledged before."""
    rng = random.Random(0)
    with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
        while not stop.is_set():
            key = rng.choice(KEYS)
            ack = emitter.emit(key, "event").result()
            emitted[key] += 1
            began = time.monotonic()
            floors.check(key, emitted[key], query.get(key, after=ack), "a read after a write", began)


@contextmanager
def asking(bench: Bench, query: Query[str, int], floors: Floors, emitted: Counter[str]) -> Iterator[None]:
    """Threads that read and write until the end; an error of one of them is raised then."""
    stop, errors = threading.Event(), list[BaseException]()

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            errors.append(error)

    threads = [
        threading.Thread(target=guarded, args=[lambda n=n: read(query, floors, stop, n)]) for n in range(2)
    ]
    threads.append(
        threading.Thread(target=guarded, args=[lambda: write(bench, query, floors, stop, emitted)])
    )
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def attack(broker: Broker, folder: Path, seed: int, rounds: Callable[[], bool], quick: float) -> str:
    topics, rng = Topics(broker.bootstrap_servers), random.Random(seed)
    bench = Bench(broker.bootstrap_servers, topics, folder)
    group: Group[str, int] = Group(topics.name("g"), Input(bench.stream(), count), Persist(Long()))
    bench.create(group, partitions=PARTITIONS)
    fleet, floors, emitted = Fleet(bench.kafka, topics.name(""), folder), Floors(), Counter[str]()
    try:
        for name in ("one", "two", "three"):
            fleet.start(name)
        for name in fleet.children:
            fleet.wait_member(name)
        with Query(bench.kafka, group, group.table, timeout=PATIENT) as query:
            with asking(bench, query, floors, emitted):
                while True:
                    for fault in (restart, kill, freeze, grow):
                        floors.fault = fault.__name__
                        fault(fleet, rng)
                    if not rounds():
                        break
            found = {key: answer.value or 0 for key, answer in query.get_many(KEYS).items()}
        assert floors.wrong == []
        assert found == {key: emitted[key] for key in KEYS}
    finally:
        fleet.close()
        bench.close()
        topics.delete_all()
    parts = [
        f"{fault}: {len(seconds)} answers, {floors.quick(fault):.3%} within 1 s, the slowest {max(seconds):.1f} s"
        for fault, seconds in floors.seconds.items()
    ]
    report = "; ".join([*parts, f"sources {dict(floors.sources)}"])
    assert floors.sources["standby"], report
    assert floors.quick("restart") >= quick, report
    return report


@pytest.mark.faults
@pytest.mark.usefixtures("quiet")  # it measures time
def test_no_answer_is_old_or_empty_while_processes_restart_die_and_freeze(
    fault_broker: Broker, folder: Path, seed: int, tell: Callable[[str], None]
) -> None:
    tell(attack(fault_broker, folder, seed, lambda: False, quick=0.99))


@pytest.mark.faults_long("rounds of faults for minutes")
@aside
def test_no_answer_is_old_or_empty_in_many_rounds_of_faults(broker: Broker, folder: Path, seed: int) -> str:
    began = time.monotonic()
    return attack(broker, folder, seed, lambda: time.monotonic() - began < LONG_SECONDS, quick=0.999)
