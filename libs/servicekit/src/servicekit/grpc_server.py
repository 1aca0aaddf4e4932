"""A grpcio server with bounds on everything a caller can use up, and the standard health service."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from servicekit.grpc_guard import CallGuard, Refused
from servicekit.process import say
from servicekit.streams import Streams
from streamtable.errors import ConfigurationError

_HEALTH_WATCH_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """What callers may use.

    Attributes:
        receive_bytes: of one message.
        metadata_bytes: of a call's headers.
        unary_threads: unary calls that are worked on at a time; streams have threads of their own, one each.
        waiting: calls that may wait for a thread; more are refused with RESOURCE_EXHAUSTED.
        deadline_seconds_max: the farthest deadline of a unary call.
        connection_age_seconds: after that the caller connects again (and so finds new replicas).
        ping_seconds_min: a caller that pings more often is disconnected.
    """

    receive_bytes: int = 64 * 1024
    metadata_bytes: int = 16 * 1024
    unary_threads: int = 16
    waiting: int = 64
    deadline_seconds_max: float = 5.0
    connection_age_seconds: float = 1800.0
    ping_seconds_min: float = 10.0


class GrpcServer:
    """Serves on one address until stopped.

    Args:
        host: to listen on.
        port: to listen on; 0: a free one.
        register: adds the services to the server (the generated `add_..._to_server`).
        ready: what the health service answers, SERVING or NOT_SERVING.
        streams: that the servicers admit their streams to; ended by `stop`.
        services: full names, told by reflection; empty: no reflection.
        limits: what callers may use; default `GrpcLimits()`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        register: Callable[[grpc.Server], None],
        *,
        ready: Callable[[], bool],
        streams: Streams,
        services: Sequence[str] = (),
        limits: GrpcLimits | None = None,
    ) -> None:
        limits = limits or GrpcLimits()
        self._host = host
        self._port = port
        self._streams = streams
        threads = limits.unary_threads + streams.limit
        self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="grpc"),
            interceptors=[CallGuard(limits.deadline_seconds_max)],
            options=_options(limits),
            maximum_concurrent_rpcs=threads + limits.waiting,
        )
        register(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(_Health(ready, streams), self._server)
        if services:
            reflection.enable_server_reflection([*services, reflection.SERVICE_NAME], self._server)

    def start(self) -> str:
        """Listen. Prints and returns the address, `host:port`.

        Raises:
            ConfigurationError: the address cannot be listened on.
        """
        name = f"[{self._host}]" if ":" in self._host else self._host
        try:
            port = self._server.add_insecure_port(f"{name}:{self._port}")
        except RuntimeError as error:
            raise ConfigurationError(
                f"cannot listen on {name}:{self._port}; is it in use by another program?"
            ) from error
        self._server.start()
        address = f"{name}:{port}"
        say(f"listening on grpc://{address}")
        return address

    def stop(self, grace_seconds: float = 10.0) -> None:
        """Take no more calls, end streams, finish unary calls within the grace, and return when all have ended."""
        self._streams.stop()
        self._server.stop(grace_seconds).wait()


def _options(limits: GrpcLimits) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", limits.receive_bytes),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", limits.metadata_bytes),
        ("grpc.max_concurrent_streams", 100),
        # Without it a second server on the same port would quietly take half of the connections.
        ("grpc.so_reuseport", 0),
        ("grpc.max_connection_age_ms", int(limits.connection_age_seconds * 1000)),
        ("grpc.max_connection_age_grace_ms", 60_000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(limits.ping_seconds_min * 1000)),
        ("grpc.http2.max_ping_strikes", 2),
    ]


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # the package ships no types
    """One status for the whole server, asked for when needed; `grpc_health`'s own wants to be told of changes."""

    def __init__(self, ready: Callable[[], bool], streams: Streams) -> None:
        self._ready = ready
        self._streams = streams

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 gRPC's name
        del context
        _check_service(request)
        return self._status()

    def Watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802 gRPC's name
        _check_service(request)
        sent = None
        with self._streams.admit() as alive:
            while alive() and context.is_active():
                status = self._status()
                if status != sent:
                    yield status
                    sent = status
                time.sleep(_HEALTH_WATCH_SECONDS)

    def _status(self) -> Any:
        serving = health_pb2.HealthCheckResponse.SERVING
        return health_pb2.HealthCheckResponse(
            status=serving if self._ready() else health_pb2.HealthCheckResponse.NOT_SERVING
        )


def _check_service(request: Any) -> None:
    if request.service:
        raise Refused(grpc.StatusCode.NOT_FOUND, "only the server as a whole has a health status; ask for ''")
