"""Eight processes that share a table, of which any one is killed: no key is without an answer, and none holds too much."""

import os
import random
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.faults import shared
from tests.faults.arena import ROOT, wait_until
from tests.faults.aside import aside
from tests.system.bench import Bench

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import Child, reserve_port
from streamtable import App, Group, Kafka
from streamtable_query.answers import Asking
from streamtable_query.asking import TableQueries
from streamtable_query.channels import Channels
from streamtable_query.owners import PartitionHolders

MEMBERS, PARTITIONS, REPLICAS = 8, 24, 2
KEYS = [f"user-{number}" for number in range(200_000)]
MEMORY_BYTES = 10 << 20  # more than a member without rows takes: the share, with stores and fetched records
SETTLE_SECONDS = 150.0  # a share that a member does not hold any more is removed after a minute or two


class Readers:
    """The processes that share a table; each has its own disk and port."""

    def __init__(self, kafka: Kafka, prefix: str, folder: Path) -> None:
        self._command = [sys.executable, shared.__file__, kafka.bootstrap_servers, prefix]
        self._folder, self._table = folder, f"{prefix}g-table"
        self._readers = f"{prefix}readers"
        self._stack = ExitStack()
        self._addresses: dict[str, str] = {}
        self.children: dict[str, Child] = {}

    def start(self, name: str, replicas: int = REPLICAS) -> None:
        if name not in self._addresses:
            held = self._stack.enter_context(reserve_port())
            self._addresses[name] = f"127.0.0.1:{held.getsockname()[1]}"
        command = [*self._command, str(self._folder / name), self._addresses[name], str(replicas)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self.children[name] = Child(command, self._folder / f"{name}.log", env=environment)

    def wait_ready(self, name: str) -> None:
        log = self._folder / f"{name}.log"
        before = log.read_text().count("ready\n") if log.exists() else 0
        wait_until(
            lambda: log.exists() and log.read_text().count("ready\n") > before, f"{name} has its share"
        )

    def held(self, name: str) -> set[str]:
        """Return the partitions on the disk of a process."""
        folder = self._folder / name / "shared" / self._readers / self._table
        return {each.name for each in folder.iterdir()} if folder.exists() else set()

    def disk(self, name: str) -> int:
        """Return the bytes on the disk of a process."""
        return sum(each.stat().st_size for each in (self._folder / name).rglob("*") if each.is_file())

    def memory(self, name: str) -> int:
        """Return the bytes of memory that a process has for itself."""
        lines = Path(f"/proc/{self.children[name].pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))

    def close(self) -> None:
        for child in self.children.values():
            if child.returncode is None:
                child.kill()
        self._stack.close()


def read(
    caller: TableQueries[str, int], stop: threading.Event, seconds: list[float], wrong: list[str]
) -> None:
    rng = random.Random(0)
    while not stop.is_set():
        key, began = rng.choice(KEYS), time.monotonic()
        found = caller.get(key)
        seconds.append(time.monotonic() - began)
        if found.value != 1:
            wrong.append(f"{key}: {found}")


def fill(bench: Bench, group: Group[str, int]) -> None:
    """Give each key a row."""
    with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:
        for key in KEYS:
            emitter.emit(key, "event")
    with bench.run(group) as running:
        bench.wait_handled(group, running)


@pytest.mark.faults_long("eight processes on one machine, each killed once")
@aside
def test_no_key_is_without_an_answer_while_any_of_eight_readers_is_killed(
    broker: Broker, folder: Path
) -> str:
    topics = Topics(broker.bootstrap_servers)
    bench = Bench(broker.bootstrap_servers, topics, folder)
    group, names = bench.counting(partitions=PARTITIONS), [f"reader-{number}" for number in range(MEMBERS)]
    members = f"{topics.name('readers')}-{group.table.name}"
    readers = Readers(bench.kafka, topics.name(""), folder)
    seconds, wrong, stop = list[float](), list[str](), threading.Event()
    try:
        readers.start("empty", replicas=1)
        readers.wait_ready("empty")
        without = readers.memory("empty")
        assert readers.children["empty"].stop() == 0
        fill(bench, group)
        readers.start("whole", replicas=1)
        readers.wait_ready("whole")
        wait_until(
            lambda: readers.memory("whole") <= without + MEMORY_BYTES, "what the load has left is free"
        )
        memory = readers.memory("whole")
        assert readers.children["whole"].stop() == 0
        whole = readers.disk("whole")
        for name in names:
            readers.start(name)
            readers.wait_ready(name)
        share = PARTITIONS * REPLICAS // MEMBERS
        wait_until(
            lambda: all(len(readers.held(name)) == share for name in names),
            "each holds its share",
            SETTLE_SECONDS,
        )
        most = max(readers.disk(name) for name in names)
        most_memory = max(readers.memory(name) for name in names)
        with TableQueries(
            bench.kafka,
            group.table,
            members,
            group.name,
            partial(PartitionHolders, members, group.table.name, replicas=REPLICAS),
            None,
            Asking(60, 5, 60),
            copies=True,
            channels=Channels(None, None, None, None, group.table.name),
            clock=None,
        ) as caller:
            thread = threading.Thread(target=read, args=(caller, stop, seconds, wrong))
            thread.start()
            for name in names:
                readers.children[name].kill()
                time.sleep(5)  # its session ends meanwhile, and the others load what it has had
                readers.start(name)
                readers.wait_ready(name)
            stop.set()
            thread.join()
    finally:
        stop.set()
        readers.close()
        bench.close()
        topics.delete_all()
    report = (
        f"{len(seconds)} answers, the slowest {max(seconds):.2f} s; {most:,} bytes on the fullest disk, of {whole:,} in all; "
        f"{most_memory:,} bytes of memory at most, {memory:,} for all of the table, {without:,} for none of it"
    )
    assert wrong == [], report
    assert max(seconds) <= 1, report
    assert most <= 1.1 * whole * REPLICAS / MEMBERS, report
    assert most_memory <= without + MEMORY_BYTES, report
    return report
