"""These tests use real sockets, because the kernel's reports of them are tested."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from servicekit.grpc.connections import TOO_MANY, GrpcConnections
from servicekit.grpc.peers import PeerAddress
from servicekit.grpc.sockets import ConnectionSweeper, ServerSockets


class Listener:
    """A listening server with its clients and its accepted connections."""

    def __init__(self, stack: ExitStack, family: int, host: str) -> None:
        self._stack = stack
        self._socket = stack.enter_context(socket.socket(family))
        if family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.bind((host, 0))
        self._socket.listen()
        self.port: int = self._socket.getsockname()[1]

    def connect(self, host: str) -> tuple[socket.socket, socket.socket, PeerAddress]:
        """A client, the server's end, and the address of the client."""
        client = self._stack.enter_context(socket.create_connection((host, self.port), timeout=60))
        accepted = self._stack.enter_context(self._socket.accept()[0])
        name = client.getsockname()
        return client, accepted, PeerAddress(name[0], name[1])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def listener(stack: ExitStack) -> Listener:
    return Listener(stack, socket.AF_INET, "127.0.0.1")


def test_only_connections_to_the_port_are_found(listener: Listener, stack: ExitStack) -> None:
    sockets = ServerSockets(listener.port)
    other = Listener(stack, socket.AF_INET, "127.0.0.1")
    other.connect("127.0.0.1")
    stack.enter_context(socket.socket(socket.AF_UNIX))
    _, accepted, address = listener.connect("127.0.0.1")
    assert sockets.find() == {address: accepted.fileno()}


def test_an_ipv4_caller_of_an_ipv6_server_is_found_by_its_ipv4_address(stack: ExitStack) -> None:
    both = Listener(stack, socket.AF_INET6, "::")
    _, accepted, address = both.connect("127.0.0.1")
    assert ServerSockets(both.port).find() == {address: accepted.fileno()}


def test_closing_a_connection_ends_it_for_both_sides(listener: Listener) -> None:
    sockets = ServerSockets(listener.port)
    client, accepted, address = listener.connect("127.0.0.1")
    assert sockets.close(address, accepted.fileno())
    assert client.recv(1) == b""
    assert accepted.recv(1) == b""


def test_a_descriptor_that_was_reused_for_another_connection_is_not_closed(listener: Listener) -> None:
    sockets = ServerSockets(listener.port)
    _, first, address = listener.connect("127.0.0.1")
    client, second, other = listener.connect("127.0.0.1")
    sockets.find()
    os.dup2(second.fileno(), first.fileno())
    assert not sockets.close(address, first.fileno())
    assert set(sockets.find()) == {other}
    second.sendall(b"x")
    assert client.recv(1) == b"x"


def test_a_connection_that_has_ended_is_not_closed_again(listener: Listener) -> None:
    sockets = ServerSockets(listener.port)
    _, accepted, address = listener.connect("127.0.0.1")
    file = accepted.fileno()
    accepted.close()
    assert not sockets.close(address, file)


def test_a_sweep_closes_the_idlest_of_too_many_and_counts_it(listener: Listener) -> None:
    dropped: list[str] = []
    known = GrpcConnections(1, 1, 60.0)
    sweeper = ConnectionSweeper(listener.port, known, dropped.append)
    first, _, _ = listener.connect("127.0.0.1")
    sweeper.sweep()
    client, second, address = listener.connect("127.0.0.1")
    with known.call(address, 0.0):
        sweeper.sweep()
    assert dropped == [TOO_MANY]
    assert first.recv(1) == b""
    sweeper.sweep()
    assert dropped == [TOO_MANY], "a connection that the client has closed does not count"
    second.sendall(b"x")
    assert client.recv(1) == b"x"
