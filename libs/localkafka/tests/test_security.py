from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka.fixtures import OwnBroker
from localkafka.security import Security

USERS = {"admin": "of-the-administrator", "alice": "of-alice"}


def test_the_administrator_is_one_of_the_users_and_the_brokers_have_one_of_their_own() -> None:
    with pytest.raises(ValueError, match="'root' is not among the users"):
        Security(USERS, administrator="root")
    with pytest.raises(ValueError, match="choose another name"):
        Security({**USERS, "broker": "mine"})


def test_passwords_are_not_in_its_text() -> None:
    security = Security(USERS)
    assert "of-" not in repr(security)
    assert security.own_password not in repr(security)


def test_a_broker_with_security_knows_who_comes_and_lets_only_the_administrator_do_things(
    own_broker: OwnBroker, tmp_path: Path
) -> None:
    broker = own_broker(security=Security(USERS))

    def admin(**options: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **options})

    owner = admin(**broker.client())
    owner.create_topics([NewTopic("made", num_partitions=1)])["made"].result(30)

    alice = admin(**broker.client("alice"))
    with pytest.raises(KafkaException) as refused:
        alice.create_topics([NewTopic("other", num_partitions=1)])["other"].result(30)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "made" not in alice.list_topics(timeout=20).topics

    for options in ({**broker.client("alice"), "sasl.password": "wrong"}, {}):
        with pytest.raises(KafkaException):
            admin(**options).list_topics(timeout=3)
    broker.restart()
    assert "made" in owner.list_topics(timeout=20).topics
