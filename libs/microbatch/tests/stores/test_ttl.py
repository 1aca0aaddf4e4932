"""Rows may have a time to live; the ledger must outlive them."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from libs.microbatch.tests.stores.conftest import GetServer

from localkafka.waiting import Deadline
from microbatch import Batch, InMemoryStore, MicroBatch, Rows, Send
from microbatch.stores.cassandra import CassandraDriver
from microbatch.stores.port import Driver
from microbatch.stores.redis import RedisDriver
from microbatch.stores.versions import ledger_key
from streamtable import Long, Stream, String
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
SUMS = Stream("sums", String(), Long())
TOTALS = Rows("totals", value=Long())
Make = Callable[[], Driver]


def add(batch: Batch, send: Send) -> None:
    rows = batch.rows(TOTALS)
    for record in batch.of(EVENTS):
        rows.put(record.key, (rows.get(record.key) or 0) + record.value)
        send(SUMS, record.key, rows.get(record.key))


@pytest.fixture(
    params=[
        "valkey",
        "redis",
        pytest.param("cassandra", marks=pytest.mark.broker),
        pytest.param("cassandra table", marks=pytest.mark.broker),
    ]
)
def make_driver(request: pytest.FixtureRequest, server_of: GetServer, tenant: str) -> Iterator[Make]:
    """Makes drivers whose rows live for a second, also in a table whose rows all do unless a write says otherwise."""
    kind, _, of_table = request.param.partition(" ")
    server = server_of(kind)
    with ExitStack() as stack:

        def make() -> Driver:
            if kind != "cassandra":
                return RedisDriver(server.url, tenant=tenant, ttl=1)
            table = "mortal" if of_table else "rows"
            return CassandraDriver(
                ["127.0.0.1"], port=server.port, keyspace="streamtable", table=table, tenant=tenant, ttl=1
            )

        if of_table:
            driver = make()
            stack.callback(driver.close)
            assert isinstance(driver, CassandraDriver)
            driver.create({"datacenter1": 1})
            driver.ask("ALTER TABLE streamtable.mortal WITH default_time_to_live = 1")
        yield make


def wait_gone(driver: Driver, key: bytes) -> None:
    deadline = Deadline(30)
    while driver.read([key], 10).rows:
        assert not deadline.passed(), f"{key!r} is still there"
        time.sleep(0.1)


@pytest.mark.parametrize("plain", [False, True])
def test_a_group_continues_after_a_restart_when_its_rows_have_expired(
    make_driver: Make, *, plain: bool
) -> None:
    group = MicroBatch("add", inputs=[EVENTS], process=add, outputs=[SUMS], rows=[TOTALS], max_wait=0.1)
    mortal = make_driver()
    with Tester() as tester:
        tester.run(group, tasks=InMemoryStore(group, plain=plain, driver=make_driver))
        tester.emit(EVENTS, "a", 1)
        tester.stop(group)
        wait_gone(mortal, TOTALS.key("a"))
        assert mortal.read([ledger_key(0)], 10).rows
        tester.start(group)
        tester.emit(EVENTS, "a", 4)
        assert [record.value for record in tester.records(SUMS)] == [1, 4]
    mortal.close()
