"""Connections of a REST server: limited in number, and dropped when the client is too slow.

uvicorn waits without limit for a request's head and for a response to be read, and at its limit of connections idle ones
make other callers get a 503. Here, when there are too many, the connection that has kept the server waiting longest is
closed for the new one.
"""

import asyncio
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from http import HTTPStatus
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.auth.rate_limit import peer_name
from servicekit.http.bounded_input import CHUNKS_MAX, HEAD_BYTES, BoundedFlow, BoundedParser
from servicekit.http.problems import Problem

ANSWER_BYTES_MIN: Final = 4096
SWEEP_SECONDS: Final = 0.5
HEAD_TOO_SLOW: Final = "head too slow"
ANSWER_NOT_TAKEN: Final = "answer not taken"
TOO_MANY: Final = "too many"
NO_HTTP: Final = "no http"
REASONS: Final = (HEAD_TOO_SLOW, ANSWER_NOT_TAKEN, TOO_MANY, NO_HTTP)
_NO_HTTP_DETAILS: Final = {
    HTTPStatus.BAD_REQUEST: "this is not a valid HTTP/1.1 request",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"the body must have at most {CHUNKS_MAX:,} chunks",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "the headers are too large or too many",
    HTTPStatus.NOT_IMPLEMENTED: "only the transfer encoding 'chunked' is understood",
}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on the number of connections, and on the time for which they may keep the server waiting.

    A request's body and the start of its answer have a deadline in `servicekit.http.guard.Limits`.

    Attributes:
        connections: The maximum number of connections of all callers together.
        per_peer: The maximum number of connections from one address; an IPv6 network /64 counts as one.
        proxies: The trusted proxies, which may have any number of connections, because they connect for many callers.
        head_seconds: The time from connecting, or from the first byte of a further request, to the end of the request's head.
        idle_seconds: The time between two requests. It must exceed the keep-alive time of clients and load balancers,
            by default up to a minute: a request on a connection that the server closes at that moment is lost.
        answer_seconds: The time in which a caller has to read the response that was sent, or at least 4096 bytes of it, as acknowledged.
    """

    connections: int = 2000
    per_peer: int = 200
    head_seconds: float = 5.0
    idle_seconds: int = 75
    answer_seconds: float = 10.0
    proxies: TrustedProxies = NO_PROXIES


class HttpConnections:
    """The open connections of one server; used by its event loop's thread only.

    Args:
        limits: The limits of connections.
        dropped: Called with one of `REASONS` whenever a connection is dropped.
    """

    def __init__(self, limits: ConnectionLimits, dropped: Callable[[str], None] = lambda _: None) -> None:
        self.limits = limits
        self.dropped = dropped
        # In the order in which they began to wait for the client; connections that wait for the server are anywhere.
        self._open: dict[BoundedProtocol, None] = {}
        self._of_peer: dict[str, dict[BoundedProtocol, None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def protocol(self, **arguments: Any) -> asyncio.Protocol:
        """Return the protocol of a new connection, for uvicorn."""
        return BoundedProtocol(self, **arguments)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the connections from now on, until the loop is closed."""
        now = loop.time()
        for connection in list(self._open):
            if reason := connection.overdue(now):
                self.drop(connection, reason)
        loop.call_later(SWEEP_SECONDS, self.start, loop)

    def add(self, connection: "BoundedProtocol") -> None:
        """Count a new connection, and drop a waiting one, or else the new one, if there are too many."""
        of_peer = self._of_peer.setdefault(connection.peer, {})
        self._open[connection] = of_peer[connection] = None
        per_peer = self.limits.connections if connection.of_proxy else self.limits.per_peer
        for limit, among in ((per_peer, of_peer), (self.limits.connections, self._open)):
            if len(among) > limit:
                self.drop(next(other for other in among if other.waits), TOO_MANY)

    def begin_to_wait(self, connection: "BoundedProtocol") -> None:
        """Move a connection to the end of the waiting connections."""
        for among in (self._open, self._of_peer.get(connection.peer, {})):
            if connection in among:
                del among[connection]
                among[connection] = None

    def remove(self, connection: "BoundedProtocol") -> None:
        """Remove a connection that has ended."""
        self._open.pop(connection, None)
        of_peer = self._of_peer.get(connection.peer, {})
        of_peer.pop(connection, None)
        if not of_peer:
            self._of_peer.pop(connection.peer, None)

    def drop(self, connection: "BoundedProtocol", reason: str) -> None:
        """Close a connection at once, without sending pending data."""
        self.dropped(reason)
        self.remove(connection)
        connection.transport.abort()


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, which reports to `HttpConnections` what it is waiting for."""

    def __init__(self, all_connections: HttpConnections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.conn: BoundedParser = BoundedParser(h11.SERVER, HEAD_BYTES)
        self.peer = ""
        self.of_proxy = False
        self._all = all_connections
        self._idle = False  # between two requests, where uvicorn's own timer runs
        self._waits_since = 0.0
        self._unsent_since = 0.0
        self._taken_bytes = -ANSWER_BYTES_MIN

    @property
    def waits(self) -> bool:
        """Whether the client must act: send a request, or the rest of one, or read an answer."""
        return self._waits_for_head or self.cycle.more_body

    @property
    def _waits_for_head(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, whatever uvicorn's types say
        return cycle is None or bool(cycle.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        self.flow = BoundedFlow(transport, self.conn)
        self._waits_since = self.loop.time()
        host = self.client[0] if self.client else None
        self.peer = peer_name(host)
        self.of_proxy = self._all.limits.proxies.trusts(host)
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._idle:
            self._begin_to_wait()
            self._idle = False
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._begin_to_wait()
        self._idle = True
        super().on_response_complete()  # continues with the next request, if it was sent already
        self.flow.resume_reading()  # for the rest of that, or for another one
        self._idle = self._waits_for_head and not self.conn.trailing_data[0]

    def overdue(self, now: float) -> str | None:
        """Return why the connection must be dropped now; None if it need not be. Called regularly."""
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            self._waits_since = now  # it waits for a head only after its response was read
            # Not the unsent bytes alone: of a stream they are as many as before, however much is read.
            taken = self.conn.answer_bytes - unsent - _unacknowledged(self.transport)
            if taken >= self._taken_bytes + ANSWER_BYTES_MIN:
                self._taken_bytes, self._unsent_since = taken, now
            return ANSWER_NOT_TAKEN if now - self._unsent_since > self._all.limits.answer_seconds else None
        # The next answer that is not sent at once has its time from then on.
        self._taken_bytes = -ANSWER_BYTES_MIN
        waits_for_head = self._waits_for_head and not self._idle
        too_slow = now - self._waits_since > self._all.limits.head_seconds
        return HEAD_TOO_SLOW if waits_for_head and too_slow else None

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP with a problem document, where uvicorn would send `msg`."""
        del msg
        error = sys.exc_info()[1]  # uvicorn calls this while it handles the parser's error
        self._all.dropped(NO_HTTP)
        if not self._waits_for_head:
            self.cycle.disconnected = True  # the head of the request was valid, but its body is not
            self.cycle.message_event.set()
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()
            return
        status = HTTPStatus(getattr(error, "error_status_hint", 400))
        detail = _NO_HTTP_DETAILS.get(status, _NO_HTTP_DETAILS[HTTPStatus.BAD_REQUEST])
        answer = Problem(status, detail, headers={"Connection": "close"}).response()
        events: list[Any] = [
            h11.Response(status_code=status.value, headers=answer.raw_headers, reason=status.phrase.encode()),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ]
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _begin_to_wait(self) -> None:
        self._waits_since = self.loop.time()
        self._all.begin_to_wait(self)


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Return the sent bytes that the client has not acknowledged. The kernel keeps megabytes, and asks for more in large steps."""
    with suppress(OSError):  # where the system does not count them
        queued = ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(queued, sys.byteorder)
    return 0
