"""Connections of a gRPC server: limited in number, also for each peer, and closed when no calls are made over them.

grpcio only limits the total number of connections, and rejects the newest: a few hundred silent connections lock out all
other callers. Here the connection that has been idle longest is closed instead, and so is one that never carries a call.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.auth.rate_limit import peer_name
from servicekit.grpc.peers import PeerAddress

NO_CALL: Final = "no call"
TOO_MANY: Final = "too many"
REASONS: Final = (NO_CALL, TOO_MANY)
CALL_CREDIT_SECONDS: Final = 10.0
"""The time for which a connection counts as active after a call. Hundreds of new connections are all newer than one that has
just carried a call, and must not displace it.
"""


@dataclass(slots=True)
class _Connection:
    peer: str | None
    """The peer to whose limit the connection counts; None for a trusted proxy, which connects for many callers."""
    active_at: float
    calls: int = 0
    called: bool = False

    @property
    def idleness(self) -> tuple[bool, float]:
        """The sort key of connections; the lowest is the idlest."""
        return self.calls > 0, self.active_at + (CALL_CREDIT_SECONDS if self.called else 0)


class GrpcConnections:
    """The open connections, with their peers and the start of their idle time. Any thread.

    Args:
        limit: The maximum number of connections of all peers together.
        per_peer: The maximum number of connections from one address; an IPv6 network /64 counts as one.
        first_call_seconds: A connection without a call is closed after that time.
        proxies: The trusted proxies, which may have any number of connections.
    """

    def __init__(
        self, limit: int, per_peer: int, first_call_seconds: float, proxies: TrustedProxies = NO_PROXIES
    ) -> None:
        self._limit = limit
        self._per_peer = per_peer
        self._first_call_seconds = first_call_seconds
        self._proxies = proxies
        self._lock = Lock()
        self._known: dict[PeerAddress, _Connection] = {}

    def __len__(self) -> int:
        return len(self._known)

    @contextmanager
    def call(self, address: PeerAddress | None, now: float) -> Iterator[None]:
        """Count a call over a connection for the block."""
        if address is None:
            yield
            return
        with self._lock:
            connection = self._connection(address, now)
            connection.calls += 1
            connection.called = True
            connection.active_at = now
        try:
            yield
        finally:
            with self._lock:
                connection.calls -= 1

    def active(self, address: PeerAddress | None, now: float) -> None:
        """Record that a call has received or sent something."""
        if address is not None and (connection := self._known.get(address)) is not None:
            connection.active_at = now

    def review(self, found: Collection[PeerAddress], now: float) -> Mapping[PeerAddress, str]:
        """Compare with the open connections and return those to be closed, each with one of `REASONS`.

        Args:
            found: The peers of all open connections.
            now: The time, on the same clock as that of calls.
        """
        with self._lock:
            for gone in [each for each in self._known if each not in found]:
                if not self._known[
                    gone
                ].calls:  # otherwise it is newer than the search, or its call is about to end
                    del self._known[gone]
            for address in found:
                self._connection(address, now)
            closed = {
                address: NO_CALL
                for address, each in self._known.items()
                if not each.called and now - each.active_at > self._first_call_seconds
            }
            closed.update(dict.fromkeys(self._too_many(closed), TOO_MANY))
            for address in closed:
                del self._known[address]
        return closed

    def _connection(self, address: PeerAddress, now: float) -> _Connection:
        connection = self._known.get(address)
        if connection is None:
            peer = None if self._proxies.trusts(address.host) else peer_name(address.host)
            connection = self._known[address] = _Connection(peer, now)
        return connection

    def _too_many(self, closed: Collection[PeerAddress]) -> Iterator[PeerAddress]:
        """Return the idlest connections beyond the limits of a peer or of all together."""
        left = [each for each in self._known.items() if each[0] not in closed]
        left.sort(key=lambda each: each[1].idleness)
        of_peer: dict[str, int] = {}
        for _, connection in left:
            if connection.peer is not None:
                of_peer[connection.peer] = of_peer.get(connection.peer, 0) + 1
        open_count = len(left)
        kept = []
        for address, connection in left:
            if connection.peer is not None and of_peer[connection.peer] > self._per_peer:
                of_peer[connection.peer] -= 1
                open_count -= 1
                yield address
            else:
                kept.append(address)
        yield from kept[: max(0, open_count - self._limit)]
