"""The view service: the reach of URLs over gRPC, from a local copy of the table."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Final

import grpc

from contracts.grpc.tweet_reach.v1 import tweet_reach_pb2 as pb
from contracts.grpc.tweet_reach.v1.tweet_reach_pb2_grpc import (
    TweetReachesServicer,
    add_TweetReachesServicer_to_server,
)
from contracts.records import Reach
from servicekit.grpc.table import GrpcTable
from servicekit.streams import Streams
from servicekit.tables.protocol import Answer, UserTable
from tweet_reach.urls import URL_KEYS

SERVICE_NAME: Final = "streamtable.tweet_reach.v1.TweetReaches"


class TweetReachesService(TweetReachesServicer):
    """Answers calls.

    Args:
        reaches: the table.
        streams: admits scans and watches.
    """

    def __init__(self, reaches: UserTable[Reach], streams: Streams) -> None:
        self._table = GrpcTable(reaches, streams, missing="nobody tweets this URL", keys=URL_KEYS)

    def register(self, server: Any) -> None:
        """Add the methods to a server of `grpc.aio`."""
        add_TweetReachesServicer_to_server(self, server)

    def Get(self, request: pb.GetRequest, context: grpc.ServicerContext) -> pb.GetResponse:  # noqa: N802 gRPC's name
        del context
        answer, row = self._table.get(request.url)
        response = _response(answer, row)
        response.sketch = row["sketch"]
        return response

    def MultiGet(  # noqa: N802 gRPC's name
        self, request: pb.MultiGetRequest, context: grpc.ServicerContext
    ) -> pb.MultiGetResponse:
        del context
        found = self._table.get_many(request.urls)
        response = pb.MultiGetResponse(unreadable=found.unreadable)
        for url, answer, row in found.rows:
            response.found.add(url=url, answer=_response(answer, row))
        return response

    def Scan(  # noqa: N802 gRPC's name
        self, request: pb.ScanRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ScanResponse]:
        del context
        for page in self._table.scan(request):
            rows = [pb.ScanResponse.Row(url=url, reach=_reach(row)) for url, row in page.rows]
            yield pb.ScanResponse(
                rows=rows, age_seconds=page.age_seconds, stale=page.stale, unreadable=page.unreadable
            )

    async def Watch(  # type: ignore[override] # noqa: N802 gRPC's name; it waits without a thread
        self, request: pb.WatchRequest, context: Any
    ) -> AsyncIterator[pb.WatchResponse]:
        async with aclosing(self._table.watch(request, context)) as changes:
            async for told in changes:
                change = told.change
                yield pb.WatchResponse(
                    url=change.key,
                    reach=None if change.value is None else _reach(change.value),
                    partition=change.partition,
                    offset=change.offset,
                    unreadable=told.unreadable,
                )


def _reach(row: Reach) -> pb.Reach:
    top = [pb.Reach.Author(author=one["author"], followers=one["followers"]) for one in row["top"]]
    return pb.Reach(
        reach=row["reach"], estimate=row["estimate"], tweets=row["tweets"], authors=row["authors"], top=top
    )


def _response(answer: Answer[Reach], row: Reach) -> pb.GetResponse:
    return pb.GetResponse(
        reach=_reach(row),
        partition=answer.partition,
        offset=answer.offset,
        age_seconds=answer.age_seconds,
        stale=answer.stale,
    )
