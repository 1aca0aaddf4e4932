"""The connections of a server whose library does not report them, found among the open files of the process.

grpcio can neither report new connections nor close one. The kernel can: a file descriptor leads to both ends of its
connection, and after a shutdown through a duplicate of it the library sees a connection closed by the peer. Unlike with
a proxy, the data does not take another hop.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Final

import structlog

from servicekit.grpc.connections import GrpcConnections
from servicekit.grpc.peers import PeerAddress, plain_host

log = structlog.get_logger()
_FILES: Final = "/dev/fd"  # on Linux a link to /proc/self/fd
_SWEEP_SECONDS: Final = 0.1
_SHARE: Final = 20  # the pause is this multiple of the sweep's duration: at most 5 % of a processor


class ServerSockets:
    """The connections of this process to one of its ports.

    Args:
        port: The port that the server listens on.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._seen: dict[int, tuple[int, PeerAddress | None]] = {}  # by file: its inode, and the peer

    def find(self) -> Mapping[PeerAddress, int]:
        """Return the file descriptors of all open connections, by their peer."""
        seen: dict[int, tuple[int, PeerAddress | None]] = {}
        for name in os.listdir(_FILES):  # noqa: PTH208 ten times a second, of thousands
            file = int(name)
            try:
                inode = os.fstat(file).st_ino
            except OSError:
                continue  # closed since
            before = self._seen.get(file)
            seen[file] = before if before and before[0] == inode else (inode, self._other_end(file))
        self._seen = seen
        return {address: file for file, (_, address) in seen.items() if address is not None}

    def close(self, address: PeerAddress, file: int) -> bool:
        """Shut a connection down; return false if it has already ended."""
        try:
            copy = os.dup(file)
        except OSError:
            return False
        with socket.socket(fileno=copy) as connection:
            # Checked again: the descriptor may be that of another file by now. The duplicate's cannot change.
            if self._other_end(copy) != address:
                return False
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return False
            # The file stays open until the library closes it too, and must not be found again.
            self._seen[file] = (os.fstat(copy).st_ino, None)
        return True

    def _other_end(self, file: int) -> PeerAddress | None:
        """Return the peer if the file is a connection to the port."""
        try:
            borrowed = socket.socket(fileno=file)
        except OSError:
            return None  # not a socket
        try:
            if borrowed.family not in {socket.AF_INET, socket.AF_INET6}:
                return None
            if borrowed.getsockname()[1] != self._port:
                return None
            host, port = borrowed.getpeername()[:2]
        except OSError:
            return None  # a listening or closed socket
        finally:
            borrowed.detach()  # the library still owns it
        return PeerAddress(plain_host(host), port)


class ConnectionSweeper:
    """Closes connections that exceed their limits, in a thread of its own, until it is stopped.

    Args:
        port: The port that the server listens on.
        connections: Decides which connections to close.
        dropped: Called with the reason of each.
    """

    def __init__(
        self, port: int, connections: GrpcConnections, dropped: Callable[[str], None] = lambda _: None
    ) -> None:
        self._sockets = ServerSockets(port)
        self._connections = connections
        self._dropped = dropped
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="grpc-connections", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def sweep(self) -> None:
        """Check all connections once."""
        found = self._sockets.find()
        for address, reason in self._connections.review(found.keys(), time.monotonic()).items():
            if address in found and self._sockets.close(address, found[address]):
                self._dropped(reason)

    def _run(self) -> None:
        rest = _SWEEP_SECONDS
        while not self._stopped.wait(rest):
            begun = time.thread_time()
            self.sweep()
            rest = max(_SWEEP_SECONDS, _SHARE * (time.thread_time() - begun))
