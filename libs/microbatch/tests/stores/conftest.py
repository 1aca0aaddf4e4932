"""Real servers for these tests, started on first use, each in its own folder and on its own ports."""

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from localstores.cassandra import CassandraServer
from localstores.elasticsearch import ElasticsearchServer
from localstores.redis import RedisServer
from localstores.server import Server
from microbatch.stores.cassandra import CassandraDriver
from microbatch.stores.elasticsearch import ElasticsearchDriver
from microbatch.stores.memory import MemoryDriver, MemoryServer
from microbatch.stores.port import Driver
from microbatch.stores.redis import RedisDriver

MakeDriver = Callable[[str], Driver]
GetServer = Callable[[str], Any]
STARTS: dict[str, Callable[[Path], Server]] = {
    "valkey": lambda folder: RedisServer(folder, flavour="valkey"),
    "redis": lambda folder: RedisServer(folder, flavour="redis"),
    "cassandra": lambda folder: CassandraServer(folder, brief=True),
    "elasticsearch": lambda folder: ElasticsearchServer(folder, brief=True),
}
# Java starts slowly, so these run with the tests that need a broker.
SLOW = ["cassandra", "elasticsearch"]
KINDS = ["memory", "valkey", "redis", *(pytest.param(kind, marks=pytest.mark.broker) for kind in SLOW)]


@pytest.fixture(scope="session")
def server_of() -> Iterator[GetServer]:
    """A function that returns the session's server of a kind, or the in-memory one. Leave it running."""
    running: dict[str, Any] = {"memory": MemoryServer()}
    with ExitStack() as stack:

        def server(kind: str) -> Any:
            if kind not in running:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"streamtable-{kind}-")))
                running[kind] = stack.enter_context(STARTS[kind](folder))
                set_up(driver_for(kind, running[kind], "setup"))
            return running[kind]

        yield server


def set_up(driver: Driver) -> None:
    if isinstance(driver, CassandraDriver):
        driver.create({"datacenter1": 1})
    if isinstance(driver, ElasticsearchDriver):
        driver.create(shards=1, replicas=0)
    driver.close()


def driver_for(kind: str, server: Any, tenant: str) -> Driver:
    if kind == "memory":
        return MemoryDriver(server, tenant=tenant)
    if kind == "elasticsearch":
        return ElasticsearchDriver(server.url, alias="streamtable-test", tenant=tenant)
    if kind == "cassandra":
        return CassandraDriver(
            ["127.0.0.1"], port=server.port, keyspace="streamtable", table="rows", tenant=tenant
        )
    return RedisDriver(server.url, tenant=tenant)


@pytest.fixture
def tenant() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=KINDS)
def make_driver(request: pytest.FixtureRequest, server_of: GetServer) -> Iterator[MakeDriver]:
    """Makes drivers for tenants of one server; they are closed at the end."""
    with ExitStack() as stack:

        def make(tenant: str) -> Driver:
            made = driver_for(request.param, server_of(request.param), tenant)
            stack.callback(made.close)
            return made

        yield make
