from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import IntEnum, StrEnum
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from contracts.records import USER_CLICK, UserClick
from microbatch import Batch, MicroBatch, Send
from microbatch.columns import columns as columns_from
from streamtable import Avro, Json, Stream, String
from streamtable_testing import Tester

CLICKS = Stream("clicks", String(), Avro(USER_CLICK))
MIXED = Stream("mixed", String(), Json())


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@pytest.fixture
def seen(tester: Tester) -> list[Any]:
    """The columns of each batch: of clicks, and of values without a common type."""
    found: list[Any] = []

    def look(batch: Batch, send: Send) -> None:
        found.append((batch.columns(CLICKS), batch.columns(MIXED)))

    tester.run(MicroBatch("g", inputs=[CLICKS, MIXED], process=look))
    return found


def test_records_of_avro_are_structs_beside_their_keys_offsets_and_times(
    tester: Tester, seen: list[Any]
) -> None:
    clicks: list[tuple[str, UserClick | None]] = [
        ("a", {"id": str(n), "user_id": "a", "url": "u", "at": n}) for n in range(3)
    ]
    tester.emit_many(CLICKS, clicks)
    ((columns, _),) = seen
    assert columns.schema.names == ["key", "value", "offset", "timestamp_ms"]
    assert columns.column("key").to_pylist() == ["a", "a", "a"]
    assert columns.column("value").field("at").to_pylist() == [0, 1, 2]
    assert columns.column("offset").to_pylist() == [0, 1, 2]
    assert columns.schema.field("timestamp_ms").type == pa.timestamp("ms", "UTC")


def test_values_without_a_common_type_are_left_out(tester: Tester, seen: list[Any]) -> None:
    events: list[tuple[str, Any]] = [("a", 1), ("a", "text")]
    tester.emit_many(MIXED, events)
    ((none, columns),) = seen
    assert columns.schema.names == ["key", "offset", "timestamp_ms"]
    assert (columns.num_rows, none.num_rows) == (2, 0)


@pytest.mark.parametrize("value", [2**63, [1, 2**63], {"total": 2**63}])
def test_whole_numbers_from_2_to_the_power_of_63_on_have_no_column(
    tester: Tester, seen: list[Any], value: Any
) -> None:
    tester.emit(MIXED, "a", value)
    ((_, columns),) = seen
    assert columns.schema.names == ["key", "offset", "timestamp_ms"]


class Seen(NamedTuple):
    day: date
    at: datetime


DAY, NOON = date(2020, 1, 1), datetime(2020, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "values",
    [
        [DAY, NOON],
        ["a", b"a"],
        [{"at": DAY}, {"at": NOON}],
        [{"at": DAY}, None, {"at": None}, {"at": NOON}],
        [[DAY], [], [NOON]],
        [{"at": [{"day": DAY}]}, {"at": [{"day": NOON}]}],
        [NOON, NOON.replace(tzinfo=None)],
        [NOON.replace(tzinfo=None), NOON.astimezone(timezone(timedelta(hours=2)))],
        [[1, 2.5], [True]],
        [DAY, 1],
        [timedelta(1), 1],
        [time(1, tzinfo=UTC)],
        ["\ud800", "a"],
        [1, "a"],
        [2**63, 1],
        [Seen(DAY, NOON)],
        [{b"x", "y"}],
        [{"seen": Seen(DAY, NOON)}],
    ],
)
def test_keys_and_values_that_arrow_would_change_or_refuse_have_no_column(values: list[Any]) -> None:
    assert columns_of(values).schema.names == ["key", "offset", "timestamp_ms"]
    assert columns_of(["v" for _ in values], keys=values).schema.names == ["value", "offset", "timestamp_ms"]


@pytest.mark.parametrize(
    "values",
    [
        [DAY, None],
        [NOON],
        [NOON, NOON.astimezone(timezone(timedelta(hours=2)))],
        ["a"],
        [b"a"],
        [1, 2.5, None],
        [True, None],
        [{"at": DAY}, {"at": None}],
        [Colour.RED, "blue"],
        [Size.SMALL, 2, 2.5],
        [{"colour": Colour.RED}, {"colour": "blue"}],
        [[], [1]],
        [[1, 2], [3]],
        [None],
        [{}],
        [],
    ],
)
def test_keys_and_values_of_one_type_have_a_column(values: list[Any]) -> None:
    assert columns_of(values, keys=values).column("key").to_pylist() == values
    assert columns_of(values).column("value").to_pylist() == values


def columns_of(values: list[Any], *, keys: list[Any] | None = None) -> Any:
    records: list[Any] = [
        SimpleNamespace(key=key, value=each, offset=at, timestamp_ms=at)
        for at, (key, each) in enumerate(zip(keys or ["k"] * len(values), values, strict=True))
    ]
    return columns_from(records)
