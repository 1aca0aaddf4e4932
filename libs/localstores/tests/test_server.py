"""The base of all servers, with a program that only listens."""

import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localkafka.waiting import wait_until
from localstores.server import Server

LISTENS = """
import socket, sys, time
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("127.0.0.1", int(sys.argv[1])))
listening.listen()
time.sleep(1000)
"""


class Listening(Server):
    def command(self) -> Sequence[str]:
        return [sys.executable, "-c", LISTENS, str(self.port)]

    def answers(self) -> bool:
        socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Listening]:
    with Listening(tmp_path / "server") as running:
        yield running


def test_a_server_that_has_ended_by_itself_is_started_again(server: Listening) -> None:
    before = server.pid
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not server.running)
    server.start()
    assert server.answers()
    assert server.pid != before


def test_a_server_that_runs_is_not_started_twice(server: Listening) -> None:
    before = server.pid
    server.start()
    assert server.pid == before
