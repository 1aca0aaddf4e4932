"""A sink under attack: its topics, its target, its processes, and the check of everything at the end."""

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from urllib.error import URLError
from urllib.request import Request, urlopen

import psycopg
import pytest
from tests.faults import sink_worker
from tests.faults.batch_arena import BatchArena
from tests.faults.sink_lakes import TABLE, bucket_at, catalog_in

from localkafka.errors import SetupError
from localkafka.process import Child, reserve_port
from localkafka.waiting import wait_until
from localstores.postgres import PostgresServer, find_program
from localstores.proxy import Delay, Drop, Proxy, TruncatedResponse
from streamtable_sinks.parquet import read_rows

DISTURBED = 0.2
"""The share of the calls of `disturb` that do something: between them the sink makes progress."""


class SinkArena(BatchArena):
    """An arena whose events are appended to a table with a serial key. Skips the test where PostgreSQL is not installed."""

    program = sink_worker.__file__

    def make_blind(self) -> None:
        """Let the processes that start from now on write without the comparison of positions and epochs."""
        self.store = f"{sink_worker.BLIND}{self.store}"

    def disturb(self, chance: random.Random) -> None:
        """Do something to the target that it must survive. Called again and again while a process works."""

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
        rows = self._written()
        seen = Counter(value for _, value in rows)
        assert seen == Counter(self.sent), (
            f"lost {Counter(self.sent) - seen}, doubled {seen - Counter(self.sent)}"
        )
        by_key: defaultdict[str, list[int]] = defaultdict(list)
        for key, value in rows:
            by_key[key].append(value)
        assert all(values == sorted(values) for values in by_key.values())
        return f"{len(rows)} rows"

    def _written(self) -> Sequence[tuple[str, int]]:
        """Return the rows of the target, in the order of writing within each partition."""
        with psycopg.connect(self.database.url) as session:
            return session.execute("SELECT key, value FROM seen ORDER BY serial").fetchall()


class DisturbedSinkArena(SinkArena):
    """A sink whose sessions are ended at any statement, and whose requests and answers are lost, COMMIT's among them."""

    def _begin_store(self) -> str:
        super()._begin_store()
        self.proxy = self._stack.enter_context(Proxy(self.database.port))
        return self.database.url_at(self.proxy.port)

    def disturb(self, chance: random.Random) -> None:
        if chance.random() > DISTURBED:
            return
        fault = chance.choice((Drop(), TruncatedResponse(0)))
        self.proxy.next(*[Delay(0)] * chance.randrange(40), fault)
        with psycopg.connect(self.database.url, autocommit=True) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'streamtable-sink'"
                " ORDER BY random() LIMIT 1"
            )


class S3Arena(SinkArena):
    """A sink to Parquet files in moto's S3 server."""

    def _begin_store(self) -> str:
        with reserve_port() as port:
            number = port.getsockname()[1]
            child = Child([sys.executable, "-m", "moto.server", "-p", str(number)], self.folder / "moto.log")
            self._stack.callback(child.kill)
            self.url = f"http://127.0.0.1:{number}"
            wait_until(self._made_bucket, 60, "the S3 server answers", every=0.1)
        return f"s3:{self.url}"

    def _made_bucket(self) -> bool:
        try:
            with urlopen(Request(f"{self.url}/lake", method="PUT"), timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def _written(self) -> Sequence[tuple[str, int]]:
        rows = read_rows(bucket_at(self.url))
        return list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


class IcebergArena(SinkArena):
    """A sink to a table of Iceberg on the disk."""

    def _begin_store(self) -> str:
        self.lake = self.folder / "iceberg"
        self.lake.mkdir()
        catalog_in(str(self.lake)).close()
        return f"iceberg:{self.lake}"

    def _written(self) -> Sequence[tuple[str, int]]:
        catalog = catalog_in(str(self.lake))
        rows = catalog.load_table(TABLE).scan().to_arrow()
        catalog.close()
        rows = rows.sort_by(
            [("_partition", "ascending"), ("_offset", "ascending")]
        )  # it keeps no order of rows
        return list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
