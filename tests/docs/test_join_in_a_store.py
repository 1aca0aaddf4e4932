"""The page on joining in a central store: its files are written, its tests run, and its program survives kill -9."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer
from tests.docs.pages import steps_of

from localkafka.fixtures import OwnBroker
from localkafka.waiting import Deadline
from localstores.redis import RedisServer
from streamtable import Emitter, Json, Kafka, Stream, String
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/tutorial/join-in-a-store.md").read_text("utf-8")
BIN = Path(sys.executable).parent
ORDERS, PAYMENTS = (Stream(name, key=String(), value=Json()) for name in ("orders", "payments"))
COUNT = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the page."""
    for step in steps_of(PAGE):
        assert step.title is not None
        (tmp_path / step.title).write_text(step.text)
    return tmp_path


def test_the_tests_of_the_page_pass(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_invoices.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@contextmanager
def program(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "program.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "invoices.py"], cwd=folder, env=environment, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_begun(kafka: str, log: Path) -> None:
    """Wait until the group has committed something: then it is in the middle of its work."""
    places = [TopicPartition("payments", partition) for partition in range(12)]
    deadline = Deadline(60)
    with closing(Kafka(kafka).cluster()) as cluster:
        while True:
            with suppress(RetryLater):  # a commit is under way
                found = cluster.stable_offsets("billing", places)
                if any(each and each.next_offset for each in found.values()):
                    return
            assert not deadline.passed(), log.read_text()[-4000:]


def paid_orders(kafka: str, log: Path, count: int) -> Counter[str]:
    """Return the orders that are reported as paid, once there are `count` of them; fail after a minute."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    found: Counter[str] = Counter()
    try:
        consumer.subscribe(["paid-orders"])
        deadline = Deadline(60)
        while len(found) < count:
            assert not deadline.passed(), f"{len(found)} of {count} are paid\n{log.read_text()[-4000:]}"
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None
                assert orjson.loads(message.value() or b"") == {"customer": "alice"}
                found[(message.key() or b"").decode()] += 1
    finally:
        consumer.close()
    return found


@pytest.mark.faults_long(
    "the page's program, killed and started again and again; the page's own tests are quick"
)
@pytest.mark.broker
@pytest.mark.timeout(240)
def test_the_program_of_the_page_tells_each_paid_order_once_though_it_is_killed(
    folder: Path, own_broker: OwnBroker
) -> None:
    kafka = own_broker().bootstrap_servers
    with RedisServer(folder / "redis") as server:
        environment = {
            **os.environ,
            "STREAMTABLE_BOOTSTRAP_SERVERS": kafka,
            "KAFKA": kafka,
            "STORE": server.url,
        }
        for command in ("topics apply --file topics.yaml", f"store check {server.url} --tenant billing"):
            subprocess.run(
                [BIN / "streamtable", *command.split()], cwd=folder, env=environment, check=True, timeout=60
            )
        with Emitter(ORDERS, Kafka(kafka)) as orders, Emitter(PAYMENTS, Kafka(kafka)) as payments:
            for number in map(str, range(COUNT)):
                payments.emit(number, {"cents": 300})
                orders.emit(number, {"customer": "alice", "ordered": 1000})
            with program(folder, environment):
                wait_begun(kafka, folder / "program.log")
            for number in map(str, range(COUNT)):
                payments.emit(number, {"cents": 700})
        with program(folder, environment):
            assert paid_orders(kafka, folder / "program.log", COUNT) == Counter(
                {str(n): 1 for n in range(COUNT)}
            )
