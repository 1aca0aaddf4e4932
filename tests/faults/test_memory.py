"""The memory of a processor stays within the bound that `docs/explanation/speed.md` states, whatever its load."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.faults import slow
from tests.faults.arena import ROOT, wait_until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import Child
from streamtable import Avro, Kafka
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater
from streamtable.store.rocksdb import RocksStores

PARTITIONS = 64
BOUND_MB = 512
# Writable memory, resident or not: the difference is mostly thread stacks and the allocator's reserves.
DATA_BYTES = 1024 << 20
PADDING = b"." * 100


def fill(bootstrap_servers: str, topic: str, keys: int) -> int:
    """Write a record for each key, and a second one for each third key. Returns the number of records."""
    producer = Producer(
        {
            "enable.idempotence": True,
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    sent = 0
    for step in (1, 3):
        for number in range(0, keys, step):
            while True:
                try:
                    producer.produce(topic, PADDING, b"%d" % number)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
            sent += 1
    assert producer.flush(60) == 0
    return sent


def peak_mb(pid: int) -> float:
    """Return its peak resident memory."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


class Slow:
    """A group with one slow member, its topics, and its disk."""

    def __init__(self, bootstrap_servers: str, topics: Topics, folder: Path) -> None:
        self.topic = topics.create("input", partitions=PARTITIONS)
        self.group = slow.group(topics.name("group"), self.topic)
        self.table = topics.create("group-table", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        for name in ("group-retry", "group-dead-letters"):
            topics.create(name, partitions=PARTITIONS)
        self.state = folder / "state"
        self.log = folder / "log"
        self._cluster = Kafka(bootstrap_servers).cluster()
        self._command = [sys.executable, slow.__file__, "--bootstrap", bootstrap_servers]
        self._command += ["--group", self.group.name, "--topic", self.topic, "--state", str(self.state)]
        self._command += ["--data-bytes", str(DATA_BYTES)]

    @contextmanager
    def at_work(self) -> Iterator[Child]:
        """Run it during the block; at the end it must shut down gracefully."""
        self.log.write_text("")
        child = Child(self._command, self.log, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            yield child
            assert child.returncode is None, self.said()
        finally:
            code = child.stop()
        assert code == 0, self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def committed(self) -> int:
        """Return the number of committed input records."""
        places = [TopicPartition(self.topic, each) for each in range(PARTITIONS)]
        try:
            offsets = self._cluster.stable_offsets(self.group.name, places)
        except RetryLater:
            return 0
        return sum(each.next_offset for each in offsets.values() if each is not None)

    def at_work_count(self) -> int:
        """Return the number of partitions whose task has started since the last start of the process."""
        return self.log.read_text(errors="replace").count("task started")

    def counts(self) -> Iterator[tuple[int, int]]:
        """Return the rows of its table on disk, as number of the key -> count."""
        decode = Avro("long").decode
        stores = RocksStores(self.state / self.group.name)
        try:
            for partition in range(PARTITIONS):
                with stores.open(self.table, partition).scan() as rows:
                    yield from ((int(key), decode(value)) for key, value in rows)
        finally:
            stores.close()

    def check_counts(self, keys: int) -> None:
        rows = 0
        for number, count in self.counts():
            assert count == (2 if number % 3 == 0 else 1), (number, count)
            rows += 1
        assert rows == keys

    def close(self) -> None:
        self._cluster.close()


def check_bound(
    broker: Broker, folder: Path, tell: Callable[[str], None], *, keys: int, seconds: float
) -> None:
    """Fill a topic with this many keys, count them slowly, restore the table to an empty disk, and check the memory."""
    topics = Topics(broker.bootstrap_servers)
    try:
        member = Slow(broker.bootstrap_servers, topics, folder)
        try:
            records = fill(broker.bootstrap_servers, member.topic, keys)
            with member.at_work() as child:
                wait_until(
                    lambda: member.committed() == records or child.returncode is not None,
                    f"{records} records committed",
                    seconds,
                )
                counting = peak_mb(child.pid)
            member.check_counts(keys)
            shutil.rmtree(member.state)
            with member.at_work() as child:
                wait_until(
                    lambda: member.at_work_count() == PARTITIONS or child.returncode is not None,
                    "the table restored",
                    seconds,
                )
                restoring = peak_mb(child.pid)
            member.check_counts(keys)
        finally:
            member.close()
    finally:
        topics.delete_all()
    tell(f"{keys} keys in {PARTITIONS} partitions: {counting:.0f} MB counting, {restoring:.0f} MB restoring")
    assert max(counting, restoring) <= BOUND_MB


@pytest.mark.faults_long("it measures memory, for a minute, and needs the machine for itself")
def test_a_slow_consumer_of_64_partitions_stays_within_its_bound_of_memory(
    fault_broker: Broker, folder: Path, tell: Callable[[str], None], quiet: None
) -> None:
    check_bound(fault_broker, folder, tell, keys=300_000, seconds=120)


@pytest.mark.faults_long
def test_a_slow_consumer_of_64_partitions_and_5_million_keys_stays_within_its_bound_of_memory(
    fault_broker: Broker, folder: Path, tell: Callable[[str], None], quiet: None
) -> None:
    check_bound(fault_broker, folder, tell, keys=5_000_000, seconds=600)
