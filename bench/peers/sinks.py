"""Rows about sinks from Kafka to PostgreSQL: ours, and Quix Streams' beside it, with the doubled rows after a kill."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, LiteralString

import psycopg
from bench.clicks import Clicks
from bench.figures import Figure
from bench.job import Job
from bench.measure import Program, RowFailed, python
from bench.peers.rows import HERE, SCHEMA, Peer, build
from bench.plan import Step
from bench.site import Site

from localkafka.errors import SetupError
from localstores.postgres import PostgresServer

OURS: Final = "sink_from_kafka"
DOUBLES: Final = "doubles"
BASELINES: Final = {
    "peer_quix_streams_sink": OURS,
    "peer_quix_streams_sink_doubles": f"{OURS}_{DOUBLES}",
}
_PEER: Final = "quix_streams"
_SHARE: Final = 0.2  # of the records of a full topic
_KILLS: Final = 5
_TABLE: Final = "clicks"
_CREATE: Final = (
    f"CREATE TABLE {_TABLE} (serial bigserial PRIMARY KEY, id text, user_id text, url text, at bigint)"
)
_COUNT: Final = f"SELECT count(*) FROM {_TABLE}"
_NUMBER: Final = f"SELECT coalesce(max(serial), 0) FROM {_TABLE}"  # in microseconds, by the index
_SETTLED_S: Final = 3.0
Session = psycopg.Connection[Any]


@dataclass(frozen=True)
class SinkProgram:
    """A program that appends clicks to PostgreSQL.

    Attributes:
        name: The name of its row; the row of doubled rows has a suffix.
        command: The command that runs it.
        peer: The library that is built before; None: it is ours.
    """

    name: str
    command: Sequence[str]
    peer: Peer | None = None


def steps(chosen: Sequence[Peer]) -> list[Step]:
    """Return the steps of our sink and of the peers' sinks after it; none without such a peer."""
    programs = [
        SinkProgram(f"peer_{peer.name}_sink", [*peer.command[:-1], str(HERE / peer.name / "sink.py")], peer)
        for peer in chosen
        if peer.name == _PEER
    ]
    if programs:
        programs.insert(0, SinkProgram(OURS, python("bench.programs.sink")))
    return [Step((each.name, f"{each.name}_{DOUBLES}"), partial(measure, program=each)) for each in programs]


def measure(site: Site, program: SinkProgram) -> list[Figure]:
    """Measure the rate from the first visible rows to the last, and then the doubled rows after kills."""
    if program.peer is not None:
        build(program.peer)
    with _database(site) as (session, url):
        return [_rate(site, program, session, url), _doubles(site, program, session, url)]


def _rate(site: Site, program: SinkProgram, session: Session, url: str) -> Figure:
    job = _job(site, program, url)
    session.execute(_CREATE)
    with Program(program.command, job.environment(), site.log(program.name)) as running:
        running.wait(lambda: _rows(session), "has written nothing")
        first, there = running.now(), _rows(session)
        running.wait(lambda: _rows(session) >= job.records, "does not write all rows")
        last = running.now()
        running.kill()
    if _rows(session, _COUNT) != job.records:
        raise RowFailed(f"the table has {_rows(session, _COUNT)} rows, not {job.records}")
    records = job.records - there
    _forget(site, session, job)
    return Figure(
        program.name,
        records / (last.time - first.time),
        "rows/s",
        cpu_seconds=last.cpu - first.cpu,
        rss_mb=running.rss_mb,
        records=records,
        baseline=BASELINES.get(program.name),
    )


def _doubles(site: Site, program: SinkProgram, session: Session, url: str) -> Figure:
    """Kill it again and again as soon as further rows are visible, and count the rows beyond the records at the end."""
    name, job = f"{program.name}_{DOUBLES}", _job(site, program, url)
    session.execute(_CREATE)
    for _ in range(_KILLS):
        before = _rows(session)
        with Program(program.command, job.environment(), site.log(name)) as running:
            running.wait(lambda before=before: _rows(session) > before, "writes no further rows")  # type: ignore[misc]
            running.kill()
    with Program(program.command, job.environment(), site.log(name)) as running:
        running.wait(partial(_settled, session, job.records), "does not write all rows")
        running.kill()
    doubles = _rows(session, _COUNT) - job.records
    _forget(site, session, job)
    return Figure(name, doubles, "rows", records=job.records, baseline=BASELINES.get(name))


def _settled(session: Session, records: int) -> bool:
    """Return whether it has all rows, and gets no more."""
    found = _rows(session)
    if found < records:
        return False
    time.sleep(_SETTLED_S)
    return _rows(session, _COUNT) >= records and _rows(session) == found


def _job(site: Site, program: SinkProgram, url: str) -> Job:
    clicks = Clicks(int(site.sizes.stream * _SHARE))
    topic, group = site.clicks(clicks), site.group(program.name)
    job = Job(site.broker, topic, group, clicks.records, str(site.state(group)), commit_ms=1000)
    return replace(job, schema=str(SCHEMA), store=url, table=_TABLE)


def _rows(session: Session, query: LiteralString = _NUMBER) -> int:
    """Return the number of the last visible row; with `_COUNT` the number of rows, in a full scan."""
    (found,) = session.execute(query).fetchone() or (0,)
    return int(found)


def _forget(site: Site, session: Session, job: Job) -> None:
    session.execute(f"DROP TABLE {_TABLE}")
    site.wipe(job.group)
    site.delete(f"{job.group}-")


@contextmanager
def _database(site: Site) -> Iterator[tuple[Session, str]]:
    try:
        with (
            PostgresServer(site.state(site.name("peer-sinks-postgres"))) as server,
            psycopg.connect(server.url, autocommit=True) as session,
        ):
            yield session, server.url
    except SetupError as error:
        raise RowFailed(str(error)) from error
