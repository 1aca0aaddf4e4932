"""Real servers, started, frozen, killed and started again."""

import socket
from pathlib import Path

import pytest

from localkafka.errors import BrokerFailed, SetupError
from localstores.redis import Flavour, RedisServer, find_program

BOTH: list[Flavour] = ["valkey", "redis"]


def ask(server: RedisServer, line: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=2) as connection:
        connection.sendall(line + b"\r\n")
        return connection.recv(1000)


@pytest.mark.parametrize("flavour", BOTH)
def test_a_server_answers_and_is_gone_when_it_is_stopped(tmp_path: Path, flavour: Flavour) -> None:
    with RedisServer(tmp_path, flavour=flavour) as server:
        assert ask(server, b"SET a 1") == b"+OK\r\n"
        port = server.port
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=2)


@pytest.mark.parametrize("flavour", BOTH)
def test_a_killed_server_comes_back_on_its_port_with_what_it_wrote(tmp_path: Path, flavour: Flavour) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with RedisServer(tmp_path, flavour=flavour, options=options) as server:
        ask(server, b"SET a 1")
        port = server.port
        server.kill()
        server.start()
        assert server.port == port
        assert ask(server, b"GET a") == b"$1\r\n1\r\n"


def test_a_frozen_server_answers_when_it_goes_on(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        server.pause()
        with pytest.raises(TimeoutError):
            ask(server, b"PING")
        server.resume()
        assert ask(server, b"PING") == b"+PONG\r\n"


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="nonsense"), RedisServer(tmp_path, options=("--nonsense", "1")):
        pass


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "a") as server,
        pytest.raises(SetupError, match="is taken"),
        RedisServer(tmp_path / "b", port=server.port),
    ):
        pass


@pytest.mark.parametrize("flavour", BOTH)
def test_the_machines_own_program_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flavour: Flavour
) -> None:
    own = tmp_path / f"{flavour}-server"
    own.write_text("")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program(flavour) == own
