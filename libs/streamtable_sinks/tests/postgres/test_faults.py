"""Rows are in PostgreSQL once, whatever breaks: connections, sessions, the server, and processes that stand still.

The log is the Tester's, the database is real. The oracle is an append table with a serial key: it has exactly the records of the
log, in their order.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from localstores.postgres import PostgresServer
from localstores.proxy import Delay, Drop, Fault, Proxy, TruncatedResponse
from streamtable import Long, Stream, String, Table
from streamtable.errors import Migrated
from streamtable_sinks import Sink, SinkPartition, SinkSource, task
from streamtable_sinks.mark import Unknown
from streamtable_sinks.postgres import Postgres, positions
from streamtable_sinks.target import SinkChange
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
BATCHES = ([0, 1, 2], [3, 4], [5, 6, 7, 8])
EXPECTED = list(range(9))


def values(url: str) -> list[int]:
    with psycopg.connect(url) as session:
        return [value for (value,) in session.execute("SELECT value FROM events ORDER BY serial").fetchall()]


@pytest.fixture
def table(database: str) -> str:
    """The URL of a database with the table that the sink appends to."""
    with psycopg.connect(database) as session:
        session.execute("CREATE TABLE events (serial bigserial PRIMARY KEY, value bigint)")
    return database


def sink(url: str, kind: type[Postgres] = Postgres) -> Sink:
    return Sink("out", EVENTS, kind(url, "events", lock_timeout=0.5), max_wait=0.0)


def written_by(out: Sink, between: Callable[[int], object] = lambda _: None) -> None:
    """Let a sink write the batches, and its target come back whenever it has gone."""
    with Tester() as tester:
        tester.run(out, partitions=1)
        for number, batch in enumerate(BATCHES):
            between(number)
            tester.emit_many(EVENTS, [("a", value) for value in batch])
            tester.advance(120)
        tester.stop(out)
        tester.start(out)
        tester.advance(120)
        tester.stop(out)


def requests_of_a_run(url: str, server: PostgresServer) -> int:
    with Proxy(server.port) as proxy:
        written_by(sink(server.url_at(proxy.port)))
        return len(proxy.requests)


@pytest.mark.parametrize("fault", [Drop(), TruncatedResponse(0)], ids=["request lost", "answer lost"])
def test_any_request_or_its_answer_may_be_lost(
    table: str, postgres_server: PostgresServer, fault: Fault
) -> None:
    requests = requests_of_a_run(table, postgres_server)
    assert values(table) == EXPECTED
    for at in range(requests):
        with psycopg.connect(table) as session:
            session.execute("TRUNCATE events RESTART IDENTITY")
            session.execute("TRUNCATE streamtable_positions")
        with Proxy(postgres_server.port) as proxy:
            proxy.next(*[Delay(0)] * at, fault)
            written_by(sink(postgres_server.url_at(proxy.port)))
        assert values(table) == EXPECTED, f"at request {at}"


class Ended(psycopg.Connection[Any]):
    """A session that an administrator ends before its n-th statement."""

    left = 0

    def execute(self, *arguments: Any, **options: Any) -> Any:
        Ended.left -= 1
        if Ended.left == 0:
            with psycopg.connect(self.info.dsn, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", (self.info.backend_pid,))
        return super().execute(*arguments, **options)


class EndedPostgres(Postgres):
    def _new_session(self) -> Ended:
        return Ended.connect(self._url, autocommit=True)


def test_a_session_may_be_ended_before_any_statement(table: str) -> None:
    Ended.left = 0
    written_by(sink(table, EndedPostgres))
    statements = -Ended.left
    assert values(table) == EXPECTED
    assert statements > 10
    for at in range(1, statements + 1):
        with psycopg.connect(table) as session:
            session.execute("TRUNCATE events RESTART IDENTITY")
            session.execute("TRUNCATE streamtable_positions")
        Ended.left = at
        written_by(sink(table, EndedPostgres))
        assert values(table) == EXPECTED, f"at statement {at}"


def test_a_server_that_is_aborted_between_batches_has_each_row_once(own_server: PostgresServer) -> None:
    with psycopg.connect(own_server.url) as session:
        session.execute("CREATE TABLE events (serial bigserial PRIMARY KEY, value bigint)")

    def abort(number: int) -> None:
        if number:
            own_server.stop_immediately()
            own_server.start()

    written_by(sink(own_server.url), abort)
    assert values(own_server.url) == EXPECTED


STEPS = ("batch-processed", "rows-written", "begun", "offsets-sent", "committed")


@pytest.mark.parametrize("step", STEPS)
def test_a_merged_table_has_the_rows_of_a_view_after_a_crash_at_any_step(
    step: str, database: str, postgres: type[Postgres]
) -> None:
    counts: Table[str, int] = Table("counts", String(), Long())
    changes: Stream[str, int] = Stream(counts.name, counts.key, counts.value)
    out = Sink("out", counts, postgres(database, "counts", key=("id",), create=True), max_wait=0.0)
    chance = random.Random(1)
    with Tester() as tester:
        tester.run(out, partitions=2)
        for number in range(6):
            if number % 2:
                tester.crash(out, step)
            keys = [chance.choice("abcdef") for _ in range(9)]
            tester.emit_many(changes, [(key, chance.choice((None, number))) for key in keys])
            tester.start(out)
            tester.advance(2)
        tester.advance(60)
        view = tester.view(counts)
        expected = {key: count for key in "abcdef" if (count := view.get(key)) is not None}
        tester.stop(out)
    with psycopg.connect(database) as session:
        assert dict(session.execute("SELECT id, value FROM counts").fetchall()) == expected
    assert 0 < len(expected) < 6


PLACE = SinkPartition("out", "events", "id", 0)


@contextmanager
def opened(url: str, kind: type[Postgres] = Postgres) -> Iterator[Postgres]:
    target = kind(url, "events", lock_timeout=0.2)
    target.open(SinkSource("out", "events", False, String(), Long()))
    try:
        yield target
    finally:
        target.close()


def change(value: int) -> SinkChange:
    return SinkChange("a", value, value, 0)


def test_a_former_owner_that_stands_still_in_its_transaction_does_not_hold_the_next_one_up(
    table: str,
) -> None:
    with opened(table) as zombie, opened(table) as owner:
        old = zombie.take(PLACE, "zombie").epoch
        zombie.write(PLACE, old, None, 0, ())
        assert zombie._connected is not None
        with pytest.raises(psycopg.OperationalError), zombie._connected.transaction():  # noqa: PT012 - it ends in the middle
            positions.move(zombie._connected, PLACE, old, 0, 1, "public.events")
            zombie._connected.execute("INSERT INTO events (value) VALUES (99)")
            taken = owner.take(PLACE, "owner")
            assert taken.position == 0
        owner.write(PLACE, taken.epoch, 0, 1, [change(0)])
        with pytest.raises(Migrated, match="epoch 2 of owner"):
            zombie.write(PLACE, old, 1, 2, [change(1)])
        assert values(table) == [0]


# ---- counter-tests: without a part of the argument, the oracle finds what must not be ---------------------------------


def test_with_kafkas_offset_as_the_truth_rows_are_doubled(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashed() -> list[int]:
        with Tester() as tester:
            out = sink(table)
            tester.run(out, partitions=1)
            tester.emit(EVENTS, "a", 0)
            tester.crash(out, "rows-written")
            tester.emit(EVENTS, "a", 1)
            tester.start(out)
            tester.advance(120)
            tester.stop(out)
        return values(table)

    assert crashed() == [0, 1]
    with psycopg.connect(table) as session:
        session.execute("TRUNCATE events, streamtable_positions")
    monkeypatch.setattr(task, "position_of", lambda *_: Unknown.RESET)
    assert crashed() == [0, 1, 1]


def test_without_the_comparison_of_the_position_a_lost_answer_doubles_rows(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "_MOVE", positions._SET)
    with opened(table) as target:
        epoch = target.take(PLACE, "a").epoch
        target.write(PLACE, epoch, None, 0, ())
        for _ in range(2):  # the answer to the first was lost
            target.write(PLACE, epoch, 0, 1, [change(0)])
    assert values(table) == [0, 0]


def test_without_the_epoch_a_former_owner_writes_a_record_that_the_owner_has_set_aside(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has sent record 0 to the dead letters, as the table refused it, and the table was mended since."""
    blind = sql.SQL(
        "UPDATE streamtable_positions SET next_offset = %(end)s WHERE sink = %(sink)s AND topic = %(topic)s "
        "AND partition = %(partition)s AND next_offset = %(start)s"
    )
    with opened(table) as zombie, opened(table) as owner:
        old = zombie.take(PLACE, "zombie").epoch
        zombie.write(PLACE, old, None, 0, ())
        owner.take(PLACE, "owner")
        with pytest.raises(Migrated):
            zombie.write(PLACE, old, 0, 1, [change(0)])
        monkeypatch.setattr(positions, "_MOVE", blind)
        zombie.write(PLACE, old, 0, 1, [change(0)])
    assert values(table) == [0]
