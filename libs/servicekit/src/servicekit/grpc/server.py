"""A grpcio server with limits on all resources of callers, and the standard health service."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from threading import Thread
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.grpc.errors import CallRefused
from servicekit.grpc.guard import HEALTH_WATCHES_MAX, CallGuard, Check, GrpcLimits
from servicekit.grpc.metrics import CallMetrics
from servicekit.output import say
from servicekit.streams import Streams
from servicekit.tracing import ServerTracer
from streamtable.errors import ConfigurationError

_HEALTH_WATCH_SECONDS: Final = 0.5
_GRPCIO_LOG: Final = "grpc._cython.cygrpc"
_UNSENT_ANSWER: Final = "ExecuteBatchError raised in core"


class GrpcServer:
    """Serves on one address until stopped, from an event loop in a thread of its own.

    Methods are plain functions and generators, which run in threads, or coroutines and asynchronous generators.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0: a free one.
        register: Adds the services to the server (the generated `add_..._to_server`).
        ready: Returns whether the health service answers SERVING; else NOT_SERVING.
        streams: Admits the streams of the services; ended by `stop`.
        services: The full names of the services that server reflection describes; empty: no reflection.
        check: Checks each call except those of the health service, and raises `CallRefused`; None: every call is allowed.
        metrics: Counts the calls; None: they are not counted.
        tracer: Makes a span for each call except those of the health service; None: there are no spans.
        credentials: TLS credentials; None: plain text, for loopback and for networks that encrypt themselves.
        limits: The limits on the resources of callers; default `GrpcLimits()`.
        proxies: The proxies whose metadata `forwarded` names the caller.
    """

    def __init__(
        self,
        host: str,
        port: int,
        register: Callable[[Any], None],
        *,
        ready: Callable[[], bool],
        streams: Streams,
        services: Sequence[str] = (),
        check: Check | None = None,
        metrics: CallMetrics | None = None,
        tracer: ServerTracer | None = None,
        credentials: grpc.ServerCredentials | None = None,
        limits: GrpcLimits | None = None,
        proxies: TrustedProxies = NO_PROXIES,
    ) -> None:
        self._host = host
        self._port = port
        self._register = register
        self._streams = streams
        # The guard limits them. One that is replaced by another is counted here until it has ended.
        self._health_watches = Streams(2 * HEALTH_WATCHES_MAX)
        self._health = _Health(lambda: ready() and not streams.stopping, self._health_watches)
        self._services = services
        self._credentials = credentials
        self._limits = limits or GrpcLimits()
        self._guard = CallGuard(self._limits, check, metrics, tracer, proxies)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="grpc-loop", daemon=True)
        self._server: Any = None

    def start(self) -> str:
        """Listen. Prints and returns the address, `host:port`.

        Raises:
            ConfigurationError: The server cannot listen on the address.
        """
        name = f"[{self._host}]" if ":" in self._host else self._host
        logging.getLogger(_GRPCIO_LOG).addFilter(_calm)
        self._thread.start()
        try:
            port = self._in_loop(self._start(name)).result()
        except RuntimeError as error:
            self._end_loop()
            text = f"cannot listen on {name}:{self._port}; is it in use by another program?"
            raise ConfigurationError(text) from error
        address = f"{name}:{port}"
        say(f"listening on {'grpc' if self._credentials is None else 'grpcs'}://{address}")
        return address

    def stop(self, grace_seconds: float = 10.0) -> None:
        """Accept no more calls, end streams, finish unary calls within the grace, and return when all have ended."""
        self._guard.stopping = True  # before streams end: their callers must not reconnect to this server
        self._streams.stop()
        self._health_watches.stop()
        if self._server is not None:
            self._in_loop(self._stop(grace_seconds)).result()
            self._end_loop()

    async def _stop(self, grace_seconds: float) -> None:
        # gRPC answers a call that arrives during shutdown with CANCELLED, which clients do not retry.
        await asyncio.sleep(self._limits.drain_seconds)
        await self._server.stop(grace_seconds)

    async def _start(self, name: str) -> int:
        # The guard limits the calls: the errors of grpcio's own limit name no remedy.
        server = grpc.aio.server(interceptors=[self._guard], options=_options(self._limits))
        self._register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._services:
            reflection.enable_server_reflection([*self._services, reflection.SERVICE_NAME], server)
        address = f"{name}:{self._port}"
        secured = (self._credentials,) if self._credentials is not None else ()
        port: int = (server.add_secure_port if secured else server.add_insecure_port)(address, *secured)
        await server.start()
        self._server = server
        return port

    def _in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end_loop(self) -> None:
        self._server = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._guard.close()


def _calm(record: logging.LogRecord) -> bool:
    """Report an answer that could not be sent as information, without a traceback.

    A connection that breaks while an answer is sent is no fault of the server. grpcio reports it as an error, unless it
    has seen before that the client closed the call.
    """
    if str(record.msg).startswith(_UNSENT_ANSWER):
        record.levelno, record.levelname, record.exc_info = logging.INFO, "INFO", None
    return True


def _options(limits: GrpcLimits) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", limits.receive_bytes),
        # Without it grpcio doubles its read buffer as long as a caller sends without a pause: to gigabytes.
        ("grpc.experimental.tcp_max_read_buffer_size", limits.receive_bytes),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        ("grpc.max_concurrent_streams", limits.connection_streams),
        # Otherwise a second server on the same port would silently take half of the connections.
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_seconds * 1000)),
        ("grpc.max_connection_idle_ms", int(limits.connection_idle_seconds * 1000)),
        ("grpc.max_connection_age_ms", int(limits.connection_age_seconds * 1000)),
        ("grpc.max_connection_age_grace_ms", 60_000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(limits.ping_seconds_min * 1000)),
        ("grpc.http2.max_ping_strikes", 2),
    ]


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # the package ships no types
    """One status for the whole server, computed on request; `grpc_health` would have to be notified of changes."""

    def __init__(self, ready: Callable[[], bool], streams: Streams) -> None:
        self._ready = ready
        self._streams = streams

    async def Check(self, request: Any, _context: Any) -> Any:  # noqa: N802 gRPC's name
        _check_service(request)
        return self._status()

    async def List(self, _request: Any, _context: Any) -> Any:  # noqa: N802 gRPC's name
        return health_pb2.HealthListResponse(statuses={"": self._status()})

    async def Watch(self, request: Any, _context: Any) -> AsyncIterator[Any]:  # noqa: N802 gRPC's name
        _check_service(request)
        sent = None
        with self._streams.admit() as alive:
            while alive():
                status = self._status()
                if status != sent:
                    yield status
                    sent = status
                await asyncio.sleep(_HEALTH_WATCH_SECONDS)
        raise self._streams.ended()

    def _status(self) -> Any:
        response = health_pb2.HealthCheckResponse
        return response(status=response.SERVING if self._ready() else response.NOT_SERVING)


def _check_service(request: Any) -> None:
    if request.service:
        text = "only the server as a whole has a health status; ask for ''"
        raise CallRefused(grpc.StatusCode.NOT_FOUND, text)
