"""The requests that only the command line makes, on a real broker."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import reserve_port
from localkafka.waiting import Deadline
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.errors import ConfigurationError, RetryLater
from streamtable.kafka import Kafka
from streamtable.kafka.admin import BrokerAddress, KafkaAdmin


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdmin]:
    made = Kafka(broker.bootstrap_servers, admin_timeout=30).admin()
    yield made
    made.close()


def send(broker: Broker, topic: str, *timestamps: int) -> None:
    producer = Producer(
        {"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    )
    for timestamp in timestamps:
        producer.produce(topic, b"v", b"k", 0, timestamp=timestamp)
    assert producer.flush(30) == 0


def test_brokers_say_where_they_are_reached(broker: Broker, admin: KafkaAdmin) -> None:
    host, port = broker.bootstrap_servers.split(":")
    assert admin.brokers() == [BrokerAddress(1, host, int(port))]


def test_topics_are_counted_with_their_partitions(topics: Topics, admin: KafkaAdmin) -> None:
    name = topics.create("in", partitions=3)
    assert admin.topic_partitions()[name] == 3


def test_partitions_that_are_not_there_are_left_out(
    broker: Broker, topics: Topics, admin: KafkaAdmin
) -> None:
    place = TopicPartition(topics.create("in", partitions=1), 0)
    send(broker, place.topic, 0)
    assert admin.watermarks_known([place, TopicPartition(place.topic, 7)]) == {place: Watermarks(0, 1)}
    assert admin.watermarks_known([]) == {}


def test_offsets_by_time_are_those_of_the_first_record_not_before_it(
    broker: Broker, topics: Topics, admin: KafkaAdmin
) -> None:
    now = int(time.time() * 1000)
    full, empty = (TopicPartition(topics.create(name, partitions=1), 0) for name in ("in", "other"))
    send(broker, full.topic, now - 3_000, now - 2_000, now - 1_000)
    assert admin.offsets_at([full, empty], now - 2_500) == {full: 1, empty: None}
    assert admin.offsets_at([full], now) == {full: None}
    assert admin.newest_timestamp(full.topic) == now - 1_000
    assert admin.newest_timestamp(empty.topic) is None
    assert admin.newest_timestamp(topics.name("none")) is None


def test_the_stable_end_is_before_an_open_transaction(
    broker: Broker, topics: Topics, admin: KafkaAdmin
) -> None:
    place = TopicPartition(topics.create("in", partitions=1), 0)
    send(broker, place.topic, 0)
    outbox = Kafka(broker.bootstrap_servers).transactional_producer(topics.name("tx"))
    outbox.open(30)
    outbox.begin()
    outbox.produce(place.topic, b"k", b"v")
    outbox.flush(30)
    assert admin.stable_ends([place]) == {place: 1}
    assert admin.watermarks([place]) == {place: Watermarks(0, 2)}
    outbox.abort(30)
    outbox.close()


def test_a_group_whose_partitions_are_on_the_move_is_rebalancing(
    broker: Broker, topics: Topics, admin: KafkaAdmin
) -> None:
    topic, group = topics.create("in", partitions=2), topics.name("g")
    options: dict[str, str | int] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "group.protocol": "consumer",
        "log_level": 0,
    }
    first, second = Consumer(options), Consumer(options)
    first.subscribe([topic])
    deadline = Deadline(60)
    while not first.assignment():
        first.poll(0.1)
        assert not deadline.passed()
    second.subscribe([topic])  # and the first revokes nothing as long as it is not polled
    while (state := admin.describe_groups([group])[group].state) != "rebalancing":
        assert state in {"stable", "empty"}
        second.poll(0.1)
        assert not deadline.passed()
    second.close()
    first.close()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_is_described_and_its_offsets_set_only_while_it_has_no_members(
    protocol: str, broker: Broker, topics: Topics, admin: KafkaAdmin
) -> None:
    topic, group = topics.create("in", partitions=2), topics.name("g")
    place = TopicPartition(topic, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    deadline = Deadline(60)
    while not consumer.assignment():
        consumer.poll(0.1)
        assert not deadline.passed()
    found = admin.describe_groups([group, topics.name("none")])
    assert found.keys() == {group}
    (member,) = found[group].members
    assert (found[group].state, found[group].protocol, member.client_id) == ("stable", protocol, "reader")
    assert member.partitions == (TopicPartition(topic, 0), place)
    assert group in [each.name for each in admin.groups()]
    with pytest.raises(ConfigurationError, match="has members"):
        admin.set_offsets(group, {place: Committed(NextOffset(0))})
    consumer.close()
    admin.set_offsets(group, {place: Committed(NextOffset(7), "a note")})
    while (answer := _answer(admin, group, place)) is None:
        assert not deadline.passed()
    assert answer == Committed(NextOffset(7), "a note")


def _answer(admin: KafkaAdmin, group: str, place: TopicPartition) -> Committed | None:
    try:
        return admin.stable_offsets(group, [place])[place]
    except RetryLater:
        return None


@pytest.mark.parametrize("name", ["", "g" * 1000])
def test_a_group_name_that_cannot_be_one_is_no_group(name: str, admin: KafkaAdmin) -> None:
    assert admin.describe_groups([name]) == {}
    assert admin.describe_groups([]) == {}


def test_a_topic_is_deleted_once_and_its_own_settings_are_known_before(
    topics: Topics, admin: KafkaAdmin
) -> None:
    name = topics.create("in", partitions=1, config={"retention.ms": "7777777"})
    assert admin.own_settings(name) == {"retention.ms": "7777777"}
    admin.delete_topic(name)
    assert name not in admin.topic_partitions()
    admin.delete_topic(name)


def test_a_broker_tells_its_settings(admin: KafkaAdmin) -> None:
    assert admin.broker_settings(1)["transaction.state.log.min.isr"] == "1"


def test_a_broker_that_stands_still_is_no_answer_and_never_a_made_up_one(frozen_broker: Broker) -> None:
    """The client then says neither that there was an error nor where the partition ends."""
    broker = frozen_broker
    topic = Topics(broker.bootstrap_servers).create("t", partitions=2)
    admin = Kafka(broker.bootstrap_servers, admin_timeout=1.0).admin()
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    deadline = Deadline(30)
    while not _true(lambda: admin.stable_ends(places) == dict.fromkeys(places, 0)):
        assert not deadline.passed()
    broker.pause()
    try:
        for ask in (
            lambda: admin.stable_ends(places),
            lambda: admin.offsets_at(places, 0),
            lambda: admin.watermarks_known(places),
            lambda: admin.watermarks(places),
            lambda: admin.newest_timestamp(topic),
        ):
            with pytest.raises(RetryLater):
                ask()
    finally:
        broker.resume()
        admin.close()


def test_answers_of_coordinators_that_come_too_late_do_not_abort_the_process(frozen_broker: Broker) -> None:
    program = (
        "import sys, time\n"
        "from streamtable import Kafka\n"
        "from streamtable.errors import RetryLater\n"
        "admin = Kafka(sys.argv[1], admin_timeout=1.0).admin()\n"
        "admin.brokers()\n"
        "print('connected', flush=True)\n"
        "sys.stdin.readline()\n"
        "for ask in (lambda: admin.describe_groups(['f', 'g', 'h']), lambda: admin.delete_group('f')):\n"
        "    try:\n"
        "        ask()\n"
        "    except RetryLater:\n"
        "        print('no answer', flush=True)\n"
        "sys.stdin.readline()\n"
        "time.sleep(1)\n"
        "print(len(admin.brokers()))\n"
    )
    warm = Kafka(frozen_broker.bootstrap_servers, admin_timeout=5.0).admin()
    deadline = Deadline(60)
    while not _true(lambda: warm.describe_groups(["f", "g", "h"]) == {}):
        assert not deadline.passed()  # a new broker creates the topic of the offsets first
    warm.close()
    process = subprocess.Popen(
        [sys.executable, "-c", program, frozen_broker.bootstrap_servers],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        frozen_broker.pause()
        process.stdin.write("\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == ["no answer\n"] * 2
        frozen_broker.resume()
        output, errors = process.communicate("\n", timeout=60)
    assert (process.returncode, output) == (0, "1\n"), errors


def _true(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except RetryLater:
        return False


def test_without_a_broker_every_question_is_asked_again_later() -> None:
    with reserve_port(0) as held:
        admin = Kafka(f"127.0.0.1:{held.getsockname()[1]}", admin_timeout=0.5).admin()
        place = TopicPartition("t", 0)
        for ask in (
            admin.brokers,
            admin.topic_partitions,
            admin.groups,
            lambda: admin.describe_groups(["g"]),
            lambda: admin.watermarks_known([place]),
            lambda: admin.offsets_at([place], 0),
            lambda: admin.own_settings("t"),
            lambda: admin.broker_settings(1),
            lambda: admin.delete_topic("t"),
        ):
            with pytest.raises(RetryLater):
                ask()
        admin.close()
