"""The connections of a caller to query servers."""

import threading
from collections.abc import Mapping
from typing import Final

import grpc

from contracts.grpc.query.v1.query_pb2_grpc import QueryStub
from streamtable_query.address import QueryAddress

# A process that is restarted answers at the same address within seconds: gRPC's pauses grow to two minutes.
_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class Channels:
    """The connections to query servers, each made when it is first used. Any thread.

    Args:
        credentials: TLS; None: plain text.
        metadata: Sent with each call.
    """

    def __init__(self, credentials: grpc.ChannelCredentials | None, metadata: Mapping[str, str]) -> None:
        self._credentials = credentials
        self.metadata = tuple(metadata.items())
        self._made: dict[str, tuple[grpc.Channel, QueryStub]] = {}
        self._lock = threading.Lock()

    def stub(self, address: QueryAddress) -> QueryStub:
        """Return the service at an address. Connects to nothing."""
        target = str(address)
        with self._lock:
            if target not in self._made:
                channel = (
                    grpc.insecure_channel(target, _OPTIONS)
                    if self._credentials is None
                    else grpc.secure_channel(target, self._credentials, _OPTIONS)
                )
                self._made[target] = channel, QueryStub(channel)
            return self._made[target][1]

    def close(self) -> None:
        """Close all connections. May be called twice."""
        with self._lock:
            made, self._made = self._made, {}
        for channel, _ in made.values():
            channel.close()
