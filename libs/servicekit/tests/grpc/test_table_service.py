from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from contracts.grpc.click_count.v1 import click_count_pb2 as clicks_pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2 as pb
from contracts.grpc.tweet_reach.v1.tweet_reach_pb2_grpc import TweetReachesStub
from localkafka.waiting import wait_until
from servicekit.auth.proxies import TrustedProxies, networks_of
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.grpc.table_service import (
    WATCHES_OF_MANY_MAX,
    WATCHES_OF_MANY_PER_PEER,
    GrpcTableService,
    TableContract,
)
from servicekit.streams import Streams
from servicekit.tables.keys import KeyRules
from servicekit.tables.protocol import UserTable
from servicekit_testing import MemoryTable
from streamtable import Count, Group, Input, Json, Long, Persist, Stream
from streamtable_testing import Tester

CONTRACT: TableContract[int] = TableContract(
    service=pb.DESCRIPTOR.services_by_name["TweetReaches"],
    field="reach",
    value=lambda number: pb.Reach(reach=number),
    missing="no reach is known",
    keys=KeyRules("url", str, str),
    details=lambda number: {"sketch": bytes(number)},
)


@pytest.fixture
def rows() -> MemoryTable[int]:
    table: MemoryTable[int] = MemoryTable()
    for number in range(3):
        table.put(f"url-{number}", number)
    return table


CLICKS: TableContract[int] = TableContract(
    service=clicks_pb.DESCRIPTOR.services_by_name["ClickCounts"],
    field="count",
    value=int,
    missing="no such user",
)


@contextmanager
def serving(contract: TableContract[int], rows: UserTable[int], streams: Streams) -> Iterator[grpc.Channel]:
    proxies = TrustedProxies(networks_of("127.0.0.1"))
    service = GrpcTableService(contract, rows, streams, proxies)
    limits = GrpcLimits(drain_seconds=0, connection_streams=1000)
    server = GrpcServer("127.0.0.1", 0, service.register, ready=lambda: True, streams=streams, limits=limits)
    with grpc.insecure_channel(server.start()) as channel:
        yield channel
    server.stop()


@pytest.fixture
def stub(rows: MemoryTable[int]) -> Iterator[Any]:
    with serving(CONTRACT, rows, Streams(1000)) as channel:
        yield TweetReachesStub(channel)


@pytest.fixture
def users() -> MemoryTable[int]:
    return MemoryTable()


@pytest.fixture
def clicks(users: MemoryTable[int]) -> Iterator[Any]:
    """A table of which one stream may be open."""
    with serving(CLICKS, users, Streams(limit=1)) as channel:
        yield ClickCountsStub(channel)


def get(stub: Any, user: str) -> Any:
    return stub.Get(clicks_pb.GetRequest(user_id=user), timeout=5)


def get_many(stub: Any, users: list[str]) -> Any:
    return stub.MultiGet(clicks_pb.MultiGetRequest(user_ids=users), timeout=5)


def scan(stub: Any, **given: Any) -> list[Any]:
    return list(stub.Scan(clicks_pb.ScanRequest(**given), timeout=5))


def details(error: grpc.RpcError, kind: Any) -> Any:
    """Return the details of this kind in the status of a call."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type] # it is the call, too
    assert status is not None
    (found,) = [detail for detail in status.details if detail.Is(kind.DESCRIPTOR)]
    made = kind()
    found.Unpack(made)
    return made


def test_get_returns_the_row_its_details_and_its_position(stub: Any) -> None:
    assert stub.Get(pb.GetRequest(url="url-2"), timeout=5) == pb.GetResponse(
        reach=pb.Reach(reach=2), partition=0, offset=3, age_seconds=0.25, sketch=bytes(2)
    )
    with pytest.raises(grpc.RpcError, match="no reach is known"):
        stub.Get(pb.GetRequest(url="other"), timeout=5)


def test_multi_get_returns_rows_without_details(stub: Any) -> None:
    response = stub.MultiGet(pb.MultiGetRequest(urls=["url-2", "other", "url-1"]), timeout=5)
    assert [(found.url, found.answer.reach.reach) for found in response.found] == [("url-2", 2), ("url-1", 1)]
    assert not any(found.answer.sketch for found in response.found)


def test_a_scan_returns_rows_in_order(stub: Any) -> None:
    (page,) = stub.Scan(pb.ScanRequest(prefix="url-"), timeout=5)
    assert [(row.url, row.reach.reach) for row in page.rows] == [("url-0", 0), ("url-1", 1), ("url-2", 2)]


def test_a_watch_yields_changes_and_a_deletion_has_no_row(rows: MemoryTable[int], stub: Any) -> None:
    changes = stub.Watch(pb.WatchRequest(prefix=""), timeout=5)
    changes.initial_metadata()  # it is sent when the watch is open
    rows.put("url-9", 9)
    rows.put("url-9", None)
    first, second = next(changes), next(changes)
    assert (first.url, first.reach.reach) == ("url-9", 9)
    assert not second.HasField("reach")


def watch_for(stub: Any, caller: str, **target: str) -> Any:
    """Open a watch of a caller behind the proxy, and return it once it is open."""
    metadata = (("forwarded", f"for={caller}"),)
    watch = stub.Watch(pb.WatchRequest(**target), metadata=metadata)
    watch.initial_metadata()
    return watch


def test_watches_of_many_rows_are_shared_among_callers(rows: MemoryTable[int], stub: Any) -> None:
    callers = [f"192.0.2.{n}" for n in range(WATCHES_OF_MANY_MAX // WATCHES_OF_MANY_PER_PEER)]
    watches = {
        caller: [watch_for(stub, caller, prefix="") for _ in range(WATCHES_OF_MANY_PER_PEER)]
        for caller in callers
    }
    with pytest.raises(grpc.RpcError, match="this address has all the streams it may have"):
        next(watch_for(stub, callers[0], prefix=""))
    one = watch_for(stub, callers[0], url="url-1")
    newcomer = watch_for(stub, "192.0.2.99", prefix="")
    with pytest.raises(grpc.RpcError, match="another address with fewer streams gets this place"):
        next(watches[callers[0]][0])
    rows.put("url-1", 7)
    still_open = [one, newcomer, watches[callers[0]][1], watches[callers[-1]][0]]
    assert [next(watch).reach.reach for watch in still_open] == [7] * 4
    for watch in [one, newcomer, *(each for several in watches.values() for each in several)]:
        watch.cancel()


def test_a_falsy_row_is_still_a_row(users: MemoryTable[int], clicks: Any) -> None:
    users.put("alice", 0)
    assert (get(clicks, "alice").count, get(clicks, "alice").offset) == (0, 1)
    assert [found.user_id for found in get_many(clicks, ["alice"]).found] == ["alice"]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda stub: get(stub, "a/b"), "user_id"),
        (lambda stub: get_many(stub, ["alice", "a/b"]), "user_ids[1]"),
        (lambda stub: get_many(stub, ["alice"] * 1001), "user_ids"),
        (lambda stub: scan(stub, prefix="\x00"), "prefix"),
        (lambda stub: scan(stub, limit=-1), "limit"),
    ],
)
def test_an_invalid_field_is_named(clicks: Any, call: Callable[[Any], Any], field: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(clicks)
    assert [each.field for each in details(refused.value, BadRequest).field_violations] == [field]


def test_rows_may_have_keys_other_than_user_ids(rows: MemoryTable[int]) -> None:
    def no_zero(text: str) -> str:
        if "0" in text:
            raise ValueError("must not contain 0")
        return text

    contract = replace(CONTRACT, keys=KeyRules("url", no_zero, no_zero))
    rows.put("a/b", 3)
    with serving(contract, rows, Streams(1)) as channel:
        stub: Any = TweetReachesStub(channel)
        assert stub.Get(pb.GetRequest(url="a/b"), timeout=5).reach.reach == 3
        with pytest.raises(grpc.RpcError, match=r"urls\[1\]: must not contain 0"):
            stub.MultiGet(pb.MultiGetRequest(urls=["a", "x0"]), timeout=5)
        with pytest.raises(grpc.RpcError, match="prefix: must not contain 0"):
            next(stub.Scan(pb.ScanRequest(prefix="0"), timeout=5))


def test_a_scan_returns_pages_up_to_its_limit(users: MemoryTable[int], clicks: Any) -> None:
    users.rows = {f"user-{n:04}": n for n in range(1234)}
    assert [len(page.rows) for page in scan(clicks, limit=1100)] == [500, 500, 100]
    (page,) = scan(clicks, start_after="user-1231")
    assert [(row.user_id, row.count) for row in page.rows] == [("user-1232", 1232), ("user-1233", 1233)]


def test_scans_and_watches_take_a_place_among_the_streams(clicks: Any) -> None:
    watch = clicks.Watch(clicks_pb.WatchRequest(user_id="alice"))
    watch.initial_metadata()
    with pytest.raises(grpc.RpcError) as refused:
        scan(clicks)
    assert details(refused.value, ErrorInfo).reason == "TOO_MANY_STREAMS"
    watch.cancel()
    wait_until(lambda: not refuses(lambda: scan(clicks)))


def refuses(call: Callable[[], Any]) -> bool:
    try:
        call()
    except grpc.RpcError:
        return True
    return False


def test_rows_are_scanned_and_watched_whose_keys_have_no_prefixes() -> None:
    """No encoded key of JSON begins with another one, so a view refuses each prefix, the empty one too."""
    games: Stream[Any, Any] = Stream("games", Json(), Json())
    counted = Group("counted", Input(games, aggregate=Count()), Persist(Long()))
    with Tester() as tester:
        tester.run(counted)
        view: Any = tester.view(counted.table)
        for user in ("alice", "bob"):
            tester.emit(games, user, {})
        tester.advance(2)
        with serving(CLICKS, view, Streams(limit=2)) as channel:
            stub: Any = ClickCountsStub(channel)
            (page,) = scan(stub)
            assert [row.user_id for row in page.rows] == ["alice", "bob"]
            watch = stub.Watch(clicks_pb.WatchRequest(prefix=""))
            watch.initial_metadata()
            watch.cancel()
            watched = partial(next, stub.Watch(clicks_pb.WatchRequest(prefix="al"), timeout=5))
            for call in (lambda: scan(stub, prefix="al"), watched):
                with pytest.raises(grpc.RpcError, match="have no prefixes: ask without one") as refused:
                    call()
                assert details(refused.value, BadRequest).field_violations[0].field == "prefix"


def test_nothing_is_answered_until_the_table_is_ready(users: MemoryTable[int], clicks: Any) -> None:
    users.ready = False
    for call in (lambda: get(clicks, "alice"), lambda: get_many(clicks, []), lambda: scan(clicks)):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert details(refused.value, ErrorInfo).reason == "NOT_READY"


def test_an_unreadable_row_is_an_error_in_get_and_counted_in_lists(
    users: MemoryTable[int], clicks: Any
) -> None:
    users.rows = {f"user-{n:04}": n for n in range(600)}
    for spoiled in ("user-0003", "user-0499", "user-0500", "user-0599"):
        users.spoil(spoiled)
    with pytest.raises(grpc.RpcError, match="cannot be decoded"):
        get(clicks, "user-0003")
    found = get_many(clicks, ["user-0002", "user-0003", "unknown"])
    assert [(each.user_id, each.answer.count) for each in found.found] == [("user-0002", 2)]
    assert found.unreadable == ["user-0003"]
    assert [(len(page.rows), page.unreadable) for page in scan(clicks)] == [(500, 3), (96, 1)]


def test_a_scan_of_large_rows_is_sent_in_messages_that_clients_take() -> None:
    """A gRPC client refuses messages of more than 4 MiB, unless it is set to take them."""
    table: MemoryTable[int] = MemoryTable()
    table.rows = {f"url-{n:03}-{'x' * 10_000}": n for n in range(600)}
    for spoiled in (0, 7, 499, 599):
        table.spoil(f"url-{spoiled:03}-{'x' * 10_000}")
    with serving(CONTRACT, table, Streams()) as channel:
        pages = list(TweetReachesStub(channel).Scan(pb.ScanRequest(), timeout=30))
    assert max(page.ByteSize() for page in pages) <= 1024 * 1024
    assert [row.url for page in pages for row in page.rows] == sorted(table.rows)
    assert sum(page.unreadable for page in pages) == 4
    assert {page.age_seconds for page in pages} == {0.25}


def test_a_row_that_is_larger_than_a_message_of_a_scan_is_sent_alone(
    stub: Any, rows: MemoryTable[int]
) -> None:
    rows.rows = {"a": 1, "b" * 2_000_000: 2, "c": 3}
    pages = list(stub.Scan(pb.ScanRequest(), timeout=30))
    assert [[row.reach.reach for row in page.rows] for page in pages] == [[1], [2], [3]]


def test_successive_pages_count_each_unreadable_row_once(users: MemoryTable[int], clicks: Any) -> None:
    users.rows = dict.fromkeys("abcdefgh", 1)
    for spoiled in "acdh":
        users.spoil(spoiled)
    pages, after = [], ""
    for _ in range(4):
        (page,) = scan(clicks, start_after=after, limit=1)
        pages.append((page.rows[0].user_id, page.unreadable))
        after = page.rows[0].user_id
    assert pages == [("b", 1), ("e", 2), ("f", 0), ("g", 1)]
