from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka.fixtures import OwnBroker
from localkafka.security import Security
from localkafka.topics import create_topics

USERS = {"admin": "of-the-administrator", "alice": "of-alice"}


def test_the_administrator_must_be_a_user_and_the_brokers_user_name_is_reserved() -> None:
    with pytest.raises(ValueError, match="'root' is not among the users"):
        Security(USERS, administrator="root")
    with pytest.raises(ValueError, match="choose another name"):
        Security({**USERS, "broker": "mine"})


def test_passwords_are_not_in_the_repr() -> None:
    security = Security(USERS)
    assert "of-" not in repr(security)
    assert security.own_password not in repr(security)


def test_a_secure_broker_authenticates_clients_and_authorizes_only_the_administrator(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker(security=Security(USERS))

    def admin(**options: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **options})

    owner = admin(**broker.client())
    create_topics(owner, [NewTopic("made", num_partitions=1)])

    alice = admin(**broker.client("alice"))
    with pytest.raises(KafkaException) as refused:
        alice.create_topics([NewTopic("other", num_partitions=1)])["other"].result(60)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "made" not in alice.list_topics(timeout=60).topics

    for options in ({**broker.client("alice"), "sasl.password": "wrong"}, {}):
        with pytest.raises(KafkaException):
            admin(**options).list_topics(timeout=3)
    broker.restart()
    assert "made" in owner.list_topics(timeout=60).topics
