"""The number of a batch's round trips, counted by the servers and by a proxy in front of a frozen server."""

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from localkafka.waiting import Deadline
from localstores.proxy import Proxy
from localstores.redis import RedisServer
from localstores.server import Server
from microbatch import Batch, InMemoryStore, MicroBatch, Rows, Send
from microbatch.stores.cassandra import CassandraDriver
from microbatch.stores.port import Driver
from microbatch.stores.redis import RedisDriver
from microbatch.stores.store import RemoteStore
from streamtable import Long, Stream, String
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
TOTALS, LATEST = Rows("totals", value=Long()), Rows("latest", value=Long())
EXECUTE, BATCH = 0x0A, 0x0D  # of Cassandra's protocol
OF_A_SCRIPT = {"getrange", "set"}  # commands that Redis counts in addition to the script that calls them


def add(batch: Batch, send: Send) -> None:
    totals = batch.rows(TOTALS)
    found = totals.get_many(record.key for record in batch.records)
    for record in batch.of(EVENTS):
        found[record.key] = found.get(record.key, 0) + record.value
        totals.get(record.key)  # known: no request is sent
    totals.put_many(found)


def replace(batch: Batch, send: Send) -> None:
    """Two kinds of rows that are put without being read."""
    for record in batch.of(EVENTS):
        for kind in (TOTALS, LATEST):
            batch.rows(kind).put(record.key, record.value)


class Counted:
    """A Redis of this test alone, and the commands that it has been sent."""

    def __init__(self, server: RedisServer, client: "Redis") -> None:
        self.server = server
        self._client = client
        self._before: Counter[str] = Counter()

    def calls(self) -> Counter[str]:
        """Since the last time."""
        stats: Any = self._client.info("commandstats")
        now = Counter({name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()})
        since, self._before = now - self._before, now
        return Counter({name: n for name, n in since.items() if name not in OF_A_SCRIPT | {"info"}})


@pytest.fixture(params=["valkey", "redis"])
def counted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counted]:
    with RedisServer(tmp_path, flavour=request.param) as server, Redis.from_url(server.url) as client:
        yield Counted(server, client)


@pytest.mark.parametrize("process", [add, replace])
def test_a_batch_reads_from_redis_once_and_writes_once_for_each_200_rows(
    counted: Counted, process: Callable[[Batch, Send], None]
) -> None:
    group = MicroBatch("add", inputs=[EVENTS], process=process, rows=[TOTALS, LATEST], max_wait=1.0)
    with Tester() as tester:
        store = InMemoryStore(group, driver=lambda: RedisDriver(counted.server.url, tenant="t"))
        tester.create(EVENTS, partitions=1)
        tester.run(group, tasks=store, partitions=1)
        tester.emit(EVENTS, "first", 1)  # also loads the ledger and the script
        tester.advance(2)
        counted.calls()
        for number in (1, 2, 3):
            tester.emit_many(EVENTS, [(f"key-{n}", number) for n in range(900)])
            tester.advance(2)
            kinds = 1 if process is add else 2
            assert counted.calls() == {"mget": 1, "evalsha": -(-900 * kinds // 200)}


@contextmanager
def frozen(server: Server, proxy: Proxy, work: Callable[[], object]) -> Iterator[Callable[[], bytes]]:
    """`work` continues in a thread while the server answers nothing; gives all that was sent since. Then it ends."""
    with ThreadPoolExecutor(1) as pool:
        before = len(proxy.requests)
        server.pause()
        try:
            running = pool.submit(work)
            yield lambda: b"".join(proxy.requests[before:])
        finally:
            server.resume()
        running.result(60)


def wait_until(condition: Callable[[], bool]) -> None:
    end = Deadline(30)
    while not condition():
        assert not end.passed(), "the condition did not become true in time"
        time.sleep(0.01)


def test_the_writes_of_a_batch_to_redis_are_pipelined(counted: Counted) -> None:
    rows: dict[bytes, bytes | None] = {b"%d" % at: b"v" for at in range(900)}
    with Proxy(counted.server.port) as proxy:
        store = RemoteStore(RedisDriver(f"redis://127.0.0.1:{proxy.port}/0", tenant="t"), attempt=10)
        store.put_many(rows, 1)
        with frozen(counted.server, proxy, lambda: store.put_many(rows, 2)) as sent:
            wait_until(lambda: sent().count(b"EVALSHA") == 5)
        assert {row.number for row in store.get_many(rows).values()} == {2}
        store.close()


# ---- Cassandra -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cassandra(server_of: Callable[[str], Any], tenant: str) -> Iterator[tuple[Server, Proxy, Driver]]:
    """The session's, a proxy before it, and a driver that knows only the proxy."""
    server = server_of("cassandra")
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.port))
        driver = CassandraDriver(
            ["127.0.0.1"], port=proxy.port, keyspace="streamtable", table="rows", tenant=tenant
        )
        stack.callback(driver.close)
        yield server, proxy, driver


def requests(data: bytes) -> Counter[int]:
    """Whole requests of one connection, by their kind. Its version 5 wraps them into segments with checksums."""
    if data[:1] != b"\x04":
        data = b"".join(unwrapped(data))
    kinds: Counter[int] = Counter()
    at = 0
    while at + 9 <= len(data):
        size = int.from_bytes(data[at + 5 : at + 9])
        kinds[data[at + 4]] += at + 9 + size <= len(data)
        at += 9 + size
    return kinds


def unwrapped(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 6 <= len(data):
        size = struct.unpack_from("<I", data, at)[0] & 0x1FFFF
        yield data[at + 6 : at + 6 + size]
        at += 6 + size + 4


@pytest.mark.broker
@pytest.mark.parametrize(("rows", "reads"), [(1, 1), (50, 1), (120, 3), (10_000, 200)])
def test_a_batch_reads_50_rows_per_query_from_cassandra_in_concurrent_queries(
    cassandra: tuple[Server, Proxy, Driver], rows: int, reads: int
) -> None:
    server, proxy, driver = cassandra
    store = RemoteStore(driver, deadline=90, attempt=60)
    keys = [b"%d" % at for at in range(rows)]
    store.get_many(keys[:1])
    with frozen(server, proxy, lambda: store.get_many(keys)) as sent:
        wait_until(lambda: requests(sent()) == {EXECUTE: reads})


@pytest.mark.broker
def test_a_batch_writes_10_rows_per_statement_to_cassandra_with_256_in_flight(
    cassandra: tuple[Server, Proxy, Driver],
) -> None:
    server, proxy, driver = cassandra
    store = RemoteStore(driver, deadline=90, attempt=60)
    rows: dict[bytes, bytes | None] = {b"%d" % at: b"v" for at in range(3_000)}
    store.put_many({b"first": b"1"}, 1)
    begun = len(proxy.requests)
    with frozen(server, proxy, lambda: store.put_many(rows, 1)) as sent:
        wait_until(lambda: requests(sent()) == {BATCH: 256})
    assert requests(b"".join(proxy.requests[begun:])) == {BATCH: 300}
    assert len(store.get_many(rows)) == 3_000
