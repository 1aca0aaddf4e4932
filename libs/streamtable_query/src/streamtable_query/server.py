"""Answers queries of other processes from the committed rows and the copies in this one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

import grpc
import structlog

from contracts.grpc.query.v1 import query_pb2
from contracts.grpc.query.v1.query_pb2_grpc import QueryServicer, add_QueryServicer_to_server
from streamtable import PartitionNotAssigned, Processor
from streamtable.base.own_process import OwnProcess
from streamtable.errors import ConfigurationError, GraphError, RetryLater
from streamtable_query.answers import KINDS
from streamtable_query.protocol import (
    KEYS_MAX,
    NOT_ASSIGNED,
    NOT_READY,
    REASON,
    REQUEST_SIZE,
    VERSION,
    WRONG_GROUP,
)
from streamtable_query.sources import ProcessorSource, RowSource

_SOURCES: Final = {kind: number for number, kind in KINDS.items()}
_ALL_ADDRESSES: Final = "0.0.0.0:7070"
_STOP_SECONDS: Final = 5.0
_WORKERS: Final = 16

R = TypeVar("R")
Answering = Processor | RowSource
"""A source of answers: a processor, or a member of a shared view."""
log = structlog.get_logger()


class QueryServer:
    """Serves `streamtable.query.v1.Query` for the processors of this process, from `with` to its end.

        app = App(advertise(Kafka("127.0.0.1:9092"), "pod-3.orders:7070"), "state")
        processor = app.processor(ORDERS)
        with QueryServer(processor, "0.0.0.0:7070"):
            processor.run()

    A server that has limits, API keys and TLS of its own serves the same by `add_query_service`.

    Args:
        processors: The processor, or those of all groups that run here. Their standby copies answer callers who allow it.
        address: `host:port` to listen on; port 0: a free one.
        credentials: TLS, with client certificates if only those may ask; None: plain text, for loopback and for networks
            that encrypt and admit by themselves.

    Raises:
        ConfigurationError: Two processors are of the same group.
    """

    def __init__(
        self,
        processors: Answering | Sequence[Answering],
        address: str = _ALL_ADDRESSES,
        *,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._here = OwnProcess("the query server")
        self._address = address
        self._credentials = credentials
        self._server = grpc.server(
            ThreadPoolExecutor(_WORKERS, thread_name_prefix="query"),
            options=[("grpc.so_reuseport", 0), REQUEST_SIZE],
        )
        add_query_service(processors, self._server)
        self.port = 0
        """The port that it listens on; 0 before `start`."""

    def start(self) -> None:
        """Listen. Raises `ConfigurationError` if the address cannot be used."""
        try:
            self.port = (
                self._server.add_insecure_port(self._address)
                if self._credentials is None
                else self._server.add_secure_port(self._address, self._credentials)
            )
        except RuntimeError as error:
            raise ConfigurationError(
                f"queries cannot be served at {self._address!r}: give an address of this machine and a free port ({error})"
            ) from error
        self._server.start()
        log.info("query server started", address=self._address, port=self.port)

    def stop(self) -> None:
        """Refuse new calls and wait for those that run, 5 s at most. May be called twice."""
        if self._here.elsewhere:  # in a forked process there is nothing to stop
            return
        self._server.stop(_STOP_SECONDS).wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def add_query_service(
    processors: Answering | Sequence[Answering], server: grpc.Server | grpc.aio.Server
) -> None:
    """Add `streamtable.query.v1.Query` to a server.

    Args:
        processors: The processor, or those of all groups that run here. Their standby copies answer callers who allow it.
        server: The server; it may be synchronous or `grpc.aio`'s.

    Raises:
        ConfigurationError: Two processors are of the same group.
    """
    listed = list(processors) if isinstance(processors, Sequence) else [processors]
    sources = [each if isinstance(each, RowSource) else ProcessorSource(each) for each in listed]
    by_group = {each.group: each for each in sources}
    if len(by_group) < len(listed):
        raise ConfigurationError(
            "two processors of the same group in one process: queries cannot tell them apart"
        )
    answers = _Answers(by_group)
    add: Any = add_QueryServicer_to_server  # its types know synchronous servers only
    add(_Servicer(answers) if isinstance(server, grpc.Server) else _AsyncServicer(answers), server)


class _Refused(Exception):
    """The end of a call without an answer."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.metadata = ((REASON, reason),) if reason else ()


class _Servicer(QueryServicer):
    """For a synchronous server."""

    def __init__(self, answers: "_Answers") -> None:
        self._answers = answers

    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return self._ended(self._answers.get, request, context)

    def Range(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return self._ended(self._answers.range, request, context)

    def _ended(self, answer: Callable[[Any], Any], request: Any, context: Any) -> Any:
        try:
            return answer(request)
        except _Refused as refused:
            context.set_trailing_metadata(refused.metadata)
            return context.abort(refused.code, str(refused))


class _AsyncServicer:
    """For a server of `grpc.aio`: rows are read in threads."""

    def __init__(self, answers: "_Answers") -> None:
        self._answers = answers

    async def Get(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return await self._ended(self._answers.get, request, context)

    async def Range(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return await self._ended(self._answers.range, request, context)

    async def _ended(self, answer: Callable[[Any], Any], request: Any, context: Any) -> Any:
        try:
            return await asyncio.to_thread(answer, request)
        except _Refused as refused:
            await context.abort(refused.code, str(refused), refused.metadata)


class _Answers:
    """The answers of the sources of this process. Its methods raise `_Refused` with the reason why there is none."""

    def __init__(self, sources: Mapping[str, RowSource]) -> None:
        self._sources = sources

    def get(self, request: query_pb2.GetRequest) -> query_pb2.GetResponse:
        if len(request.keys) > KEYS_MAX:
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{len(request.keys)} keys, at most {KEYS_MAX}")

        def read(source: RowSource, stale_ok: float | None) -> query_pb2.GetResponse:
            found = source.get(request.table, request.partition, request.keys, stale_ok)
            return query_pb2.GetResponse(
                rows=[query_pb2.Row(value=value) for value in found.values],
                offset=found.offset,
                source=_SOURCES[found.kind],
                age_seconds=found.age_seconds,
            )

        return self._answer(request, read)

    def range(self, request: query_pb2.RangeRequest) -> query_pb2.RangeResponse:
        start = request.start if request.HasField("start") else None
        end = request.end if request.HasField("end") else None

        def read(source: RowSource, stale_ok: float | None) -> query_pb2.RangeResponse:
            page = source.page(request.table, request.partition, start, end, stale_ok)
            entries = [query_pb2.Entry(key=key, value=value) for key, value in page.entries]
            return query_pb2.RangeResponse(
                entries=entries,
                more=page.more,
                offset=page.offset,
                source=_SOURCES[page.kind],
                age_seconds=page.age_seconds,
            )

        return self._answer(request, read)

    def _answer(
        self,
        request: query_pb2.GetRequest | query_pb2.RangeRequest,
        read: Callable[[RowSource, float | None], R],
    ) -> R:
        if request.version != VERSION:
            raise _Refused(
                grpc.StatusCode.UNIMPLEMENTED,
                f"version {request.version} of the query protocol is not known here, where {VERSION} is: upgrade the older side",
            )
        source = self._sources.get(request.group)
        if source is None:
            groups = ", ".join(self._sources)
            raise _refused(WRONG_GROUP, f"no group {request.group!r} runs here, only {groups}")
        try:
            if request.topic_id != source.topic_id(request.table):
                raise GraphError(
                    f"the topic {request.table!r} is another one here than where the call comes from: this process works on "
                    "another Kafka cluster, or the topic was created again"
                )
            return read(source, request.stale_ok if request.HasField("stale_ok") else None)
        except PartitionNotAssigned as error:
            raise _refused(NOT_ASSIGNED, error.message) from error
        except GraphError as error:
            raise _refused(WRONG_GROUP, error.message) from error
        except RetryLater as error:
            raise _refused(NOT_READY, error.message) from error


def _refused(reason: str, message: str) -> _Refused:
    code = grpc.StatusCode.UNAVAILABLE if reason == NOT_READY else grpc.StatusCode.FAILED_PRECONDITION
    return _Refused(code, message, reason)
