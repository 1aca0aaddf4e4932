"""Servers behind a faulty network: calls are retried until their deadline, and then raise an error with the reason."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from libs.microbatch.tests.stores.refusals import refusal

from localstores.proxy import Delay, Drop, Fault, Proxy, StubResponse, TruncatedResponse, http_answer
from microbatch.stores.cassandra import CassandraDriver
from microbatch.stores.elasticsearch import ElasticsearchDriver
from microbatch.stores.port import Driver, Row
from microbatch.stores.redis import RedisDriver
from microbatch.stores.store import RemoteStore
from streamtable.errors import ConfigurationError, RetryKeys

broker = pytest.mark.broker
KINDS = [
    "valkey",
    "redis",
    pytest.param("elasticsearch", marks=broker),
    pytest.param("cassandra", marks=broker),
]
BUSY = StubResponse(
    http_answer(
        429, b'{"error": {"type": "es_rejected_execution_exception", "reason": "busy"}}', "Retry-After: 1"
    )
)


class Behind:
    """A proxy before a server, and a store that knows only the proxy."""

    def __init__(self, kind: str, proxy: Proxy, tenant: str) -> None:
        self.proxy = proxy
        self.driver: Driver
        if kind == "elasticsearch":
            self.driver = ElasticsearchDriver(
                f"http://127.0.0.1:{proxy.port}", alias="streamtable-test", tenant=tenant
            )
        elif kind == "cassandra":
            self.driver = CassandraDriver(
                ["127.0.0.1"], port=proxy.port, keyspace="streamtable", table="rows", tenant=tenant
            )
        else:
            self.driver = RedisDriver(f"redis://127.0.0.1:{proxy.port}/0", tenant=tenant)
        self.store = RemoteStore(self.driver, deadline=90, attempt=30)

    def hasty(self, *, deadline: float, attempt: float) -> RemoteStore:
        return RemoteStore(self.driver, deadline=deadline, attempt=attempt)


@pytest.fixture
def behind(request: pytest.FixtureRequest, server_of: Callable[[str], Any], tenant: str) -> Iterator[Behind]:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server_of(request.param).port))
        made = Behind(request.param, proxy, tenant)
        stack.callback(made.driver.close)
        yield made


@pytest.mark.parametrize("behind", KINDS, indirect=True)
@pytest.mark.parametrize(
    "fault",
    [Drop(), TruncatedResponse(0), TruncatedResponse(7)],
    ids=["dropped", "no answer", "7 bytes of an answer"],
)
def test_a_call_is_retried_when_a_connection_breaks(behind: Behind, fault: Fault) -> None:
    rows: dict[bytes, bytes | None] = {b"%d" % at: b"v%d" % at for at in range(300)}
    behind.store.put_many({b"first": b"1"}, 1)
    behind.proxy.next(fault)
    behind.store.put_many(rows, 2)
    behind.proxy.next(fault)
    assert {key: row.data for key, row in behind.store.get_many(rows).items()} == rows
    assert not behind.proxy.faults


@pytest.mark.parametrize("behind", KINDS[:3], indirect=True)
def test_a_truncated_answer_is_retried(behind: Behind) -> None:
    rows: dict[bytes, bytes | None] = {b"a": b"1" * 40, b"b": b"2" * 40}
    behind.store.put_many(rows, 1)
    for keep in range(0, 150, 7):
        behind.proxy.next(TruncatedResponse(keep))
        assert behind.store.get_many(rows) == {key: Row(1, data or b"") for key, data in rows.items()}


@pytest.mark.parametrize("behind", KINDS[:3], indirect=True)
def test_a_late_answer_is_not_mistaken_for_the_next_one(behind: Behind) -> None:
    behind.store.put_many({b"a": b"1"}, 1)
    behind.store.put_many({b"b": b"2"}, 1)
    behind.proxy.next(Delay(2))
    with pytest.raises(RetryKeys):
        behind.hasty(deadline=0.6, attempt=0.5).get(b"a")
    assert behind.store.get(b"b") == Row(1, b"2")


@pytest.mark.parametrize("behind", KINDS[:3], indirect=True)
def test_when_every_connection_breaks_the_error_names_the_keys_at_the_deadline(behind: Behind) -> None:
    behind.proxy.always = Drop()
    with pytest.raises(RetryKeys, match="writing 2 of 2 rows failed for 1 s") as failed:
        behind.hasty(deadline=1, attempt=0.5).put_many({b"a": b"1", b"b": b"1"}, 1)
    assert failed.value.keys == (b"a", b"b")


@broker
@pytest.mark.parametrize("behind", ["elasticsearch"], indirect=True)
def test_too_many_requests_is_retried_until_it_succeeds(behind: Behind) -> None:
    behind.proxy.next(BUSY, BUSY, BUSY)
    behind.store.put_many({b"a": b"1"}, 1)
    assert behind.store.get(b"a") == Row(1, b"1")


@broker
@pytest.mark.parametrize("behind", ["elasticsearch"], indirect=True)
def test_too_many_requests_until_the_deadline_is_an_error_with_the_reason(behind: Behind) -> None:
    behind.proxy.always = BUSY
    store = behind.hasty(deadline=1, attempt=0.5)
    failed = refusal(lambda: store.put_many({b"a": b"1"}, 1), "es_rejected_execution_exception: busy")
    assert failed.keys == (b"a",)


@broker
@pytest.mark.parametrize("behind", ["elasticsearch"], indirect=True)
def test_only_the_rows_that_were_rejected_are_written_again(behind: Behind) -> None:
    busy = {"type": "es_rejected_execution_exception", "reason": "busy"}
    items = [{"index": {"_id": "a", "status": 200}}, {"index": {"_id": "b", "status": 429, "error": busy}}]
    behind.proxy.next(StubResponse(http_answer(200, json.dumps({"errors": True, "items": items}).encode())))
    behind.store.put_many({b"a": b"1", b"b": b"2"}, 1)
    sent = b"".join(behind.proxy.requests[1:])
    assert b"YQ==" not in sent  # a
    assert b"Yg==" in sent  # b
    assert behind.store.get_many([b"a", b"b"]) == {b"b": Row(1, b"2")}


@broker
@pytest.mark.parametrize("behind", ["elasticsearch"], indirect=True)
def test_an_error_page_of_a_gateway_is_retried(behind: Behind) -> None:
    page = b"<html>Bad Gateway</html>"
    behind.proxy.next(
        StubResponse(http_answer(502, page, kind="text/html")), StubResponse(http_answer(503, b""))
    )
    behind.store.put_many({b"a": b"1"}, 1)
    assert behind.store.get(b"a") == Row(1, b"1")


@broker
@pytest.mark.parametrize("behind", ["elasticsearch"], indirect=True)
@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_login_is_not_retried(behind: Behind, status: int) -> None:
    body = b'{"error": {"type": "security_exception", "reason": "no"}}'
    behind.proxy.next(StubResponse(http_answer(status, body)))
    with pytest.raises(ConfigurationError, match="security_exception: no"):
        behind.store.put_many({b"a": b"1"}, 1)
    assert len(behind.proxy.requests) == 1


@broker
@pytest.mark.parametrize("behind", ["elasticsearch"], indirect=True)
def test_an_incomplete_document_is_retried(behind: Behind) -> None:
    behind.store.put_many({b"a": b"1"}, 1)
    behind.proxy.next(StubResponse(http_answer(200, b'{"docs": [{"_id')))
    assert behind.store.get(b"a") == Row(1, b"1")


@broker
@pytest.mark.parametrize("behind", ["elasticsearch"], indirect=True)
def test_a_batch_is_one_request_to_read_and_one_to_write(behind: Behind) -> None:
    rows: dict[bytes, bytes | None] = {b"%d" % at: b"v%d" % at for at in range(5_000)}
    behind.store.put_many(rows, 1)
    assert len(behind.store.get_many(rows)) == len(rows)
    begun = [piece.split(b" ")[1] for piece in behind.proxy.requests if piece.startswith((b"POST ", b"PUT "))]
    assert [path.split(b"?")[0].rpartition(b"/")[2] for path in begun] == [b"_bulk", b"_mget"]


@pytest.mark.parametrize("keep", [0, 10, 15, 17, 47, 60, 85, 100, 125, 135, 160, -2])
def test_an_elasticsearch_response_truncated_anywhere_is_retried(keep: int) -> None:
    body = b'{"docs": [{"_index": "a", "_id": "t:YQ==", "found": false}]}'
    whole = http_answer(200, body, kind="application/vnd.elasticsearch+json;compatible-with=9")
    with socket.create_server(("127.0.0.1", 0)) as unused, Proxy(unused.getsockname()[1]) as proxy:
        proxy.next(StubResponse(whole[:keep]), StubResponse(whole))
        driver = ElasticsearchDriver(f"http://127.0.0.1:{proxy.port}", alias="a", tenant="t")
        assert RemoteStore(driver, deadline=60, attempt=20).get(b"a") is None
        assert not proxy.faults
        driver.close()
