"""`make spark-...` beside a Kafka on this machine."""

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from spark.tests.verbs import make

from contracts.records import JOB_RUN, USER_CLICK, UserClick
from localkafka.fixtures import OwnBroker
from localkafka.topics import create_topics
from localkafka.waiting import Deadline
from servicekit_testing import Process
from streamtable import Avro, Emitter, Kafka, Stream, String

CLICKS = Stream("user-clicks", key=String(), value=Avro(USER_CLICK))
COMPACTED = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}


def latest_run(servers: str) -> tuple[str, str, str]:
    """Return job, group and state of the last record."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition("streamtable-runs", 0), 30)
        consumer.assign([TopicPartition("streamtable-runs", 0, end - 1)])
        message = consumer.poll(30)
        assert message is not None
        value = message.value()
        assert isinstance(value, bytes)
        record = Avro(JOB_RUN).decode(value)
        return record["job"], record["group"], record["state"]
    finally:
        consumer.close()


def handled(reader: Consumer, places: list[TopicPartition]) -> int:
    """Records that the reader's group has committed; none while it has no coordinator yet."""
    try:
        return sum(max(0, each.offset) for each in reader.committed(places, 30))
    except KafkaException:
        return 0


@pytest.mark.faults_long  # a minute: Spark, and a processor beside it
@pytest.mark.timeout(400)
def test_an_audit_of_a_running_group_is_one_verb(own_broker: OwnBroker, tmp_path: Path) -> None:
    broker = own_broker()
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(name, 2) for name in ("user-clicks", "click-count-retry", "click-count-dead-letters")]
    topics += [NewTopic(f"click-count-{table}", 2, config=COMPACTED) for table in ("table", "ids")]
    topics.append(NewTopic("streamtable-runs", 1, config={"cleanup.policy": "compact"}))
    create_topics(admin, topics)
    with Emitter(CLICKS, Kafka(servers)) as emitter:
        for number in range(20):
            user = f"user-{number % 3}"
            emitter.emit_now(
                user, UserClick(id=str(number), user_id=user, url="https://example.org/", at=number)
            )
    environment = {
        "STREAMTABLE_BOOTSTRAP_SERVERS": servers,
        "STREAMTABLE_STATE_DIR": str(tmp_path / "state"),
        "STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:0",
    }
    processor = Process("click_count.main", ("processor",), environment)
    try:
        reader = Consumer({"bootstrap.servers": servers, "group.id": "click-count"})
        deadline = Deadline(90)
        places = [TopicPartition("user-clicks", number) for number in range(2)]
        while handled(reader, places) < 20:
            assert not deadline.passed(), "the clicks were not counted in time"
            time.sleep(0.1)
        reader.close()
        with make("spark-reconcile", broker.node.port, tmp_path) as run:
            answer, said = run.communicate(timeout=300)
    finally:
        processor.close()
    assert (run.returncode, answer) == (0, ""), said
    assert (tmp_path / "click-count.audit/report.html").exists()
    assert (
        'streamtable_job_differences{group="click-count",job_name="reconcile"} 0.0'
        in (tmp_path / "spark-metrics/reconcile.click-count.prom").read_text()
    )
    assert latest_run(servers) == ("reconcile", "click-count", "done")


@pytest.mark.slow("the verbs ask Kafka for half a minute before they give up")
def test_without_a_broker_a_verb_says_where_it_has_looked(in_vain: tuple[int, subprocess.Popen[str]]) -> None:
    port, run = in_vain
    _, said = run.communicate(timeout=90)
    assert run.returncode != 0
    assert f"error: no answer from Kafka at 127.0.0.1:{port} " in said
    assert "start it, check the address" in said
