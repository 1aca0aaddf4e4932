"""The view service: click counts over gRPC, from a local copy of the table."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Final

import grpc

from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import (
    ClickCountsServicer,
    add_ClickCountsServicer_to_server,
)
from servicekit.grpc.table import GrpcTable, Told
from servicekit.streams import Streams
from servicekit.tables.protocol import Answer, UserTable

SERVICE_NAME: Final = "streamtable.click_count.v1.ClickCounts"


class ClickCountsService(ClickCountsServicer):
    """Answers calls.

    Args:
        counts: the table.
        streams: admits scans and watches.
    """

    def __init__(self, counts: UserTable[int], streams: Streams) -> None:
        self._table = GrpcTable(counts, streams, missing="no clicks of this user are known")

    def register(self, server: Any) -> None:
        """Add the methods to a server of `grpc.aio`."""
        add_ClickCountsServicer_to_server(self, server)

    def Get(self, request: pb.GetRequest, context: grpc.ServicerContext) -> pb.GetResponse:  # noqa: N802 gRPC's name
        del context
        return _response(*self._table.get(request.user_id))

    def MultiGet(  # noqa: N802 gRPC's name
        self, request: pb.MultiGetRequest, context: grpc.ServicerContext
    ) -> pb.MultiGetResponse:
        del context
        found = self._table.get_many(request.user_ids)
        response = pb.MultiGetResponse(unreadable=found.unreadable)
        for user, answer, count in found.rows:
            response.found.add(user_id=user, answer=_response(answer, count))
        return response

    def Scan(  # noqa: N802 gRPC's name
        self, request: pb.ScanRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ScanResponse]:
        del context
        for page in self._table.scan(request):
            rows = [pb.ScanResponse.Row(user_id=user, count=count) for user, count in page.rows]
            yield pb.ScanResponse(
                rows=rows, age_seconds=page.age_seconds, stale=page.stale, unreadable=page.unreadable
            )

    async def Watch(  # type: ignore[override] # noqa: N802 gRPC's name; it waits without a thread
        self, request: pb.WatchRequest, context: Any
    ) -> AsyncIterator[pb.WatchResponse]:
        async with aclosing(self._table.watch(request, context)) as changes:
            async for told in changes:
                yield _watch_response(told)


def _response(answer: Answer[int], count: int) -> pb.GetResponse:
    return pb.GetResponse(
        count=count,
        partition=answer.partition,
        offset=answer.offset,
        age_seconds=answer.age_seconds,
        stale=answer.stale,
    )


def _watch_response(told: Told[int]) -> pb.WatchResponse:
    change = told.change
    return pb.WatchResponse(
        user_id=change.key,
        count=change.value,
        partition=change.partition,
        offset=change.offset,
        unreadable=told.unreadable,
    )
