"""Log lines are kept for the test instead of printed; a PostgreSQL for the session."""

import tempfile
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from structlog.testing import capture_logs

from localkafka.errors import SetupError
from localstores.postgres import PostgresServer, find_program
from streamtable_sinks.postgres import Postgres


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The log lines, as they come."""
    with capture_logs() as lines:
        yield lines


def started(folder: Path) -> PostgresServer:
    """Return a server that is not started. Skips the test where PostgreSQL is not installed."""
    try:
        find_program("initdb")
    except SetupError as error:
        pytest.skip(str(error))
    return PostgresServer(folder)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The session's server. Leave it running."""
    with tempfile.TemporaryDirectory(prefix="streamtable-postgres-") as folder:
        server = started(Path(folder))
        with server:
            yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with started(tmp_path) as server:
        yield server


@pytest.fixture
def postgres() -> Iterator[type[Postgres]]:
    """Makes targets, and closes them: the Tester leaves its processes where they are."""
    with ExitStack() as stack:

        def make(*arguments: Any, **options: Any) -> Postgres:
            made = Postgres(*arguments, **options)
            stack.callback(made.close)
            return made

        yield cast("type[Postgres]", make)


@pytest.fixture
def database(postgres_server: PostgresServer) -> str:
    """The URL of an empty schema in the session's server."""
    with psycopg.connect(postgres_server.url, autocommit=True) as session:
        session.execute("DROP SCHEMA public CASCADE")
        session.execute("CREATE SCHEMA public")
    return postgres_server.url
