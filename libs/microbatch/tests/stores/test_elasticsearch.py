"""Elasticsearch when its index is missing or read-only, or the server is frozen, killed or unreachable."""

import random
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread, Timer
from typing import Any

import pytest
from elasticsearch import BadRequestError, Elasticsearch
from libs.microbatch.tests.stores.refusals import refusal

from localstores.elasticsearch import ElasticsearchServer
from microbatch.stores.elasticsearch import ElasticsearchDriver
from microbatch.stores.port import Row, VersionedFields
from microbatch.stores.store import RemoteStore
from streamtable.errors import ConfigurationError, RetryKeys, RetryLater, SerializationError, StateLost

pytestmark = pytest.mark.broker


@pytest.fixture
def server(server_of: Callable[[str], Any]) -> ElasticsearchServer:
    found = server_of("elasticsearch")
    assert isinstance(found, ElasticsearchServer)
    return found


@pytest.fixture
def url(server: ElasticsearchServer) -> str:
    return server.url


@pytest.fixture
def client(url: str) -> Iterator[Elasticsearch]:
    with Elasticsearch(url) as made:
        yield made


@pytest.fixture
def alias(client: Elasticsearch) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    yield name
    client.indices.delete(index=f"{name}-1", ignore_unavailable=True)


@pytest.fixture
def driver(url: str, alias: str) -> Iterator[ElasticsearchDriver]:
    made = ElasticsearchDriver(url, alias=alias, tenant="t")
    made.create(shards=1, replicas=0)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (503, "application/json", b"upstream connect error"),
        (200, "application/json", b'{"errors": fal'),
        (502, "text/strange", b"<html>"),
    ],
)
def test_a_response_that_cannot_be_read_is_no_fault_of_the_rows(status: int, kind: str, body: bytes) -> None:
    class Broken(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        driver = ElasticsearchDriver(f"http://127.0.0.1:{server.server_port}", alias="a", tenant="t")
        with pytest.raises(RetryLater):
            driver.write({b"a": b"1"}, 1, 5.0)
        driver.close()
        server.shutdown()


@pytest.mark.parametrize("value", [{"x"}, b"x"])
def test_a_search_field_that_is_no_json_is_the_rows_fault(value: Any) -> None:
    driver = ElasticsearchDriver("http://127.0.0.1:1", alias="a", tenant="t")  # nothing is sent
    with pytest.raises(SerializationError, match="is no JSON"):
        driver.write_found_by({b"a": b"1"}, 1, 1.0, {b"a": VersionedFields({"f": value}, None)})
    driver.close()


def test_a_missing_index_is_an_error_and_is_not_created_implicitly(
    url: str, alias: str, client: Elasticsearch
) -> None:
    store = RemoteStore(ElasticsearchDriver(url, alias=alias, tenant="t"))
    with pytest.raises(ConfigurationError, match="only `create` creates"):
        store.get(b"a")
    with pytest.raises(ConfigurationError, match="only `create` creates"):
        store.put_many({b"a": b"1"}, 1)
    assert not client.indices.exists(index=alias)
    store.close()


def test_create_does_not_change_existing_parts(driver: ElasticsearchDriver) -> None:
    store = RemoteStore(driver)
    store.put_many({b"a": b"1"}, 1)
    driver.create(shards=3, replicas=2)
    assert store.get(b"a") == Row(1, b"1")


def test_a_field_that_was_not_declared_is_refused(
    driver: ElasticsearchDriver, alias: str, client: Elasticsearch
) -> None:
    with pytest.raises(BadRequestError, match="strict_dynamic_mapping"):
        client.index(index=alias, document={"guessed": 1})


def test_search_fields_that_do_not_fit_the_index_are_the_fault_of_the_rows(url: str, alias: str) -> None:
    driver = ElasticsearchDriver(url, alias=alias, tenant="t")
    driver.create(shards=1, replicas=0, fields={"at": "date", "score": "long"})
    for fields in ({"at": "yesterday"}, {"score": 10**30}):
        with pytest.raises(SerializationError, match=f"row b'bad' do not fit the index '{alias}'"):
            driver.write_found_by(
                {b"good": b"1", b"bad": b"2"}, 1, 10, {b"bad": VersionedFields(fields, None)}
            )
    with pytest.raises(ConfigurationError, match="strict_dynamic_mapping"):  # the index has no such field
        driver.write_found_by({b"a": b"1"}, 1, 10, {b"a": VersionedFields({"other": "x"}, None)})
    driver.close()


def test_a_read_only_index_fails_the_rows_until_it_is_writable_again(
    driver: ElasticsearchDriver, alias: str, client: Elasticsearch
) -> None:
    def read_only(*, on: bool) -> None:
        client.indices.put_settings(index=alias, settings={"index.blocks.read_only_allow_delete": on or None})

    read_only(on=True)
    hasty = RemoteStore(driver, deadline=0.5)
    failed = refusal(
        lambda: hasty.put_many({b"a": b"1", b"b": b"1"}, 1), "cluster_block_exception.*blocked by"
    )
    assert failed.keys == (b"a", b"b")
    timer = Timer(0.5, lambda: read_only(on=False))
    timer.start()
    RemoteStore(driver, deadline=30).put_many({b"a": b"1"}, 1)
    timer.join()


def test_a_batch_above_the_request_size_is_split_into_two_requests(
    driver: ElasticsearchDriver, alias: str, client: Elasticsearch
) -> None:
    chance = random.Random(1)
    rows: dict[bytes, bytes | None] = {b"%d" % at: chance.randbytes(1_000_000) for at in range(24)}
    store = RemoteStore(driver, deadline=60, attempt=30)
    store.put_many(rows, 1)
    assert {key: row.data for key, row in store.get_many(rows).items()} == rows
    done = client.indices.stats(index=alias, metric="bulk")["_all"]["total"]["bulk"]
    assert done["total_operations"] == 2


def test_a_search_sees_flushed_writes(driver: ElasticsearchDriver, alias: str, client: Elasticsearch) -> None:
    store = RemoteStore(driver)
    client.indices.put_settings(index=alias, settings={"index.refresh_interval": "-1"})
    store.put_many({b"a": b"1"}, 1)
    store.flush()
    assert client.count(index=alias, query={"term": {"tenant": "t"}})["count"] == 1


def test_foreign_data_under_the_tenant_stops_the_process(
    driver: ElasticsearchDriver, alias: str, client: Elasticsearch
) -> None:
    client.index(index=alias, id="t:YQ==", document={"tenant": "other", "data": "YQ=="})
    with pytest.raises(StateLost, match="not written by this library"):
        RemoteStore(driver).get(b"a")


def test_an_unreachable_server_is_an_error_that_names_its_address() -> None:
    driver = ElasticsearchDriver("http://127.0.0.1:1", alias="a", tenant="t")
    with pytest.raises(RetryLater, match=r"127\.0\.0\.1:1"):
        RemoteStore(driver, deadline=0.2).get(b"a")
    driver.close()


@pytest.mark.parametrize("url", ["", "nonsense", "http://"])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not the address"):
        ElasticsearchDriver(url, alias="a", tenant="t")


def test_calls_to_a_frozen_server_end_at_the_deadline(
    server: ElasticsearchServer, driver: ElasticsearchDriver
) -> None:
    patient = RemoteStore(driver, deadline=60)
    patient.put_many({b"a": b"1"}, 1)
    server.pause()
    try:
        with pytest.raises(RetryKeys, match="writing 1 of 1 rows failed for 2 s"):
            RemoteStore(driver, deadline=2, attempt=0.7).put_many({b"a": b"2"}, 2)
    finally:
        server.resume()
    patient.put_many({b"a": b"3"}, 3)
    assert patient.get(b"a") == Row(3, b"3")


@pytest.mark.faults_long("an Elasticsearch starts again; test_network.py has the connections that break")
def test_a_killed_server_keeps_acknowledged_rows_and_the_write_succeeds(
    server: ElasticsearchServer, driver: ElasticsearchDriver
) -> None:
    store = RemoteStore(driver, deadline=90)
    store.put_many({b"a": b"1"}, 1)
    server.kill()
    back = Thread(target=server.start)
    back.start()
    store.put_many({b"b": b"2"}, 2)
    back.join()
    assert store.get_many([b"a", b"b"]) == {b"a": Row(1, b"1"), b"b": Row(2, b"2")}
