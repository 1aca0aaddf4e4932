from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from localkafka import fixtures
from localkafka.broker import Broker
from localkafka.fixtures import Topics, complaints


def test_a_test_that_uses_a_broker_is_marked(request: pytest.FixtureRequest, topics: Topics) -> None:
    assert request.node.get_closest_marker("broker")


def test_topics_are_created_with_the_requested_partitions_and_settings(
    broker: Broker, topics: Topics
) -> None:
    clicks = topics.create("clicks", partitions=3)
    table = topics.create("table", config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = admin.list_topics(timeout=20).topics
    assert len(found[clicks].partitions) == 3
    assert len(found[table].partitions) == 4
    assert clicks == topics.name("clicks") == f"{topics.prefix}-clicks"


def test_all_topics_with_the_prefix_are_deleted_including_those_of_other_clients(broker: Broker) -> None:
    first, second = Topics(broker.bootstrap_servers), Topics(broker.bootstrap_servers)
    gone, kept = first.create("same"), second.create("same")
    assert gone != kept
    first.delete_all()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = set(admin.list_topics(timeout=20).topics)
    assert gone not in found
    assert kept in found
    second.delete_all()


def test_the_report_of_a_failed_test_has_the_warnings_of_its_broker(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    assert complaints(log) == []
    fenced = "2026-11-23 22:07:23.092 INFO  ReplicationControlManager: [QuorumController id=1] handleBrokerFenced: changing 1 partition(s)"
    full = "2026-11-23 22:07:24.000 ERROR LogDirFailureChannel: Error while writing: No space left on device"
    usual = "2026-11-23 22:07:23.000 INFO  BrokerServer: [BrokerServer id=1] Waiting for the broker to be unfenced"
    log.write_text(f"{usual}\n{fenced}\n\tat kafka.Broker\n{full}\n")
    assert complaints(log) == [fenced, full]


def test_a_broker_of_a_session_has_its_data_in_memory_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixtures, "_MEMORY", tmp_path)
    monkeypatch.setattr(fixtures, "_MEMORY_BYTES_LEAST", 1)
    assert fixtures._memory() == tmp_path
    monkeypatch.setattr(fixtures, "_MEMORY_BYTES_LEAST", 2**80)
    assert fixtures._memory() is None
    monkeypatch.setattr(fixtures, "_MEMORY", tmp_path / "none")
    assert fixtures._memory() is None
