"""PostgreSQL, started, frozen, aborted, killed and started again."""

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from localkafka.errors import BrokerFailed, SetupError
from localkafka.waiting import wait_until
from localstores import postgres
from localstores.postgres import PostgresServer, find_program


def installed() -> bool:
    try:
        find_program("initdb")
    except SetupError:
        return False
    return True


needs_postgres = pytest.mark.skipif(not installed(), reason="PostgreSQL's server is not installed here")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path) as running:
        yield running


@needs_postgres
def test_a_server_has_the_options_that_it_was_given_and_is_gone_when_it_is_stopped(tmp_path: Path) -> None:
    with PostgresServer(tmp_path, options={"wal_level": "logical"}) as server:
        with psycopg.connect(server.url) as session:
            assert session.execute("SHOW wal_level").fetchone() == ("logical",)
        port = server.port
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=2)


@needs_postgres
def test_committed_rows_survive_an_abort_and_a_kill_under_open_sessions(server: PostgresServer) -> None:
    port = server.port
    with psycopg.connect(server.url) as session:
        session.execute("CREATE TABLE rows (at text)")
    for end, how in ((server.stop_immediately, "abort"), (server.kill, "kill"), (server.stop, "stop")):
        with closing(psycopg.connect(server.url)) as session:
            session.execute("INSERT INTO rows VALUES (%s)", (how,))
            session.commit()
            session.execute("INSERT INTO rows VALUES ('never committed')")
            end()
            with pytest.raises(psycopg.OperationalError):
                session.execute("SELECT 1")
        server.start()
    assert server.port == port
    with psycopg.connect(server.url) as session:
        assert session.execute("SELECT at FROM rows").fetchall() == [("abort",), ("kill",), ("stop",)]


@needs_postgres
def test_a_frozen_server_answers_when_it_goes_on(server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as session:
        server.pause()
        session.pgconn.send_query(b"SELECT 1")
        assert select.select([session], [], [], 0.5)[0] == []
        server.resume()
        answer = session.pgconn.get_result()
        assert answer is not None
        assert answer.get_value(0, 0) == b"1"
        assert session.pgconn.get_result() is None


@needs_postgres
def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="nonsense"), PostgresServer(tmp_path, options={"nonsense": "1"}):
        pass


def test_a_machine_without_postgresql_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    with pytest.raises(SetupError, match="apt-get install postgresql"):
        find_program("initdb")


@needs_postgres
@pytest.mark.parametrize("immediately", [False, True])
def test_a_server_that_has_died_can_be_stopped(server: PostgresServer, *, immediately: bool) -> None:
    os.kill(server.pid, signal.SIGQUIT)
    wait_until(lambda: not server.running)
    (server.stop_immediately if immediately else server.stop)()
    assert not server.running
