"""Records that wait for a join are on disk, so memory is bounded however many there are."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.faults import joiner
from tests.faults.arena import ROOT, wait_until
from tests.faults.test_memory import fill, peak_mb

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import Child

PARTITIONS = 4
BOUND_MB = 400
WAITING = 5_000_000


def end_of(consumer: Consumer, topic: str) -> int:
    """Return the number of offsets of a topic, including transaction markers."""
    return sum(consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in range(PARTITIONS))


@pytest.mark.faults_long("five million records are written, joined and committed: minutes")
def test_millions_of_records_wait_for_their_match_on_disk(
    fault_broker: Broker, folder: Path, tell: Callable[[str], None], quiet: None
) -> None:
    topics = Topics(fault_broker.bootstrap_servers)
    servers = fault_broker.bootstrap_servers
    waiting = int(os.environ.get("JOIN_WAITING", WAITING))
    left, right, out = (topics.create(name, partitions=PARTITIONS) for name in ("left", "right", "out"))
    group = joiner.joined(topics.name("flow"), left, right, out).group()
    for name in group.tables:
        topics.create(
            name.removeprefix(topics.name("")), partitions=PARTITIONS, config={"cleanup.policy": "compact"}
        )
    for name in (group.dead_letters, group.retry):
        topics.create(name.removeprefix(topics.name("")), partitions=PARTITIONS)
    keys = waiting * 3 // 4  # every third one has two records
    records = fill(servers, left, keys)
    command = [sys.executable, joiner.__file__, "--bootstrap", servers, "--flow", group.name]
    command += ["--left", left, "--right", right, "--out", out, "--state", str(folder / "state")]
    child = Child(command, folder / "log", env={**os.environ, "PYTHONPATH": str(ROOT)})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topics.name("ends")})
    waiting_rows = next(name for name in group.tables if name.endswith("-both"))
    try:
        wait_until(
            lambda: end_of(consumer, waiting_rows) >= records or child.returncode is not None,
            f"{records} records wait",
            2_400,
        )
        producer = Producer(
            {"enable.idempotence": True, "bootstrap.servers": servers, "partitioner": "murmur2_random"}
        )
        producer.produce(right, b"x", b"0")
        assert producer.flush(60) == 0
        wait_until(
            lambda: end_of(consumer, out) >= 2 or child.returncode is not None, "two pairs come out", 120
        )
        peak = peak_mb(child.pid)
        assert child.returncode is None, (folder / "log").read_text(errors="replace")[-3000:]
    finally:
        consumer.close()
        child.stop()
        topics.delete_all()
    tell(f"{records} records wait to be joined: {peak:.0f} MB")
    assert peak <= BOUND_MB
