"""Fixtures of the tests of the whole library on a real broker."""

import tempfile
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.system.bench import Bench

from localkafka.broker import Broker
from localkafka.fixtures import PATIENT, Topics


@pytest.fixture
def bench(broker: Broker, topics: Topics, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(broker.bootstrap_servers, topics, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def frail() -> Iterator[Broker]:
    """A broker that the tests of a file may pause and stop; they leave it running."""
    with tempfile.TemporaryDirectory(prefix="streamtable-frail-") as folder:
        broker = Broker(Path(folder), overrides=PATIENT, brief=True)
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()
            broker.close()


@pytest.fixture
def frail_bench(frail: Broker, tmp_path: Path) -> Iterator[Bench]:
    """A bench on the broker that may be hurt."""
    topics = Topics(frail.bootstrap_servers)
    made = Bench(frail.bootstrap_servers, topics, tmp_path, admin_timeout=3.0)
    yield made
    made.close()
    frail.resume()
    topics.delete_all()


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """Yield the log events as they are written."""
    with capture_logs() as lines:
        yield lines
    print(*lines, sep="\n")  # pytest shows it of a test that has failed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the broker that may be hurt, as the fixtures of the other ones are."""
    for item in items:
        if isinstance(item, pytest.Function) and "frail" in item.fixturenames:
            item.add_marker(pytest.mark.broker)
