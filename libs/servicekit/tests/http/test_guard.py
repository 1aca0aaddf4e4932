"""The guard under many concurrent requests; other tests of it are in test_app.py."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from servicekit.http.app import build_app
from servicekit.http.guard import RequestLimits
from servicekit.http.server import HttpServer

HEAD = b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
LIMITS = RequestLimits(body_bytes=1000, bodies_bytes=2500, deadline_seconds=60)


@pytest.fixture
def url() -> Iterator[str]:
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", limits=LIMITS)

    @app.post("/length")
    def length(body: list[int]) -> int:
        return len(body)

    server = HttpServer(app, "127.0.0.1", 0)
    yield server.start()
    server.stop()


def begin(url: str, stack: ExitStack) -> socket.socket:
    """Send a request without the last byte of its body."""
    address = ("127.0.0.1", httpx.URL(url).port or 0)
    connection = stack.enter_context(socket.create_connection(address, timeout=10))
    connection.sendall(HEAD + b"[1" + b" " * 997)
    return connection


def test_beyond_the_limit_of_buffered_bodies_the_oldest_is_rejected(url: str) -> None:
    with ExitStack() as stack:
        first = begin(url, stack)
        assert httpx.get(f"{url}/livez").status_code == 200  # the server has read the earlier bytes
        others = [begin(url, stack) for _ in range(2)]
        assert first.recv(65536).startswith(b"HTTP/1.1 408")
        assert httpx.post(f"{url}/length", json=[1, 2]).json() == 2
        for connection in others:
            connection.sendall(b"]")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_livez_answers_while_all_threads_wait() -> None:
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", limits=LIMITS)
    entered, release = threading.Event(), threading.Event()

    @app.get("/wait")
    def wait() -> None:
        entered.set()
        release.wait(30)

    server = HttpServer(app, "127.0.0.1", 0, threads=1)
    url = server.start()
    waiting = threading.Thread(target=httpx.get, args=(f"{url}/wait",), kwargs={"timeout": 30})
    waiting.start()
    try:
        assert entered.wait(60)
        assert httpx.get(f"{url}/livez").status_code == 200
    finally:
        release.set()
        waiting.join()
        server.stop()
