from collections.abc import Iterator

import pytest
from spark.tests.lake.stage import Stage

from localkafka.broker import Broker


@pytest.fixture(scope="module")
def stage(broker: Broker) -> Iterator[Stage]:
    made = Stage(broker.bootstrap_servers)
    yield made
    made.delete(made.clicks, made.updates)
