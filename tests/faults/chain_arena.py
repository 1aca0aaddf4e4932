"""The two chained groups under attack: their processes, the waits, and the final check of everything."""

import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from tests.faults import chain
from tests.faults.arena import LOST, Arena, Process, wait_until
from tests.faults.chain import Chain, next_keys
from tests.faults.oracle import digest, expected_total, replayed
from tests.faults.worker import EXIT_GAVE_UP

from localkafka.waiting import Deadline
from streamtable import Group, Json, Long
from streamtable.errors import RetryLater
from streamtable.store.rocksdb import RocksStores
from streamtable.tables.position import LocalPosition

GROUPS = {"a": "first", "b": "second"}
STANDBY = "b2"  # keeps copies of what the others of its group work on


class ChainArena(Arena):
    """Both groups. Processes whose names begin with `a` belong to the first one, with `b` to the second.

    Attributes:
        chain: Both graphs.
        early: All events but the last one of each key.
        late: The last event of each key.
        armed: The failpoint of each process that runs with one.
        deaths: The number of processes that a failpoint killed, by its name, or that gave up after a freeze.
    """

    def __init__(self, bootstrap_servers: str, folder: Path, **settings: Any) -> None:
        super().__init__(bootstrap_servers, folder, delete_topics=False, **settings)
        self.chain = Chain(self.topics.prefix, next_keys(self.keys))
        self.deaths: Counter[str] = Counter()
        self.late = [(key, expected_total(key)) for key in self.keys]
        self.early = [event for event in self.events if event[1] < expected_total(event[0])]
        self.armed: dict[str, str] = {}
        self._frozen: set[str] = set()
        self._keys_file = folder / "keys"
        self._keys_file.write_text("\n".join(self.keys))

    def __enter__(self) -> Self:
        compact = {"cleanup.policy": "compact"}
        for name in ("input", "notices", "changes", "second-loop"):
            self.topics.create(name, partitions=self.partitions)
        self.topics.create("marks", partitions=self.partitions, config=compact)
        for group in GROUPS.values():
            self.topics.create(f"{group}-retry", partitions=self.partitions)
            self.topics.create(f"{group}-dead-letters", partitions=self.partitions)
            self.topics.create(f"{group}-table", partitions=self.partitions, config=compact)
            self.topics.create(f"{group}-handled", partitions=self.partitions, config=compact)
        return self

    # ---- processes -------------------------------------------------------------------------------------------------

    def start(self, name: str, failpoint: str | None = None, state: Path | None = None) -> Process:
        if name not in self.processes:
            arguments = ["--bootstrap", self.kafka.bootstrap_servers, "--prefix", self.chain.prefix]
            arguments += ["--keys", str(self._keys_file), "--group", GROUPS[name[0]]]
            arguments += ["--standby"] if name == STANDBY else []
            self.processes[name] = Process(
                arguments, name, state or self.folder / name, self.folder / f"{name}.log", chain.__file__
            )
        self.armed.pop(name, None)
        self._frozen.discard(name)
        if failpoint:
            self.armed[name] = failpoint
        self.processes[name].start(failpoint)
        return self.processes[name]

    def freeze(self, name: str) -> None:
        self.processes[name].child.pause()
        self._frozen.add(name)

    def revive(self) -> None:
        """Restart processes that died at their failpoint, or gave up after a freeze."""
        for name, process in self.processes.items():
            if process.running or process.returncode == 0:
                continue
            last = (process.log.strip().splitlines() or [""])[-1]
            if process.returncode == -signal.SIGKILL and name in self.armed:
                self.deaths[self.armed[name].partition(":")[0]] += 1
            else:
                gave_up = process.returncode == EXIT_GAVE_UP and last.startswith(("Fenced: ", "Fatal: "))
                assert gave_up, f"{name} ended with {process.returncode}: {last}"
                assert name in self._frozen, f"{name} gave up without having been frozen: {last}"
                self.deaths["gave up"] += 1
            self.start(name)

    def disarm(self) -> None:
        """Kill processes that have not reached their failpoint, and restart them without one."""
        self.revive()
        for name in list(self.armed):
            self.processes[name].kill()
            self.start(name)

    def wait_at_work(self, timeout: float = 60.0) -> None:
        def settled() -> bool:
            self.revive()
            return all(self._settled(first_letter) for first_letter in GROUPS)

        wait_until(settled, "each partition of both groups has a running task", timeout)

    def _settled(self, first_letter: str) -> bool:
        shares = [p.at_work() for name, p in self.processes.items() if name.startswith(first_letter)]
        return sum(map(len, shares)) == self.partitions == len(set().union(*shares))

    # ---- progress --------------------------------------------------------------------------------------------------

    def wait_handled(self, timeout: float = 90.0) -> None:
        """Wait until both groups have handled all input, including that from each other."""
        first, second = self.chain.first, self.chain.second
        # In this order: when one topic has been handled, all records of the next are written.
        for group, topic in (
            (first, self.input),
            (second, self.input),
            (second, self.chain.loop.name),
            (second, self.chain.counts.name),
            (second, self.chain.marks.name),
        ):
            ends = {p: found[-1].offset + 1 for p, found in self.records(topic).items() if found}
            deadline = Deadline(timeout)
            while left := self._left(group, topic, ends):
                self.revive()
                assert not deadline.passed(), f"{group.name} has not handled {topic}: {left}"
                time.sleep(0.05)

    def _left(self, group: Group[str, Any], topic: str, ends: Mapping[int, int]) -> str:
        """Return the progress of the partitions with uncommitted records, as text; empty if there are none."""
        try:
            committed = self.cluster.stable_offsets(group.name, self.places(topic))
        except RetryLater as error:
            return str(error)
        done = {place.partition: found.next_offset for place, found in committed.items() if found}
        return ", ".join(f"{p}: {done.get(p)} of {end}" for p, end in ends.items() if done.get(p, 0) < end)

    # ---- the check -------------------------------------------------------------------------------------------------

    def verify_chain(self) -> int:
        """Check everything, with all processes stopped and all input handled. Returns the number of checked copies."""
        expected = {key: list(range(1, expected_total(key) + 1)) for key in self.keys}
        for topic in (self.input, self.chain.marks.name, self.chain.notices.name):
            found = self._by_key(topic, Long().decode)
            assert found == expected, f"{topic}: {_differences(found, expected)}"
        letters = [
            c for g in GROUPS.values() for found in self.records(self._letters(g)).values() for c in found
        ]
        assert not letters, f"dead letters: {letters}"
        counts = self._by_key(self.chain.counts.name, Long().decode)
        assert {key: found[-1] for key, found in counts.items()} == {k: n[-1] for k, n in expected.items()}
        handled = self._by_key(self.chain.changes.name, Json().decode)
        assert handled == (made := self._changes_made()), f"changes handled: {_differences(handled, made)}"
        self._verify_seen()
        return sum(self._verify_group(letter) for letter in GROUPS)

    def log_summary(self) -> str:
        """Return a summary of the processes' logs, as text."""
        logs = [event for process in self.processes.values() for event in process.events()]
        seen = Counter(event["event"] for event in logs)
        thrown = [event["reason"] for event in logs if event["event"].startswith("local copy discarded")]
        return (
            f"deaths: {listed(self.deaths)}; {seen['table is loading']} tables loaded, {seen['commit aborted']} commits "
            f"undone, {seen['outcome of a commit unknown: all tables recover again']} of unknown outcome, {seen[LOST]} "
            f"times lost, copies thrown away: {thrown or 'none'}; {len(self.events)} events of {len(self.keys)} keys"
        )

    def _letters(self, group: str) -> str:
        return f"{self.chain.prefix}-{group}-dead-letters"

    def _by_key(self, topic: str, decode: Any) -> dict[str, list[Any]]:
        found: defaultdict[str, list[Any]] = defaultdict(list)
        for changes in self.records(topic).values():
            for change in changes:
                found[change.key.decode()].append(decode(change.value))
        return dict(found)

    def _changes_made(self) -> dict[str, list[Any]]:
        """Return the changes of the first group's table, as the second group must have processed them: offset, old, new."""
        made: defaultdict[str, list[Any]] = defaultdict(list)
        for changes in self.records(self.chain.counts.name).values():
            for change in changes:
                of_key, new = made[change.key.decode()], Long().decode(change.value or b"")
                of_key.append([change.offset, of_key[-1][2] if of_key else None, new])
        return dict(made)

    def _verify_seen(self) -> None:
        rows = {
            key: found[-1] for key, found in self._by_key(self.chain.second.table.name, Json().decode).items()
        }
        before = {next_key: key for key, next_key in self.chain.next_key.items()}
        for key in self.keys:
            row, total = rows[key], expected_total(key)
            assert not row["wrong"], f"{key}: {row['wrong'][:5]}"
            marked = row.pop("marked")
            # The last event of each key was sent when all earlier ones had been handled.
            assert total - 1 <= marked <= total, f"{key}: joined with {marked} at the end of {total}"
            looped = expected_total(before[key])
            assert row == {"clicks": total, "looped": looped, "changed": total, "wrong": []}, f"{key}: {row}"

    def _verify_group(self, letter: str) -> int:
        """Check that every local table equals its topic at its position, and that each partition has a complete one."""
        group = self.chain.first if letter == "a" else self.chain.second
        tables = [*group.tables, *(join.table.name for join in group.joins)]
        topics = {table: self.records(table) for table in tables}
        missing = {(table, partition) for table in tables for partition in range(self.partitions)}
        copies = 0
        for process in self.processes.values():
            if not process.name.startswith(letter):
                continue
            for table, partition, position, rows in _copies_of(process, group):
                copies += 1
                changes = topics[table][partition]
                there = [(c.key, c.value) for c in changes if c.offset < position]
                assert digest(rows) == digest(replayed(there).items()), (
                    f"{process.name} holds a partition {partition} of {table} that never was, at {position}"
                )
                if len(there) == len(changes):
                    missing.discard((table, partition))
        assert not missing, f"no local copy is current: {missing}"
        return copies


def listed(counted: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(counted.items())) or "none"


def _copies_of(
    process: Process, group: Group[str, Any]
) -> Iterator[tuple[str, int, int, list[tuple[bytes, bytes]]]]:
    stores = RocksStores(process.state / group.name, memory_bytes=8 << 20)
    for table, partition in sorted(stores.present()):
        if process.half_made(group.name, table, partition):
            continue
        store = stores.open(table, partition)
        checkpoint = store.checkpoint()
        if checkpoint is not None:
            with store.scan() as scan:
                yield table, partition, LocalPosition.decode(checkpoint).changelog, list(scan)
    stores.close()


def _differences(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> str:
    """Describe the first wrong change of each wrong key."""
    texts = []
    for key in sorted(found.keys() | expected.keys()):
        has, should = found.get(key, []), expected.get(key, [])
        if has != should:
            pairs = zip(has, should, strict=False)
            at = next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(has), len(should)))
            texts.append(f"{key}: {has[at : at + 3]} instead of {should[at : at + 3]}, after {at}")
    return "; ".join(texts[:5])
