from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2 as pb
from contracts.grpc.tweet_reach.v1.tweet_reach_pb2_grpc import TweetReachesStub
from servicekit.auth.proxies import TrustedProxies, networks_of
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.grpc.table import WATCHES_OF_MANY_MAX, WATCHES_OF_MANY_PER_PEER, KeyRules
from servicekit.grpc.table_service import GrpcTableService, TableContract
from servicekit.streams import Streams
from servicekit_testing import MemoryTable

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


@pytest.fixture
def stub(rows: MemoryTable[int]) -> Iterator[Any]:
    streams = Streams(1000)
    proxies = TrustedProxies(networks_of("127.0.0.1"))
    service = GrpcTableService(CONTRACT, rows, streams, proxies)
    limits = GrpcLimits(drain_seconds=0, connection_streams=1000)
    server = GrpcServer("127.0.0.1", 0, service.register, ready=lambda: True, streams=streams, limits=limits)
    with grpc.insecure_channel(server.start()) as channel:
        yield TweetReachesStub(channel)
    server.stop()


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
    changes = stub.Watch(pb.WatchRequest(prefix=""), timeout=10)
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
