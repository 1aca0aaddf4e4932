"""Pytest fixtures for a real broker; a test that uses one of them is marked `broker`.

Loaded with `pytest_plugins = ["localkafka.fixtures"]` in the root conftest.py.
"""

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka.broker import Broker, BrokerCluster
from localkafka.security import Security
from localkafka.topics import create_topics, delete_topics, known_topics

B = TypeVar("B", Broker, BrokerCluster)
# Members send heartbeats five times as often as by default here, so partitions move at once.
BRISK = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}
# For a broker that is never killed and mostly idles, like the session's: fewer broker heartbeats and fewer no-op
# metadata records halve its CPU time. The long session keeps its controller from fencing a broker that stalls on a busy
# machine, which would leave its partitions without a leader for a moment. If a transaction is decided in that moment,
# Kafka 4.3 writes no transaction marker to such a partition: the last stable offset never advances again, and the
# group's partitions cannot recover.
PATIENT = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "120000",
    "metadata.max.idle.interval.ms": "10000",
}
# To create a topic is mostly work of the file system. A broker whose data are in memory needs two thirds of the CPU time.
_MEMORY = Path("/dev/shm")  # noqa: S108 - the folders in it have random names
_MEMORY_BYTES_LEAST = 4 * 2**30
_ANSWER_SECONDS = 60  # on a busy machine
_COMPLAINT = re.compile(r"\S+ \S+ (WARN|ERROR|FATAL) |.*handleBroker(Fenced|Unfenced)")
_LINES_MAX = 40
ASKS_FOR_BROKER = {"broker", "topics", "frozen_broker", "own_broker", "own_cluster"}


class Topics:
    """Topics for one test, on the session's broker.

    Attributes:
        prefix: A unique prefix. All topics whose names start with it are deleted after the test, so the names of the
            test's groups, and thus of their tables, should start with it too.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def name(self, name: str) -> str:
        """Return the name with the prefix."""
        return f"{self.prefix}-{name}"

    def create(self, name: str, *, partitions: int = 4, config: Mapping[str, str] | None = None) -> str:
        """Create a topic and return its name: `name` with the prefix."""
        full = self.name(name)
        create_topics(self._admin, [NewTopic(full, num_partitions=partitions, config=dict(config or {}))])
        return full

    def delete_all(self) -> None:
        """Delete every topic with the prefix, including those that other clients created."""
        names = [name for name in known_topics(self._admin) if name.startswith(self.prefix)]
        delete_topics(self._admin, names)


class OwnBroker(Protocol):
    """Starts a broker for one test alone, which may kill it."""

    def __call__(
        self,
        overrides: Mapping[str, str] | None = None,
        *,
        heap: str = "512m",
        security: Security | None = None,
    ) -> Broker: ...


class OwnCluster(Protocol):
    """Starts a cluster for one test alone."""

    def __call__(
        self, overrides: Mapping[str, str] | None = None, *, count: int = 3, heap: str = "384m"
    ) -> BrokerCluster: ...


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker for the whole session (with xdist: for each worker). Tests must not stop it."""
    with ExitStack() as stack:
        yield _started(stack, Broker(_folder(stack, _memory()), overrides=BRISK | PATIENT, brief=True))


@pytest.fixture
def topics(broker: Broker) -> Iterator[Topics]:
    """Topics of this test alone, deleted when it ends."""
    made = Topics(broker.bootstrap_servers)
    yield made
    made.delete_all()


@pytest.fixture(scope="session")
def _second_broker() -> Iterator[Broker]:
    with ExitStack() as stack:
        yield _started(stack, Broker(_folder(stack, _memory()), overrides=BRISK | PATIENT, brief=True))


@pytest.fixture
def frozen_broker(_second_broker: Broker) -> Iterator[Broker]:
    """A second broker for the session, which a test may freeze. It is resumed when the test ends."""
    yield _second_broker
    _second_broker.resume()


@pytest.fixture
def own_broker() -> Iterator[OwnBroker]:
    """A function that starts a broker for this test alone, which may kill and restart it."""
    with ExitStack() as stack:

        def start(
            overrides: Mapping[str, str] | None = None,
            *,
            heap: str = "512m",
            security: Security | None = None,
        ) -> Broker:
            settings = {**BRISK, **(overrides or {})}
            made = Broker(_folder(stack), overrides=settings, heap=heap, brief=True, security=security)
            return _started(stack, made)

        yield start


@pytest.fixture
def own_cluster() -> Iterator[OwnCluster]:
    """A function that starts a cluster for this test alone."""
    with ExitStack() as stack:

        def start(
            overrides: Mapping[str, str] | None = None, *, count: int = 3, heap: str = "384m"
        ) -> BrokerCluster:
            settings = {**BRISK, **(overrides or {})}
            made = BrokerCluster(_folder(stack), count=count, overrides=settings, heap=heap, brief=True)
            return _started(stack, made)

        yield start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a broker, so that `-m "not broker"` deselects them."""
    for item in items:
        if isinstance(item, pytest.Function) and ASKS_FOR_BROKER.intersection(item.fixturenames):
            item.add_marker(pytest.mark.broker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the broker's warnings and errors to the report of a failed test: a fenced broker explains many failures."""
    report = yield
    broker = getattr(item, "funcargs", {}).get("broker")
    if report.failed and isinstance(broker, Broker):
        report.sections.append(("broker", "\n".join(complaints(broker.log_file))))
    return report


def complaints(log_file: Path) -> list[str]:
    """Return the last warnings and errors of a broker's log, and the lines about fencing and unfencing."""
    lines = log_file.read_text(errors="replace").splitlines() if log_file.exists() else []
    return [line for line in lines if _COMPLAINT.match(line)][-_LINES_MAX:]


def _folder(stack: ExitStack, within: Path | None = None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamtable-kafka-", dir=within)))


def _memory() -> Path | None:
    """The file system in memory if it has room for all that a session sends; None for the usual temporary folder.

    For the brokers of a session, which no test kills. A test's own broker may be about its disk.
    """
    try:
        has_room = shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES_LEAST
    except OSError:  # of Linux only
        return None
    return _MEMORY if has_room and os.access(_MEMORY, os.W_OK) else None


def _started(stack: ExitStack, made: B) -> B:
    # At exit it is first killed, which is quick, and then closed, which releases its ports.
    stack.callback(made.close)
    stack.callback(made.kill)
    made.start()
    return made
