"""Callers who keep a REST server waiting, as a program of its own: `slow_clients.py HOST PORT COUNT ADDRESS...`.

It holds COUNT connections of six kinds from these source addresses, opened over five seconds, and opens each again
two seconds after it has ended. It prints "open" once all were open, and ends when its standard input does.
"""

import asyncio
import socket
import sys
from itertools import cycle
from random import Random

HEAD = b"Host: localhost\r\n"
SMALL_BUFFER = 4096
START_SECONDS = 5.0
AGAIN_SECONDS = 2.0


async def silent(connection: socket.socket) -> None:
    """Says nothing."""
    await ended(connection)


async def half_head(connection: socket.socket) -> None:
    """Begins a head and does not go on."""
    await send(connection, b"GET /clicks/alice HTTP/1.1\r\nHo")
    await ended(connection)


async def dribbled_head(connection: socket.socket) -> None:
    """Sends a head without an end, one byte a second."""
    for byte in cycle(b"GET /clicks/alice HTTP/1.1\r\n" + b"X: y\r\n" * 100):
        await send(connection, bytes((byte,)))
        await asyncio.sleep(1)


async def half_body(connection: socket.socket) -> None:
    """Announces a body and sends half of it."""
    head = (
        b"POST /clicks HTTP/1.1\r\n"
        + HEAD
        + b"Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
    )
    await send(connection, head + b" " * 30000)
    await ended(connection)


async def never_reads(connection: socket.socket) -> None:
    """Asks for a large answer and takes none of it."""
    await send(connection, b"GET /clicks?limit=1000 HTTP/1.1\r\n" + HEAD + b"\r\n")
    await asyncio.sleep(8)


async def never_reads_events(connection: socket.socket) -> None:
    """Asks for a stream and takes nothing of it."""
    await send(connection, b"GET /events HTTP/1.1\r\n" + HEAD + b"\r\n")
    await asyncio.sleep(3600)


KINDS = (silent, half_head, dribbled_head, half_body, never_reads, never_reads_events)


async def send(connection: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, data)


async def ended(connection: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(connection, SMALL_BUFFER):
        pass


async def hold(number: int, server: tuple[str, int], source: str, begun: asyncio.Event) -> None:
    """Behave like the kind that belongs to this number, for ever."""
    await asyncio.sleep(Random(number).uniform(0, START_SECONDS))
    while True:
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            try:
                connection.bind((source, 0))
                await asyncio.get_running_loop().sock_connect(connection, server)
                begun.set()
                await KINDS[number % len(KINDS)](connection)
            except OSError:
                pass  # the server has ended the connection
        await asyncio.sleep(AGAIN_SECONDS)


async def main(host: str, port: int, count: int, addresses: list[str]) -> None:
    begun = [asyncio.Event() for _ in range(count)]
    tasks = [
        asyncio.create_task(hold(number, (host, port), source, event))
        for number, (source, event) in enumerate(zip(cycle(addresses), begun, strict=False))
    ]
    for event in begun:
        await event.wait()
    sys.stdout.write("open\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
