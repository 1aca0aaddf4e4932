"""A position counts for the table that it was written with: another one, or a new one of the same name, lacks the rows."""

import re
from typing import Any

import pytest
from libs.streamtable_sinks.tests.postgres.test_postgres import rows, run

from streamtable import Avro, Long, Stream, String, Table
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.errors import ConfigurationError, StateLost
from streamtable_sinks import Sink, SinkChange, SinkPartition, SinkSource
from streamtable_sinks.postgres import Postgres
from streamtable_testing import Tester

EVENTS: Stream[str, int] = Stream("events", String(), Long())


def sink(target: Postgres) -> Sink:
    return Sink("out", EVENTS, target, max_wait=0.0)


def values(url: str, table: str) -> list[int]:
    return [value for (value,) in rows(url, f"SELECT value FROM {table} ORDER BY value")]


def from_the_start(tester: Tester) -> None:
    """Reset the group, as `streamtable group reset out --to earliest` does."""
    tester.kafka.group("out").offsets.committed[TopicPartition("events", 0)] = Committed(NextOffset(0))


@pytest.fixture
def written(tester: Tester, database: str, postgres: type[Postgres]) -> Sink:
    """A sink that has written a record to the table `events`, and is stopped."""
    out = sink(postgres(database, "events", create=True))
    tester.run(out, partitions=1)
    tester.emit(EVENTS, "a", 1)
    tester.advance(2)
    tester.stop(out)
    return out


def test_a_sink_does_not_go_on_in_another_table_as_if_that_had_its_rows(
    tester: Tester, database: str, postgres: type[Postgres], written: Sink
) -> None:
    with pytest.raises(StateLost, match=r"another target.*streamtable group reset out --to"):
        tester.start(sink(postgres(database, "events2", create=True)))
    tester.start(sink(postgres(database, "public.events")))  # the same table
    tester.emit(EVENTS, "a", 2)
    tester.advance(2)
    assert values(database, "events") == [1, 2]
    assert values(database, "events2") == []


def test_after_a_reset_a_sink_writes_the_other_table_from_there(
    tester: Tester, database: str, postgres: type[Postgres], written: Sink
) -> None:
    from_the_start(tester)
    tester.start(sink(postgres(database, "events2", create=True)))
    tester.advance(2)
    assert values(database, "events2") == [1]
    ((target, position),) = rows(
        database, "SELECT target, next_offset FROM streamtable_positions WHERE topic = 'events'"
    )
    assert (target.split(",")[0], position) == ("public.events2", 1)


@pytest.mark.parametrize(
    ("statements", "name"),
    [
        (["ALTER TABLE events RENAME TO events2"], "events2"),
        (["ALTER TABLE events RENAME TO old", "CREATE TABLE events AS TABLE old"], "events"),
    ],
    ids=["renamed", "restored"],
)
def test_another_table_with_the_same_rows_is_written_on_after_the_statement_in_the_log(
    tester: Tester,
    database: str,
    postgres: type[Postgres],
    written: Sink,
    logged: list[Any],
    statements: list[str],
    name: str,
) -> None:
    for statement in statements:
        run(database, statement)
    with pytest.raises(StateLost):
        tester.start(sink(postgres(database, name)))
    (statement,) = {line["to_go_on"] for line in logged if line["event"] == "sink has written another table"}
    run(database, statement)
    tester.start(sink(postgres(database, name)))
    tester.emit(EVENTS, "a", 2)
    tester.advance(2)
    assert values(database, name) == [1, 2]


def test_a_table_that_is_created_again_has_no_position(
    tester: Tester, database: str, postgres: type[Postgres], written: Sink
) -> None:
    run(database, "DROP TABLE events")
    for _ in range(2):  # it stays so, whatever starts
        with pytest.raises(StateLost, match="its positions were deleted"):
            tester.start(sink(postgres(database, "events", create=True)))
    from_the_start(tester)
    tester.start(sink(postgres(database, "events", create=True)))
    tester.advance(2)
    assert values(database, "events") == [1]


def test_a_table_that_someone_else_has_created_again_has_no_position(
    tester: Tester, database: str, postgres: type[Postgres], written: Sink
) -> None:
    run(database, "DROP TABLE events")
    run(database, "CREATE TABLE events (value bigint NOT NULL)")
    with pytest.raises(StateLost, match="another target"):
        tester.start(sink(postgres(database, "events")))


SOURCE = SinkSource("out", "events", False, String(), Long())
PLACE = SinkPartition("out", "events", "id", 0)


def test_a_table_that_is_created_again_under_a_running_sink_has_no_position_when_a_partition_is_taken(
    database: str, postgres: type[Postgres]
) -> None:
    target = postgres(database, "events", create=True)
    target.open(SOURCE)
    target.write(PLACE, target.take(PLACE, "me").epoch, None, 5, ())
    assert target.take(PLACE, "me").position == 5
    run(database, "DROP TABLE events")
    run(database, "CREATE TABLE events (value bigint NOT NULL)")
    assert target.take(PLACE, "me").position is None


def test_a_table_that_is_dropped_under_a_running_sink_is_missing_when_a_partition_is_taken(
    database: str, postgres: type[Postgres]
) -> None:
    target = postgres(database, "events", create=True)
    target.open(SOURCE)
    run(database, "DROP TABLE events")
    with pytest.raises(ConfigurationError, match='relation "events" does not exist'):
        target.take(PLACE, "me")


POSITIONS = """CREATE TABLE streamtable_positions (sink text, topic text, partition integer, topic_id text NOT NULL,
    next_offset bigint, epoch bigint NOT NULL, owner text NOT NULL, %s PRIMARY KEY (sink, topic, partition))"""


@pytest.mark.parametrize(
    ("column", "target"), [("", ""), ("target text,", ", 'public.events'")], ids=["no-name", "no-oid"]
)
def test_positions_of_before_the_name_and_the_oid_of_the_table_were_in_them_count(
    database: str, postgres: type[Postgres], column: str, target: str
) -> None:
    run(database, POSITIONS % column)
    run(database, f"INSERT INTO streamtable_positions VALUES ('out', 'events', 0, 'id', 7, 3, 'me'{target})")
    sink_target = postgres(database, "events", create=True)
    sink_target.open(SOURCE)
    for epoch in (4, 5):
        taken = sink_target.take(PLACE, "me")
        assert (taken.position, taken.epoch) == (7, epoch)


ORDER = Avro(
    {
        "type": "record",
        "name": "O",
        "fields": [{"name": "unitPrice", "type": "long"}, {"name": "user", "type": "string"}],
    }
)


def test_the_statements_of_the_error_mend_the_table_whatever_its_columns_are_called(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    orders: Table[str, Any] = Table("orders", String(), ORDER)
    tester.create(Stream("orders", String(), ORDER))
    run(database, 'CREATE TABLE "Orders" ("end" bigint NOT NULL)')
    target = postgres(database, "Orders", key=("orderId",))
    with pytest.raises(ConfigurationError) as refused:
        tester.run(Sink("out", orders, target))
    for statement in re.findall("^ALTER TABLE .*;$", str(refused.value), re.MULTILINE):
        run(database, statement)
    target.open(SinkSource("out", "orders", True, String(), ORDER))


def test_a_key_that_on_conflict_does_not_take_is_refused_at_the_start(
    database: str, postgres: type[Postgres]
) -> None:
    source = SinkSource("out", "orders", True, String(), Long())
    run(database, "CREATE TABLE later (id text, value bigint, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(ConfigurationError, match="ADD PRIMARY KEY"):
        postgres(database, "later", key=("id",)).open(source)
    run(database, "CREATE TABLE wide (id text, value bigint, PRIMARY KEY (id) INCLUDE (value))")
    target = postgres(database, "wide", key=("id",))
    target.open(source)
    place = PLACE._replace(topic="orders")
    epoch = target.take(place, "me").epoch
    target.write(place, epoch, None, 0, ())
    target.write(place, epoch, 0, 1, [SinkChange("a", 1, 0, 0)])
    assert rows(database, "SELECT id, value FROM wide") == [("a", 1)]
