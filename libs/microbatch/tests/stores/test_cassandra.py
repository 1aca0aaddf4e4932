"""Cassandra when it is frozen, killed, not set up, or receives late writes."""

import threading
import uuid
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import islice
from typing import Any

import pytest
from cassandra.protocol import ErrorMessage

from localstores.cassandra import CassandraServer
from microbatch.stores.cassandra import CassandraDriver
from microbatch.stores.port import Row
from microbatch.stores.store import RemoteStore
from streamtable.errors import ConfigurationError, RetryKeys, RetryLater, SerializationError

pytestmark = pytest.mark.broker
Connect = Callable[..., RemoteStore]


@pytest.fixture
def server(server_of: Callable[[str], Any]) -> CassandraServer:
    found = server_of("cassandra")
    assert isinstance(found, CassandraServer)
    return found


@pytest.fixture
def connect(server: CassandraServer, tenant: str) -> Iterator[Connect]:
    made = []

    def store(
        *, deadline: float = 60, attempt: float = 3, table: str = "rows", ttl: int | None = None
    ) -> RemoteStore:
        driver = CassandraDriver(
            ["127.0.0.1"], port=server.port, keyspace="streamtable", table=table, tenant=tenant, ttl=ttl
        )
        made.append(RemoteStore(driver, deadline=deadline, attempt=attempt))
        return made[-1]

    yield store
    for each in made:
        each.close()


def test_a_missing_table_is_an_error_without_retries(connect: Connect) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.*only `create` creates"):
        connect(table="nowhere").get(b"a")


def test_calls_to_a_frozen_server_end_at_the_deadline_and_the_write_may_or_may_not_stand(
    server: CassandraServer, connect: Connect
) -> None:
    patient, hasty = connect(), connect(deadline=2, attempt=0.7)
    patient.put_many({b"a": b"1"}, 1)
    server.pause()
    try:
        with pytest.raises(RetryKeys, match="writing 2 of 2 rows failed") as failed:
            hasty.put_many({b"a": b"2", b"b": b"2"}, 2)
        assert set(failed.value.keys) == {b"a", b"b"}
    finally:
        server.resume()
    patient.put_many({b"a": b"3"}, 3)  # newer than a late write, if there was one
    assert patient.get(b"a") == Row(3, b"3")


@pytest.mark.faults_long("a Cassandra starts again; test_network.py has the connections that break")
@pytest.mark.timeout(600)
def test_a_write_succeeds_once_a_killed_server_is_back(server: CassandraServer, connect: Connect) -> None:
    store = connect(deadline=400)  # on a busy machine it takes minutes to start; the write then succeeds
    store.put_many({b"a": b"1"}, 1)
    server.kill()
    back = threading.Thread(target=server.start)
    back.start()
    try:
        store.put_many({b"b": b"2"}, 2)
    finally:
        back.join()  # the server is shared by the tests of the session
    assert store.get(b"b") == Row(2, b"2")


def test_a_node_that_was_down_for_an_hour_is_retried_within_seconds_and_without_end() -> None:
    driver = CassandraDriver(["127.0.0.1"], keyspace="k", table="t", tenant="t")
    cluster = driver._make_cluster(1.0)
    pauses = list(islice(cluster.reconnection_policy.new_schedule(), 1_000))
    assert len(pauses) == 1_000
    assert max(pauses) < 6
    cluster.shutdown()


def test_an_unreachable_server_is_an_error_that_names_its_address() -> None:
    driver = CassandraDriver(["127.0.0.1"], port=1, keyspace="k", table="t", tenant="t")
    with pytest.raises(RetryLater, match=r"127\.0\.0\.1:1"):
        RemoteStore(driver, deadline=0.3).get(b"a")
    driver.close()


def test_a_row_expires_after_its_ttl(connect: Connect) -> None:
    store = connect(ttl=1)
    store.put_many({b"a": b"1"}, 1)
    # The server counts whole seconds, so the minimum is not checked.
    gone = threading.Event()
    for _ in range(200):
        if store.get(b"a") is None:
            break
        gone.wait(0.05)
    assert store.get(b"a") is None


@pytest.mark.parametrize("name", ["", "Upper", "a-b", "x; DROP", "1a", "a" * 49])
def test_a_name_that_would_need_quotes_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="lower-case letters"):
        CassandraDriver(["127.0.0.1"], keyspace=name, table="t", tenant="t")


def test_create_does_not_change_existing_parts(server: CassandraServer, connect: Connect) -> None:
    table = f"t{uuid.uuid4().hex[:8]}"
    driver = CassandraDriver(["127.0.0.1"], port=server.port, keyspace="streamtable", table=table, tenant="t")
    driver.create({"datacenter1": 1})
    store = RemoteStore(driver)
    store.put_many({b"a": b"1"}, 1)
    driver.create({"datacenter1": 1})
    assert store.get(b"a") == Row(1, b"1")
    store.close()


class Answering(CassandraDriver):
    """To whom a server answers each statement with an error, in its own bytes."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(["127.0.0.1"], keyspace="k", table="t", tenant="t")
        said = text.encode()
        self._body = code.to_bytes(4) + len(said).to_bytes(2) + said

    def _connected(self, timeout: float) -> Any:
        del timeout
        return self

    def prepare(self, statement: str) -> None:
        """As the client's session does it: what it makes of the bytes is raised."""
        del statement
        message: Any = ErrorMessage.recv_body(BytesIO(self._body), 5)
        raise message.to_exception()

    def close(self) -> None:
        """It was never connected."""


FULL = (
    "Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds failure threshold"
)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0x0000, "something within went wrong"),
        (0x1001, "Request breached global limit of 100 requests/second"),
        (0x1002, "Cannot read from a bootstrapping node"),
        (0x2200, FULL),
    ],
    ids=["internal error", "overloaded", "bootstrapping", "disk full"],
)
def test_a_transient_error_is_retried(code: int, text: str) -> None:
    with pytest.raises(RetryKeys, match=f"writing 1 of 1 rows failed for 0.1 s.*{text}"):
        RemoteStore(Answering(code, text), deadline=0.1).put_many({b"a": b"1"}, 1)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0x2000, "line 1:0 no viable alternative"),
        (0x2100, "User has no MODIFY permission"),
        (0x2200, "no table"),
    ],
)
def test_a_permanent_error_is_not_retried(code: int, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        RemoteStore(Answering(code, text), deadline=60).put_many({b"a": b"1"}, 1)


def test_a_row_that_is_too_large_is_refused_for_its_size() -> None:
    text = "CQL Message of size 6000089 bytes exceeds allowed maximum of 4194304 bytes"
    with pytest.raises(SerializationError, match="6000089 bytes"):
        RemoteStore(Answering(0x2200, text), deadline=60).put_many({b"a": b"1"}, 1)
