"""A TCP proxy between a client and its server that delays, cuts, drops, or answers requests."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16
_LOOK_S = 0.05
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed when the request has come; the server does not see it."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The server gets the request, and its answer is delayed by `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class TruncatedResponse:
    """The server gets the request; of its answer `keep` bytes arrive at most, then the connection is closed."""

    keep: int


@dataclass(frozen=True, slots=True)
class StubResponse:
    """The server does not see the request, which is HTTP; this is answered to it, and the connection is closed."""

    data: bytes


Fault = Drop | Delay | TruncatedResponse | StubResponse


class Proxy:
    """Listens on a free port of 127.0.0.1 while it is entered, and passes on all data.

    Args:
        port: The server's port on 127.0.0.1.

    Attributes:
        port: The proxy's port.
        faults: The faults of the next requests, one each; later requests are forwarded.
        always: The fault of all other requests; None for none.
        requests: The data that clients have sent, one entry for each chunk that began a request.
    """

    def __init__(self, port: int) -> None:
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.requests: list[bytes] = []
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._listen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def next(self, *faults: Fault) -> None:
        """These happen to the next requests, one each."""
        self.faults.extend(faults)

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            if _readable([self._listener]):
                client, _ = self._listener.accept()
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, socket.create_connection(("127.0.0.1", self._server), timeout=10) as server:
                while not self._stopped.is_set() and self._step(client, server):
                    pass
        except OSError:
            return  # one of the two has gone, and so does the connection to the other

    def _step(self, client: socket.socket, server: socket.socket) -> bool:
        """Pass one request or one piece of an unasked answer on; False: the connection ends."""
        ready = _readable([client, server])
        if server in ready and not _passed(server, client):
            return False
        if client not in ready:
            return True
        request = client.recv(_CHUNK)
        if not request:
            return False
        self.requests.append(request)
        return self._done(request, self.faults.popleft() if self.faults else self.always, client, server)

    def _done(
        self, request: bytes, fault: Fault | None, client: socket.socket, server: socket.socket
    ) -> bool:
        """Whether the connection continues after this request."""
        match fault:
            case Drop():
                return False
            case StubResponse(data):
                self.requests[-1] = _whole_request(client, request)
                client.sendall(data)
                return False
            case TruncatedResponse(keep):
                server.sendall(request)
                client.sendall(_exactly(server, keep))
                return False
            case Delay(seconds):
                server.sendall(request)
                time.sleep(seconds)
            case None:
                server.sendall(request)
        return True


def http_answer(status: int, body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    """An HTTP answer as of Elasticsearch, after which the connection is closed."""
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "X-Elastic-Product: Elasticsearch",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join(lines).encode() + _END + body


def _readable(sockets: Sequence[socket.socket]) -> list[socket.socket]:
    return select.select(sockets, [], [], _LOOK_S)[0]


def _passed(source: socket.socket, target: socket.socket) -> bool:
    data = source.recv(_CHUNK)
    target.sendall(data)
    return bool(data)


def _exactly(source: socket.socket, size: int) -> bytes:
    """Receive up to this many bytes, or fewer if no more come for a second."""
    source.settimeout(1)
    data = b""
    try:
        while len(data) < size and (more := source.recv(size - len(data))):
            data += more
    except TimeoutError:
        return data
    return data


def _whole_request(client: socket.socket, data: bytes) -> bytes:
    """The rest too: closing a connection with unread data would discard the response."""
    while _END not in data:
        data += client.recv(_CHUNK)
    head, _, body = data.partition(_END)
    lengths = [
        line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    ]
    size = int(lengths[0]) if lengths else 0
    while len(body) < size:
        more = client.recv(_CHUNK)
        body += more
        data += more
    return data
