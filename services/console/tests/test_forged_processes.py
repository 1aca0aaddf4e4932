"""Forged reports in the status topic must not fill the console's memory: any producer may write to it."""

from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from services.console.tests.world import status_with

from console.statuses import PROCESSES_MAX, STATUS_BYTES_MAX
from contracts.records import PROCESS_STATUS
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from servicekit_testing import Process
from streamtable import Avro

pytestmark = pytest.mark.broker
TOKEN = "a-token-of-the-tests-of-memory"
FORGED = PROCESSES_MAX + 50
LARGE = STATUS_BYTES_MAX + 1000


def forge(servers: str, topic: str, at: int) -> None:
    """Write more processes than are shown, and before them in the order of keys two that are too large."""
    status = Avro(PROCESS_STATUS)
    producer = Producer(
        {"enable.idempotence": True, "bootstrap.servers": servers, "compression.type": "lz4", "linger.ms": 50}
    )
    value = status.encode(status_with(at=at, started_at=at))
    for number in range(FORGED):
        producer.produce(topic, value, f"forged/query/{number:05}".encode())
        producer.poll(0)
    large = status.encode(status_with(at=at, error="x" * LARGE))
    for number in range(2):
        producer.produce(topic, large, f"a-large/query/{number}".encode())
    assert producer.flush(120) == 0


def test_forged_processes_beyond_a_bound_are_left_out(broker: Broker, tmp_path: Path) -> None:
    topics = Topics(broker.bootstrap_servers)
    topic = topics.create("status", partitions=1, config={"cleanup.policy": "compact"})
    forge(broker.bootstrap_servers, topic, 4_000_000_000_000)
    environment = {
        "STREAMTABLE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "STREAMTABLE_HTTP_ADDRESS": "127.0.0.1:0",
        "STREAMTABLE_STATE_DIR": str(tmp_path),
        "SERVICEKIT_STATUS_TOPIC": topic,
        "CONSOLE_TOKEN": TOKEN,
    }
    process = Process("console.main", [], environment)
    try:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"http://{process.address()}"

        def shown() -> int:
            answer = httpx.get(f"{url}/api/fleet", headers=headers, timeout=60)
            return len(answer.json()["instances"]) if answer.status_code == 200 else 0

        wait_until(lambda: shown() >= PROCESSES_MAX, 120)
        assert shown() == PROCESSES_MAX
        assert process.stop() == 0
    finally:
        process.close()
        topics.delete_all()
    said = "".join(process.output)
    assert "more processes report than are shown" in said
    assert "bytes are too many" in said
