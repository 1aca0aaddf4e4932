"""A micro-batch under attack: its topics, its Redis, its processes, and the check of everything at the end."""

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import orjson
from tests.faults import batch_worker
from tests.faults.arena import Process, wait_until
from tests.faults.committed_records import committed_records
from tests.faults.patience import patiently

from localkafka.fixtures import Topics
from localkafka.waiting import Deadline
from localstores.redis import RedisServer
from microbatch.committed_state import committed_state_of
from microbatch.stores.redis import RedisDriver
from microbatch.stores.versions import Ledger, VersionedCell, ledger_key
from streamtable import Json, Kafka, Long, Stream, String
from streamtable.base.types import Committed, TopicPartition
from streamtable.emitter import Emitter
from streamtable.errors import RetryLater

PARTITIONS = 4
KEYS = [f"key-{number}" for number in range(24)]


class BatchArena:
    """A context manager with a micro-batch, its Redis, load and processes; it cleans up at exit.

    Args:
        bootstrap_servers: The broker's bootstrap servers.
        folder: The folder for logs and Redis.
        seed: Not used, as the processes determine the schedule.
        workers_at: The bootstrap servers of the processes, if they connect through a proxy.
    """

    program = batch_worker.__file__

    def __init__(
        self, bootstrap_servers: str, folder: Path, *, seed: int, workers_at: str | None = None
    ) -> None:
        del seed
        self.folder = folder
        self.kafka = Kafka(bootstrap_servers)
        self.topics = Topics(bootstrap_servers)
        self.group = self.topics.name("mb")
        self.processes: dict[str, Process] = {}
        self.sent: list[int] = []
        self._bootstrap = bootstrap_servers
        self._workers_at = workers_at or bootstrap_servers
        self._stack = ExitStack()
        self._stack.callback(self.topics.delete_all)
        self._cluster = self.kafka.cluster()

    def __enter__(self) -> Self:
        for name in ("in", "seen", "chain", "retry", "dead-letters"):
            self.topics.create(f"mb-{name}", partitions=PARTITIONS)
        self.store = self._begin_store()
        stream = Stream(f"{self.group}-in", String(), Long())
        self._emitter = self._stack.enter_context(Emitter(stream, self.kafka))
        return self

    def _begin_store(self) -> str:
        """The store settings of the processes."""
        self.redis = self._stack.enter_context(RedisServer(self.folder / "redis"))
        return self.redis.url

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for process in self.processes.values():
            process.kill()
            if error is not None:
                error.add_note("\n".join([f"-- log of {process.name}", *process.log.splitlines()[-30:]]))
        self._stack.close()

    def start(self, name: str, failpoint: str | None = None) -> Process:
        if name not in self.processes:
            arguments = ["--bootstrap", self._workers_at, "--group", self.group, "--store", self.store]
            log_file = self.folder / f"{name}.log"
            self.processes[name] = Process(arguments, name, self.folder / name, log_file, self.program)
        self.processes[name].start(failpoint)
        return self.processes[name]

    def feed(self, number: int) -> None:
        """Send this many further events, evenly over the keys."""
        for _ in range(number):
            self._emitter.emit(KEYS[len(self.sent) % len(KEYS)], len(self.sent))
            self.sent.append(len(self.sent))
        self._emitter.flush(60)

    def wait_handled(self, timeout: float = 90) -> None:
        """Wait until the group has committed all input."""
        places = [TopicPartition(f"{self.group}-in", partition) for partition in range(PARTITIONS)]
        ends = patiently(lambda: self._cluster.watermarks(places))

        def handled() -> bool:
            committed = self.committed(places)
            return all(
                (each := committed[place]) is not None and each.next_offset >= ends[place].high
                for place in places
            )

        wait_until(handled, "all input handled", timeout)

    def committed(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Committed | None]:
        """Return the committed offsets of the group; waits for pending transactions, and for a starting broker."""
        deadline = Deadline(60)
        while True:
            try:
                return dict(self._cluster.stable_offsets(self.group, places))
            except RetryLater:
                if deadline.passed():
                    raise
                time.sleep(0.1)

    def verify(self) -> str:
        """Check that each event was seen once, and that each batch, and the store, has what the previous batch left."""
        seen = Counter(Long().decode(value) for _, value in self._records("seen"))
        assert seen == Counter(self.sent), (
            f"lost {Counter(self.sent) - seen}, doubled {seen - Counter(self.sent)}"
        )
        last: dict[str, Any] = {}
        links = self._records("chain")
        for key, value in links:
            before, after = orjson.loads(value)
            assert before == last.get(key), f"{key}: read {before}, but {last.get(key)} was left"
            last[key] = after
        assert self._rows() == last
        return f"{len(self.sent)} events in {len(links)} links of {len(last)} chains"

    def _rows(self) -> dict[str, Any]:
        driver = RedisDriver(self.redis.url, tenant=self.group)
        graph = batch_worker.graph(self.group)
        found: dict[str, Any] = {}
        for partition in range(PARTITIONS):
            places = [TopicPartition(topic, partition) for topic in graph.input_topics]
            committed = {place.topic: each for place, each in self.committed(places).items()}
            row = driver.read([ledger_key(partition)], 10).rows.get(ledger_key(partition))
            ledger = Ledger.open(committed_state_of(partition, committed), row)
            keys = {batch_worker.LAST.key(key): key for key in KEYS}
            for raw, stored in driver.read(list(keys), 10).rows.items():
                if VersionedCell.decode(stored).partition == partition:
                    found[keys[raw]] = Json().decode(ledger.read(stored).value or b"null")
        driver.close()
        return found

    def _records(self, name: str) -> list[tuple[str, bytes]]:
        topic = f"{self.group}-{name}"
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        found: list[tuple[str, bytes]] = []
        for changes in committed_records(self._cluster, places).values():
            for change in changes:
                assert change.value is not None
                found.append((change.key.decode(), change.value))
        return found


class EmbeddedArena(BatchArena):
    """An arena with embedded rows: in the group's own table and on the disks of its processes."""

    def _begin_store(self) -> str:
        self.topics.create("mb-table", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        return "embedded:"

    def lose_disk(self, name: str) -> None:
        """Delete the disk of a process that is not running."""
        shutil.rmtree(self.folder / name)

    def _rows(self) -> dict[str, Any]:
        keys = {batch_worker.LAST.key(key).decode(): key for key in KEYS}
        return {keys[key]: Json().decode(value) for key, value in self._records("table")}
