"""Jobs on a broker that asks who comes, over TLS, and allows nobody what was not allowed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

from localkafka.broker import Broker
from localkafka.certificates import Authority
from localkafka.security import Security
from streamtable_spark.errors import ConfigurationError, RetryLater
from streamtable_spark.jobs.checkpoint import topic_ids
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.kafka import Kafka, kafka_of
from streamtable_spark.jobs.positions import Span
from streamtable_spark.jobs.writer import ChangelogWriter

PASSWORD = 'right "and" \\ odd'
TOPIC = "clicks"

Let = Callable[..., Kafka]


@pytest.fixture(scope="module")
def let(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Let]:
    """How the user `jobs` comes in; arguments are settings that are otherwise, by the ends of their names."""
    folder = tmp_path_factory.mktemp("secure")
    with ExitStack() as stack:
        broker = Broker(folder, brief=True, security=Security({"admin": "a", "jobs": PASSWORD}))
        stack.callback(broker.close)
        stack.callback(broker.kill)
        broker.start()
        as_admin: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, **broker.client()}
        admin = AdminClient(as_admin)
        for made in admin.create_topics([NewTopic(name, 2) for name in (TOPIC, "forbidden")]).values():
            made.result(30)
        for kind, name in (
            (ResourceType.TOPIC, TOPIC),
            (ResourceType.TRANSACTIONAL_ID, f"streamtable-rebuild-{TOPIC}-0"),
        ):
            allowed = AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                "User:jobs",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            admin.create_acls([allowed])[allowed].result(30)
        producer = Producer(as_admin)
        for number in range(5):
            producer.produce(TOPIC, f"value {number}", "key", 0)
        assert producer.flush(30) == 0

        def settings(**changed: str | None) -> Kafka:
            told = {name.upper().replace(".", "_"): value for name, value in broker.client("jobs").items()}
            named = {f"STREAMTABLE_KAFKA_{name}": value for name, value in {**told, **changed}.items()}
            servers = broker.bootstrap_servers
            return kafka_of(servers, {name: value for name, value in named.items() if value is not None})

        yield settings


def test_a_job_reads_and_writes_as_the_user_that_the_services_settings_name(
    let: Let, spark: SparkSession
) -> None:
    kafka = let()
    with Cluster(kafka) as cluster:
        assert cluster.partitions([TOPIC]) == {TOPIC: 2}
        assert cluster.ends({TOPIC: 2}) == {TOPIC: {0: 5, 1: 0}}
    assert topic_ids(kafka, [TOPIC]).keys() == {TOPIC}
    rows = read(spark, kafka, {TOPIC: {0: Span(1, 4)}}).selectExpr("string(value)").collect()
    assert sorted(row[0] for row in rows) == ["value 1", "value 2", "value 3"]
    (written,) = ChangelogWriter(kafka, TOPIC).write([{"partition": 0, "key": b"k", "value": b"v"}])
    assert (written.written, written.error) == (1, None)


def refused(kafka: Kafka, topic: str = TOPIC) -> str:
    with pytest.raises(ConfigurationError) as caught, Cluster(kafka, timeout_s=20) as cluster:
        cluster.ends(cluster.partitions([topic]))
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_a_wrong_password_is_named(let: Let) -> None:
    said = refused(let(SASL_PASSWORD="wrong"))
    assert "does not let this job in: " in said
    assert "check STREAMTABLE_KAFKA_SASL_USERNAME, _SASL_PASSWORD and _SASL_MECHANISM" in said
    assert "wrong" not in said.partition("in: ")[2].partition("SASL")[0].split()


def test_a_broker_whose_certificate_another_authority_has_signed_is_not_trusted(
    let: Let, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("another").certificate)
    said = refused(let(SSL_CA_LOCATION=str(other)))
    assert "certificate verify failed" in said
    assert "check STREAMTABLE_KAFKA_SSL_CA_LOCATION" in said


def test_a_job_without_a_right_is_told_which(let: Let) -> None:
    with (
        pytest.raises(
            ConfigurationError,
            match=r"TOPIC_AUTHORIZATION_FAILED of topic 'forbidden'\): give the job's user the right",
        ),
        Cluster(let()) as cluster,
    ):
        cluster.partitions(["forbidden"])


def test_a_job_that_speaks_in_the_clear_hears_why_nobody_answers(let: Let) -> None:
    plain = Kafka(str(let()))
    with (
        pytest.raises(RetryLater, match=r"in 2 s: .*is STREAMTABLE_KAFKA_SECURITY_PROTOCOL right"),
        Cluster(plain, timeout_s=6) as cluster,
    ):
        cluster.partitions([TOPIC])
