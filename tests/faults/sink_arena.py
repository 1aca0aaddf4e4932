"""A sink to PostgreSQL under attack: its topics, its database, its processes, and the check of everything at the end."""

from collections import Counter, defaultdict

import psycopg
import pytest
from tests.faults import sink_worker
from tests.faults.batch_arena import BatchArena

from localkafka.errors import SetupError
from localstores.postgres import PostgresServer, find_program


class SinkArena(BatchArena):
    """An arena whose events are appended to a table with a serial key. Skips the test where PostgreSQL is not installed."""

    program = sink_worker.__file__

    def _begin_store(self) -> str:
        try:
            find_program("initdb")
        except SetupError as error:
            pytest.skip(str(error))
        self.database = self._stack.enter_context(PostgresServer(self.folder / "postgres"))
        with psycopg.connect(self.database.url) as session:
            session.execute(sink_worker.TABLE)
        return self.database.url

    def verify(self) -> str:
        """Check that each event is in the table once, and those of each key in the order of sending."""
        with psycopg.connect(self.database.url) as session:
            rows = session.execute("SELECT key, value FROM seen ORDER BY serial").fetchall()
        seen = Counter(value for _, value in rows)
        assert seen == Counter(self.sent), (
            f"lost {Counter(self.sent) - seen}, doubled {seen - Counter(self.sent)}"
        )
        by_key: defaultdict[str, list[int]] = defaultdict(list)
        for key, value in rows:
            by_key[key].append(value)
        assert all(values == sorted(values) for values in by_key.values())
        return f"{len(rows)} rows"
