"""A slow network between clients and a broker: a TCP proxy that limits the bytes per second."""

import select
import socket
import threading
import time
from types import TracebackType
from typing import Self

_CHUNK = 8 << 10
_BUFFER = 64 << 10  # of each socket; a larger one would hide backpressure from the sender
_LOOK_SECONDS = 0.05


class Pace:
    """Paces one direction of all connections together."""

    def __init__(self) -> None:
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, size: int, rate: float | None) -> float:
        """Reserve the time that these bytes take. Returns the seconds to wait before they are forwarded."""
        if rate is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / rate
            return self._free_at - now


class SlowLink:
    """A context manager that listens on a free port of 127.0.0.1 and forwards data at a limited rate.

    Clients connect to the address that the broker advertises, so that must be this port:

        with SlowLink() as link:
            broker = Broker(folder, overrides=link.overrides)
            link.connect(broker.node.port)

    Attributes:
        port: The port that clients use.
        bytes_per_second: The rate of each direction; None: unlimited.
    """

    def __init__(self) -> None:
        self.bytes_per_second: float | None = None
        self._server = 0
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._up, self._down = Pace(), Pace()

    @property
    def overrides(self) -> dict[str, str]:
        """The settings of the broker behind it."""
        return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients that reach the broker through this link."""
        return f"127.0.0.1:{self.port}"

    def connect(self, server_port: int) -> None:
        """Forward to this port of 127.0.0.1."""
        self._server = server_port

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

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type] # any callable
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        while not self._stopped.is_set():
            if select.select([self._listener], [], [], _LOOK_SECONDS)[0]:
                client, _ = self._listener.accept()
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        try:
            server.connect(("127.0.0.1", self._server))
        except OSError:
            client.close()
            server.close()
            return
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        self._start(self._pump, client, server, self._up)
        self._start(self._pump, server, client, self._down)

    def _pump(self, source: socket.socket, target: socket.socket, bucket: Pace) -> None:
        try:
            while not self._stopped.is_set():
                if not select.select([source], [], [], _LOOK_SECONDS)[0]:
                    continue
                data = source.recv(_CHUNK)
                if not data or self._stopped.wait(bucket.take(len(data), self.bytes_per_second)):
                    break
                target.sendall(data)
        except (OSError, ValueError):  # one of the two has disconnected
            pass
        finally:
            for each in (source, target):
                try:
                    each.shutdown(socket.SHUT_RDWR)  # wakes the pump of the other direction
                except OSError:
                    continue
            source.close()
