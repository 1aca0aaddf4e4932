"""Jobs on a broker with TLS, authentication and ACLs that deny by default."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

from contracts.records import USER_CLICK, UserClick
from localkafka.broker import Broker
from localkafka.certificates import Authority
from localkafka.security import Security
from localkafka.topics import create_topics
from localkafka.waiting import Deadline, wait_until
from streamtable import Avro
from streamtable_admin.acls import required_acls
from streamtable_admin.declared import load
from streamtable_admin.rights import UserAdmin
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs import etl, rebuild, reconcile
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.job_args import ended
from streamtable_spark.jobs.kafka import Kafka, kafka_of
from streamtable_spark.jobs.positions import Span
from streamtable_spark.jobs.writer import ChangelogWriter

PASSWORD = 'right "and" \\ odd'
TOPIC = "clicks"
DEMO = ("--graph", "streamtable_spark.demo:LAKE")
JOBS = ("spark-etl", "spark-reconcile", "spark-rebuild")
ROOT = Path(__file__).resolve().parents[3]

Let = Callable[..., Kafka]


pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def let(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Let]:
    """Returns the settings of a user, `jobs` by default; arguments replace settings, by the suffixes of their variables."""
    folder = tmp_path_factory.mktemp("secure")
    with ExitStack() as stack:
        broker = Broker(
            folder, brief=True, security=Security({"admin": "a", **dict.fromkeys(("jobs", *JOBS), PASSWORD)})
        )
        stack.callback(broker.close)
        stack.callback(broker.kill)
        broker.start()
        as_admin: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, **broker.client()}
        admin = AdminClient(as_admin)
        create_topics(admin, [NewTopic(name, 2) for name in (TOPIC, "forbidden")])
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
            admin.create_acls([allowed])[allowed].result(60)
        granted: Any = AclBindingFilter(  # None is any, whatever its types say
            ResourceType.ANY,
            None,  # type: ignore[arg-type]
            ResourcePatternType.ANY,
            "User:jobs",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        # The controller has answered, and the broker takes it over a moment later.
        wait_until(lambda: len(admin.describe_acls(granted).result(60)) == 2)
        producer = Producer(as_admin)
        for number in range(5):
            producer.produce(TOPIC, f"value {number}", "key", 0)
        assert producer.flush(60) == 0

        def settings(user: str = "jobs", **changed: str | None) -> Kafka:
            client = {name.upper().replace(".", "_"): value for name, value in broker.client(user).items()}
            named = {f"STREAMTABLE_KAFKA_{name}": value for name, value in {**client, **changed}.items()}
            servers = broker.bootstrap_servers
            return kafka_of(servers, {name: value for name, value in named.items() if value is not None})

        yield settings


def test_a_job_reads_and_writes_as_the_user_that_the_services_settings_name(
    let: Let, spark: SparkSession
) -> None:
    kafka = let()
    with Cluster(kafka) as cluster:
        assert cluster.topics([TOPIC])[TOPIC].partitions == 2
        assert cluster.ends({TOPIC: 2}) == {TOPIC: {0: 5, 1: 0}}
        assert cluster.topics([TOPIC]).keys() == {TOPIC}
    rows = read(spark, kafka, {TOPIC: {0: Span(1, 4)}}).selectExpr("string(value)").collect()
    assert sorted(row[0] for row in rows) == ["value 1", "value 2", "value 3"]
    (written,) = ChangelogWriter(kafka, TOPIC).write([{"partition": 0, "key": b"k", "value": b"v"}])
    assert (written.written, written.error) == (1, None)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"SASL_PASSWORD": "wrong"}, "user 'jobs' cannot log in: correct STREAMTABLE_KAFKA_SASL_USERNAME"),
        ({"SSL_CA_LOCATION": "other.pem"}, "is of an authority that is not in other.pem: name the file"),
    ],
)
def test_a_job_that_does_not_get_in_says_which_setting_to_correct(
    let: Let, wrong: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.pem").write_bytes(Authority("another").certificate)
    with pytest.raises(ConfigurationError) as caught, Cluster(let(**wrong), timeout_s=600) as cluster:
        cluster.topics([TOPIC])
    assert said in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_the_error_of_a_job_without_an_acl_names_the_missing_right(let: Let) -> None:
    with (
        pytest.raises(
            ConfigurationError, match=r"user 'jobs' lacks the right DESCRIBE .* on topic 'forbidden'"
        ),
        Cluster(let()) as cluster,
    ):
        cluster.topics(["forbidden"])


@pytest.mark.faults_long  # a minute: four jobs
@pytest.mark.timeout(900)
def test_each_job_has_the_rights_that_it_is_declared_with_and_needs_no_more(
    let: Let,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    declared = load(ROOT / "infra/topics.yaml")
    kafka = let("admin")
    options: dict[str, Any] = {"bootstrap.servers": str(kafka), **kafka.client().options}
    admin = kafka.client().admin_of(UserAdmin)
    topics = {**declared.descriptions(), **load(ROOT / "infra/rebuilt.yaml").descriptions()}
    admin.create_topics([replace(topic, partitions=2) for topic in topics.values()])
    admin.grant(right for right in required_acls(declared) if right.user in JOBS)
    admin.close()
    wait_led(AdminClient(options), topics)
    producer = Producer(options)
    for number in range(20):
        click = UserClick(id=str(number), user_id="alice", url="https://example.org/", at=number)
        producer.produce("user-clicks", Avro(USER_CLICK).encode(click), "alice")
    assert producer.flush(60) == 0

    def run(user: str, work: Callable[[Sequence[str]], int], *arguments: str) -> int:
        kafka = let(user)
        monkeypatch.setattr("streamtable_spark.jobs.job_args.kafka_of", lambda *_: kafka)
        monkeypatch.setattr("streamtable_spark.jobs.job_args.connect", lambda *_: spark)
        options = ["--bootstrap-servers", str(kafka), "--runs-topic", "streamtable-runs"]
        return ended(work, [*options, *arguments])

    def run_rebuild(user: str, group: str) -> int:
        manifest = str(tmp_path / f"{user}.{group}")
        return run(user, rebuild.main, "--group", "click-count", "--as", group, "--manifest", manifest)

    # A table and offsets, as a processor leaves them, for the audit.
    assert run_rebuild("admin", "click-count") == 0
    audit = ("--group", "click-count", "--report", str(tmp_path / "audit"))
    assert run("spark-reconcile", reconcile.main, *audit) == 0
    assert run_rebuild("spark-rebuild", "click-count-v2") == 0
    assert run("spark-etl", etl.work, "--lake", str(tmp_path / "lake"), *DEMO, "--topics", "user-clicks") == 0
    assert "note: this run is not reported" not in capfd.readouterr().err
    assert run_rebuild("spark-etl", "user-status-v2") == 2
    assert "lacks the right" in capfd.readouterr().err


def wait_led(client: AdminClient, topics: Collection[str]) -> None:
    """Wait until the broker leads all partitions of these topics."""
    deadline = Deadline(60)
    while True:
        known = client.list_topics(timeout=30).topics
        found = [known[name].partitions for name in topics if name in known]
        if len(found) == len(topics) and all(each.leader >= 0 for parts in found for each in parts.values()):
            return
        assert not deadline.passed()
        time.sleep(0.05)
