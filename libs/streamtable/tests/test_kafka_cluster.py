"""Questions about topics, asked of a real broker."""

import subprocess
import sys

import pytest

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.process import reserve_port
from localkafka.waiting import Deadline
from streamtable.base.ports import TopicDescription
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.errors import ConfigurationError, RetryLater
from streamtable.kafka import Kafka


def test_topics_are_described_and_missing_ones_left_out(broker: Broker, topics: Topics) -> None:
    config = {"cleanup.policy": "compact", "delete.retention.ms": "1000", "max.message.bytes": "2000"}
    name = topics.create("table", partitions=3, config=config)
    cluster = Kafka(broker.bootstrap_servers).cluster()
    (topic,) = cluster.topics([name, topics.name("missing")]).values()
    assert (topic.name, topic.partitions, topic.compacted) == (name, 3, True)
    assert (topic.delete_retention_ms, topic.max_message_bytes) == (1000, 2000)
    assert topic.topic_id
    assert cluster.topics([]) == {}


def test_the_end_counts_uncommitted_records(broker: Broker, topics: Topics) -> None:
    name = topics.create("table", partitions=2)
    kafka = Kafka(broker.bootstrap_servers)
    outbox = kafka.transactional_producer(topics.name("tx"))
    outbox.open(30)
    outbox.begin()
    outbox.produce(name, b"k", b"v", partition=1)
    outbox.flush(30)
    places = [TopicPartition(name, 0), TopicPartition(name, 1)]
    assert kafka.cluster().watermarks(places) == {places[0]: Watermarks(0, 0), places[1]: Watermarks(0, 1)}
    assert kafka.cluster().watermarks([]) == {}
    outbox.abort(30)
    outbox.close()


def test_topics_are_created_once_and_altered_in_place(broker: Broker, topics: Topics) -> None:
    cluster = Kafka(broker.bootstrap_servers).cluster()
    requested = TopicDescription(
        topics.name("new"), 2, 1, {"cleanup.policy": "compact", "retention.ms": "5000"}
    )
    cluster.create_topics([requested])
    cluster.create_topics([requested])
    cluster.alter_topic(requested.name, {"retention.ms": "6000"})
    found = cluster.describe([requested.name])[requested.name]
    assert (found.partitions, found.replication, found.config["cleanup.policy"]) == (2, 1, "compact")
    for retention_ms in map(str, range(7000, 7020)):
        cluster.alter_topic(requested.name, {"retention.ms": retention_ms})
        assert cluster.describe([requested.name])[requested.name].config["retention.ms"] == retention_ms


def test_topics_are_described_once_they_were_created(broker: Broker, topics: Topics) -> None:
    """Brokers learn of them from the controller after it has answered: of thirty at once, a moment later."""
    cluster = Kafka(broker.bootstrap_servers).cluster()
    for attempt in range(3):
        created = [topics.name(f"new-{attempt}-{number}") for number in range(30)]
        cluster.create_topics(TopicDescription(name, 8, 1) for name in created)
        assert cluster.topics(created).keys() == set(created)


@pytest.mark.parametrize("replication", [5, 1])
def test_what_the_broker_refuses_is_a_configuration_error(
    replication: int, broker: Broker, topics: Topics
) -> None:
    cluster = Kafka(broker.bootstrap_servers).cluster()
    requested = TopicDescription(topics.name("new"), 1, replication, {"cleanup.policy": "no such policy"})
    with pytest.raises(ConfigurationError, match=requested.name):
        cluster.create_topics([requested])


def test_an_altered_setting_that_does_not_exist_is_a_configuration_error(
    broker: Broker, topics: Topics
) -> None:
    cluster = Kafka(broker.bootstrap_servers).cluster()
    with pytest.raises(ConfigurationError, match="retention"):
        cluster.alter_topic(topics.create("in"), {"retention.ms": "for ever"})


def test_without_a_broker_every_question_ends_in_time_and_names_the_address() -> None:
    with reserve_port(0) as held:  # nothing answers there
        address = f"127.0.0.1:{held.getsockname()[1]}"
        cluster = Kafka(address, admin_timeout=1).cluster()
        end = Deadline(6)
        with pytest.raises(RetryLater, match=address):
            cluster.topics(["some"])
        with pytest.raises(RetryLater, match=address):
            cluster.watermarks([TopicPartition("some", 0)])
        with pytest.raises(RetryLater, match=address):
            cluster.create_topics([TopicDescription("some", 1, 1)])
        assert not end.passed()


def test_garbage_collection_in_the_thread_of_a_closed_client_does_not_abort_the_process() -> None:
    """As after an error, whose traceback and frames refer to each other and to the client."""
    program = (
        "import gc, sys\n"
        "from concurrent.futures import wait\n"
        "from streamtable import Kafka\n"
        "gc.disable()\n"
        "class Frame: pass\n"
        "def asked():\n"
        "    frame = Frame()\n"
        "    frame.itself, frame.cluster = frame, Kafka(sys.argv[1], admin_timeout=1).admin()\n"
        "    answer = frame.cluster._admin.list_consumer_groups(request_timeout=0.5)\n"
        "    answer.add_done_callback(lambda _: gc.collect())\n"
        "    frame.cluster.close()\n"
        "    frame.cluster.close()\n"
        "    return not wait([answer], 30).not_done\n"
        "print(asked())\n"
    )
    with reserve_port(0) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-c", program, address], capture_output=True, text=True, timeout=60, check=False
        )
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr
