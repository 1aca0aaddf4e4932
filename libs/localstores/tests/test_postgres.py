"""A real PostgreSQL, killed and started again; skipped where it is not installed."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from localkafka.errors import SetupError
from localstores.postgres import PostgresServer, find_programs


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user `postgres` may enter, unlike pytest's own."""
    try:
        find_programs()
    except SetupError as error:
        pytest.skip(str(error))
    with tempfile.TemporaryDirectory(prefix="streamtable-postgres-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_killed_server_comes_back_on_its_port_with_what_was_committed(folder: Path) -> None:
    with PostgresServer(folder / "data") as server:
        with psycopg.connect(server.dsn(), autocommit=True) as database:
            database.execute("create table t(id int primary key)")
            database.execute("insert into t values (1)")
            port = server.port
            server.kill()
        server.start()
        assert server.port == port
        with psycopg.connect(server.dsn(), autocommit=True) as database:
            assert database.execute("select id from t").fetchall() == [(1,)]
            assert database.execute("show wal_level").fetchall() == [("logical",)]


def test_a_server_stops_at_once_though_clients_are_connected(folder: Path) -> None:
    with PostgresServer(folder / "data", settings={"fsync": "off"}) as server:
        client = psycopg.connect(server.dsn())
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
        client.close()
