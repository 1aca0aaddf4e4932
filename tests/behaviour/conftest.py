"""Each test here runs twice: on the Tester, and on a real Kafka.

On Kafka a test mostly waits, for a group to be joined or a topic to be made. So a file's tests run several at a time,
each in a thread and with topics of its own; pytest calls a function that waits for one of them.
"""

import tempfile
from collections.abc import Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.behaviour.world import RealWorld, TesterWorld, World

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable_testing import Tester

AT_A_TIME = 6


class OnKafka:
    """The tests of one file, running on Kafka."""

    def __init__(self, items: list[pytest.Function], bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._runs: dict[str, Future[None]] = {
            item.nodeid: self._pool.submit(self._run, item) for item in items
        }

    def wait_for(self, item: pytest.Function) -> None:
        """Raises what the test does."""
        self._runs[item.nodeid].result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _run(self, item: pytest.Function) -> None:
        given = {name: value for name, value in item.callspec.params.items() if name != "world"}
        topics = Topics(self._bootstrap_servers)
        with tempfile.TemporaryDirectory(prefix="streamtable-behaviour-") as folder:
            world = RealWorld(self._bootstrap_servers, topics, Path(folder))
            try:
                item.obj(world=world, **given)
            finally:
                world.close()
                topics.delete_all()


@pytest.fixture(scope="module")
def on_kafka(request: pytest.FixtureRequest, broker: Broker) -> Iterator[OnKafka]:
    items = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.path == request.path
        and "world" in item.fixturenames
        and item.callspec.params["world"] == "kafka"
    ]
    running = OnKafka(items, broker.bootstrap_servers)
    yield running
    running.close()


@pytest.fixture(params=["tester", pytest.param("kafka", marks=pytest.mark.broker)])
def world(request: pytest.FixtureRequest) -> Iterator[World | OnKafka]:
    if request.param == "kafka":
        yield request.getfixturevalue("on_kafka")
        return
    with Tester() as tester:
        yield TesterWorld(tester)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Instead of calling a test that is already running, wait for it."""
    running = pyfuncitem.funcargs.get("world")
    if not isinstance(running, OnKafka):
        return None
    running.wait_for(pyfuncitem)
    return True


@pytest.fixture(autouse=True, scope="session")
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """Capture the log instead of printing it."""
    with capture_logs() as lines:
        yield lines
