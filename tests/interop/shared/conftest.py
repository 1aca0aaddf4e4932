"""The common part of the tests of shared topics: events that both sides read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.shared.shared import Shared

from localkafka.broker import Broker
from localkafka.fixtures import Topics


@pytest.fixture(scope="module")
def shared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    topics = Topics(broker.bootstrap_servers)
    made = Shared(broker.bootstrap_servers, topics, Path(tmp_path_factory.mktemp("shared")))
    yield made
    made.close()
    topics.delete_all()
