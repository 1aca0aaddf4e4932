"""The view service: click counts over gRPC, from a local copy of the table."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import grpc

from click_count.counts import STALE_SECONDS, Answer, Change, Counts, Watch, age_seconds
from click_count.domain import user_id, user_id_prefix
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import (
    ClickCountsServicer,
    add_ClickCountsServicer_to_server,
)
from servicekit.grpc_guard import Refused
from servicekit.streams import Streams
from streamtable.errors import RetryLater, StreamtableError

SERVICE_NAME: Final = "streamtable.click_count.v1.ClickCounts"
KEYS_MAX: Final = 1000
SCAN_ROWS_DEFAULT: Final = 1000
SCAN_ROWS_MAX: Final = 100_000
SCAN_ROWS_IN_MESSAGE: Final = 500
_WAIT_SECONDS: Final = 0.5


class ClickCountsService(ClickCountsServicer):
    """Answers calls.

    Args:
        counts: the table.
        streams: admits scans and watches.
    """

    def __init__(self, counts: Counts, streams: Streams) -> None:
        self._counts = counts
        self._streams = streams

    def register(self, server: grpc.Server) -> None:
        add_ClickCountsServicer_to_server(self, server)

    def Get(self, request: pb.GetRequest, context: grpc.ServicerContext) -> pb.GetResponse:  # noqa: N802 gRPC's name
        del context
        answer = self._counts.answer(_user_id(request.user_id))
        if answer.value is None:
            raise Refused(grpc.StatusCode.NOT_FOUND, "no clicks of this user are known")
        return _response(answer, answer.value)

    def MultiGet(  # noqa: N802 gRPC's name
        self, request: pb.MultiGetRequest, context: grpc.ServicerContext
    ) -> pb.MultiGetResponse:
        del context
        if len(request.user_ids) > KEYS_MAX:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"user_ids: at most {KEYS_MAX}")
        users = [_user_id(text) for text in request.user_ids]
        response = pb.MultiGetResponse()
        for user in users:
            answer = self._counts.answer(user)
            if answer.value is not None:
                response.found.add(user_id=user, answer=_response(answer, answer.value))
        return response

    def Scan(  # noqa: N802 gRPC's name
        self, request: pb.ScanRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.ScanResponse]:
        prefix = _prefix(request.prefix)
        after: str | None = request.start_after or None
        if not 0 <= request.limit <= SCAN_ROWS_MAX:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"limit: 0 to {SCAN_ROWS_MAX}")
        left = request.limit or SCAN_ROWS_DEFAULT
        with self._streams.admit() as alive:
            while left > 0 and context.is_active():
                if not alive():
                    raise RetryLater("the stream was ended")
                # A page at a time: a caller who reads slowly must not hold a snapshot of the store open.
                size = min(left, SCAN_ROWS_IN_MESSAGE)
                page = list(islice(self._counts.iterate(prefix, after), size))
                age = age_seconds(self._counts)
                rows = [pb.ScanResponse.Row(user_id=user, count=count) for user, count in page]
                yield pb.ScanResponse(rows=rows, age_seconds=age, stale=age > STALE_SECONDS)
                if len(page) < size:
                    return
                left -= size
                after = page[-1][0]

    def Watch(  # noqa: N802 gRPC's name
        self, request: pb.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchResponse]:
        key = _user_id(request.user_id) if request.WhichOneof("target") == "user_id" else None
        prefix = None if key is not None else _prefix(request.prefix)
        with self._streams.admit() as alive, self._counts.watch(key=key, prefix=prefix) as watch:
            age_seconds(self._counts)  # not before the copy is complete
            # So that the caller knows from when on it misses nothing, before the first change.
            context.send_initial_metadata(())
            while alive() and not watch.ended:
                change = _next(watch)
                if not context.is_active():
                    return
                if change is not None:
                    yield _watch_response(change)
        raise RetryLater("the stream was ended")


def _user_id(text: str) -> str:
    try:
        return user_id(text)
    except ValueError as error:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"user id: {error}") from None


def _prefix(text: str) -> str:
    try:
        return user_id_prefix(text)
    except ValueError as error:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"prefix: {error}") from None


def _next(watch: Watch) -> Change | None:
    try:
        return watch.next(_WAIT_SECONDS)
    except StreamtableError:
        details = "changes were missed; watch again, then read what may have changed"
        raise Refused(grpc.StatusCode.UNAVAILABLE, details) from None


def _response(answer: Answer, count: int) -> pb.GetResponse:
    return pb.GetResponse(
        count=count,
        partition=answer.partition,
        offset=answer.offset,
        age_seconds=answer.age_seconds,
        stale=answer.stale,
    )


def _watch_response(change: Change) -> pb.WatchResponse:
    return pb.WatchResponse(
        user_id=change.key, count=change.value, partition=change.partition, offset=change.offset
    )
