"""The connections of a caller to query servers."""

import threading
from collections.abc import Callable, Mapping
from typing import Final, cast

import grpc

from contracts.grpc.query.v1.query_pb2_grpc import QueryStub
from streamtable.errors import ConfigurationError
from streamtable_query.address import QueryAddress
from streamtable_query.metrics import QueryMetrics
from streamtable_query.protocol import ANY_SIZE, REASON

# A process that is restarted answers at the same address within seconds: gRPC's pauses grow to two minutes.
_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ANY_SIZE,
)
_PERMANENT: Final = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INVALID_ARGUMENT,
}


class Channels:
    """The connections to query servers, each made when it is first used. Any thread.

    Args:
        credentials: TLS; None: plain text.
        server_name: The name that the certificates must have; None: the host of each address.
        metadata: Sent with each call.
        metrics: Counts the answers; None: nothing does.
        topic: The table's topic, the label of the metric.
    """

    def __init__(
        self,
        credentials: grpc.ChannelCredentials | None,
        server_name: str | None,
        metadata: Mapping[str, str] | None,
        metrics: QueryMetrics | None,
        topic: str,
    ) -> None:
        self._credentials = credentials
        named = () if server_name is None else (("grpc.ssl_target_name_override", server_name),)
        self._options = (*_OPTIONS, *named)
        self.metadata = tuple((metadata or {}).items())
        self.answered: Callable[[], object] = bool if metrics is None else metrics.answered.labels(topic).inc
        self._made: dict[str, tuple[grpc.Channel, QueryStub]] = {}
        self._lock = threading.Lock()

    def stub(self, address: QueryAddress) -> QueryStub:
        """Return the service at an address. Connects to nothing."""
        target = str(address)
        with self._lock:
            if target not in self._made:
                channel = (
                    grpc.insecure_channel(target, self._options)
                    if self._credentials is None
                    else grpc.secure_channel(target, self._credentials, self._options)
                )
                self._made[target] = channel, QueryStub(channel)
            return self._made[target][1]

    def close(self) -> None:
        """Close all connections. May be called twice."""
        with self._lock:
            made, self._made = self._made, {}
        for channel, _ in made.values():
            channel.close()


def why_not(error: grpc.RpcError) -> str:
    """Return the reason for which another try may succeed. Raises `ConfigurationError` if none will."""
    call = cast("grpc.Call", error)
    text = f"{call.code().name}: {call.details()}"
    if call.code() in _PERMANENT:
        raise ConfigurationError(
            f"the query server refuses the call, {text}: give Query the credentials and the metadata that it asks for, "
            "and the same version"
        ) from error
    # A refusal of the query service says all by itself; gRPC's own errors need their code.
    ours = any(key == REASON for key, _ in call.trailing_metadata() or ())
    return str(call.details()) if ours else text
