"""Fixtures of the hostile tests: the REST services, each started once for all tests of a file."""

from collections.abc import Iterator

import pytest
from tests.hostile.rest_world import (
    Service,
    console_service,
    emitter_service,
    messages_service,
    movements_service,
    query_service,
    reaches_service,
    statuses_service,
    stocks_service,
    tweets_service,
    users_service,
)

from localkafka.broker import Broker


@pytest.fixture(scope="module")
def query(broker: Broker) -> Iterator[Service]:
    """A query service whose table holds `rest_world.ROWS`."""
    with query_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def emitter(broker: Broker) -> Iterator[Service]:
    """An emitter service."""
    with emitter_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def users(broker: Broker) -> Iterator[Service]:
    """A query service of user statuses whose tables hold `rest_world.STATUSES` and `rest_world.ROWS`."""
    with users_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def statuses(broker: Broker) -> Iterator[Service]:
    """An emitter service of user statuses."""
    with statuses_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def tweets(broker: Broker) -> Iterator[Service]:
    """An emitter service of tweets and followers."""
    with tweets_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def movements(broker: Broker) -> Iterator[Service]:
    """The emitter service of the inventory."""
    with movements_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def stocks(broker: Broker) -> Iterator[Service]:
    """The query service of the inventory whose table of stocks holds `rest_world.STOCKS`."""
    with stocks_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def messages(broker: Broker) -> Iterator[Service]:
    """The web service of messaging."""
    with messages_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def reaches(broker: Broker) -> Iterator[Service]:
    """A query service of tweet-reach whose table holds the rows of `grpc_world.REACHES`."""
    with reaches_service(broker) as service:
        yield service


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[Service]:
    """A console with actions on, which asks for a key."""
    with console_service(broker) as service:
        yield service
