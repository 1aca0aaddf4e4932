"""The meaning of PostgreSQL's errors: a retry where one helps, and dead letters only for rows that do not fit."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import psycopg
import pytest

from streamtable import Json, Long, Stream, String
from streamtable.errors import ConfigurationError, RetryLater
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource
from streamtable_sinks.postgres import Postgres
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
PLACE = SinkPartition("out", "events", "id", 0)


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as session:
        return session.execute(query).fetchall()


def opened(target: Postgres, *, is_table: bool = False) -> Postgres:
    target.open(SinkSource("out", "events", is_table, String(), Long()))
    return target


@contextmanager
def idle_transaction(url: str, statement: str) -> Iterator[None]:
    """Another session that has executed a statement, and neither commits nor rolls back."""
    with psycopg.connect(url) as session:
        session.execute(statement)
        yield
        session.rollback()


def test_two_partitions_that_update_the_same_rows_in_another_order_write_both_and_make_no_dead_letters(
    database: str, postgres: type[Postgres]
) -> None:
    """One of the two transactions is a deadlock's victim now and then, which is the fault of no row."""
    run(database, "CREATE TABLE events (id text PRIMARY KEY, value bigint)")
    barrier = Barrier(2)
    victims = []
    soon = "?options=-c%20deadlock_timeout%3D50ms"

    def work(partition: int) -> None:
        target = opened(postgres(database + soon, "events", key=("id",)), is_table=True)
        place = PLACE._replace(partition=partition)
        epoch = target.take(place, "a").epoch
        target.write(place, epoch, None, 0, ())
        keys = [f"k{at:03}" for at in range(500)]
        changes = [SinkChange(key, at, at, 0) for at, key in enumerate(keys if partition else reversed(keys))]
        for number in range(8):
            barrier.wait(60)
            while True:
                try:
                    target.write(place, epoch, number, number + 1, changes)
                    break
                except RetryLater as error:
                    victims.append(error)
                    epoch = target.take(place, "a").epoch

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(work, partition) for partition in range(2)]:
            each.result()
    assert rows(database, "SELECT next_offset FROM streamtable_positions") == [(8,), (8,)]
    assert all("SQLSTATE 40P01" in error.message for error in victims)


def test_a_transaction_that_cannot_be_serialized_is_tried_again(
    database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE events (value bigint)")
    serializable = "?options=-c%20default_transaction_isolation%3Dserializable"

    class Interrupted(Postgres):
        def _write(self, *arguments: Any) -> None:
            session = self._connected
            assert session is not None
            with session.transaction():
                session.execute("SELECT next_offset FROM streamtable_positions")  # its snapshot
                run(database, "UPDATE streamtable_positions SET owner = 'an operator'")
                super()._write(*arguments)

    target = opened(Interrupted(database + serializable, "events"))
    epoch = target.take(PLACE, "a").epoch
    with pytest.raises(RetryLater, match="SQLSTATE 40001"):
        target.write(PLACE, epoch, None, 1, [SinkChange("a", 0, 0, 0)])
    target.close()


def test_a_table_that_is_locked_for_a_while_is_written_afterwards(
    database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE events (value bigint)")
    target = opened(postgres(database, "events", lock_timeout=0.2))
    epoch = target.take(PLACE, "a").epoch
    target.write(PLACE, epoch, None, 0, ())
    with idle_transaction(database, "LOCK TABLE events"), pytest.raises(RetryLater, match="SQLSTATE 55P03"):
        target.write(PLACE, epoch, 0, 1, [SinkChange("a", 0, 0, 0)])
    target.write(PLACE, epoch, 0, 1, [SinkChange("a", 0, 0, 0)])
    assert rows(database, "SELECT value FROM events") == [(0,)]


def test_a_batch_that_takes_longer_than_a_statement_may_is_written_in_parts(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(
        database,
        "CREATE TABLE events (value bigint)",
        "CREATE FUNCTION slow() RETURNS trigger AS 'BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END' LANGUAGE plpgsql",
        "CREATE TRIGGER slow BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    out = Sink("out", EVENTS, postgres(database, "events", statement_timeout=0.5), max_wait=0.0)
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", number) for number in range(50)])
    tester.run(out)
    for _ in range(20):
        tester.advance(40)
    assert rows(database, "SELECT value FROM events") == [(number,) for number in range(50)]
    assert tester.dead_letters(out) == []


def test_a_server_that_is_read_only_is_asked_again(database: str, postgres: type[Postgres]) -> None:
    """After a failover the address may lead to a former primary for a while."""
    run(database, "CREATE TABLE events (value bigint)")
    read_only = "?options=-c%20default_transaction_read_only%3Don"
    with pytest.raises(RetryLater, match="SQLSTATE 25006"):
        opened(postgres(database + read_only, "events"))


def test_a_url_that_is_none_is_refused_at_the_start(postgres: type[Postgres]) -> None:
    with pytest.raises(ConfigurationError, match="not the URL of a PostgreSQL") as refused:
        opened(postgres("postgresql+psycopg://shop:s3cret@nowhere/shop", "events"))
    assert "s3cret" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_a_column_that_was_made_wider_while_the_sink_runs_takes_the_wider_values(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    """The temporary table of a batch still has the type of before."""
    run(database, "CREATE TABLE events (id text PRIMARY KEY, value integer)")
    target = opened(postgres(database, "events", key=("id",)), is_table=True)
    epoch = target.take(PLACE, "a").epoch
    target.write(PLACE, epoch, None, 1, [SinkChange("a", 1, 0, 0)])
    run(database, "ALTER TABLE events ALTER COLUMN value TYPE bigint")
    target.write(PLACE, epoch, 1, 2, [SinkChange("a", 1 << 40, 1, 0)])
    assert rows(database, "SELECT value FROM events") == [(1 << 40,)]


def test_a_text_that_is_no_unicode_is_a_dead_letter_and_the_other_rows_are_written(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE events (serial bigserial, value text)")
    events: Stream[str, Any] = Stream("events", String(), Json())
    out = Sink("out", events, postgres(database, "events", columns=lambda _, code: {"value": chr(code)}))
    tester.create(events, partitions=1)
    tester.emit_many(events, [("a", 65), ("a", 0xD800), ("a", 66)])
    tester.run(out)
    tester.advance(2)
    assert rows(database, "SELECT value FROM events ORDER BY serial") == [("A",), ("B",)]
    (letter,) = tester.dead_letters(out)
    assert letter.origin.offset == 1
    assert "surrogates not allowed" in letter.reason


def test_a_value_that_is_nested_too_deep_for_json_is_a_dead_letter_and_the_other_rows_are_written(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE events (serial bigserial, value jsonb)")
    events: Stream[str, Any] = Stream("events", String(), Json())
    out = Sink("out", events, postgres(database, "events", columns=lambda _, value: {"value": value}))
    tester.create(events, partitions=1)
    for value in (b"1", b"[" * 1_015 + b"]" * 1_015, b"2"):
        tester.emit_raw("events", b"a", value)
    tester.run(out)
    tester.advance(2)
    assert rows(database, "SELECT value FROM events ORDER BY serial") == [(1,), (2,)]
    (letter,) = tester.dead_letters(out)
    assert letter.origin.offset == 1
    assert "RecursionError" in letter.reason


@pytest.fixture
def writer(database: str) -> Iterator[str]:
    """The URL of a role that may write the tables `events` and `streamtable_positions`, and create none."""
    run(
        database,
        "DROP ROLE IF EXISTS writer",
        "CREATE ROLE writer LOGIN",
        "CREATE TABLE events (value bigint)",
    )
    target = Postgres(database, "events")
    opened(target).close()
    run(database, "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO writer", "GRANT USAGE ON SCHEMA public TO writer")  # fmt: skip
    yield database.replace("postgres@", "writer@")
    run(database, "DROP OWNED BY writer", "DROP ROLE writer")


def test_a_table_that_is_there_needs_no_right_to_create_it(writer: str, postgres: type[Postgres]) -> None:
    target = opened(postgres(writer, "events", create=True))
    assert target.take(PLACE, "a").epoch == 1


def test_a_session_of_another_role_that_holds_the_position_is_waited_for(
    writer: str, database: str, postgres: type[Postgres]
) -> None:
    target = opened(postgres(writer, "events", lock_timeout=0.2))
    target.take(PLACE, "a")
    with (
        idle_transaction(database, "UPDATE streamtable_positions SET owner = 'an operator'"),
        pytest.raises(RetryLater, match="session of another role"),
    ):
        target.take(PLACE, "a")
    assert target.take(PLACE, "a").epoch == 2
