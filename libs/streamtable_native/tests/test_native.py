"""Records and changed rows by the extension, beside the same ones by the client's own objects, on a real broker."""

import gc
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from libs.streamtable_native.tests.anything import (
    PATHS,
    TOPIC,
    WITHIN_S,
    Row,
    random_bytes,
    read_group,
    read_table,
    rows_of,
    write_anything,
)
from structlog.testing import capture_logs
from tests.hostile.raw_records import RawProducer, RawRecord

import streamtable_native
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import Deadline, wait_until
from streamtable.base.deadletter import OutputRecord
from streamtable.base.types import HEADERS_UNREADABLE, QueuedRecord, RecordBatch, TopicPartition
from streamtable.errors import ConfigurationError, StreamtableError
from streamtable.kafka import Kafka, native
from streamtable_native import NativeBatch, NativeUnavailable

NOW_MS = int(time.time() * 1000)

try:
    streamtable_native.load()
except NativeUnavailable as error:
    pytest.skip(f"the extension cannot be loaded: {error}", allow_module_level=True)


@pytest.fixture
def kafka(broker: Broker) -> Callable[[Any], Kafka]:
    return lambda path: Kafka(broker.bootstrap_servers, native=path)


@pytest.mark.parametrize("seed", [1, 2])
def test_both_paths_read_the_same_records_of_anything_that_a_topic_can_hold(
    seed: int, kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics
) -> None:
    source = random.Random(seed)
    topic = topics.create("anything", partitions=3, config=TOPIC)
    write_anything(broker, topic, 3, source)
    places = [TopicPartition(topic, partition) for partition in range(3)]
    wait_until(lambda: set(kafka("off").cluster().stable_ends(places)) == set(places))
    ends = kafka("off").cluster().stable_ends(places)
    plain, fast = (read_table(kafka(path), ends) for path in PATHS)
    assert plain == fast
    assert sum(map(len, plain.values())) > 100
    counts = {place: len(rows) for place, rows in plain.items() if rows}
    assert read_group(kafka("required"), topics.name("g"), topic, counts, source) == plain


def test_a_header_whose_name_is_not_utf_8_is_unreadable_on_both_paths(
    kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics
) -> None:
    topic = topics.create("headers", partitions=1)
    with RawProducer(broker.bootstrap_servers, topic) as raw:
        for headers in ([], [(b"good", b"1")], [(b"\xff\xfe", b"2")]):
            raw.send(RawRecord(b"k", b"v", headers))
    ends = {TopicPartition(topic, 0): 3}
    plain, fast = (read_table(kafka(path), ends) for path in PATHS)
    assert plain == fast
    assert plain[TopicPartition(topic, 0)][2][4] == [HEADERS_UNREADABLE]


def produced(kafka: Kafka, topics: Topics, rows: Sequence[tuple[bytes, bytes | None]]) -> list[Row]:
    topic = topics.create(f"table-{kafka.native}", partitions=1)
    outbox = kafka.transactional_producer(topics.name("tx"))
    outbox.open(WITHIN_S)
    outbox.begin()
    outbox.produce_rows(topic, 0, rows, [("h", b"1")])
    assert outbox.flush(WITHIN_S) == {TopicPartition(topic, 0): len(rows) - 1}
    outbox.commit(WITHIN_S)
    outbox.close()
    found = read_table(kafka, {TopicPartition(topic, 0): len(rows)})[TopicPartition(topic, 0)]
    return [row[:3] + row[4:5] for row in found]


def test_both_paths_write_the_same_rows(kafka: Callable[[Any], Kafka], topics: Topics) -> None:
    source = random.Random(3)
    rows = [(str(number).encode(), random_bytes(source)) for number in range(2_000)]
    plain, fast = (produced(kafka(path), topics, rows) for path in PATHS)
    assert plain == fast
    assert [row[:2] for row in plain] == rows


def test_rows_that_do_not_fit_into_the_queue_are_sent_when_it_has_room(
    broker: Broker, topics: Topics
) -> None:
    kafka = Kafka(broker.bootstrap_servers, {"queue.buffering.max.messages": "10"}, native="required")
    rows = [(str(number).encode(), b"v") for number in range(500)]
    assert [row[:2] for row in produced(kafka, topics, rows)] == rows


@pytest.mark.parametrize("path", PATHS)
def test_a_row_that_is_too_large_is_refused_with_the_reason_of_the_client(
    path: Any, broker: Broker, topics: Topics
) -> None:
    topic = topics.create("table", partitions=1)
    small = Kafka(broker.bootstrap_servers, {"message.max.bytes": "10000"}, native=path)
    with closing(small.transactional_producer(topics.name("tx"))) as outbox:
        outbox.open(WITHIN_S)
        outbox.begin()
        with pytest.raises(StreamtableError, match="size too large"):
            outbox.produce_rows(topic, 0, [(b"huge", bytes(20_000)), (b"last", b"v")])


def random_output(source: random.Random, topic: str, number: int) -> QueuedRecord:
    names = source.choices(["a", "", "größe", "with\0zero"], k=source.choice([0, 0, 1, 3]))
    headers = [(name, source.choice([None, b"", b"value"])) for name in names]
    key = source.choice([None, b"", str(number % 20).encode()])
    # A record without a key goes to any partition, unless one is given.
    partition = source.randrange(3) if key is None else source.choice([-1, -1, 2])
    time_ms = source.choice([0, NOW_MS - number])
    return topic, key, random_bytes(source), source.choice([headers, tuple(headers)]), time_ms, partition


def outputs_of(
    kafka: Kafka, topics: Topics, records: Sequence[QueuedRecord], partitions: int
) -> list[list[Row]]:
    """Return the records that a reader of the two topics finds when these have been written, by partition."""
    names = [topics.create(f"{kafka.native}-{name}", partitions=partitions) for name in "ab"]
    with closing(kafka.transactional_producer(topics.name("tx"))) as outbox:
        outbox.open(WITHIN_S)
        outbox.begin()
        outbox.produce_records(
            [OutputRecord(*record)._replace(topic=names[int(record[0])]) for record in records]
        )
        outbox.flush(WITHIN_S)
        outbox.commit(WITHIN_S)
    places = [TopicPartition(name, partition) for name in names for partition in range(partitions)]
    wait_until(lambda: set(kafka.cluster().stable_ends(places)) == set(places))
    found = read_table(kafka, kafka.cluster().stable_ends(places))
    return [
        [(key, value, headers, stamp > NOW_MS or stamp) for key, value, _, stamp, headers, *_ in found[place]]
        for place in places
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_both_paths_write_the_same_outputs_in_the_same_order(
    seed: int, kafka: Callable[[Any], Kafka], topics: Topics
) -> None:
    source = random.Random(seed)
    records = [random_output(source, source.choice("01"), number) for number in range(3_000)]
    plain, fast = (outputs_of(kafka(path), topics, records, 3) for path in PATHS)
    assert plain == fast
    assert sum(map(len, plain)) == len(records)


def test_outputs_that_do_not_fit_into_the_queue_keep_their_order(broker: Broker, topics: Topics) -> None:
    kafka = Kafka(broker.bootstrap_servers, {"queue.buffering.max.messages": "10"}, native="required")
    records: list[QueuedRecord] = [
        ("0", b"k", str(number).encode(), [("h", b"1")], 0, 0) for number in range(500)
    ]
    written, _ = outputs_of(kafka, topics, records, 1)
    assert [value for _, value, *_ in written] == [value for _, _, value, *_ in records]


@pytest.mark.parametrize(
    "odd",
    [
        (b"k", bytes(20_000), (), 0, 0),
        (b"k", b"v", [("\ud800", b"1")], 0, 0),
        (b"k", b"v", [(b"name", b"1")], 0, 0),
        (b"k", b"v", [("name", 1)], 0, 0),
        (b"k", 1, (), 0, 0),
        (b"k", b"v", (), "now", 0),
        (b"k", b"v", (), 0, 1 << 40),
    ],
)
def test_both_paths_refuse_an_output_with_the_same_error(
    odd: tuple[Any, ...], broker: Broker, topics: Topics
) -> None:
    refused = []
    for path in PATHS:
        topic = topics.create(f"out-{path}", partitions=1)
        kafka = Kafka(broker.bootstrap_servers, {"message.max.bytes": "10000"}, native=path)
        with closing(kafka.transactional_producer(topics.name("tx"))) as outbox:
            outbox.open(WITHIN_S)
            outbox.begin()
            with pytest.raises(Exception, match=r".+") as raised:
                outbox.produce_records([(topic, b"k", b"before", (), 0, 0), (topic, *odd)])
        refused.append((type(raised.value), str(raised.value).replace(topic, "TOPIC")))
    assert refused[0] == refused[1]


def test_records_arrive_of_a_partition_that_is_assigned_again_at_once(
    kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics
) -> None:
    """librdkafka stops a partition some time after it was unassigned, and forwards its records nowhere then."""
    topic = topics.create("again", partitions=1)
    place = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    reader = kafka("required").table_reader("again")
    for number in range(30):
        producer.produce(topic, str(number).encode(), partition=0)
        producer.flush(WITHIN_S)
        reader.assign({place: 0})
        deadline = Deadline(WITHIN_S)
        values: list[bytes | None] = []
        while len(values) <= number:
            assert not deadline.passed(), f"round {number}: {len(values)} records"
            values += [value for batch in reader.poll(100, 0.05) for value in batch.values]
        assert values == [str(each).encode() for each in range(number + 1)]
        reader.unassign([place])
    reader.close()


@pytest.fixture
def batch(kafka: Callable[[Any], Kafka], broker: Broker, topics: Topics) -> Iterator[RecordBatch]:
    topic = topics.create("parts", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        headers: dict[str, str | bytes | None] = {"n": b"1"} if number % 3 == 0 else {}
        producer.produce(topic, str(number).encode(), b"k", partition=0, headers=headers)
    producer.flush(WITHIN_S)
    reader = kafka("required").table_reader("parts")
    reader.assign({TopicPartition(topic, 0): 0})
    batches: list[RecordBatch] = []

    def read() -> bool:
        batches.extend(reader.poll(100, 0.1))
        return sum(map(len, batches)) == 20

    wait_until(read)
    yield batches[0]
    reader.close()


def test_parts_of_a_batch_have_the_columns_of_their_records(batch: RecordBatch) -> None:
    assert isinstance(batch, NativeBatch)
    rows = rows_of(batch)
    keep = [index % 2 == 0 for index in range(len(batch))]
    assert rows_of(batch.part(3, 9)) == rows[3:9]
    assert rows_of(batch.only(keep)) == rows[::2]
    assert rows_of(batch.part(3, 9).only(keep[:6])) == rows[3:9:2]
    assert (batch.first_offset, batch.last_offset) == (batch.offsets[0], batch.offsets[-1])
    assert all(before < after for before, after in pairwise(batch.offsets))
    assert batch.rising() == len(batch)


def test_a_client_of_another_version_is_refused() -> None:
    with pytest.raises(NativeUnavailable, match=r"confluent-kafka 9\.1\.0 is not one of the known versions"):
        streamtable_native.load("9.1.0")


def test_a_process_that_requires_what_cannot_be_loaded_does_not_start(
    monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    monkeypatch.setattr(native, "_loaded", lambda: "no compiler was there")
    with pytest.raises(ConfigurationError, match="STREAMTABLE_NATIVE=required: no compiler was there"):
        Kafka(broker.bootstrap_servers, native="required").table_reader("r")
    Kafka(broker.bootstrap_servers).table_reader("r").close()


def test_a_process_logs_once_which_loops_it_uses_and_why_not_those_in_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def logged() -> list[tuple[str, str | None]]:
        native._loaded.cache_clear()
        with capture_logs() as lines:
            for _ in range(2):
                native.chosen("off")
                native.chosen("auto")
        return [(line["event"], line.get("reason")) for line in lines]

    assert logged() == [("inner loops run in C", None)]
    with monkeypatch.context() as patch:
        patch.setattr(streamtable_native.native, "KNOWN", ("1.0",))
        ((event, reason),) = logged()
        assert event == "inner loops run in Python"
        assert str(reason).endswith("upgrade streamtable-native, or install a known version")
        patch.setitem(sys.modules, "streamtable_native", None)  # as if it was not installed
        ((_, reason),) = logged()
        assert str(reason).endswith("pip install 'streamtable[native]'")
    native._loaded.cache_clear()


def test_a_closed_client_and_one_of_the_other_kind_are_refused(broker: Broker) -> None:
    loaded = streamtable_native.load()
    config = {"bootstrap.servers": broker.bootstrap_servers}
    with pytest.raises(TypeError, match="other kind"):
        loaded.produce_rows(Consumer({**config, "group.id": "g"}), "t", 0, [])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="other kind"):
        loaded.produce_records(Consumer({**config, "group.id": "g"}), [])  # type: ignore[arg-type]
    producer = Producer(config)
    with pytest.raises(TypeError, match="other kind"):
        loaded.records(producer)  # type: ignore[arg-type]
    for rows in ([("text", b"v")], [b"no pair"], [(b"k", b"v", b"more")]):
        with pytest.raises(TypeError):
            loaded.produce_rows(producer, "t", 0, rows)  # type: ignore[arg-type]
    consumer = Consumer({**config, "group.id": "g"})
    records = loaded.records(consumer)
    records.close()
    with pytest.raises(RuntimeError, match="closed"):
        records.take(1, 0, print)
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        loaded.records(consumer)


@pytest.mark.faults_long
def test_memory_is_flat_over_ten_million_records(
    kafka: Callable[[Any], Kafka],
    broker: Broker,
    topics: Topics,
    request: pytest.FixtureRequest,
) -> None:
    topic = topics.create("many", partitions=1)
    place = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    total = 500_000
    for number in range(total):
        while True:
            try:
                producer.produce(topic, b"v" * 50, str(number).encode(), partition=0, headers=[("h", b"1")])
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(WITHIN_S)
    reader = kafka("required").table_reader("many")
    peaks = []
    for _ in range(20):
        reader.assign({place: 0})
        while reader.position(place) < total:
            reader.poll(10_000, 0.1)
        reader.unassign([place])
        gc.collect()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    reader.close()
    request.node.user_properties.append(("peaks_kib", peaks))
    assert peaks[-1] < peaks[4] * 1.05, peaks
