"""Each job on a cluster: a lake in an object store, workers that are killed, drivers here and on a worker.

The tests build on each other: the lake that the ETL has filled is audited, recomputed and compacted.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from spark.tests.cluster.cluster import BUCKET, SparkCluster, cluster

from contracts.records import USER_CLICK, UserClick
from localkafka.broker import Broker
from localkafka.topics import create_topics, delete_topics
from localkafka.waiting import wait_until
from streamtable import Avro
from streamtable_spark.archive import pack

pytestmark = [
    pytest.mark.faults_long("a Spark cluster, and some minutes for each job"),
    pytest.mark.timeout(3600),
]
CLICKS, USERS = 3_000, 50
TOPICS = (
    "user-clicks", "count-table", "count-ids", "count-dead-letters", "count-retry",
    "count-v2-table", "count-v2-ids", "count-v2-dead-letters", "count-v2-retry",
)  # fmt: skip
LAKE = f"s3a://{BUCKET}/tables"
DEMO = ("--graph", "streamtable_spark.demo:LAKE", "--topics", "user-clicks", "--lake", LAKE)
GRAPH = ("--graph", "click_count.topics:by_record")
MANIFEST = f"s3a://{BUCKET}/count-v2.json"


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[SparkCluster]:
    archive = tmp_path_factory.mktemp("dist")
    pack(archive)
    with cluster(tmp_path_factory.mktemp("cluster"), archive, broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def clicks(broker: Broker) -> Iterator[None]:
    """A topic of clicks, each with its id, and the topics of two groups."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    compacted = {"cleanup.policy": "compact"}
    topics = [
        NewTopic(name, 3, config=compacted if name.endswith(("-table", "-ids")) else {}) for name in TOPICS
    ]
    create_topics(admin, topics)
    send(broker, 0)
    yield
    delete_topics(admin, TOPICS)


def send(broker: Broker, first: int) -> None:
    producer = Producer(
        {"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    )
    for number in range(first, first + CLICKS):
        click = UserClick(id=f"{number}", user_id=f"user-{number % USERS}", url="/", at=number)
        producer.produce("user-clicks", Avro(USER_CLICK).encode(click), click["user_id"])
        producer.poll(0)
    assert producer.flush(60) == 0


def answer(said: str) -> dict[str, Any]:
    """The last line that is a JSON object of counts."""
    found: dict[str, Any] = json.loads([line for line in said.splitlines() if line.startswith('{"')][-1])
    return found


def test_the_etl_fills_a_lake_in_an_object_store_though_a_worker_is_killed(
    spark_cluster: SparkCluster,
) -> None:
    said = spark_cluster.run("etl", "etl", *DEMO, "--batch", str(CLICKS // 2))
    assert answer(said)["user-clicks"] == CLICKS


def test_days_are_recomputed_and_files_compacted_though_a_worker_is_killed(
    spark_cluster: SparkCluster,
) -> None:
    days = ("--from", "2020-01-01", "--to", "2100-01-01")
    assert answer(spark_cluster.run("backfill", "backfill", *DEMO, *days))["user-clicks"] == CLICKS
    changed = answer(spark_cluster.run("maintain", "maintain", "--lake", LAKE))
    assert changed["bronze"]["compacted"] > changed["bronze"]["into"]


def test_a_table_is_rebuilt_and_audited_though_workers_are_killed(spark_cluster: SparkCluster) -> None:
    rebuilt = ("--group", "count", "--as", "count-v2", *GRAPH, "--manifest", MANIFEST)
    said = spark_cluster.run("rebuild", "rebuild", *rebuilt, "--from", LAKE)
    assert answer(said)["events"] == CLICKS
    audited = ("--group", "count-v2", *GRAPH, "--rebuilt", MANIFEST, "--report", f"s3a://{BUCKET}/audit")
    assert answer(spark_cluster.run("reconcile", "reconcile", *audited))["differences"] == 0


def test_an_etl_whose_driver_runs_on_a_worker_takes_what_came_since(
    spark_cluster: SparkCluster, broker: Broker
) -> None:
    send(broker, CLICKS)
    workers = spark_cluster.workers
    workers.ensure(2)
    with spark_cluster.submitted("etl-on-worker", "etl", *DEMO, on_worker=True) as submission:
        assert submission.wait(600) == 0, spark_cluster.said("etl-on-worker")[-3000:]
        wait_until(lambda: workers.drivers() in (["FINISHED"], ["FAILED"], ["ERROR"]), 900)
    assert workers.drivers() == ["FINISHED"], workers.logs()[-6000:]
    assert answer(workers.logs())["user-clicks"] == CLICKS


def test_plain_parquet_is_refused_where_files_cannot_be_renamed(spark_cluster: SparkCluster) -> None:
    parquet = (*DEMO[:-1], f"s3a://{BUCKET}/plain", "--format", "parquet")
    with spark_cluster.submitted("plain", "etl", *parquet) as child:
        assert child.wait(600) == 2
    assert "plain Parquet" in spark_cluster.said("plain")
