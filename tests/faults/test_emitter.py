"""Emitters that are killed in a burst: every event acknowledged to them is in the topic once."""

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Partition
from tests.faults import burst
from tests.faults.arena import ROOT, wait_until
from tests.faults.aside import aside

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import Child
from localkafka.reading import read_to_end
from streamtable.codec.plain import Long

PARTITIONS = 4
ROUNDS = 2
FIRST_OF_ROUND = 10_000_000


def stored(broker: Broker, topic: str) -> dict[int, list[int]]:
    """Return the numbers in each partition, in order."""
    starts = [Partition(topic, partition, 0) for partition in range(PARTITIONS)]
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for message in read_to_end(broker.bootstrap_servers, starts):
        value = message.value()
        assert isinstance(value, bytes)
        found[message.partition() or 0].append(Long().decode(value))
    return found


@pytest.mark.faults
@aside
def test_what_an_emitter_called_accepted_before_it_was_killed_in_a_burst_is_stored_once_and_in_order(
    broker: Broker, folder: Path, seed: int
) -> None:
    rng = random.Random(seed)
    topics = Topics(broker.bootstrap_servers)
    topic = topics.create("burst", partitions=PARTITIONS)
    acknowledged = folder / "acknowledged"
    acknowledged.touch()
    for number in range(ROUNDS):
        command = [sys.executable, burst.__file__, "--bootstrap", broker.bootstrap_servers]
        command += ["--topic", topic, "--acknowledged", str(acknowledged)]
        command += ["--first", str(number * FIRST_OF_ROUND)]
        before = acknowledged.stat().st_size
        child = Child(command, folder / "log", env={**os.environ, "PYTHONPATH": str(ROOT)})
        wait_until(lambda before=before: acknowledged.stat().st_size > before, "something is accepted")  # type: ignore[misc] # bound here
        time.sleep(rng.uniform(0, 0.5))  # a random moment of the kill, not a wait for a condition
        child.kill()
    # The kill may have truncated the last line.
    whole = acknowledged.read_text().split("\n")[:-1]
    found = stored(broker, topic)
    topics.delete_all()
    times = Counter(number for numbers in found.values() for number in numbers)
    assert {int(line) for line in whole if line} - times.keys() == set(), "accepted, and not stored"
    assert max(times.values()) == 1
    assert all(numbers == sorted(numbers) for numbers in found.values())
