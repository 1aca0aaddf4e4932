import contextlib
import socket
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka.broker import Broker, BrokerNode, cluster_id, server_properties
from localkafka.errors import BrokerFailed, SetupError
from localkafka.fixtures import OwnBroker, OwnCluster
from localkafka.waiting import Deadline


def names(bootstrap_servers: str) -> set[str]:
    """The topics that a broker knows."""
    return set(
        AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}).list_topics(timeout=20).topics
    )


def create(bootstrap_servers: str, name: str, replicas: int = -1) -> None:
    deadline = Deadline(90)
    while name not in names(bootstrap_servers):
        # The request fails or times out while a cluster that lost a broker has no controller or too few brokers. A
        # client that knows the dead broker as the controller may keep asking it, so each attempt uses a new client.
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        with contextlib.suppress(KafkaException, TimeoutError):
            new = NewTopic(name, num_partitions=1, replication_factor=replicas)
            admin.create_topics([new])[name].result(10)
        assert not deadline.passed(), f"{name} could not be created"


def as_map(text: str) -> dict[str, str]:
    """Read properties as Java does: of two lines with one name, the later counts."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_a_single_broker_replicates_nothing_and_a_cluster_needs_a_majority_in_sync() -> None:
    nodes = [BrokerNode(1, 1001, 2001), BrokerNode(2, 1002, 2002), BrokerNode(3, 1003, 2003)]
    alone = as_map(server_properties(nodes[0], nodes[:1], Path("/data"), {}))
    assert (alone["default.replication.factor"], alone["min.insync.replicas"]) == ("1", "1")
    second = as_map(server_properties(nodes[1], nodes, Path("/data"), {}))
    assert (second["offsets.topic.replication.factor"], second["transaction.state.log.min.isr"]) == ("3", "2")
    assert second["controller.quorum.voters"] == "1@127.0.0.1:2001,2@127.0.0.1:2002,3@127.0.0.1:2003"
    assert second["listeners"] == "PLAINTEXT://127.0.0.1:1002,CONTROLLER://127.0.0.1:2002"


def test_an_override_wins_over_what_all_brokers_share() -> None:
    node = BrokerNode(1, 1001, 2001)
    shared = as_map(server_properties(node, [node], Path("/data"), {}))
    assert shared["auto.create.topics.enable"] == "false"
    overridden = server_properties(node, [node], Path("/data"), {"auto.create.topics.enable": "true"})
    assert as_map(overridden)["auto.create.topics.enable"] == "true"


def test_a_cluster_id_is_derived_from_its_folder_and_has_kafkas_form() -> None:
    assert cluster_id(Path("/a")) == cluster_id(Path("/a")) != cluster_id(Path("/b"))
    assert len(cluster_id(Path("/a"))) == 22
    assert not any(cluster_id(Path(f"/{number}")).startswith("-") for number in range(1_000))


def test_a_taken_port_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port} .*choose another"):
            Broker(tmp_path, port=port).start()
    assert list(tmp_path.iterdir()) == []


def test_freezing_a_broker_that_was_not_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="start it first"):
        Broker(tmp_path).pause()


def test_only_a_brief_broker_runs_without_the_second_compiler(tmp_path: Path) -> None:
    first_only = "-XX:TieredStopAtLevel=1"
    assert first_only in Broker(tmp_path, brief=True)._java_options()
    assert first_only not in Broker(tmp_path)._java_options()


def test_topics_survive_stop_and_kill_on_the_same_port_until_the_broker_is_wiped(
    own_broker: OwnBroker,
) -> None:
    broker = own_broker()
    address = broker.bootstrap_servers
    create(address, "kept")
    broker.restart()
    assert names(address) >= {"kept"}
    broker.kill()
    assert not broker.running
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=1)
    broker.start()
    assert names(address) >= {"kept"}
    assert broker.bootstrap_servers == address
    with pytest.raises(BrokerFailed, match="stop it before"):
        broker.wipe()
    broker.kill()
    broker.wipe()
    assert not broker.data_dir.exists()
    broker.start()
    assert "kept" not in names(address)


def test_a_paused_broker_does_not_answer_until_it_is_resumed(frozen_broker: Broker) -> None:
    broker = frozen_broker
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    broker.pause()
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    broker.resume()
    assert admin.list_topics(timeout=20).brokers


def test_the_error_of_a_broker_that_cannot_start_has_its_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path, overrides={"log.cleaner.threads": "none"})
    with pytest.raises(BrokerFailed, match=r"log\.cleaner\.threads"):
        broker.start()
    assert not broker.running
    broker.close()


@pytest.mark.faults_long(
    "three brokers, one of them killed; tests/faults/test_cluster_faults.py has groups on such a cluster"
)
def test_a_cluster_serves_replicated_topics_while_one_broker_is_dead(own_cluster: OwnCluster) -> None:
    cluster = own_cluster()
    create(cluster.bootstrap_servers, "replicated", replicas=3)
    cluster.brokers[0].kill()
    left = cluster.brokers[1].bootstrap_servers
    create(left, "second", replicas=2)
    cluster.brokers[0].start()
    assert names(cluster.brokers[0].bootstrap_servers) >= {"replicated", "second"}
