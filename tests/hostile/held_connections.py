"""A caller that holds connections, as a program of its own: `held_connections.py HOST PORT COUNT BEGINNING ADDRESS...`.

It opens COUNT connections from these source addresses, sends the bytes BEGINNING (hexadecimal) over each, and says no more.
One that the server ends is opened again at once. It prints "held" when nine in ten are open for the first time, or after a
minute, and ends when its standard input does.
"""

import errno
import select
import socket
import sys
import time
from collections import deque

OPENED_A_SECOND_MAX = 1300
_WAIT_SECONDS = 0.01
_START_SECONDS = 60
_HELD_SHARE = 0.9


def opened(server: tuple[str, int], source: str) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    # The port is chosen when it connects: a port may then have several connections from different addresses.
    connection.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    connection.bind((source, 0))
    if connection.connect_ex(server) not in {0, errno.EINPROGRESS}:
        connection.close()
        raise OSError("not connected")
    return connection


def hold(server: tuple[str, int], count: int, beginning: bytes, addresses: list[str]) -> None:
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    waiting = deque(addresses[number % len(addresses)] for number in range(count))
    every: dict[int, tuple[socket.socket, str]] = {}
    connected: set[int] = set()
    reported = False
    began = started = time.monotonic()
    begun = 0
    while True:
        allowed = int((time.monotonic() - began) * OPENED_A_SECOND_MAX) - begun
        for _ in range(min(allowed, len(waiting))):
            source = waiting.popleft()
            begun += 1
            try:
                connection = opened(server, source)
            except OSError:
                waiting.append(source)
                continue
            every[connection.fileno()] = connection, source
            poll.register(connection.fileno(), select.EPOLLOUT)
        if not waiting:
            began, begun = time.monotonic(), 0  # unused connections are not made up for
        for file, event in poll.poll(_WAIT_SECONDS):
            if file == sys.stdin.fileno():
                return
            connection, source = every[file]
            try:
                if event & select.EPOLLOUT and file not in connected:
                    connection.send(beginning)
                    connected.add(file)
                    poll.modify(file, select.EPOLLIN)
                elif not connection.recv(65536):
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                poll.unregister(file)
                connection.close()
                del every[file]
                connected.discard(file)
                waiting.append(source)
        late = time.monotonic() > started + _START_SECONDS
        if not reported and (late or len(connected) > count * _HELD_SHARE):
            reported = True
            sys.stdout.write("held\n")
            sys.stdout.flush()


if __name__ == "__main__":
    hold((sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), bytes.fromhex(sys.argv[4]), sys.argv[5:])
