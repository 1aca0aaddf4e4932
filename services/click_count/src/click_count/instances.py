"""Counts without a whole copy of the table: `--over instances` asks the processors, `--over shards` shares it among services."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import grpc

from click_count.settings import ClickSettings
from click_count.topics import by_count
from click_count.windows import click_windows
from servicekit.process import serving
from servicekit.process.runtime import Runtime
from servicekit.streams import Streams
from servicekit.tables.protocol import STALE_SECONDS
from streamtable import Group, Kafka, Processor, Table
from streamtable.errors import ConfigurationError
from streamtable_query import Query, QueryMetrics, RemoteTable, SharedView, add_query_service, advertise


def answering(
    runtime: Runtime[ClickSettings],
) -> tuple[Kafka, Callable[[Sequence[Processor]], AbstractContextManager[Any]]]:
    """Return the cluster with the address for queries, and the server for them, at STREAMTABLE_GRPC_ADDRESS.

    Callers need what callers of the view need: a key with the scope read, a client certificate, or both. Without the setting
    `query_address` processors answer nobody.

    Raises:
        ConfigurationError: The address is malformed.
    """
    address = runtime.service.query_address
    if address is None:
        return runtime.kafka, nullcontext
    return advertise(runtime.kafka, address), partial(_serving, runtime)


@contextmanager
def _serving(runtime: Runtime[ClickSettings], sources: Sequence[Any]) -> Iterator[None]:
    from servicekit.process.grpc_serving import grpc_server  # noqa: PLC0415 - other processors need none

    server = grpc_server(
        runtime,
        lambda server: add_query_service(sources, server),
        "streamtable.query.v1.Query",
        lambda: not any(each.not_ready for each in sources),
        Streams(runtime.edge.grpc_streams),
    )
    server.start()
    try:
        yield
    finally:
        server.stop()


@contextmanager
def instances(
    runtime: Runtime[ClickSettings], tables: Sequence[Table[Any, Any]], _: str
) -> Iterator[list[RemoteTable[Any, Any]]]:
    """Open the tables as their processors have them.

    With `query_authorities_file` they are asked over TLS, with the certificate of this process (SERVICEKIT_GRPC_...) if it has
    one.
    """
    asking = _asking(runtime)
    with ExitStack() as opened:
        queries = [Query(runtime.kafka, _keeper(runtime.service, table), table, **asking) for table in tables]
        yield [opened.enter_context(RemoteTable(query)) for query in queries]


@contextmanager
def shards(
    runtime: Runtime[ClickSettings], tables: Sequence[Table[Any, Any]], name: str
) -> Iterator[list[RemoteTable[Any, Any]]]:
    """Open the tables as shared by all services with this name: each holds its share, and answers the others for it.

    They reach this one by `query_address`, at its STREAMTABLE_GRPC_ADDRESS, with the keys and certificates as of `instances`.

    Raises:
        ConfigurationError: There is no `query_address`, or this is the view.
    """
    service = runtime.service
    if name == "view":
        raise ConfigurationError(
            "view --over shards cannot run: the view has STREAMTABLE_GRPC_ADDRESS, where a service that shares the table answers "
            "the others: use query --over shards, or view --over instances"
        )
    if service.query_address is None:
        raise ConfigurationError(
            "--over shards needs CLICK_COUNT_QUERY_ADDRESS: host:port where the other services reach this one at its "
            "STREAMTABLE_GRPC_ADDRESS"
        )
    place = f"{service.group}-{name}", service.query_address
    asking = {"serve": False, "stale_ok": STALE_SECONDS, **_asking(runtime)}
    with serving.local(runtime, name) as app, ExitStack() as opened:
        views = [opened.enter_context(SharedView(app, table, *place, **asking)) for table in tables]
        opened.enter_context(_serving(runtime, [view.shard for view in views]))
        yield [opened.enter_context(RemoteTable(view)) for view in views]


def _asking(runtime: Runtime[ClickSettings]) -> dict[str, Any]:
    """Return how this process asks others: what they know it by, what it knows them by, how long it waits, and what counts."""
    service, edge = runtime.service, runtime.edge
    credentials = None
    if service.query_authorities_file is not None:
        own = [
            None if file is None else file.read_bytes()
            for file in (edge.grpc_key_file, edge.grpc_certificate_file)
        ]
        credentials = grpc.ssl_channel_credentials(service.query_authorities_file.read_bytes(), *own)
    return {
        "credentials": credentials,
        "server_name": service.query_server_name,
        "metadata": None if service.query_key is None else {"x-api-key": service.query_key},
        # A wait of 0 is for writes: without any time no process could answer.
        "timeout": max(1.0, service.wait_seconds),
        "metrics": QueryMetrics.register(runtime.registry),
    }


def _keeper(settings: ClickSettings, table: Table[Any, Any]) -> Group[Any, Any]:
    """Return the group that keeps a table."""
    windows = [] if settings.windows is None else click_windows(settings.windows).flow.groups
    return next(each for each in (by_count(settings.group), *windows) if table.name in each.tables)
