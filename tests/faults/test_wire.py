"""Lost, delayed and truncated requests and responses, and network partitions: on a real broker, behind a proxy."""

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.faults.aside import aside
from tests.faults.patience import patiently
from tests.faults.wire_arena import WireArena

from localkafka import waiting
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.wire import WireProxy
from localkafka.wirefaults import (
    Api,
    CutAnswer,
    CutRequest,
    DelayAnswer,
    DelayRequest,
    Each,
    Fault,
    LoseAnswer,
    LoseRequest,
    Storm,
    any_fault,
)
from streamtable import Kafka
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater
from streamtable.kafka.consumer import KafkaGroupConsumer

LONG_SECONDS: Final = float(os.environ.get("FAULTS_SECONDS", "120"))
LATE: Final = 7.0  # longer than the client's timeout of any step of a commit
SILENT_SECONDS: Final = 300.0
PARTITIONS: Final = 6
SKIPPED: Final = 600
DARK_SECONDS: Final = 5.0  # longer than the session timeout
EACH: Final[Sequence[tuple[Api, Fault]]] = (
    (Api.PRODUCE, LoseAnswer(0.5)),
    (Api.END_TXN, LoseAnswer(0.5)),
    (Api.TXN_OFFSET_COMMIT, LoseAnswer(0.5)),
    (Api.OFFSET_COMMIT, LoseAnswer(0.5)),
    (Api.END_TXN, DelayRequest(LATE)),
    (Api.TXN_OFFSET_COMMIT, DelayRequest(LATE)),
    (Api.PRODUCE, DelayRequest(LATE)),
    (Api.ADD_PARTITIONS_TO_TXN, LoseRequest(0.5)),
    (Api.FETCH, CutAnswer(30)),
    (Api.PRODUCE, CutRequest(30)),
    (Api.CONSUMER_GROUP_HEARTBEAT, DelayAnswer(LATE)),
)
# For the requests of a commit, about ten per second and process, and for more frequent requests.
RATES: Final[Mapping[Api, float]] = dict.fromkeys(
    (
        Api.PRODUCE,
        Api.ADD_PARTITIONS_TO_TXN,
        Api.ADD_OFFSETS_TO_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.END_TXN,
        Api.OFFSET_COMMIT,
    ),
    0.02,
) | {
    Api.FETCH: 0.002,
    Api.CONSUMER_GROUP_HEARTBEAT: 0.01,
    Api.INIT_PRODUCER_ID: 0.1,
    Api.FIND_COORDINATOR: 0.1,
    Api.METADATA: 0.05,
    Api.OFFSET_FETCH: 0.05,
    Api.LIST_OFFSETS: 0.05,
}


@pytest.mark.faults
@pytest.mark.timeout(300)
@aside
def test_lost_answers_late_requests_cut_connections_and_darkness_cost_nothing(folder: Path, seed: int) -> str:
    with WireArena(folder, seed, events=4_000) as arena:
        arena.wait_begun()
        arena.strike([Each(api, fault) for api, fault in arena.rng.sample(EACH, len(EACH))])
        arena.dark(DARK_SECONDS)
        arena.wire.reset()
        seconds = arena.settle()
        return f"all handled {seconds:.1f} s after the last fault; {arena.verify()}"


@pytest.mark.faults
@aside
def test_committed_offsets_are_found_again_soon_when_the_connection_to_the_coordinator_has_gone_silent(
    broker: Broker, wire: WireProxy
) -> None:
    topics = Topics(broker.bootstrap_servers)
    places = [TopicPartition(topics.create("in", partitions=1), 0)]
    cluster = Kafka(wire.bootstrap_servers).cluster()
    try:
        assert patiently(lambda: cluster.stable_offsets(topics.name("g"), places)) == {places[0]: None}
        # Like a power loss of the coordinator's machine: the connection stays open, but nothing arrives.
        wire.plan = Each(Api.OFFSET_FETCH, LoseAnswer(SILENT_SECONDS))
        with pytest.raises(RetryLater):
            cluster.stable_offsets(topics.name("g"), places)
        assert patiently(lambda: cluster.stable_offsets(topics.name("g"), places), 20)
    finally:
        wire.plan = None
        wire.reset()
        cluster.close()
        topics.delete_all()


class Owned:
    """A listener that records its assignment."""

    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        self.places.update(places)

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self.places.difference_update(places)

    lost = revoked


@pytest.mark.faults
@aside
def test_a_late_answer_about_the_start_of_an_assigned_partition_neither_repeats_nor_skips_a_record(
    broker: Broker, wire: WireProxy
) -> None:
    topics = Topics(broker.bootstrap_servers)
    topic = topics.create("in", partitions=PARTITIONS)
    sender = Kafka(broker.bootstrap_servers).transactional_producer(None)
    member = Kafka(wire.bootstrap_servers).group_consumer(topics.name("g"), "1")
    owned = Owned()

    def send(count: int) -> None:
        for partition in range(PARTITIONS):
            for _ in range(count):
                sender.produce(topic, b"key", b"value", partition=partition)
        sender.flush(30)

    try:
        send(SKIPPED + 100)
        wire.plan = Each(Api.LIST_OFFSETS, DelayAnswer(0.7), times=4)
        member.subscribe([topic], owned)
        waiting.wait_until(
            lambda: not member.poll(10, 0.05) and len(owned.places) == PARTITIONS, 60, "all partitions"
        )
        position = dict.fromkeys(owned.places, SKIPPED)
        for place in position:
            member.seek(place, SKIPPED)
        member.resume(position)
        for _ in range(8):
            send(10)
            time.sleep(0.4)  # busy, as in a commit: records from the start are queued behind earlier ones
            follow(member, position)
        end = SKIPPED + 180

        def all_read() -> bool:
            follow(member, position)
            return set(position.values()) == {end}

        waiting.wait_until(all_read, 60, "everything is read")
    finally:
        wire.plan = None
        member.close()
        sender.close()
        topics.delete_all()


def follow(member: KafkaGroupConsumer, position: dict[TopicPartition, int]) -> None:
    """Read the available records. Each partition must continue exactly at its position."""
    for batch in member.poll(100_000, 0.05):
        start = position[batch.place]
        assert list(batch.offsets) == list(range(start, start + len(batch)))
        position[batch.place] += len(batch)
    for place, passed in member.passed().items():
        assert passed <= position[place], f"{place} has passed {passed}, and was read up to {position[place]}"


@pytest.mark.faults_long
@pytest.mark.timeout(LONG_SECONDS + 900)
def test_storms_of_lost_late_and_cut_requests_cost_nothing(
    folder: Path, seed: int, tell: Callable[[str], None]
) -> None:
    with WireArena(folder, seed, events=int(LONG_SECONDS * 200)) as arena:
        arena.wait_begun()
        arena.load(LONG_SECONDS)
        storm, ends = Storm(seed, RATES, any_fault), time.monotonic() + LONG_SECONDS
        while time.monotonic() < ends:
            arena.wire.plan = storm
            arena.batch.feed(200)
            time.sleep(arena.rng.uniform(2, 8))  # a random pause, not a wait for a condition
            blow(arena, arena.rng)
        seconds = arena.settle()
        tell(f"all handled {seconds:.1f} s after the storm; {arena.verify()}")


def blow(arena: WireArena, rng: random.Random) -> None:
    """Inject a fault into all connections at once; half of the time none."""
    match rng.choice(["dark", "reset", "slow", "", "", ""]):
        case "dark":
            arena.dark(rng.uniform(1, 14))
        case "reset":
            arena.wire.reset()
        case "slow":
            arena.wire.bytes_per_second = rng.uniform(50_000, 500_000)
            time.sleep(rng.uniform(1, 5))
            arena.wire.bytes_per_second = None
