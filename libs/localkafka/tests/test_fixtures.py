import pytest
from confluent_kafka.admin import AdminClient

from localkafka.broker import Broker
from localkafka.fixtures import Topics


def test_a_test_that_asks_for_a_broker_is_marked(request: pytest.FixtureRequest, topics: Topics) -> None:
    assert request.node.get_closest_marker("broker")


def test_topics_get_the_partitions_and_the_settings_they_ask_for(broker: Broker, topics: Topics) -> None:
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
