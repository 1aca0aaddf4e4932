from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2 as pb
from contracts.grpc.tweet_reach.v1.tweet_reach_pb2_grpc import TweetReachesStub
from contracts.records import Reach, ReachAuthor
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.streams import Streams
from servicekit_testing import MemoryTable
from tweet_reach.view import TweetReachesService

URL = "https://example.org/a"
ROW = Reach(
    reach=2, estimate=2.0, sketch=b"sketch", tweets=3, authors=1, top=[ReachAuthor(author="ann", followers=2)]
)
MESSAGE = pb.Reach(
    reach=2, estimate=2.0, tweets=3, authors=1, top=[pb.Reach.Author(author="ann", followers=2)]
)


@pytest.fixture
def stub(reaches: MemoryTable[Reach]) -> Iterator[Any]:
    streams = Streams(limit=4)
    service = TweetReachesService(reaches, streams)
    server = GrpcServer(
        "127.0.0.1",
        0,
        service.register,
        ready=lambda: reaches.ready,
        streams=streams,
        limits=GrpcLimits(drain_seconds=0),
    )
    with grpc.insecure_channel(server.start()) as channel:
        yield TweetReachesStub(channel)
    server.stop()


def code_of(action: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        action()
    error: Any = caught.value
    code: grpc.StatusCode = error.code()
    return code


def test_a_url_is_answered_with_its_reach_its_sketch_and_its_place(
    reaches: MemoryTable[Reach], stub: Any
) -> None:
    reaches.put(URL, ROW)
    expected = pb.GetResponse(
        reach=MESSAGE, partition=0, offset=1, age_seconds=0.25, stale=False, sketch=b"sketch"
    )
    assert stub.Get(pb.GetRequest(url=URL), timeout=5) == expected


def test_a_url_that_is_not_tweeted_is_not_found(stub: Any) -> None:
    assert code_of(lambda: stub.Get(pb.GetRequest(url=URL), timeout=5)) == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("url", ["", "x" * 2049, "a\nb", "a\ufffdb"])
def test_what_cannot_be_a_url_is_refused(stub: Any, url: str) -> None:
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    assert code_of(lambda: stub.Get(pb.GetRequest(url=url), timeout=5)) == invalid
    assert code_of(lambda: stub.MultiGet(pb.MultiGetRequest(urls=[URL, url]), timeout=5)) == invalid


def test_several_urls_are_answered_in_one_call(reaches: MemoryTable[Reach], stub: Any) -> None:
    reaches.put(URL, ROW)
    response = stub.MultiGet(pb.MultiGetRequest(urls=["unknown", URL]), timeout=5)
    assert [(found.url, found.answer.reach) for found in response.found] == [(URL, MESSAGE)]
    assert response.found[0].answer.sketch == b""


def test_urls_are_scanned_in_order(reaches: MemoryTable[Reach], stub: Any) -> None:
    for name in "cab":
        reaches.put(f"https://example.org/{name}", ROW)
    pages = list(stub.Scan(pb.ScanRequest(prefix="https://", limit=2)))
    assert [(row.url, row.reach) for page in pages for row in page.rows] == [
        ("https://example.org/a", MESSAGE),
        ("https://example.org/b", MESSAGE),
    ]


@pytest.mark.parametrize("target", [{"url": URL}, {"prefix": "https://"}])
def test_changes_are_reported_as_they_come(
    reaches: MemoryTable[Reach], stub: Any, target: dict[str, str]
) -> None:
    watch = stub.Watch(pb.WatchRequest(**target))
    watch.initial_metadata()  # from now on nothing is missed
    reaches.put("foo.com", ROW)
    reaches.put(URL, ROW)
    assert next(watch) == pb.WatchResponse(url=URL, reach=MESSAGE, partition=0, offset=2)
    watch.cancel()
