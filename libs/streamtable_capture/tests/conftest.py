"""Log lines are kept for the test instead of printed; a schema registry."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from libs.streamtable_codecs.tests.stand_in import StandIn, serving
from structlog.testing import capture_logs

from streamtable_codecs import Confluent, HttpRegistry


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log lines, as they come."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with serving() as found:
        yield found


@pytest.fixture
def framing(registry: StandIn) -> Iterator[Confluent]:
    client = HttpRegistry(registry.url)
    yield Confluent(client)
    client.close()
