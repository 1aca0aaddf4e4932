"""A group under attack: its topics, its load, its processes, and the check of everything at the end."""

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
from confluent_kafka.admin import AdminClient
from tests.faults import worker
from tests.faults.committed_records import Change, committed_records
from tests.faults.forked import ForkedChild
from tests.faults.oracle import digest, make_events, make_keys, replayed, violations
from tests.faults.patience import patiently

from localkafka import waiting
from localkafka.fixtures import Topics
from streamtable import App, Kafka
from streamtable.base.types import Committed, TopicPartition
from streamtable.emitter import Emitter
from streamtable.errors import RetryLater
from streamtable.store.rocksdb import RocksStores
from streamtable.tables.position import LocalPosition, TablePosition

# The session timeout is 3 s, half of the usual one in tests, because these tests mostly wait for it.
BROKER_SETTINGS = {
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
}
ROOT = Path(__file__).resolve().parents[2]
HANDLED_SECONDS = 60.0
LOG_LINES = 40
LOST = "partitions lost, their uncommitted work is dropped"


@dataclass(frozen=True)
class Verdict:
    """The result of a successful check: the number of duplicate counts (at least once)."""

    over: int
    keys: int
    events: int
    copies: int


def wait_until(true: Callable[[], bool], what: str, timeout: float = HANDLED_SECONDS) -> None:
    """Wait for a condition. Raises `AssertionError` that names it after `timeout` seconds on an idle machine."""
    waiting.wait_until(true, timeout, what, every=0.05)


class Process:
    """A worker with its own disk, possibly started several times."""

    def __init__(
        self,
        arguments: Sequence[str],
        name: str,
        state: Path,
        log_file: Path,
        program: str = worker.__file__,
    ) -> None:
        self.name = name
        self.state = state
        self.log_file = log_file
        self._module = f"tests.faults.{Path(program).stem}"
        self._arguments = arguments
        self._child: ForkedChild | None = None
        self._was_killed = False  # at least once, in any of its lives
        self._log_start = 0

    def start(self, failpoint: str | None = None) -> None:
        arguments = [*self._arguments, "--state", str(self.state), "--instance", self.name]
        self._log_start = len(self.log)
        self.kill()  # it has already ended
        arguments += ["--failpoint", failpoint] if failpoint else []
        self._child = ForkedChild(self._module, arguments, self.log_file)

    @property
    def child(self) -> ForkedChild:
        assert self._child is not None, f"{self.name} was not started"
        return self._child

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    @property
    def returncode(self) -> int | None:
        return self.child.returncode

    def wait_end(self, timeout: float = 30) -> int:
        """Wait until it ends by itself. Returns its exit code."""
        wait_until(lambda: not self.running, f"the end of {self.name}", timeout)
        return self.child.kill()  # it is dead: this only reaps it

    def wait_stopped(self, timeout: float = 30) -> None:
        """Wait until it has frozen itself."""
        stat = Path(f"/proc/{self.child.pid}/stat")
        wait_until(
            lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"{self.name} frozen", timeout
        )

    def kill(self) -> None:
        """Kill the process with SIGKILL, if it runs."""
        if self._child is not None:
            self._child.kill()
            self._was_killed |= self._child.returncode == -signal.SIGKILL

    def half_made(self, group: str, table: str, partition: int) -> bool:
        """Return whether a kill interrupted the creation of this copy, and it was not reopened since."""
        current = self.state / group / table / str(partition) / "rows" / "CURRENT"
        return self._was_killed and not current.exists()

    def stop(self, timeout: float = 30) -> int:
        """Stop the process with SIGTERM, and return its exit code."""
        return self.child.stop(timeout)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def events(self, *, since_start: bool = False) -> list[dict[str, Any]]:
        """Its structured log lines."""
        text = self.log[self._log_start if since_start else 0 :]
        return [orjson.loads(line) for line in text.splitlines() if line.startswith("{") and line[-1] == "}"]

    def at_work(self) -> set[int]:
        """The partitions with running tasks, according to its log."""
        found: set[int] = set()
        for event in self.events(since_start=True) if self.running else []:
            if event["event"] == "task started":
                found.add(event["partition"])
            elif event["event"] in {"partitions revoked", LOST}:
                found.difference_update(event["partitions"])
        return found

    def wait_log(self, text: str, timeout: float = 30) -> None:
        """Wait for a line of its log since its last start."""

        def there() -> bool:
            return text in self.log[self._log_start :]

        wait_until(lambda: there() or not self.running, f"{text!r} in the log of {self.name}", timeout)
        assert there(), f"{self.name} has ended with {self.returncode}: {self.log[-2000:]}"

    def wait_joined(self) -> None:
        """Wait until it is assigned partitions."""
        self.wait_log("partitions assigned")


class Load(threading.Thread):
    """Sends events at a steady rate until `finish`, which sends the rest at once."""

    def __init__(self, emitter: Emitter[str, int], events: Iterable[tuple[str, int]], rate: float) -> None:
        super().__init__(name="load", daemon=True)
        self._emitter = emitter
        self._events = iter(events)
        self._rate = rate
        self._hurry = threading.Event()
        self._end = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        began, sent = time.monotonic(), 0
        try:
            for key, number in self._events:
                self._emitter.emit(key, number)
                sent += 1
                ahead = sent / self._rate - (time.monotonic() - began)
                if self._end.is_set():
                    return
                if ahead > 0.01 and not self._hurry.is_set():  # long enough to sleep
                    self._hurry.wait(ahead)
            self._emitter.flush(120)
        except BaseException as error:  # noqa: BLE001 - raised by `finish`
            self._failure = error

    def finish(self) -> None:
        """Send the rest at once; returns when everything is acknowledged."""
        self._hurry.set()
        self.join()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        self._end.set()
        self._hurry.set()
        self.join()


class Arena:
    """A context manager with a group, its topics, load and processes; it cleans up at exit.

    Args:
        bootstrap_servers: The broker's bootstrap servers.
        folder: The folder for state and logs.
        seed: The seed of keys and events.
        kind: The kind of the group; see `worker.group`.
        guarantee: `exactly_once` or `at_least_once`.
        partitions: The number of partitions of input and table.
        events: The approximate number of events.
        commit_interval: The seconds between commits.
        standby: Whether each process keeps standby replicas of the others' partitions.
        delete_topics: Whether to delete the topics at the end; not needed with a temporary broker.
        workers_at: The bootstrap servers of the processes, if they connect through a proxy.
        protocol: The group protocol.
        static: Whether the processes are static members.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        *,
        seed: int,
        kind: str = "count",
        guarantee: str = "exactly_once",
        partitions: int = 4,
        keys_per_partition: int = 4,
        events: int = 4_000,
        commit_interval: float = 0.1,
        standby: bool = False,
        delete_topics: bool = True,
        workers_at: str | None = None,
        protocol: str = "consumer",
        static: bool = False,
    ) -> None:
        self.kafka = Kafka(bootstrap_servers)
        self.folder = folder
        self.seed = seed
        self.kind = kind
        self.commit_interval = commit_interval
        self.exactly_once = guarantee == "exactly_once"
        self.partitions = partitions
        self.keys = make_keys(seed, partitions, keys_per_partition, events)
        self.events = make_events(seed, self.keys)
        self.topics = Topics(bootstrap_servers)
        self.processes: dict[str, Process] = {}
        self._stack = ExitStack()
        if delete_topics:
            self._stack.callback(self.topics.delete_all)
        self.input = self.topics.name("input")
        self.group = worker.group(kind, self.topics.name("group"), self.input)
        self.table = self.group.table.name
        self._arguments = [
            "--bootstrap",
            workers_at or bootstrap_servers,
            "--group",
            self.group.name,
            "--topic",
            self.input,
        ]
        self._arguments += ["--kind", kind, "--guarantee", guarantee, "--protocol", protocol]
        self._arguments += ["--static"] if static else []
        self._arguments += ["--commit-interval", str(commit_interval), *(["--standby"] if standby else [])]
        self.cluster = self.kafka.cluster()
        self._emitter = Emitter(worker.stream(self.input), self.kafka)
        self._stack.callback(self._emitter.close, 5)

    def __enter__(self) -> Self:
        for name in ("input", "group-retry", "group-dead-letters"):
            self.topics.create(name, partitions=self.partitions)
        self.create_table()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.kill()
            if error is not None:
                error.add_note(
                    "\n".join([f"-- log of {process.name}", *process.log.splitlines()[-LOG_LINES:]])
                )
        self._stack.close()

    def create_table(self) -> None:
        for name in ("table", *self.group.named_tables):
            self.topics.create(
                f"group-{name}", partitions=self.partitions, config={"cleanup.policy": "compact"}
            )

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})

    # ---- load and processes ----------------------------------------------------------------------------------------

    def start(self, name: str, failpoint: str | None = None, state: Path | None = None) -> Process:
        """Start or restart a process on its disk."""
        if name not in self.processes:
            folder = state or self.folder / name
            log_file = self.folder / f"{name}.log"
            self.processes[name] = Process(self._arguments, name, folder, log_file)
        self.processes[name].start(failpoint)
        return self.processes[name]

    @contextmanager
    def cleared_if_it_fails(self) -> Iterator[None]:
        """Kill all processes and delete their files after an error, for another arena in the same folder."""
        try:
            yield
        except BaseException:
            for process in self.processes.values():
                process.kill()
                shutil.rmtree(process.state, ignore_errors=True)
                process.log_file.unlink(missing_ok=True)
            raise

    def feed(self, events: Sequence[tuple[str, int]]) -> None:
        """Send these events and wait for their acknowledgements."""
        for key, number in events:
            self._emitter.emit(key, number)
        self._emitter.flush(60)

    def load(self, seconds: float, events: Sequence[tuple[str, int]] | None = None) -> Load:
        """Send these events, or all, from a thread over this many seconds."""
        events = self.events if events is None else events
        load = Load(self._emitter, events, len(events) / seconds)
        self._stack.callback(load.abandon)
        load.start()
        return load

    # ---- the state in Kafka ----------------------------------------------------------------------------------------

    def places(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(self.partitions)]

    def committed(self, patience: float = 30.0) -> Mapping[TopicPartition, Committed | None]:
        """Return the group's committed offsets of the input; waits for a pending transaction, and for a starting broker."""
        places = self.places(self.input)
        return patiently(lambda: self.cluster.stable_offsets(self.group.name, places), patience)

    def unhandled_by_place(self, patience: float = 30.0) -> dict[TopicPartition, int]:
        """Return the number of input records beyond the committed offsets."""
        committed = self.committed(patience)
        ends = patiently(lambda: self.cluster.watermarks(committed), patience)
        return {
            place: ends[place].high - (done.next_offset if done else 0) for place, done in committed.items()
        }

    def unhandled(self) -> int:
        return sum(self.unhandled_by_place().values())

    def handled(self) -> int:
        """Return the number of input records below the committed offsets."""
        return sum(done.next_offset for done in self.committed().values() if done)

    def wait_begun(self) -> None:
        """Wait until the group has committed some input."""
        wait_until(lambda: self.handled() > 0, "something is handled")

    def wait_handled(self, timeout: float = HANDLED_SECONDS) -> None:
        """Wait until the group has committed all input."""
        deadline = waiting.Deadline(timeout)
        while True:
            for process in self.processes.values():
                if not process.running and process.returncode not in {0, -signal.SIGKILL}:
                    raise AssertionError(f"{process.name} has ended: {process.log[-2000:]}")
            state: object
            try:
                left = self.unhandled_by_place(patience=0)
            except RetryLater as error:
                state = error
            else:
                if not any(left.values()):
                    return
                state = {place.partition: count for place, count in left.items()}
            assert not deadline.passed(), f"after {timeout:g} s not all input is handled: {state}"
            time.sleep(0.05)

    def wait_at_work(self, timeout: float = HANDLED_SECONDS) -> None:
        """Wait until each partition has a running task in one process."""

        def settled() -> bool:
            shares = [process.at_work() for process in self.processes.values()]
            return sum(map(len, shares)) == self.partitions == len(set().union(*shares))

        wait_until(settled, "each partition has a running task", timeout)

    def records(self, topic: str) -> dict[int, list[Change]]:
        """Return the committed records of one of the arena's topics, by partition."""
        return committed_records(self.cluster, self.places(topic))

    # ---- the check -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Stop all running processes, one by one; each must exit with 0."""
        running = [process for process in self.processes.values() if process.running]
        self.wait_at_work()
        for process in running:
            process.wait_joined()  # before that, its signal handler may not be installed yet
        for process in running:
            process.child.signal_stop()
        for process in running:
            ended = process.wait_end()
            assert ended == 0, (
                f"{process.name} did not shut down gracefully, but exited with {ended}: {process.log[-2000:]}"
            )

    def verify(self, over_max: int = 0) -> Verdict:
        """Check everything, with all processes stopped and all input handled.

        Totals are exact (at least once: never too low, too high by `over_max` events at most). The table in the
        changelog, the owners' local tables and a new view are equal, and each older copy on any disk equals the
        changelog up to its recorded position. The group's offsets have the end of the changelog.
        """
        changes = self.records(self.table)
        tables = {p: replayed((c.key, c.value) for c in changes[p]) for p in changes}
        whole = {key: value for table in tables.values() for key, value in table.items()}
        over = self._verify_rows(whole, over_max)
        positions = self._verify_positions(changes)
        copies = self._verify_copies(changes, positions)
        with App(self.kafka, self.folder, name="verify").view(self.group.table) as view:
            view.wait_ready(30)
            encode_key, encode = self.group.table.key.encode, self.group.table.value.encode
            rows = [(encode_key(key), encode(value)) for key, value in view.iterate()]
        assert digest(rows) == digest(whole.items()), "the view differs from the changelog"
        return Verdict(over, len(self.keys), len(self.events), copies)

    def _verify_rows(self, whole: Mapping[bytes, bytes], over_max: int) -> int:
        decode = self.group.table.value.decode
        rows = {key.decode(): decode(value) for key, value in whole.items()}
        if self.kind == "order":
            wrong = {key: row["violations"] for key, row in rows.items() if row["violations"]}
            assert not wrong, f"out of order: {wrong}"
            rows = {key: row["last"] for key, row in rows.items()}
        found = violations(rows, self.keys)
        over = sum(violation.excess for violation in found)
        assert all(v.excess > 0 for v in found), f"lost: {[str(v) for v in found]}"
        assert over <= over_max, f"doubled, at most {over_max} may be: {[str(v) for v in found]}"
        return over

    def _verify_positions(self, changes: Mapping[int, Sequence[Change]]) -> dict[int, int]:
        positions = {}
        for place, committed in self.committed().items():
            position = TablePosition.decode(committed.metadata) if committed else None
            assert position is not None, f"{place} has no position: {committed}"
            assert position.exact == self.exactly_once
            last = changes[place.partition][-1].offset + 1 if changes[place.partition] else 0
            if self.exactly_once:
                assert position.changelog == last, f"{place}: {position}, but the changelog's last is {last}"
            positions[place.partition] = position.changelog
        return positions

    def _verify_copies(self, changes: Mapping[int, Sequence[Change]], positions: Mapping[int, int]) -> int:
        """Check that every local table equals the changelog at its position, and that each partition has a current one."""
        current, copies = set(), 0
        logs = {self.table: changes} | {
            topic: self.records(topic) for topic in map(self.group.named_topic, self.group.named_tables)
        }
        for process in self.processes.values():
            stores = RocksStores(process.state / self.group.name, memory_bytes=8 << 20)
            for table, partition in sorted(stores.present()):
                if process.half_made(self.group.name, table, partition):
                    continue
                store = stores.open(table, partition)
                checkpoint = store.checkpoint()
                if checkpoint is not None:
                    local = LocalPosition.decode(checkpoint)
                    with store.scan() as scan:
                        rows = list(scan)
                    log = logs[table][partition]
                    until = [(c.key, c.value) for c in log if c.offset < local.changelog]
                    assert digest(rows) == digest(replayed(until).items()), (
                        f"{process.name} has a state of {table}[{partition}] that never existed at {local.changelog}"
                    )
                    copies += 1
                    if table == self.table and local.changelog >= positions[partition]:
                        current.add(partition)
            stores.close()
        assert current == set(positions), f"no local table is current: {set(positions) - current}"
        return copies
