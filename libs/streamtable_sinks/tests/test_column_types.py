"""Values that a column of PostgreSQL keeps, or would change without an error, told by its type alone."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from streamtable_sinks.arrow.rows import _same
from streamtable_sinks.parquet.reader import _lost
from streamtable_sinks.postgres.types import Column, changed, keeping


class Status(str, Enum):  # noqa: UP042 - as programs have it whose text is another one than the value's
    LONG = "paid"


@pytest.mark.parametrize(
    "kind", ["geometry(Point)", "geometry(PointZ,4326)", '"My Mood (v2)"', "numeric", "text[]", "xml"]
)
def test_a_type_that_is_not_known_keeps_all_values(kind: str) -> None:
    keeps = keeping(kind)
    assert keeps is None or keeps("{a}")


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        ("character varying(4)", Status.LONG, True),
        ("character varying(3)", Status.LONG, False),
        ("character varying(32)", UUID(int=1), True),
        ("character(5)", "ab      ", True),
        ("character varying(3)", "ab      ", False),
        ("text", memoryview(b"a"), False),
        ("character varying(10)[]", "{a,b}", True),
        ("bytea[]", "{a}", True),
        ("date[]", "{2026-01-01 10:00}", False),
        ("timestamp with time zone", "2026-01-01 10:00:00 UTC", True),
        ("timestamp without time zone", "2026-01-05 9:00", True),
        ("timestamp without time zone", "2026-01-01 00:00:00 Europe/Paris", False),
        ("date", "2026-1-5", True),
        ("date", "Infinity", True),
        ("date", "Jan 1 2026 10:00", False),
        ("money", "$1.005", False),
        ("money", "$1.50", True),
        ("money", Decimal("1.50"), True),
    ],
)
def test_a_column_keeps_what_postgres_reads_without_a_loss(kind: str, value: Any, kept: bool) -> None:  # noqa: FBT001 - a result
    keeps = keeping(kind)
    assert keeps is not None
    assert keeps(value) is kept


def test_a_text_source_may_hold_literals_of_arrays() -> None:
    there = {"v": Column("v", "date[]")}
    assert list(changed([Column("v", "text")], there)) == []
    assert len(list(changed([Column("v", "timestamp with time zone")], there))) == 1


def test_a_time_in_an_hour_that_is_repeated_is_the_same_in_utc() -> None:
    given = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert _same(given, given.astimezone(UTC))
    assert not _same(given.replace(fold=1), given.astimezone(UTC))


def test_a_decimal_that_would_be_a_float_is_lost_also_beside_a_new_decimal() -> None:
    decimal = pa.decimal128(20, 2)
    before, after = pa.struct([("a", decimal)]), pa.struct([("a", pa.float64()), ("c", decimal)])
    assert _lost(before, after)
    assert not _lost(before, pa.struct([("a", decimal), ("c", pa.float64())]))
    assert _lost(pa.list_(pa.string()), pa.list_(pa.binary()))
    assert not _lost(pa.string(), pa.large_string())
