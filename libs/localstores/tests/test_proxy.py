"""The proxy forwards everything except what its faults change."""

import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from localstores.proxy import Delay, Drop, Proxy, StubResponse, TruncatedResponse, http_answer
from localstores.redis import RedisServer


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with RedisServer(tmp_path) as server, Proxy(server.port) as made:
        yield made


def ask(proxy: Proxy, line: bytes, connection: socket.socket | None = None) -> bytes:
    with connection or socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connected:
        connected.sendall(line + b"\r\n")
        return connected.recv(1000)


def test_what_goes_well_is_passed_on_both_ways(proxy: Proxy) -> None:
    assert ask(proxy, b"SET a 12345678") == b"+OK\r\n"
    assert ask(proxy, b"GET a") == b"$8\r\n12345678\r\n"
    assert proxy.requests == [b"SET a 12345678\r\n", b"GET a\r\n"]


def test_a_fault_is_that_of_one_request(proxy: Proxy) -> None:
    proxy.next(Drop(), TruncatedResponse(3))
    assert ask(proxy, b"SET a 1") == b""
    assert ask(proxy, b"GET a") == b"$-1"  # nothing had come to the server
    assert ask(proxy, b"SET a 1") == b"+OK\r\n"


def test_of_a_cut_answer_the_request_was_done(proxy: Proxy) -> None:
    proxy.next(TruncatedResponse(0))
    assert ask(proxy, b"SET a 1") == b""
    assert ask(proxy, b"GET a") == b"$1\r\n1\r\n"


def test_a_delayed_answer_comes(proxy: Proxy) -> None:
    proxy.next(Delay(0.3))
    began = time.monotonic()
    assert ask(proxy, b"PING") == b"+PONG\r\n"
    assert time.monotonic() - began >= 0.3


def test_a_fault_may_be_that_of_all_requests(proxy: Proxy) -> None:
    proxy.always = Drop()
    assert [ask(proxy, b"PING") for _ in range(3)] == [b"", b"", b""]


def test_an_answer_of_its_own_takes_the_whole_request(proxy: Proxy) -> None:
    proxy.next(StubResponse(http_answer(429, b"{}", "Retry-After: 1")))
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    connection.request("POST", "/", body=bytes(1_000_000))
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Retry-After"], answer.read()) == (429, "1", b"{}")
    assert len(proxy.requests[0]) > 1_000_000
    connection.close()
