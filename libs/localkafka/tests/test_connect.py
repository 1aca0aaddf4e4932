"""A real Kafka Connect: it runs connectors until it is stopped, and says why one failed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from localkafka.broker import Broker
from localkafka.connect import Connector, ConnectWorker
from localkafka.errors import BrokerFailed, SetupError
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


def sink(topic: str, file: Path, **settings: str) -> dict[str, str]:
    text = "org.apache.kafka.connect.storage.StringConverter"
    own = {"connector.class": SINK, "topics": topic, "file": str(file), "value.converter": text}
    return {**own, **{name.replace("_", "."): value for name, value in settings.items()}}


def emit(broker: Broker, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    "program",
    [["-m", "localkafka"], ["-c", "from localkafka.dev import app; app()"]],
    ids=["python -m localkafka", "streamtable dev"],
)
def test_a_worker_runs_a_connector_of_a_file_until_it_is_interrupted(
    program: list[str], broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    topic, out = topics.create("lines"), tmp_path / "out.txt"
    emit(broker, topic, "hello")
    declared = tmp_path / "sink.json"
    declared.write_text(json.dumps({"name": topic, "config": sink(topic, out)}))
    command = [sys.executable, *program, "connect", "--connector", str(declared)]
    own = ["--kafka", broker.bootstrap_servers, "--port", "0", "--data", str(tmp_path / "connect")]
    with subprocess.Popen([*command, *own], stdout=subprocess.PIPE, text=True, env=os.environ) as worker:
        assert worker.stdout is not None
        assert f"Kafka Connect runs {topic}" in worker.stdout.readline()
        wait_until(lambda: out.exists() and out.read_text() == "hello\n", 30)
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.read() == "stopped\n"
        assert worker.wait(30) == 0


def test_a_connector_that_fails_stops_the_start_with_connects_reason(
    broker: Broker, topics: Topics, tmp_path: Path
) -> None:
    wrong = Connector(topics.prefix, sink(topics.create("lines"), tmp_path / "missing" / "out.txt"))
    with (
        pytest.raises(BrokerFailed, match="Couldn't find or create file"),
        ConnectWorker(tmp_path / "connect", broker.bootstrap_servers, [wrong], brief=True),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not a connector's JSON file"),
        ('{"name": "a"}', "expected"),
        ('{"name": "a", "config": {}}', "needs a name and a connector.class"),
        ('{"name": "", "config": {"connector.class": "x"}}', "needs a name and a connector.class"),
        ('{"name": "a", "config": {"connector.class": "x", "list": []}}', "list must be text"),
    ],
)
def test_a_file_that_declares_no_connector_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "connector.json"
    file.write_text(text)
    with pytest.raises(SetupError, match=why):
        Connector.read(file)


def test_a_connector_without_pins_needs_the_folder_of_its_jars() -> None:
    with pytest.raises(SetupError, match=r"no pins for 'a\.Sink'; give one of"):
        _ = Connector("a", {"connector.class": "a.Sink"}).plugin


def test_numbers_and_booleans_of_a_declaration_become_text() -> None:
    found = Connector("a", {"connector.class": SINK, "database.port": 5432, "tombstones.on.delete": True})
    assert found.config["database.port"] == "5432"
    assert found.config["tombstones.on.delete"] == "true"
