"""Random topics read by members of both paths while partitions move between them, and errors in place of records."""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from libs.streamtable_native.tests.anything import (
    PATHS,
    TOPIC,
    WITHIN_S,
    Row,
    read_table,
    rows_of,
    write_anything,
)

import streamtable_native
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline, wait_until
from streamtable.base.types import TopicPartition
from streamtable.errors import InputLost, StreamtableError
from streamtable.kafka import Kafka
from streamtable_native import NativeUnavailable

MEMBERS_MAX = 3
SEED = int(os.environ.get("FAULTS_SEED", "20260"))
ROUNDS = int(os.environ.get("FAULTS_ROUNDS", "20"))

try:
    streamtable_native.load()
except NativeUnavailable as error:
    pytest.skip(f"the extension cannot be loaded: {error}", allow_module_level=True)


class Member:
    """A member of a group on one of the paths, which reads each partition that it is given from where the others came to."""

    def __init__(self, kafka: Kafka, group: str, instance: str, topic: str) -> None:
        self._given: set[TopicPartition] = set()
        self._consumer = kafka.group_consumer(group, instance)
        self._consumer.subscribe([topic], self)
        self.close = self._consumer.close

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        self._given.update(places)

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self._given.difference_update(places)

    lost = revoked

    def read(self, found: Mapping[TopicPartition, dict[int, Row]], max_records: int) -> None:
        """Add the records that come now; one that was read before must be the same."""
        for batch in self._consumer.poll(max_records, 0.05):
            for offset, row in zip(batch.offsets, rows_of(batch), strict=True):
                assert found[batch.place].setdefault(offset, row) == row
        for place in self._given:
            self._consumer.seek(place, max(found[place], default=-1) + 1)
        self._consumer.resume(self._given)
        self._given.clear()


def read_while_moving(
    kafka: Callable[[Any], Kafka],
    group: str,
    topic: str,
    counts: Mapping[TopicPartition, int],
    source: random.Random,
) -> dict[TopicPartition, list[Row]]:
    """Read all records with members that join, of either path, and leave."""
    found: dict[TopicPartition, dict[int, Row]] = defaultdict(dict)
    deadline = Deadline(2 * WITHIN_S)
    with ExitStack() as stack:
        members: list[Member] = []
        for number in range(10**6):
            if all(len(found[place]) >= count for place, count in counts.items()):
                break
            assert not deadline.passed(), {place: len(rows) for place, rows in found.items()}
            if len(members) < MEMBERS_MAX and (not members or number % 20 == 0):
                member = Member(kafka(source.choice(PATHS)), group, str(number), topic)
                members.append(stack.enter_context(closing(member)))
            elif len(members) > 1 and number % 30 == 0:
                members.pop(source.randrange(len(members))).close()
            for member in members:
                member.read(found, source.choice([1, 5, 20]))
    return {place: [rows[offset] for offset in sorted(rows)] for place, rows in found.items() if rows}


def check_moving(seed: int, kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics) -> None:
    source = random.Random(seed)
    topic = topics.create(f"moving-{seed}", config=TOPIC)
    write_anything(broker, topic, 4, source)
    places = [TopicPartition(topic, partition) for partition in range(4)]
    wait_until(lambda: set(kafka("off").cluster().stable_ends(places)) == set(places))
    plain = read_table(kafka("off"), kafka("off").cluster().stable_ends(places))
    counts = {place: len(rows) for place, rows in plain.items()}
    assert read_while_moving(kafka, topics.name(f"g-{seed}"), topic, counts, source) == plain, f"{seed=}"


@pytest.fixture
def kafka(broker: Broker) -> Callable[[Any], Kafka]:
    return lambda path: Kafka(broker.bootstrap_servers, native=path)


def test_members_of_both_paths_read_each_record_while_partitions_move_between_them(
    kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics
) -> None:
    check_moving(1, kafka, broker, topics)


@pytest.mark.faults_long
def test_the_same_of_random_topics(kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics) -> None:
    for number in range(ROUNDS):
        check_moving(SEED * 1_000 + number, kafka, broker, topics)


def error_of_lost_records(kafka: Kafka, place: TopicPartition) -> tuple[Any, ...]:
    def read() -> None:
        deadline = Deadline(WITHIN_S)
        while not deadline.passed():
            assert not reader.poll(100, 0.1)

    with closing(kafka.table_reader("lost")) as reader:
        reader.assign({place: 0})
        with pytest.raises(StreamtableError) as raised:
            read()
    error = raised.value
    return type(error), str(error), error.topic, error.partition, error.offset


def test_records_that_are_gone_are_the_same_error_on_both_paths(
    kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics
) -> None:
    topic = topics.create("lost", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, str(number).encode(), partition=0)
    producer.flush(WITHIN_S)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([Place(topic, 0, 10)]).values():
        deleted.result(WITHIN_S)
    plain, fast = (error_of_lost_records(kafka(path), TopicPartition(topic, 0)) for path in PATHS)
    assert plain == fast
    assert plain[0] is InputLost
