"""Redis and Valkey when they are full, frozen, restarted or promoted, or have foreign data."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from libs.microbatch.tests.stores.refusals import refusal
from redis import Redis
from redis.exceptions import OutOfMemoryError

from localstores.redis import RedisServer
from microbatch.stores.port import Row
from microbatch.stores.redis import RedisDriver
from microbatch.stores.store import RemoteStore
from streamtable.errors import ConfigurationError, Migrated, RetryKeys, RetryLater, StateLost

NO_SERVER = "redis://127.0.0.1:1/0"


class Start(Protocol):
    def __call__(self, *options: str) -> RedisServer: ...


@pytest.fixture(params=["valkey", "redis"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Starts a server for this test alone."""
    with ExitStack() as stack:
        count = iter(range(10))

        def started(*options: str) -> RedisServer:
            made = RedisServer(tmp_path / str(next(count)), flavour=request.param, options=options)
            return stack.enter_context(made)

        yield started


@pytest.fixture
def client() -> Iterator[Callable[[RedisServer], "Redis"]]:
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(Redis.from_url(server.url))


def store_at(url: str, *, deadline: float = 10, attempt: float = 1, replicas: int = 0) -> RemoteStore:
    return RemoteStore(RedisDriver(url, tenant="t", replicas=replicas), deadline=deadline, attempt=attempt)


def later(seconds: float, do: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, do)
    timer.start()
    return timer


def test_calls_to_a_frozen_server_end_at_the_deadline(start: Start) -> None:
    server = start()
    store, hasty = store_at(server.url, deadline=30), store_at(server.url, deadline=1, attempt=0.3)
    store.put_many({b"a": b"1", b"b": b"1"}, 1)
    server.pause()
    with pytest.raises(
        RetryKeys, match=r"writing 2 of 2 rows failed for 1 s, b'a', b'b' among them: Redis: .*imeout"
    ) as failed:
        hasty.put_many({b"a": b"2", b"b": b"2"}, 2)
    assert failed.value.keys == (b"a", b"b")
    server.resume()
    store.put_many({b"a": b"3"}, 3)
    assert store.get(b"a") == Row(3, b"3")


def test_a_write_succeeds_once_a_frozen_server_resumes(start: Start) -> None:
    server = start()
    store = store_at(server.url, deadline=20, attempt=0.3)
    server.pause()
    timer = later(0.8, server.resume)
    store.put_many({b"a": b"1"}, 1)
    timer.join()
    assert store.get(b"a") == Row(1, b"1")


def test_a_write_succeeds_once_a_killed_server_is_back_without_its_script(start: Start) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    store = store_at(server.url, deadline=30)
    store.put_many({b"a": b"1"}, 1)
    server.kill()
    timer = later(0.5, server.start)
    store.put_many({b"b": b"2"}, 2)
    timer.join()
    assert store.get_many([b"a", b"b"]) == {b"a": Row(1, b"1"), b"b": Row(2, b"2")}


def test_an_unreachable_server_is_an_error_that_names_its_address() -> None:
    with pytest.raises(RetryLater, match=r"127\.0\.0\.1:1"):
        store_at(NO_SERVER, deadline=0.2).get(b"a")


def test_a_full_server_rejects_rows_until_memory_is_free(
    start: Start, client: Callable[[RedisServer], "Redis"]
) -> None:
    server = start("--maxmemory", "6mb", "--maxmemory-policy", "noeviction")
    store = store_at(server.url, deadline=0.5)
    rows: dict[bytes, bytes | None] = {b"%d" % at: bytes(10_000) for at in range(1_000)}
    failed = refusal(lambda: store.put_many(rows, 1), "used memory > 'maxmemory'")
    assert 0 < len(failed.keys) < len(rows)
    client(server).config_set("maxmemory", "100mb")
    store_at(server.url, deadline=30).put_many({key: rows[key] for key in failed.keys}, 1)
    assert len(store.get_many(rows)) == len(rows)


def test_a_replica_rejects_writes_until_it_is_promoted(
    start: Start, client: Callable[[RedisServer], "Redis"]
) -> None:
    master, replica = start(), start()
    store = store_at(replica.url, deadline=30)
    store.put_many({b"a": b"0"}, 1)
    client(replica).replicaof("127.0.0.1", str(master.port))
    hasty = store_at(replica.url, deadline=0.3)
    refusal(lambda: hasty.put_many({b"a": b"1"}, 2), "replica")
    timer = later(0.5, lambda: client(replica).replicaof("NO", "ONE"))
    store.put_many({b"a": b"2"}, 3)
    timer.join()
    assert store.get(b"a") == Row(3, b"2")


def test_a_write_is_not_done_before_the_replicas_have_it(
    start: Start, client: Callable[[RedisServer], "Redis"]
) -> None:
    master, replica = start(), start()
    store = store_at(master.url, deadline=3, attempt=2, replicas=1)
    with pytest.raises(RetryKeys, match="0 of 1 replicas have it"):
        store.put_many({b"a": b"1"}, 1)
    client(replica).replicaof("127.0.0.1", str(master.port))
    store_at(master.url, deadline=30, attempt=1, replicas=1).put_many({b"a": b"1"}, 1)
    assert RedisDriver(replica.url, tenant="t").read([b"a"], 1).rows == {b"a": Row(1, b"1")}


def test_after_a_failover_the_promoted_replica_has_every_row_that_was_acknowledged(
    start: Start, client: Callable[[RedisServer], "Redis"]
) -> None:
    primary, replica = start(), start()
    client(replica).replicaof("127.0.0.1", str(primary.port))
    store_at(primary.url, deadline=60, attempt=1, replicas=1).put_many({b"first": b"1"}, 1)
    store = store_at(primary.url, deadline=1, attempt=1, replicas=1)
    acknowledged: dict[bytes, bytes | None] = {}
    timer = later(0.5, primary.kill)

    def write_on() -> None:
        for number in range(1, 1_000_000):
            rows: dict[bytes, bytes | None] = {b"%d-%d" % (number, at): b"%d" % number for at in range(20)}
            store.put_many(rows, number)
            acknowledged.update(rows)

    with pytest.raises(RetryKeys):
        write_on()
    timer.join()
    client(replica).replicaof("NO", "ONE")
    found = store_at(replica.url).get_many(acknowledged)
    assert {key: row.data for key, row in found.items()} == acknowledged
    assert len(acknowledged) >= 20


def test_rows_beside_failed_ones_are_not_written_before_the_replicas_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = RedisDriver(NO_SERVER, tenant="t", replicas=1)
    # The first 200 rows do not fit, the others are written, and no replica has them.
    answers = [OutOfMemoryError("OOM command not allowed"), [], 0]
    monkeypatch.setattr(driver, "ask", lambda *_: answers)
    rows = {b"%d" % number: b"1" for number in range(300)}
    failed = driver.write(rows, 1, 1.0).failed
    assert failed.keys() == rows.keys()
    assert (failed[b"0"], failed[b"299"]) == ("OOM command not allowed", "0 of 1 replicas have it")


def test_a_zombies_write_is_rejected(start: Start) -> None:
    store = store_at(start().url)
    store.put_many({b"%d" % at: b"new" for at in range(500)}, 2)
    with pytest.raises(Migrated, match=r"500 rows have a higher number than 1, .*a later owner"):
        store.put_many({b"%d" % at: b"zombie" for at in range(500)}, 1)


def test_a_row_lives_for_its_ttl_after_its_last_write(
    start: Start, client: Callable[[RedisServer], "Redis"]
) -> None:
    server = start()
    store = RemoteStore(RedisDriver(server.url, tenant="t", ttl=100))
    store.put_many({b"a": b"1"}, 1)
    assert 90_000 < int(client(server).pttl("t:a")) <= 100_000
    with pytest.raises(ConfigurationError, match="a second at least"):
        RedisDriver(server.url, tenant="t", ttl=0)


def test_foreign_data_under_the_tenant_stops_the_process(
    start: Start, client: Callable[[RedisServer], "Redis"]
) -> None:
    server = start()
    store = store_at(server.url)
    client(server).set("t:a", "hello")
    with pytest.raises(StateLost, match="b't:a' in Redis is not a row"):
        store.get(b"a")
    client(server).rpush("t:b", "x")
    with pytest.raises(ConfigurationError, match="WRONGTYPE"):
        store.put_many({b"b": b"1"}, 1)


def test_a_wrong_password_is_not_retried(start: Start) -> None:
    server = start("--requirepass", "right")
    for url in (server.url, server.url.replace("//", "//:wrong@")):
        with pytest.raises(ConfigurationError, match="Redis refuses"):
            store_at(url).get(b"a")


@pytest.mark.parametrize("url", ["http://a", "redis://127.0.0.1:port/0", ""])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError):
        RedisDriver(url, tenant="t")
