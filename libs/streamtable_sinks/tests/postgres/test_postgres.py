"""PostgreSQL as a target: its table, its rows, its refusals."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from threading import Barrier
from typing import Any

import psycopg
import pytest

from streamtable import Avro, Json, Long, Stream, String, Table
from streamtable.errors import ConfigurationError, RetryLater
from streamtable_sinks import Sink
from streamtable_sinks.postgres import Postgres
from streamtable_sinks.target import SinkSource
from streamtable_testing import Tester

ORDER = Avro(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "note", "type": ["null", "string"]},
            {"name": "lines", "type": {"type": "array", "items": "long"}},
            {"name": "paid", "type": "boolean"},
        ],
    }
)
ORDERS: Stream[str, Any] = Stream("orders", String(), ORDER)
STOCK: Table[str, Any] = Table("stock", String(), Avro({"type": "record", "name": "Stock", "fields": [
    {"name": "count", "type": "long"}, {"name": "place", "type": ["null", "string"]}]}))  # fmt: skip
STOCK_RECORDS: Stream[str, Any] = Stream(STOCK.name, STOCK.key, STOCK.value)


def order(number: int, **fields: Any) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return {
        "id": f"o{number}",
        "at": at,
        "price": Decimal("1.50"),
        "note": None,
        "lines": [1, 2],
        "paid": True,
        **fields,
    }


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as session:
        return session.execute(query).fetchall()


def run(url: str, statement: str) -> None:
    with psycopg.connect(url) as session:
        session.execute(statement)


def test_a_table_is_created_with_the_columns_of_its_avro_schema(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    tester.run(Sink("out", ORDERS, postgres(database, "orders", create=True), max_wait=0.0))
    tester.emit(ORDERS, "a", order(1, note="fragile"))
    tester.advance(2)
    assert rows(database, "SELECT id, at, price, note, lines, paid FROM orders") == [
        ("o1", datetime(2026, 1, 1, tzinfo=UTC), Decimal("1.50"), "fragile", [1, 2], True)
    ]
    types = dict(rows(database, "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                                "WHERE attrelid = 'orders'::regclass AND attnum > 0"))  # fmt: skip
    assert types["price"] == "numeric(9,2)"
    assert types["lines"] == "jsonb"


def test_a_table_of_kafka_is_inserted_updated_and_deleted_by_its_key(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    tester.create(STOCK_RECORDS)
    tester.run(Sink("out", STOCK, postgres(database, "stock", key=("item",), create=True), max_wait=0.0))
    tester.emit_many(
        STOCK_RECORDS, [("nut", {"count": 1, "place": None}), ("bolt", {"count": 2, "place": "A"})]
    )
    tester.advance(2)
    tester.emit_many(STOCK_RECORDS, [("nut", {"count": 3, "place": "B"}), ("bolt", None)])
    tester.advance(2)
    assert rows(database, "SELECT item, count, place FROM stock") == [("nut", 3, "B")]


def test_a_replayed_record_of_a_stream_with_a_key_is_refused_as_a_later_one_may_have_replaced_its_row(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE stock (item text PRIMARY KEY, count bigint CHECK (count >= 0), place text)")
    out = Sink("out", STOCK_RECORDS, postgres(database, "stock", key=("item",)), max_wait=0.0)
    tester.run(out, partitions=1)
    for count in (-1, 5):
        tester.emit(STOCK_RECORDS, "nut", {"count": count, "place": None})
        tester.advance(2)
    (letter,) = tester.dead_letters(out)
    run(database, "ALTER TABLE stock DROP CONSTRAINT stock_count_check")
    tester.retry(out, letter)
    tester.advance(2)
    assert rows(database, "SELECT item, count FROM stock") == [("nut", 5)]
    assert "reset out --to earliest" in tester.dead_letters(out)[-1].reason


def test_key_columns_are_made_by_functions_of_the_key(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE parts (shop text, item text, n bigint, PRIMARY KEY (shop, item))")
    parts = Table("parts", String(), Long())
    target = postgres(
        database,
        "parts",
        key={"shop": lambda key: key.split("/")[0], "item": lambda key: key.split("/")[1]},
        columns=lambda _, value: {"n": value},
    )
    records = Stream("parts", String(), Long())
    tester.create(records)
    tester.run(Sink("out", parts, target, max_wait=0.0))
    tester.emit_many(records, [("a/x", 1), ("a/y", 2), ("b/x", 3)])
    tester.emit(records, "a/y", None)
    tester.advance(2)
    assert rows(database, "SELECT shop, item, n FROM parts ORDER BY n") == [("a", "x", 1), ("b", "x", 3)]


def test_differences_are_refused_at_the_start_with_the_statements_that_mend_them(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE orders (id text, at timestamptz, region text NOT NULL)")
    with pytest.raises(ConfigurationError) as caught:
        tester.run(Sink("out", ORDERS, postgres(database, "orders")))
    for statement in (
        'ALTER TABLE "orders" ADD COLUMN "price" numeric(9,2);',
        'ALTER TABLE "orders" ADD COLUMN "lines" jsonb;',
        'ALTER TABLE "orders" ALTER COLUMN "region" DROP NOT NULL;',
    ):
        assert statement in caught.value.message
        run(database, statement)


def test_a_key_without_a_unique_index_is_refused(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE stock (item text, count bigint, place text)")
    tester.create(STOCK_RECORDS)
    with pytest.raises(ConfigurationError, match=r'ALTER TABLE "stock" ADD PRIMARY KEY \("item"\);'):
        tester.run(Sink("out", STOCK, postgres(database, "stock", key=("item",))))


def test_a_missing_table_and_a_table_without_key_columns_are_refused(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    tester.create(STOCK_RECORDS)
    with pytest.raises(ConfigurationError, match="create=True"):
        tester.run(Sink("out", ORDERS, postgres(database, "nowhere")))
    with pytest.raises(ConfigurationError, match="key="):
        tester.run(Sink("other", STOCK, postgres(database, "stock")))


def test_a_dead_letter_has_the_sqlstate_and_the_column_and_the_other_rows_are_written_once(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE orders (serial bigserial, id text, at timestamptz, price numeric(9,2), lines jsonb, paid bool,"
                  " note text NOT NULL CONSTRAINT short CHECK (length(note) < 9))")  # fmt: skip
    notes = ["a", None, "b", "much too long", "c", "nul \0", "d"]
    tester.create(ORDERS, partitions=1)
    tester.emit_many(ORDERS, [("k", order(at, note=note)) for at, note in enumerate(notes)])
    out = Sink("out", ORDERS, postgres(database, "orders"))
    tester.run(out)
    tester.advance(5)
    assert [note for (note,) in rows(database, "SELECT note FROM orders ORDER BY serial")] == [
        "a",
        "b",
        "c",
        "d",
    ]
    null, long, nul = tester.dead_letters(out)
    assert [letter.origin.offset for letter in (null, long, nul)] == [1, 3, 5]
    assert "SQLSTATE 23502, table orders, column note" in null.reason
    assert "SQLSTATE 23514, table orders, constraint short" in long.reason
    assert "NUL" in nul.reason


def test_a_row_that_the_function_cannot_make_is_a_dead_letter(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE events (serial bigserial, half bigint)")
    events: Stream[str, Any] = Stream("events", String(), Json())
    out = Sink("out", events, postgres(database, "events", columns=lambda _, event: {"half": 10 // event}))
    tester.create(events, partitions=1)
    tester.emit_many(events, [("a", 1), ("a", 0), ("a", 2)])
    tester.run(out)
    tester.advance(2)
    assert rows(database, "SELECT half FROM events ORDER BY serial") == [(10,), (5,)]
    (letter,) = tester.dead_letters(out)
    assert letter.reason == "the row cannot be made: ZeroDivisionError: integer division or modulo by zero"


def test_null_in_a_stream_with_a_key_is_a_value_and_deletes_no_row(
    tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, "CREATE TABLE events (id text PRIMARY KEY, value jsonb)")
    events: Stream[str, Any] = Stream("events", String(), Json())
    out = Sink("out", events, postgres(database, "events", key=("id",)), max_wait=0.0)
    tester.run(out, partitions=1)
    tester.emit(events, "a", 1)
    tester.advance(2)
    tester.emit_raw("events", b"a", b"null")
    tester.advance(2)
    assert rows(database, "SELECT id, value FROM events") == [("a", None)]
    assert tester.dead_letters(out) == []


def test_a_database_that_is_away_is_asked_again(database: str, postgres: type[Postgres]) -> None:
    target = postgres("postgresql://postgres@127.0.0.1:1/postgres", "stock")
    with pytest.raises(RetryLater, match="PostgreSQL does not answer"):
        target.take(("out", "stock", "id", 0), "here")  # type: ignore[arg-type] # never looked at


def test_sinks_that_start_at_once_in_an_empty_database_all_find_their_tables(
    database: str, postgres: type[Postgres]
) -> None:
    """PostgreSQL's IF NOT EXISTS is no lock: two sessions that both find nothing fail with a violated constraint."""
    for number in range(10):
        with psycopg.connect(database, autocommit=True) as session:
            session.execute("DROP SCHEMA public CASCADE")
            session.execute("CREATE SCHEMA public")
        barrier = Barrier(6)

        def start(name: str, barrier: Barrier = barrier) -> None:
            target = postgres(database, name, key=("item",), create=True)
            barrier.wait(30)
            target.open(SinkSource(name, name, True, String(), STOCK.value))

        with ThreadPoolExecutor(6) as pool:
            names = [f"t{number}", *(f"t{number}_{each}" for each in range(4)), f"t{number}"]
            for started in [pool.submit(start, name) for name in names]:
                started.result()
