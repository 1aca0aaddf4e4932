"""Bounded reads on a real broker: they end where they should, also behind a transaction that stays open."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Producer

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import Kafka
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater
from streamtable_admin.cluster import Cluster, ReadObserver, connect
from streamtable_admin.offsets import unread
from streamtable_admin.reading import ReadLimits, read_to
from streamtable_admin.records import first_records, last_records, starts_at


@dataclass
class Observer(ReadObserver):
    """Remembers what it observes."""

    offsets: list[int] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)

    @contextmanager
    def reading(self, offsets: int) -> Iterator[Callable[[int], None]]:
        yield self.offsets.append

    def held_back(self, place: TopicPartition, position: int, end: int) -> None:
        self.held.append((position, end))


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def cluster(broker: Broker, observer: Observer) -> Iterator[Cluster]:
    with connect(Kafka(broker.bootstrap_servers), timeout=20, observer=observer) as found:
        yield found


@pytest.fixture
def place(topics: Topics, broker: Broker) -> TopicPartition:
    """A partition with the records 0 to 9, at the times 1000 to 1009."""
    topic = topics.create("numbers", partitions=1, config={"retention.ms": "-1"})  # these times are long ago
    producer = Producer({"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"%d" % number, b"k", timestamp=1000 + number)
    assert producer.flush(30) == 0
    return TopicPartition(topic, 0)


def values(
    cluster: Cluster, place: TopicPartition, start: int, end: int, **options: object
) -> list[bytes | None]:
    batches = read_to(cluster, {place: start}, {place: end}, **options)  # type: ignore[arg-type]  # of a test
    return [value for batch in batches for value in batch.values]


def test_a_read_yields_the_records_of_its_offsets_and_reports_its_progress(
    cluster: Cluster, place: TopicPartition, observer: Observer
) -> None:
    assert values(cluster, place, 3, 6) == [b"3", b"4", b"5"]
    assert observer.offsets[-1] == 3
    assert values(cluster, place, 6, 6) == []


@pytest.mark.parametrize(("bytes_max", "expected"), [(1, [b"9"]), (1_000, None)])
def test_of_the_last_records_as_many_come_as_may_be_kept_and_one_at_least_after_a_single_read(
    cluster: Cluster, place: TopicPartition, observer: Observer, bytes_max: int, expected: list[bytes] | None
) -> None:
    marks = cluster.admin.watermarks([place])
    found = last_records(cluster, marks, 6, limits=ReadLimits(bytes_max=bytes_max))
    shown = [record.value for record in found]
    assert shown == (expected or [b"%d" % number for number in range(10 - len(found), 10)])
    assert 0 < len(found) < 6
    assert sum(observer.offsets) == 6, "it has looked no further back"


def test_the_first_and_the_last_records_are_found_by_offset_and_by_time(
    cluster: Cluster, place: TopicPartition
) -> None:
    marks = cluster.admin.watermarks([place])
    ends = {place: marks[place].high}
    assert [record.value for record in last_records(cluster, marks, 2)] == [b"8", b"9"]
    assert last_records(cluster, marks, 0) == []
    by_offset = starts_at(cluster, marks, offset=7)
    assert [record.value for record in first_records(cluster, by_offset, ends, 2)] == [b"7", b"8"]
    by_time = starts_at(cluster, marks, time_ms=1009)
    assert [record.value for record in first_records(cluster, by_time, ends, 2)] == [b"9"]
    assert starts_at(cluster, marks, time_ms=2000) == ends


def test_no_record_of_another_partition_is_left_out_between_those_that_are_shown(
    cluster: Cluster, topics: Topics, broker: Broker
) -> None:
    """The large records of a partition take all the memory that there is."""
    topic = topics.create("mixed", partitions=2, config={"retention.ms": "-1"})
    producer = Producer({"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers})
    for number in range(120):
        large = number % 2 == 0
        producer.produce(
            topic, bytes(20_000) if large else b"", b"k", partition=number % 2, timestamp=1000 + number
        )
    assert producer.flush(30) == 0
    marks = cluster.admin.watermarks(cluster.partitions(topic))
    starts, ends = ({place: mark[side] for place, mark in marks.items()} for side in (0, 1))
    limits = ReadLimits(bytes_max=200_000)
    first = [each.timestamp for each in first_records(cluster, starts, ends, 50, limits=limits)]
    assert first == list(range(1000, 1000 + len(first)))
    last = [each.timestamp for each in last_records(cluster, marks, 50, limits=limits)]
    assert last == list(range(1120 - len(last), 1120))
    assert 15 < len(first) < 25
    assert 15 < len(last) < 25


def test_records_behind_an_open_transaction_are_reported_as_missing_or_fail_a_complete_read(
    broker: Broker, cluster: Cluster, place: TopicPartition, observer: Observer, topics: Topics
) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topics.name("open")}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(place.topic, b"open", b"k", partition=0)
    assert producer.flush(30) == 0
    limits = ReadLimits(stall=0.2)
    reached: dict[TopicPartition, int] = {}
    assert values(cluster, place, 9, 11, limits=limits, reached=reached) == [b"9"]
    assert observer.held == [(10, 11)]
    assert reached == {place: 10}
    with pytest.raises(RetryLater, match="transaction stays open"):
        values(cluster, place, 9, 11, limits=ReadLimits(stall=0.2, total=0.5), complete=True)
    assert unread(cluster, {place: 8}) == {place: 2}
    producer.abort_transaction(60)
