"""Fixtures of the command line's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from libs.streamtable_cli.tests.bench import Cli, World, silence

from localkafka.broker import Broker
from localkafka.fixtures import Topics


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    silence()
    yield
    structlog.reset_defaults()


@pytest.fixture
def nowhere() -> Cli:
    """The command without a broker."""
    return Cli("127.0.0.1:9")


@pytest.fixture
def cli(broker: Broker) -> Cli:
    return Cli(
        broker.bootstrap_servers, "--timeout", "20"
    )  # a broker creates its internal topics on first use


@pytest.fixture
def world(broker: Broker, topics: Topics, tmp_path: Path) -> World:
    return World(broker.bootstrap_servers, topics, tmp_path)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without declared topics and schemas."""
    monkeypatch.chdir(tmp_path)
