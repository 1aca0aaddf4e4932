"""Callers behind a TCP load balancer that names them with the PROXY protocol."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkafka.waiting import wait_until
from servicekit.auth.access import Admission
from servicekit.auth.proxies import TrustedProxies, networks_of
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.audit import AuditEntry, AuditTrail
from servicekit.http.connections import NO_PROXY_HEADER, TOO_MANY, ConnectionLimits
from servicekit.http.proxy_protocol import (
    HEADER_BYTES_MAX,
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    read_proxy_header,
)
from servicekit.http.server import HttpServer

REQUEST = b"POST /items HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def header(caller: str | None, port: int = 1234, *, more: bytes = b"") -> bytes:
    """Return the header for a caller; None: for the proxy's own connection."""
    if caller is None:
        return SIGNATURE + b"\x20\x00\x00\x00"
    address = ip_address(caller).packed
    family = b"\x11" if len(address) == 4 else b"\x21"
    body = address + bytes(len(address)) + port.to_bytes(2, "big") + b"\x1f\x90" + more
    return SIGNATURE + b"\x21" + family + len(body).to_bytes(2, "big") + body


# ---- the header ---------------------------------------------------------------------------------------------------------------


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.binary(max_size=100), st.binary(max_size=20))
def test_the_header_is_parsed_however_it_is_split(
    caller: str, port: int, more: bytes, request: bytes
) -> None:
    sent = header(caller, port, more=more)
    assert read_proxy_header(sent + request) == ProxyHeader(len(sent), (caller, port))
    assert {read_proxy_header(sent[:end]) for end in range(len(sent))} == {None}


@given(st.binary(max_size=64))
def test_other_bytes_are_rejected_and_an_incomplete_header_is_awaited(data: bytes) -> None:
    if data.startswith(SIGNATURE[: max(len(data), 1)]) or SIGNATURE.startswith(data):
        return
    with pytest.raises(ProxyHeaderError):
        read_proxy_header(data)


@pytest.mark.parametrize(
    "sent",
    [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
        SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12),
        SIGNATURE + b"\x22\x11\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11),
        SIGNATURE + b"\x21\x21\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11" + HEADER_BYTES_MAX.to_bytes(2, "big"),
    ],
    ids=["version 1", "version 1 in 2", "unknown command", "short", "short for IPv6", "too long"],
)
def test_an_invalid_header_is_rejected(sent: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        read_proxy_header(sent)


@pytest.mark.parametrize("family", [0x00, 0x12, 0x31], ids=["unspecified", "UDP", "UNIX"])
def test_a_header_without_a_tcp_address_names_no_caller(family: int) -> None:
    sent = SIGNATURE + bytes((0x21, family)) + b"\x00\x04" + bytes(4)
    assert read_proxy_header(sent) == ProxyHeader(len(sent), None)


# ---- the server ---------------------------------------------------------------------------------------------------------------


class World:
    """A REST server with its audit entries and the reasons for dropped connections."""

    def __init__(self, trusted: str, per_peer: int) -> None:
        self.noted: list[AuditEntry] = []
        self.dropped: list[str] = []
        proxies = TrustedProxies(networks_of(trusted))
        edge = HttpEdge(Admission(None), audit=AuditTrail(self.noted.append), proxies=proxies)
        app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", edge=edge)

        @app.post("/items")
        def add() -> str:
            return "added"

        limits = ConnectionLimits(per_peer=per_peer, head_seconds=600, proxies=proxies, proxy_protocol=True)
        self.server = HttpServer(app, "127.0.0.1", 0, limits=limits, dropped=self.dropped.append)
        self._port = int(self.server.start().rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=60)

    def ask(self, *parts: bytes) -> bytes:
        """Send the parts and return the whole response; empty if the connection is dropped."""
        with closing(self.connect()) as connection:
            answer = b""
            try:
                for part in parts:
                    connection.sendall(part)
                while data := connection.recv(65536):
                    answer += data
            except ConnectionError:
                pass  # dropped; the caller sees the empty response
            return answer


@contextmanager
def serving(trusted: str = "127.0.0.1", per_peer: int = 100) -> Iterator[World]:
    world = World(trusted, per_peer)
    try:
        yield world
    finally:
        world.server.stop()


def test_the_caller_is_the_one_that_the_load_balancer_names() -> None:
    with serving() as world:
        for parts in (
            [header("192.0.2.1") + REQUEST],
            [header("2001:db8::1"), REQUEST],
            [header("192.0.2.2")[:20], header("192.0.2.2")[20:] + REQUEST],
            [header(None) + REQUEST],
        ):
            assert world.ask(*parts).startswith(b"HTTP/1.1 200")
    assert [entry.peer for entry in world.noted] == ["192.0.2.1", "2001:db8::1", "192.0.2.2", "127.0.0.1"]
    assert world.dropped == []


def test_a_connection_of_a_trusted_proxy_without_the_header_is_dropped() -> None:
    with serving() as world:
        assert world.ask(REQUEST) == b""
        assert world.ask(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + REQUEST) == b""
    assert world.dropped == [NO_PROXY_HEADER] * 2
    assert world.noted == []


def test_the_proxy_header_of_an_untrusted_peer_is_not_http() -> None:
    with serving("10.0.0.1") as world:
        assert world.ask(header("192.0.2.1") + REQUEST).startswith(b"HTTP/1.1 400")
        assert world.ask(REQUEST).startswith(b"HTTP/1.1 200")
    assert {entry.peer for entry in world.noted} <= {"127.0.0.1"}


def test_connections_are_limited_per_caller_behind_the_load_balancer() -> None:
    with serving(per_peer=2) as world:
        held = [world.connect() for _ in range(3)]
        for connection in held:
            connection.sendall(header("192.0.2.1"))
        wait_until(lambda: world.dropped == [TOO_MANY])
        assert world.ask(header("192.0.2.2") + REQUEST).startswith(b"HTTP/1.1 200")
        assert len(world.server.connections) == 2
        for connection in held:
            connection.close()
