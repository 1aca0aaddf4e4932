"""Serves a table over gRPC. A module of its own, so that other roles do not import grpc."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any, TypeVar

from servicekit.grpc.auth import check_callers
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.metrics import CallMetrics
from servicekit.grpc.server import GrpcServer
from servicekit.grpc.table_service import GrpcTableService, TableContract
from servicekit.grpc.tls import credentials_of
from servicekit.process.runtime import Runtime, S, operations, stop_signals, wait_to_stop
from servicekit.process.serving import Reading, viewing
from servicekit.process.signals import allow_connections
from servicekit.streams import Streams
from servicekit.tables.protocol import why_not_ready
from streamtable import Table, View

V = TypeVar("V")


def require_grpc_callers(runtime: Runtime[S]) -> None:
    """Refuse to serve other machines over gRPC without authentication. Client certificates suffice."""
    certificates = runtime.edge.grpc_client_authorities_file is not None
    address = runtime.settings.grpc_address
    runtime.require_callers("STREAMTABLE_GRPC_ADDRESS", address, certificates=certificates)


def serve_table(
    runtime: Runtime[S],
    table: Table[str, V],
    contract: TableContract[V],
    windows: Mapping[str, Table[Any, Any]] = MappingProxyType({}),
    read: Reading = viewing,
) -> int:
    """Answer gRPC calls about a table and windowed tables until stopped.

    Args:
        runtime: Settings and cluster.
        table: The table.
        contract: The gRPC service.
        windows: Windowed tables by name.
        read: Opens the tables; default: as local copies.
    """
    require_grpc_callers(runtime)
    with stop_signals(runtime.settings) as signals, ExitStack() as opened:
        view, *others = views = opened.enter_context(read(runtime, [table, *windows.values()], "view"))
        windowed: dict[str, View[Any, Any]] = dict(zip(windows, others, strict=True))

        def ready() -> bool:
            found = [each.ready for each in views]  # evaluated for all, as a failed view raises
            return all(found)

        opened.enter_context(operations(runtime, "view", ready, lambda: why_not_ready(*views)))
        # The server limits the streams. A stream that is replaced by another is counted here until it has ended.
        streams = Streams(2 * runtime.edge.grpc_streams)
        register = GrpcTableService(contract, view, streams, runtime.edge.proxies, windowed).register
        server = grpc_server(runtime, register, contract.service.full_name, ready, streams)
        server.start()
        opened.callback(server.stop)
        wait_to_stop(signals, ready)
    return 0


def grpc_server(
    runtime: Runtime[S],
    register: Callable[[Any], None],
    name: str,
    ready: Callable[[], bool],
    streams: Streams,
) -> GrpcServer:
    """Return a server at the address and with the limits of the settings.

    Args:
        runtime: Settings, callers and metrics.
        register: Adds the service `name`.
        name: The full name of the service, for server reflection.
        ready: Returns whether the service can answer.
        streams: The streams, ended by `stop`.
    """
    require_grpc_callers(runtime)
    edge = runtime.edge
    rest, calls = edge.connections, edge.grpc_connections  # REST for health and metrics
    most, per_peer = edge.grpc_streams, edge.grpc_streams_per_peer
    allow_connections(rest + calls, f"SERVICEKIT_CONNECTIONS={rest} and SERVICEKIT_GRPC_CONNECTIONS={calls}")
    host, port = runtime.settings.grpc_address
    files = edge.grpc_certificate_file, edge.grpc_key_file, edge.grpc_client_authorities_file
    return GrpcServer(
        host,
        port,
        register,
        ready=ready,
        streams=streams,
        services=[name] if runtime.service.reflection else [],
        check=check_callers(runtime.admission, proxies=runtime.edge.proxies),
        metrics=CallMetrics.register(runtime.registry),
        tracer=runtime.tracer,
        credentials=credentials_of(*files),
        limits=GrpcLimits(connections=calls, streams=most, streams_per_peer=per_peer),
        proxies=edge.proxies,
    )
