"""Counts without a copy of the table: processors answer for their rows, and `--over instances` asks them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import grpc

from click_count.settings import ClickSettings
from click_count.topics import by_count
from servicekit.process.runtime import Runtime
from servicekit.streams import Streams
from streamtable import Kafka, Processor, Table
from streamtable_query import Query, RemoteTable, add_query_service, advertise


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
def _serving(runtime: Runtime[ClickSettings], processors: Sequence[Processor]) -> Iterator[None]:
    from servicekit.process.grpc_serving import grpc_server  # noqa: PLC0415 - other processors need none

    server = grpc_server(
        runtime,
        lambda server: add_query_service(processors, server),
        "streamtable.query.v1.Query",
        lambda: all(each.ready for each in processors),
        Streams(runtime.edge.grpc_streams),
    )
    server.start()
    try:
        yield
    finally:
        server.stop()


def instances(runtime: Runtime[ClickSettings], table: Table[str, Any]) -> RemoteTable[str, Any]:
    """Return the table as its processors have it.

    With `query_authorities_file` they are asked over TLS, with the certificate of this process (SERVICEKIT_GRPC_...) if it has
    one.
    """
    service, edge = runtime.service, runtime.edge
    credentials = None
    if service.query_authorities_file is not None:
        own = [
            None if file is None else file.read_bytes()
            for file in (edge.grpc_key_file, edge.grpc_certificate_file)
        ]
        credentials = grpc.ssl_channel_credentials(service.query_authorities_file.read_bytes(), *own)
    key = service.query_key
    query = Query(
        runtime.kafka,
        by_count(service.group),
        table,
        timeout=service.wait_seconds,
        credentials=credentials,
        metadata=None if key is None else {"x-api-key": key},
    )
    return RemoteTable(query)
