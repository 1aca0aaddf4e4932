"""Types of a table that would change a value: they are refused at the start, or the value is a dead letter."""

from collections.abc import Callable, MutableMapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from libs.streamtable_sinks.tests.postgres.test_postgres import rows, run

from streamtable import Avro, Codec, Long, Stream, String, Typed
from streamtable.errors import ConfigurationError
from streamtable_sinks import Sink, SinkSource
from streamtable_sinks.postgres import Postgres
from streamtable_testing import Tester

EVENTS: Stream[str, int] = Stream("events", String(), Long())
EAST = timezone(timedelta(hours=5))
DOMAINS = """
    CREATE DOMAIN price AS numeric(10,2);
    CREATE DOMAIN special_price AS price;
    CREATE DOMAIN prices AS price[];
    CREATE DOMAIN document AS jsonb;
"""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric(10,2)", Decimal("1.239")),
        ("numeric(10,2)", "1.239"),
        ("numeric(10)", Decimal("0.5")),
        ("double precision", 2**53 + 1),
        ("double precision", Decimal("12345678901234567890.12")),
        ("bytea", "AQL/"),
        ("text", b"ab"),
        ("timestamp", datetime(2026, 1, 1, 12, tzinfo=EAST)),
        ("timestamp", "2026-01-01T12:00:00+05:00"),
        ("timestamptz", datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - that is the question
        ("timestamptz", "2026-01-01T12:00:00"),
        ("timestamptz", date(2026, 1, 1)),
        ("timestamptz(3)", datetime(2026, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)),
        ("date", datetime(2026, 1, 1, 2, tzinfo=UTC)),
        ("date", "2026-01-01T02:00:00Z"),
        ("time", time(1, tzinfo=EAST)),
        ("time", datetime(2026, 1, 1, 2, tzinfo=UTC)),
        ("real", 2**24 + 1),
        ("real", Decimal("0.123456789")),
        ("money", Decimal("1.005")),
        ("price", Decimal("1.005")),
        ("special_price", Decimal("1.005")),
        ("price[]", [None, Decimal("1.005")]),
        ("prices", [[Decimal(1)], [Decimal("1.005")]]),
        ("numeric(10,2)[]", "{1.005}"),
        ("double precision[]", [2**53 + 1]),
        ("timestamptz[]", [datetime(2026, 1, 1, 5)]),  # noqa: DTZ001 - that is the question
        ("interval(0)", timedelta(seconds=1.6)),
        ("varchar(3)", "abc  "),
        ("name", "x" * 64),
        ('"char"', "ab"),
        ("time", 120_000),
        ("date", 20_260_101),
        ("timestamp", "2026-01-01 00:00:00 Europe/Paris"),
        ("timestamp", "2026-01-01T00:00:00.1234567"),
        ("date", "Jan 1 2026 10:00"),
        ("bytea", 5),
        ("bytea", [1, 2]),
        ("text", True),
        ("text", [1, 2]),
        ("oid", -1),
    ],
)
def test_a_value_that_the_type_of_its_column_would_change_is_a_dead_letter(
    kind: str, value: Any, tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, f"{DOMAINS} CREATE TABLE events (n bigint, part {kind})")
    make = lambda _, n: {"n": n, "part": value if n == 1 else None}  # noqa: E731 - short
    out = Sink("out", EVENTS, postgres(database, "events", columns=make), max_wait=0.0)
    tester.create(EVENTS, partitions=1)
    tester.emit_many(EVENTS, [("a", 0), ("a", 1), ("a", 2)])
    tester.run(out)
    tester.advance(2)
    assert rows(database, "SELECT n, part FROM events ORDER BY n") == [(0, None), (2, None)]
    (letter,) = tester.dead_letters(out)
    assert letter.origin.offset == 1
    assert "the column 'part'" in letter.reason
    assert "would change" in letter.reason


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("numeric(10,2)", Decimal("1.230"), Decimal("1.23")),
        ("numeric(10,2)", 0.1, Decimal("0.10")),
        ("numeric", Decimal("1.239"), Decimal("1.239")),
        ("double precision", Decimal("0.1"), 0.1),
        ("double precision", 7, 7.0),
        ("bytea", b"\x01\xff", b"\x01\xff"),
        ("timestamp", datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 12)),  # noqa: DTZ001 - in UTC
        ("timestamptz", "2026-01-01T12:00:00+05:00", datetime(2026, 1, 1, 7, tzinfo=UTC)),
        ("timestamptz(3)", datetime(2026, 1, 1, 0, 0, 0, 2000, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 2000, tzinfo=UTC)),
        ("date", "2026-01-02", date(2026, 1, 2)),
        ("date", date(2026, 1, 2), date(2026, 1, 2)),
        ("time", "01:02:03", time(1, 2, 3)),
        ("real", 0.1, 0.1),
        ("real", 2**24, 2.0**24),
        ("real", Decimal("0.1"), 0.1),
        ("price", Decimal("1.00"), Decimal(1)),
        ("numeric(10,2)[]", [Decimal("1.5"), None], [Decimal("1.5"), None]),
        ("text[]", "{a,b}", ["a", "b"]),
        ("text[]", ["a", None], ["a", None]),
        ("document", '{"a": 1}', {"a": 1}),
        ("interval(0)", timedelta(seconds=2), timedelta(seconds=2)),
        ("interval", "90 minutes", timedelta(minutes=90)),
        ("varchar(3)", "abc", "abc"),
        ("character varying", "abc  ", "abc  "),
        ("text", 5, "5"),
        ("timestamp", "2026-01-01T00:00:00.1234560", datetime(2026, 1, 1, 0, 0, 0, 123456)),  # noqa: DTZ001 - in no zone
    ],
)  # fmt: skip
def test_a_value_that_the_type_of_its_column_keeps_is_written(
    kind: str, value: Any, read: Any, tester: Tester, database: str, postgres: type[Postgres]
) -> None:
    run(database, f"{DOMAINS} CREATE TABLE events (part {kind})")
    target = postgres(database, "events", columns=lambda _, __: {"part": value})
    tester.run(Sink("out", EVENTS, target, max_wait=0.0), partitions=1)
    tester.emit(EVENTS, "a", 1)
    tester.advance(2)
    assert rows(database, "SELECT part FROM events") == [(read,)]


class Sale(msgspec.Struct):
    seal: bytes
    total: Decimal


def of(kind: str, name: str) -> Codec[Any]:
    part = {"type": kind, "logicalType": name}
    return Avro({"type": "record", "name": "Event", "fields": [{"name": "seal", "type": part}]})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Typed(Sale), "bytea"),
        (of("bytes", "none"), "text"),
        (of("long", "local-timestamp-micros"), "timestamptz"),
        (of("long", "timestamp-micros"), "date"),
        (of("long", "none"), "time"),
        (of("boolean", "none"), "text"),
    ],
    ids=["text", "bytes", "local-time", "time", "number", "boolean"],
)
def test_a_column_whose_type_changes_each_value_of_the_codec_is_refused_at_the_start(
    value: Codec[Any], kind: str, database: str, postgres: type[Postgres]
) -> None:
    source = SinkSource("out", "events", False, String(), value)
    run(database, f"CREATE TABLE events (seal {kind}, total numeric(10,2))")
    for types in (None, {"seal": kind}):
        with pytest.raises(ConfigurationError, match=r"'seal' .* would change"):
            postgres(database, "events", types=types).open(source)


def test_types_may_be_written_by_their_short_names_without_a_warning_at_each_start(
    database: str, postgres: type[Postgres], logged: list[MutableMapping[str, Any]]
) -> None:
    types = {"a": "timestamp", "b": "decimal(10, 2)", "c": "varchar(5)", "d": "int", "e": "timestamptz(3)"}
    source = SinkSource("out", "events", False, String(), Long())
    make: Callable[[Any, Any], dict[str, Any]] = lambda _, __: {}  # noqa: E731 - short
    for _ in range(2):
        postgres(database, "events", types=types, columns=make, create=True).open(source)
    assert logged == []
