"""The findings about Redis and Valkey in each relevant state."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from redis import Redis

from localkafka.process import reserve_port
from localkafka.waiting import Deadline
from localstores.redis import RedisServer
from microbatch.stores.port import Severity
from microbatch.stores.redis import RedisDriver
from microbatch.stores.redis_admin import RedisAdmin
from streamtable.errors import ConfigurationError

Start = Callable[..., RedisServer]


@pytest.fixture(params=["valkey", "redis"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        count = iter(range(10))

        def started(*options: str, port: int = 0) -> RedisServer:
            folder = tmp_path / str(next(count))
            made = RedisServer(folder, flavour=request.param, options=options, port=port)
            return stack.enter_context(made)

        yield started


def ask(server: RedisServer, *command: str) -> Any:
    with Redis.from_url(server.url) as client:
        return client.execute_command(*command)


def levels(server: RedisServer, *, replicas: int = 0) -> dict[str, Severity]:
    driver = RedisDriver(server.url, tenant="t")
    try:
        return {each.subject: each.level for each in RedisAdmin(driver, replicas=replicas).examine()}
    finally:
        driver.close()


def test_a_server_with_synchronous_persistence_has_no_findings(start: Start) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    assert set(levels(server).values()) == {Severity.OK}


def test_redis_has_an_empty_plan(start: Start) -> None:
    admin = RedisAdmin(RedisDriver(start().url, tenant="t"), replicas=0)
    assert admin.plan() == ()
    admin.create()


def test_eviction_is_a_problem_once_there_is_a_limit(start: Start) -> None:
    server = start("--maxmemory-policy", "allkeys-lru")
    assert levels(server)["memory"] is Severity.OK
    ask(server, "CONFIG", "SET", "maxmemory", "50mb")
    assert levels(server)["memory"] is Severity.PROBLEM
    ask(server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert levels(server)["memory"] is Severity.OK


def test_persistence_that_can_lose_acknowledged_rows_is_a_warning(start: Start) -> None:
    assert levels(start())["disk"] is Severity.WARNING
    server = start("--appendonly", "yes", "--appendfsync", "everysec")
    assert levels(server)["disk"] is Severity.WARNING
    ask(server, "CONFIG", "SET", "appendfsync", "always")
    assert levels(server)["disk"] is Severity.OK


def test_settings_that_the_user_may_not_read_are_reported(start: Start) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    ask(server, "ACL", "SETUSER", "app", "on", ">secret", "~t:*", "+@all", "-config")
    driver = RedisDriver(server.url.replace("//", "//app:secret@"), tenant="t")
    found = {each.subject: each for each in RedisAdmin(driver, replicas=0).examine()}
    assert "may not see appendfsync" in found["disk"].fact
    driver.close()
    other = RedisDriver(server.url.replace("//", "//app:secret@"), tenant="other")
    with pytest.raises(ConfigurationError, match="permissions"):
        list(RedisAdmin(other, replicas=0).examine())
    other.close()


def test_fewer_replicas_than_writes_wait_for_are_reported(start: Start) -> None:
    primary, replica = start(), start()
    assert levels(primary, replicas=1)["replicas"] is Severity.PROBLEM
    ask(replica, "REPLICAOF", "127.0.0.1", str(primary.port))
    until = Deadline(60)
    while levels(primary, replicas=1)["replicas"] is Severity.PROBLEM:
        assert not until.passed()
        time.sleep(0.1)
    assert levels(primary, replicas=1)["replicas"] is Severity.OK
    assert levels(primary)["replicas"] is Severity.WARNING
    assert levels(replica)["role"] is Severity.PROBLEM


@contextmanager
def cluster_port() -> Iterator[int]:
    """Reserve the port of a cluster's bus, which is 10,000 above the server's. Yields the server's, which is free."""
    # Both are below the range of ephemeral ports.
    for port in Random().sample(range(15_000, 22_700), 100):
        try:
            reserve_port(port).close()
            bus = reserve_port(port + 10_000)
        except OSError:
            continue
        with bus:
            yield port
        return
    raise AssertionError("no free pair of ports among a hundred")


def test_a_node_of_a_cluster_is_a_problem(start: Start) -> None:
    with cluster_port() as port:
        driver = RedisDriver(start("--cluster-enabled", "yes", port=port).url, tenant="t")
        examination = RedisAdmin(driver, replicas=0).examine()
        assert next(each for each in examination if each.subject == "cluster").level is Severity.PROBLEM
        driver.close()
