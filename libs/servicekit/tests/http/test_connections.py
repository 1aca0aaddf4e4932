"""Misbehaving clients, on raw sockets: a client library does not behave so badly."""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import repeat
from threading import Event, Thread

import httpx
import pytest
from starlette.responses import Response, StreamingResponse

from localkafka.waiting import Deadline, wait_until
from servicekit.auth.proxies import TrustedProxies, networks_of
from servicekit.http.app import build_app
from servicekit.http.connections import (
    ANSWER_NOT_TAKEN,
    HEAD_TOO_SLOW,
    NO_HTTP,
    TOO_MANY,
    ConnectionLimits,
)
from servicekit.http.guard import RequestLimits
from servicekit.http.server import HttpServer

SLOW_HEAD = ConnectionLimits(head_seconds=0.5)
IDLE_SECONDS = 1
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LARGE = 20_000_000


class World:
    """A server with limits, and connections to it."""

    def __init__(self, stack: ExitStack) -> None:
        self.dropped: Counter[str] = Counter()
        self.entered = Event()
        self.release = Event()
        self._stack = stack

    def start(self, limits: ConnectionLimits, deadline_seconds: float = 60.0) -> None:
        app = build_app(
            "test",
            "1",
            ready=lambda: True,
            metrics=lambda: b"",
            limits=RequestLimits(body_bytes=1000, deadline_seconds=deadline_seconds),
        )

        @app.get("/large")
        def large() -> Response:
            return Response(b"x" * LARGE)

        @app.get("/endless")
        async def endless() -> Response:
            return StreamingResponse(repeat(b"x" * 1000), media_type="text/event-stream")

        @app.get("/job")
        def job() -> str:
            self.entered.set()
            self.release.wait(60)
            return "done"

        self.server = HttpServer(
            app, "127.0.0.1", 0, limits=limits, dropped=lambda reason: self.dropped.update([reason])
        )
        self.url = self.server.start()
        self._stack.callback(self.server.stop)
        self._stack.callback(self.release.set)

    def connect(self, source: str = "127.0.0.1", buffer_bytes: int | None = None) -> socket.socket:
        connection = self._stack.enter_context(socket.socket())
        connection.settimeout(60)
        if buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        connection.bind((source, 0))
        connection.connect(("127.0.0.1", httpx.URL(self.url).port or 0))
        return connection

    def raw(self, request: bytes) -> bytes:
        connection = self.connect()
        connection.sendall(request)
        return until_end(connection)


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


def until_end(connection: socket.socket) -> bytes:
    """Return all bytes until the server ends the connection."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionError:
        pass  # ended by force
    return data


def until(connection: socket.socket, ending: bytes) -> bytes:
    """Return the bytes up to this ending, or up to the end of the connection."""
    data = b""
    while not data.endswith(ending) and (part := connection.recv(65536)):
        data += part
    return data


def until_read(connection: socket.socket, size: int) -> None:
    """Read this many bytes."""
    while size > 0:
        part = connection.recv(size)
        assert part
        size -= len(part)


def is_open(connection: socket.socket) -> bool:
    connection.sendall(GET)
    return until(connection, b"}").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("begin", [b"", b"GET /livez HT", GET[:-2]])
def test_a_missing_request_head_closes_the_connection(world: World, begin: bytes) -> None:
    world.start(SLOW_HEAD)
    assert world.raw(begin) == b""
    assert world.dropped == {HEAD_TOO_SLOW: 1}


@pytest.mark.parametrize("before", [b"", GET])
def test_a_request_head_in_slow_pieces_closes_the_connection(world: World, before: bytes) -> None:
    world.start(SLOW_HEAD)
    connection = world.connect()
    connection.sendall(before)
    end = Deadline(20)
    with pytest.raises(ConnectionError):  # noqa: PT012 the sending is the raising
        while not end.passed():
            connection.sendall(b"G")
            time.sleep(0.05)
    assert world.dropped == {HEAD_TOO_SLOW: 1}


def test_an_idle_connection_is_closed_and_not_counted_as_slow(world: World) -> None:
    world.start(ConnectionLimits(idle_seconds=IDLE_SECONDS))
    connection = world.connect()
    begun, end = time.monotonic(), Deadline(20)
    assert is_open(connection)
    assert until_end(connection) == b""
    assert time.monotonic() - begun >= IDLE_SECONDS
    assert not end.passed()
    assert world.dropped == {}


def test_a_request_that_takes_longer_than_the_head_timeout_is_finished(world: World) -> None:
    world.start(ConnectionLimits(head_seconds=1.5))
    connection = world.connect()
    connection.sendall(GET.replace(b"/livez", b"/job"))
    assert world.entered.wait(60)
    time.sleep(1.5 + 0.6)  # longer than a head may take, plus the interval of the sweep
    world.release.set()
    assert until(connection, b'"done"').endswith(b'"done"')
    assert world.dropped == {}


def test_a_missing_body_is_answered_with_408_and_the_connection_closes(world: World) -> None:
    world.start(ConnectionLimits(idle_seconds=IDLE_SECONDS), deadline_seconds=1.0)
    answer = world.raw(POST + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408")
    wait_until(lambda: len(world.server.connections) == 0)


def test_an_endless_body_is_not_read_for_ever(world: World) -> None:
    world.start(ConnectionLimits())
    connection = world.connect()
    connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    end = Deadline(20)
    with pytest.raises(ConnectionError):  # noqa: PT012 the sending is the raising
        while not end.passed():
            connection.sendall(b"64\r\n" + b" " * 100 + b"\r\n")
            time.sleep(0.01)
    wait_until(lambda: len(world.server.connections) == 0)


def test_a_response_that_is_not_read_is_dropped(world: World) -> None:
    world.start(ConnectionLimits(answer_seconds=0.7))
    connection = world.connect()
    connection.sendall(GET.replace(b"/livez", b"/large"))
    wait_until(lambda: world.dropped == {ANSWER_NOT_TAKEN: 1})
    assert len(until_end(connection)) < LARGE
    assert len(world.server.connections) == 0


def test_a_response_that_is_read_slowly_is_sent_completely(world: World) -> None:
    world.start(ConnectionLimits(idle_seconds=IDLE_SECONDS, answer_seconds=2.0))
    connection = world.connect()
    connection.sendall(GET.replace(b"/livez", b"/large"))
    taken = 0
    begun = time.monotonic()
    while taken < LARGE:
        part = connection.recv(1_000_000)
        assert part
        taken += len(part)
        time.sleep(0.1)
    assert time.monotonic() - begun > 2.0
    assert world.dropped == {}


def test_a_stream_that_is_filled_as_fast_as_it_is_read_is_not_dropped(world: World) -> None:
    world.start(ConnectionLimits(answer_seconds=2.0))
    connection = world.connect(
        buffer_bytes=65536
    )  # a larger one asks for more in steps that take too long here
    connection.sendall(GET.replace(b"/livez", b"/endless"))
    until_read(connection, 100_000)
    (served,) = world.server.connections._open
    wait_until(lambda: served.transport.get_write_buffer_size() > 0)
    begun = time.monotonic()
    while time.monotonic() - begun < 4.0:
        until_read(connection, 10_000)
        time.sleep(0.1)
    assert world.dropped == {}
    wait_until(lambda: world.dropped == {ANSWER_NOT_TAKEN: 1})


def test_the_connection_that_waits_longest_makes_room_for_a_new_one(world: World) -> None:
    world.start(ConnectionLimits(connections=3))
    connections = [world.connect() for _ in range(3)]
    for connection in connections:
        assert is_open(connection)
    assert is_open(connections[0])  # now the second one has waited longest
    assert is_open(world.connect())
    assert until_end(connections[1]) == b""
    assert is_open(connections[0])
    assert is_open(connections[2])
    assert world.dropped == {TOO_MANY: 1}


def test_a_connection_that_waits_for_a_body_makes_room_too(world: World) -> None:
    world.start(ConnectionLimits(connections=1))
    half = world.connect()
    half.sendall(POST + b"Content-Length: 100\r\n\r\n{")
    time.sleep(0.1)  # so that the server has most likely begun with it; the assertion holds either way
    assert is_open(world.connect())
    assert until_end(half) == b""


def test_a_connection_with_a_running_request_is_never_dropped_for_another(world: World) -> None:
    world.start(ConnectionLimits(connections=1))
    busy = world.connect()
    busy.sendall(GET.replace(b"/livez", b"/job"))
    assert world.entered.wait(60)
    assert until_end(world.connect()) == b""
    world.release.set()
    assert until(busy, b'"done"').endswith(b'"done"')
    assert world.dropped == {TOO_MANY: 1}


def test_an_address_with_too_many_connections_takes_none_from_others(world: World) -> None:
    world.start(ConnectionLimits(per_peer=2))
    other = world.connect("127.0.0.2")
    assert is_open(other)
    connections = [world.connect() for _ in range(5)]
    wait_until(lambda: world.dropped == {TOO_MANY: 3})
    for connection in (other, *connections[3:]):
        assert is_open(connection)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30), 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 40_000, 431),
        (b"POST /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
def test_bytes_that_are_not_http_are_answered_with_a_problem_and_the_connection_closes(
    world: World, request_: bytes, status: int
) -> None:
    world.start(ConnectionLimits())
    head, _, body = world.raw(request_).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}".encode())
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    assert json.loads(body)["status"] == status
    assert world.dropped == {NO_HTTP: 1}
    assert is_open(world.connect())


def test_a_trusted_proxy_may_use_the_total_limit_of_connections(world: World) -> None:
    world.start(ConnectionLimits(per_peer=1, connections=3, proxies=TrustedProxies(networks_of("127.0.0.2"))))
    behind_proxy = [world.connect("127.0.0.2") for _ in range(2)]
    assert is_open(world.connect())
    for connection in behind_proxy:
        assert is_open(connection)
    assert is_open(world.connect("127.0.0.2"))
    assert world.dropped == {TOO_MANY: 1}


def test_a_body_in_very_many_chunks_is_refused(world: World) -> None:
    world.start(ConnectionLimits())
    head, _, body = world.raw(
        POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 20_000
    ).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert b"chunks" in body
    connection = world.connect()
    for _ in range(2):  # the chunks of each body count for themselves
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 900 + b"0\r\n\r\n")
        assert until(connection, b"}").startswith(b"HTTP/1.1 405")


def test_requests_that_are_sent_ahead_are_not_read_long_before_their_turn(world: World) -> None:
    world.start(ConnectionLimits())
    world.release.set()
    connection = world.connect()
    requests = GET.replace(b"/livez", b"/job") * 50_000

    def send() -> None:
        with suppress(OSError):  # as the connection ends before all are sent
            connection.sendall(requests)

    sender = Thread(target=send)
    sender.start()
    answers, read_ahead, end = 0, 0, Deadline(60)
    while answers < 500:
        assert not end.passed()
        answers += connection.recv(65536).count(b"done")
        (served,) = world.server.connections._open
        read_ahead = max(read_ahead, len(served.conn.trailing_data[0]))
    assert 0 < read_ahead <= 256 * 1024
    connection.shutdown(socket.SHUT_RDWR)
    sender.join()
