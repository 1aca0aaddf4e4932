from collections.abc import Iterator

import pytest
from services.console.tests.world import World, world_of

from localkafka.broker import Broker


@pytest.fixture(scope="module")
def world(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A module's own: topics, a processor and two consoles."""
    with world_of(broker, tmp_path_factory.mktemp("console")) as made:
        yield made
