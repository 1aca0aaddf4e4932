"""Rows and records that are kept are the same after a restart: a value that its codec would read as another one is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from streamtable import Avro, Context, Group, Input, Json, Persist, State, Stream, String, Typed
from streamtable.errors import HandlerFailed
from streamtable.flow import Flow, KeyedTable, Session, Sliding, Tumbling
from streamtable_testing import Tester

EVENTS: Stream[str, Any] = Stream("events", String(), Json())
OTHERS: Stream[str, Any] = Stream("others", String(), Json())
OUT: Stream[str, Any] = Stream("out", String(), Json())
LONGS = Avro({"type": "array", "items": "long"})
PAIRS = Avro({"type": "array", "items": {"type": "array", "items": "long"}})
MINUTE = timedelta(minutes=1)
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def row_of(kind: Any, **more: Any) -> Avro[Any]:
    return Avro({"type": "record", "name": "Row", "fields": [{"name": "x", "type": kind, **more}]})


def a_time(name: str) -> Any:
    return {"type": "int" if name.startswith("time-") else "long", "logicalType": name}


class Colour(Enum):
    RED = "red"


class Size(StrEnum):
    SMALL = "small"


class Place(IntEnum):
    FIRST = 1


def pair(event: dict[str, int]) -> Any:
    return event["a"], event["b"]


def twice(number: int) -> Any:
    return number, number


def restart(tester: Tester, flow: Flow) -> None:
    for group in flow.groups:
        tester.stop(group)
    for group in flow.groups:
        tester.start(group)


@pytest.mark.parametrize("codec", [Json(), PAIRS], ids=repr)
def test_a_row_with_a_tuple_is_refused_as_it_would_be_read_as_a_list(tester: Tester, codec: Any) -> None:
    flow = Flow("f")
    pairs = flow.stream(EVENTS).group_by_key()
    pairs.aggregate("t", list, lambda row, event: [*row, pair(event)], value=codec)
    tester.run(flow)
    with pytest.raises(HandlerFailed, match="tuple, which would be read as a list"):
        tester.emit(EVENTS, "k", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ((1, 2), r"list\(\.\.\.\)"),
        (UUID(int=1), r"str\(\.\.\.\)"),
        *((member, "write .value") for member in (Colour.RED, Size.SMALL, Place.FIRST)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("own", [True, False], ids=["own table", "state"])
def test_a_row_of_a_handler_is_refused_too(tester: Tester, value: Any, advice: str, *, own: bool) -> None:
    state: State[str, Any] = State("rows", key=String(), value=Json())

    def put(ctx: Context[str, Any], _: Any) -> None:
        if own:
            ctx.set({"of": [1, {"it": value}]})
        else:
            ctx.table(state).put("k", {"of": [1, {"it": value}]})

    tester.run(Group("g", Input(EVENTS, put), Persist(Json()) if own else state))
    with pytest.raises(HandlerFailed, match=advice):
        tester.emit(EVENTS, "k", 1)


@pytest.mark.parametrize(
    ("codec", "row", "reason"),
    [
        (
            row_of(a_time("timestamp-micros")),
            {"x": NOON.astimezone(BERLIN)},
            r"Row\.x: .* write \.astimezone\(UTC\)",
        ),
        (
            row_of(a_time("timestamp-millis")),
            {"x": NOON.replace(microsecond=999)},
            "read as 2026-07-01 12:00:00.00:00: ",
        ),
        (row_of(a_time("local-timestamp-millis")), {"x": datetime(2026, 7, 1, 12, 0, 0, 1)}, "read as 2026"),  # noqa: DTZ001
        (
            row_of(a_time("time-millis")),
            {"x": NOON.replace(microsecond=1).time()},
            "let the schema have micros",
        ),
        (
            row_of(["null", "float"]),
            {"x": 0.1},
            "0.1, which would be read as 0.1000000014.*: write that, or .* double",
        ),
        (row_of("long", default=3), {}, r"Row\.x: missing, and would be read as its default, 3: write it"),
    ],
    ids=repr,
)
def test_an_avro_row_is_refused_that_would_be_read_as_another_one(
    tester: Tester, codec: Any, row: Any, reason: str
) -> None:
    group: Group[str, Any] = Group("g", Input(EVENTS, lambda ctx, _: ctx.set(row)), Persist(codec))
    tester.run(group)
    with pytest.raises(HandlerFailed, match=reason):
        tester.emit(EVENTS, "k", 1)


@pytest.mark.parametrize(
    ("codec", "row"),
    [
        (row_of(a_time("timestamp-micros")), {"x": NOON.astimezone(ZoneInfo("UTC"))}),
        (row_of(a_time("timestamp-millis")), {"x": NOON.astimezone(timezone(timedelta(0)))}),
        (row_of(a_time("local-timestamp-millis")), {"x": NOON.replace(tzinfo=None)}),
        (row_of("float"), {"x": 0.5}),
        (row_of("double"), {"x": 5}),
        (row_of("long", default=3), {"x": 3}),
    ],
    ids=repr,
)
def test_an_avro_row_is_written_that_equals_the_one_that_is_read(
    tester: Tester, codec: Any, row: Any
) -> None:
    group: Group[str, Any] = Group("g", Input(EVENTS, lambda ctx, _: ctx.set(row)), Persist(codec))
    tester.run(group)
    tester.emit(EVENTS, "k", 1)
    tester.stop(group)
    tester.start(group)
    assert tester.table(group) == {"k": row}


class Event(msgspec.Struct):
    at: datetime
    tags: list[str] = []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            Event(NOON.astimezone(BERLIN)),
            r"Event: 2026-07-01 14:00:00.02:00 of Europe/Berlin .* write .astimezone\(UTC\)",
        ),
        (Event(NOON, ("a",)), r"Event: \$\.tags: tuple would be read as list: write list"),  # type: ignore[arg-type] # a wrong program
    ],
    ids=repr,
)
def test_a_typed_row_is_refused_that_would_be_read_as_another_one(
    tester: Tester, row: Event, reason: str
) -> None:
    group: Group[str, Any] = Group("g", Input(EVENTS, lambda ctx, _: ctx.set(row)), Persist(Typed(Event)))
    tester.run(group)
    with pytest.raises(HandlerFailed, match=reason):
        tester.emit(EVENTS, "k", 1)


def test_rows_of_a_schema_without_such_values_are_written_by_the_codec_itself() -> None:
    codec = row_of(["null", "long", "double", "string"])
    assert Persist(codec).value is codec


def test_an_enum_that_equals_its_value_is_written_to_a_stream_as_its_value(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(EVENTS).map_values(lambda _: [Size.SMALL, Place.FIRST]).to(OUT)
    tester.run(flow)
    tester.emit(EVENTS, "k", 1)
    assert [record.value for record in tester.records(OUT)] == [["small", 1]]


def test_a_record_that_waits_for_a_join_is_refused_if_it_would_be_read_as_another_one(tester: Tester) -> None:
    flow = Flow("f")
    left = flow.stream(EVENTS).map_values(twice, value=Json())
    left.join("j", flow.stream(OTHERS), lambda x, y: [x, y], within=MINUTE, grace=MINUTE).to(OUT)
    tester.run(flow)
    with pytest.raises(HandlerFailed, match="tuple, which would be read as a list"):
        tester.emit(EVENTS, "k", 1)


def test_a_tuple_is_written_to_a_stream_as_a_list(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(EVENTS).map_values(pair).to(OUT)
    tester.run(flow)
    tester.emit(EVENTS, "k", {"a": 1, "b": 2})
    assert [record.value for record in tester.records(OUT)] == [[1, 2]]


KEPT: dict[str, Callable[[Any], KeyedTable[Any, Any]]] = {
    "max": lambda grouped: grouped.max("t", pair, value=Json()),
    "max of Avro": lambda grouped: grouped.max("t", pair, value=LONGS),
    "min": lambda grouped: grouped.min("t", lambda event: (-event["a"], (event["b"],)), value=Json()),
    "collect": lambda grouped: grouped.collect("t", pair, value=Json()),
    "collect of Avro": lambda grouped: grouped.collect("t", pair, value=PAIRS),
}
ROWS = {
    "max": [3, 4],
    "max of Avro": [3, 4],
    "min": [-3, [4]],
    "collect": [[1, 2], [3, 4]],
    "collect of Avro": [[1, 2], [3, 4]],
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kept", KEPT)
def test_tuples_are_compared_and_collected_as_the_codec_reads_them(
    tester: Tester, kept: str, *, restarts: bool
) -> None:
    flow = Flow("f")
    table = KEPT[kept](flow.stream(EVENTS).group_by_key())
    tester.run(flow)
    tester.emit(EVENTS, "k", {"a": 1, "b": 2})
    if restarts:
        restart(tester, flow)
    tester.emit(EVENTS, "k", {"a": 3, "b": 4})
    assert tester.table(table.table) == {"k": ROWS[kept]}


@pytest.mark.parametrize(
    "window", [Tumbling(MINUTE, grace=MINUTE), Sliding(MINUTE, grace=MINUTE), Session(MINUTE, grace=MINUTE)]
)
@pytest.mark.parametrize("kept", KEPT)
def test_tuples_are_compared_and_collected_in_windows_as_the_codec_reads_them(
    tester: Tester, kept: str, window: Any
) -> None:
    flow = Flow("f")
    table = KEPT[kept](flow.stream(EVENTS, time=lambda event: event["at"]).group_by_key().window(window))
    tester.run(flow)
    tester.emit(EVENTS, "k", {"a": 1, "b": 2, "at": 1_000})
    restart(tester, flow)
    tester.emit(EVENTS, "k", {"a": 3, "b": 4, "at": 2_000})
    assert ROWS[kept] in tester.table(table.table).values()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kept", KEPT)
def test_a_row_of_a_grouped_table_is_found_again_by_its_tuple(
    tester: Tester, kept: str, *, restarts: bool
) -> None:
    flow = Flow("f")
    rows = flow.stream(EVENTS).to_table("rows")
    table = KEPT[kept](rows.group_by("g", lambda _: "g", key=String()))
    tester.run(flow)
    tester.emit(EVENTS, "k", {"a": 1, "b": 2})
    tester.emit(EVENTS, "l", {"a": 7, "b": 8})
    if restarts:
        restart(tester, flow)
    tester.emit(EVENTS, "l", {"a": 3, "b": 4})
    assert tester.table(table.table) == {"g": ROWS[kept]}


@pytest.mark.parametrize("restarts", [False, True])
def test_times_are_compared_as_the_codec_reads_them(tester: Tester, *, restarts: bool) -> None:
    flow = Flow("f")
    grouped = flow.stream(EVENTS).group_by_key()
    table = grouped.max(
        "t",
        lambda us: NOON.astimezone(BERLIN) + timedelta(microseconds=us),
        value=Avro(a_time("timestamp-millis")),
    )
    tester.run(flow)
    tester.emit(EVENTS, "k", 1_999)
    if restarts:
        restart(tester, flow)
    tester.emit(EVENTS, "k", 1_001)
    assert repr(tester.table(table.table)["k"]) == repr(NOON + timedelta(milliseconds=1))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_collected_float_of_32_bits_is_found_again(tester: Tester, *, restarts: bool) -> None:
    flow = Flow("f")
    rows = flow.stream(EVENTS).to_table("rows").group_by("g", lambda _: "g", key=String())
    table = rows.collect("t", lambda number: number, value=Avro({"type": "array", "items": "float"}))
    tester.run(flow)
    tester.emit(EVENTS, "k", 0.1)
    if restarts:
        restart(tester, flow)
    tester.emit(EVENTS, "k", 0.5)
    assert tester.table(table.table) == {"g": [0.5]}
