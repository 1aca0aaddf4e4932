"""Rows about sinks beside the same by hand, psycopg's COPY and pyiceberg: the same rows in the same batches, by turns in one run."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from bench.figures import Figure
from bench.measure import RowFailed
from bench.site import Site
from pyiceberg.catalog.sql import SqlCatalog

from localkafka.errors import SetupError
from localstores.postgres import PostgresServer
from streamtable import Avro, String
from streamtable_sinks import SinkChange, SinkPartition, SinkSource, SinkTarget
from streamtable_sinks.iceberg import Iceberg
from streamtable_sinks.postgres import Postgres

APPENDS = ("copy_by_hand", "sink_appends")
UPSERTS = ("merge_by_hand", "sink_upserts")
ICEBERG = ("pyiceberg_by_hand", "sink_iceberg")
_RECORDS = 10_000
_BATCHES = 40
_WARM_UP = 4
_KEYS = 20_000
_COLUMNS = "id, at, url, amount"
_TYPES = "at bigint, url text, amount bigint"
_VALUE = Avro(
    {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "string"}, {"name": "at", "type": "long"},
                   {"name": "url", "type": "string"}, {"name": "amount", "type": "long"}],
    }
)  # fmt: skip
_MERGE = (
    f"INSERT INTO by_hand SELECT {_COLUMNS} FROM stage ON CONFLICT (id) DO UPDATE "
    "SET at = EXCLUDED.at, url = EXCLUDED.url, amount = EXCLUDED.amount"
)
Session = psycopg.Connection[Any]


def appends(site: Site) -> list[Figure]:
    """Measure rows that are appended, in rows per second."""
    with _tables(site, f"id text, {_TYPES}") as (session, url):

        def by_hand(changes: Sequence[SinkChange]) -> None:
            with session.transaction():
                _copy(session, "by_hand", changes)

        return _by_turns(APPENDS, by_hand, Postgres(url, "by_sink"), is_table=False)


def upserts(site: Site) -> list[Figure]:
    """Measure rows that are inserted or updated by their key, in rows per second."""
    with _tables(site, f"id text PRIMARY KEY, {_TYPES}") as (session, url):
        session.execute(f"CREATE TEMPORARY TABLE stage (id text, {_TYPES}) ON COMMIT DELETE ROWS")

        def by_hand(changes: Sequence[SinkChange]) -> None:
            with session.transaction():
                _copy(session, "stage", changes)
                session.execute(_MERGE)

        return _by_turns(UPSERTS, by_hand, Postgres(url, "by_sink", key=("id",)), is_table=True)


def iceberg(site: Site) -> list[Figure]:
    """Measure rows that are appended to tables of Iceberg, in rows per second: each batch is a snapshot."""
    folder = site.state(site.name("sinks-iceberg")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
    schema = pa.schema(
        [("id", pa.string()), ("at", pa.int64()), ("url", pa.string()), ("amount", pa.int64())]
    )
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.by_hand", schema)

    def by_hand(changes: Sequence[SinkChange]) -> None:
        table.append(pa.Table.from_pylist([change.value for change in changes], schema=schema))

    try:
        return _by_turns(ICEBERG, by_hand, Iceberg(catalog, "bench.by_sink", create=True), is_table=False)
    finally:
        catalog.close()


def _copy(session: Session, table: str, changes: Sequence[SinkChange]) -> None:
    with session.cursor().copy(f"COPY {table} ({_COLUMNS}) FROM STDIN") as copy:
        for change in changes:
            row: Mapping[str, Any] = change.value
            copy.write_row((row["id"], row["at"], row["url"], row["amount"]))


@contextmanager
def _tables(site: Site, columns: str) -> Iterator[tuple[Session, str]]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(PostgresServer(site.state(site.name("sinks-postgres"))))
        except SetupError as error:
            raise RowFailed(str(error)) from error
        session = stack.enter_context(psycopg.connect(server.url, autocommit=True))
        for table in ("by_hand", "by_sink"):
            session.execute(f"CREATE TABLE {table} ({columns})")
        yield session, server.url


def _by_turns(
    names: Sequence[str],
    by_hand: Callable[[Sequence[SinkChange]], None],
    target: SinkTarget,
    *,
    is_table: bool,
) -> list[Figure]:
    place = SinkPartition("bench", "rows", "id", 0)
    target.open(SinkSource("bench", "rows", is_table, String(), _VALUE))
    epoch = target.take(place, "bench").epoch
    target.write(place, epoch, None, 0, ())
    seconds: dict[str, list[float]] = {name: [] for name in names}
    used: dict[str, float] = dict.fromkeys(names, 0.0)
    for number in range(_BATCHES):
        start, changes = number * _RECORDS, _changes(number)

        def by_sink(changes: Sequence[SinkChange], start: int = start) -> None:
            target.write(place, epoch, start, start + _RECORDS, changes)

        turns = list(zip(names, (by_hand, by_sink), strict=True))
        for name, write in turns if number % 2 else reversed(turns):
            began, cpu = time.perf_counter(), time.process_time()
            write(changes)
            if number >= _WARM_UP:
                seconds[name].append(time.perf_counter() - began)
                used[name] += time.process_time() - cpu
    target.close()
    records = (_BATCHES - _WARM_UP) * _RECORDS
    return [
        Figure(name, _RECORDS / statistics.median(took), "rows/s", cpu_seconds=used[name], records=records)
        for name, took in seconds.items()
    ]


def _changes(number: int) -> list[SinkChange]:
    """Return a batch that has each key once, as a sink gets it of a table."""
    found = []
    for at in range(_RECORDS):
        key = f"user-{(number * 7_919 + at) % _KEYS}"
        row = {
            "id": key,
            "at": 1_700_000_000_000 + at,
            "url": f"https://example.org/{at % 500}",
            "amount": at,
        }
        found.append(SinkChange(key, row, number * _RECORDS + at, 0))
    return found
