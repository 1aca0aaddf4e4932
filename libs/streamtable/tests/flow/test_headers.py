"""The headers of records travel through a flow, up to a step that makes one record of several."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamtable import Context, EventTime, Group, Input, Long, Output, Stream, String
from streamtable.base.deadletter import PREFIX
from streamtable.base.watermarks import LATE_BEFORE, own_headers
from streamtable.flow import Flow, Hopping, Session, Sliding, Tumbling
from streamtable_testing import Tester

IN: Stream[str, int] = Stream("in", String(), Long())
OTHER: Stream[str, int] = Stream("other", String(), Long())
OUT: Stream[Any, Any] = Stream("out", String(), Long())
OUT_2: Stream[Any, Any] = Stream("out-2", String(), Long())
MINE = (("ce_type", b"order.placed"), ("ce_type", None), ("id", b"42"))
NOW = timedelta(0)
TEN = timedelta(milliseconds=10)
Steps = Callable[[Any], Any]


def process(ctx: Context[Any, Any], value: int) -> list[int]:
    assert tuple(ctx.headers) == MINE  # a step that needs them reads them here
    return [value, value + 1]


ONE_TO_ONE: dict[str, Steps] = {
    "to": lambda s: s,
    "filter": lambda s: s.filter(bool),
    "map_values": lambda s: s.map_values(lambda v: v + 1),
    "flat_map_values": lambda s: s.flat_map_values(lambda v: [v, v]),
    "map": lambda s: s.map(lambda k, v: (k * 2, v)),
    "flat_map": lambda s: s.flat_map(lambda k, v: [(k, v), (k * 2, v)]),
    "peek": lambda s: s.peek(lambda k, v: None),
    "split": lambda s: s.split(bool)[0],
    "merge": lambda s: s.merge(s.map_values(lambda v: -v)),
    "key_by": lambda s: s.key_by("by", str, key=String(), value=Long()),
    "repartition": lambda s: s.map(lambda k, v: (k, v)).repartition("again", key=String(), value=Long()),
    "process": lambda s: s.process(process),
    "join_table": lambda s: s.join_table(s.group_by_key().count("n"), lambda v, n: v),
}


@pytest.mark.parametrize("step", ONE_TO_ONE)
def test_what_is_made_of_a_record_has_its_headers(tester: Tester, step: str) -> None:
    flow = Flow("f")
    ONE_TO_ONE[step](flow.stream(IN)).to(OUT)
    tester.run(flow)
    tester.emit(IN, "k", 1, headers=MINE)
    found = [record.headers for record in tester.records(OUT)]
    assert found
    assert set(found) == {MINE}


def test_each_record_of_a_batch_has_its_own_headers(tester: Tester) -> None:
    flow = Flow("f")
    kept, left = flow.stream(IN).flat_map_values(range).split(lambda v: v % 2 == 0)
    kept.merge(left.map_values(lambda v: v * 10)).key_by("by", str, key=String(), value=Long()).to(OUT)
    tester.create(IN)
    for number in (1, 2, 3):
        tester.emit(IN, "k", number, headers=((str(number), b""),) if number != 2 else ())
    tester.run(flow)
    assert sorted((record.value, record.headers) for record in tester.records(OUT)) == [
        (0, ()), (0, (("1", b""),)), (0, (("3", b""),)), (2, (("3", b""),)), (10, ()), (10, (("3", b""),)),
    ]  # fmt: skip


MADE_OF_SEVERAL: dict[str, Steps] = {
    "count": lambda s: s.group_by_key().count("n").to_stream(),
    "to_table": lambda s: s.to_table("t").to_stream(),
    "cogroup": lambda s: s.group_by_key().cogroup(lambda a, v: a + v).aggregate("c", int, value=Long()).to_stream(),
    "table.group_by": lambda s: s.to_table("t").group_by("g", str, key=String()).count("n").to_stream(),
    "left_join": lambda s: s.left_join(
        "j", s.map_values(lambda v: v, value=Long()), lambda one, other: one, within=TEN, grace=NOW
    ),
    **{
        type(window).__name__: lambda s, window=window: s.group_by_key()  # type: ignore[misc] # of what `Steps` says

        .window(window).count("n").changes().map(lambda key, n: (key.key, n))
        for window in (Tumbling(TEN, grace=NOW), Hopping(TEN, TEN, grace=NOW), Sliding(TEN, grace=NOW), Session(TEN, grace=NOW))
    },
}  # fmt: skip


@pytest.mark.parametrize("step", MADE_OF_SEVERAL)
def test_what_is_made_of_several_records_has_no_headers(tester: Tester, step: str) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    MADE_OF_SEVERAL[step](flow.stream(IN, time=lambda v: v)).to(OUT)
    tester.run(flow)
    tester.emit(IN, "k", 1, headers=MINE)
    tester.emit(IN, "k", 2, headers=MINE)
    found = [record.headers for record in tester.records(OUT)]
    assert found
    assert set(found) == {()}


def test_a_late_record_has_its_headers(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    grouped = flow.stream(IN, time=lambda v: v).group_by_key()
    grouped.window(Tumbling(TEN, grace=NOW), late=OUT).sum("n", lambda v: v)
    tester.run(flow)
    tester.emit(IN, "k", 100)
    tester.emit(IN, "k", 1, headers=MINE)
    assert [(record.value, record.headers) for record in tester.records(OUT)] == [(1, MINE)]


def test_headers_go_through_a_topic_with_watermarks_beside_its_stamps(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    by = flow.stream(IN, time=lambda v: v).key_by("by", lambda v: "k", key=String())
    by.to(OUT)
    by.group_by_key().window(Tumbling(TEN, grace=NOW), late=OUT_2).count("n")
    tester.run(flow)
    tester.emit(IN, "a", 100, headers=MINE)
    tester.emit(IN, "a", 5, headers=((LATE_BEFORE, bytes(8)), *MINE))  # a stamp that claims to be in time
    assert [record.headers for record in tester.records(OUT)] == [MINE, MINE]
    assert [(record.value, record.headers) for record in tester.records(OUT_2)] == [(5, MINE)]
    inner: Stream[str, int] = Stream("f-by", String(), Long())
    stamped = [record.headers for record in tester.records(inner) if record.key is not None]
    assert [[name for name, _ in each] for each in stamped] == 2 * [["ce_type", "ce_type", "id", LATE_BEFORE]]


def test_headers_of_the_engine_do_not_pass_a_flow(tester: Tester) -> None:
    flow = Flow("f")
    flow.stream(IN).to(OUT)
    tester.run(flow)
    tester.emit(IN, "k", 1, headers=((PREFIX + "origin-topic", b"in"), *MINE, (LATE_BEFORE, bytes(8))))
    assert [record.headers for record in tester.records(OUT)] == [MINE]


@pytest.mark.parametrize(
    "name", ["__value_schema_id", "__key_schema_id", "apicurio.value.globalId", "apicurio.key.contentId"]
)
def test_headers_that_name_the_schema_of_a_record_do_not_pass_a_flow(tester: Tester, name: str) -> None:
    flow = Flow("f")
    flow.stream(IN).map(lambda k, v: (k * 2, v + 1)).to(OUT)
    timed = flow.stream(OTHER, time=lambda v: v).group_by_key()
    timed.window(Tumbling(TEN, grace=NOW), late=OUT_2).count("n")
    tester.run(flow)
    tester.emit(IN, "k", 1, headers=((name, b"\x01" + bytes(16)), *MINE))
    tester.emit(OTHER, "k", 100)
    tester.emit(OTHER, "k", 1, headers=((name, b"\x01" + bytes(16)), *MINE))
    assert [record.headers for record in (*tester.records(OUT), *tester.records(OUT_2))] == [MINE, MINE]


def test_no_headers_are_read_where_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tester: Tester
) -> None:
    flow = Flow("f")
    flow.stream(IN).group_by_key().count("n")
    tester.run(flow)

    def refuse(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("streamtable.handlers.context.own_headers", refuse)
    tester.emit(IN, "k", 1, headers=MINE)


def test_headers_of_records_without_any_are_none() -> None:
    assert own_headers([None, (), None]) is None
    assert own_headers([[(LATE_BEFORE, bytes(8))], [(LATE_BEFORE, bytes(8))]]) is None
    assert own_headers([None, [("a", b"1"), (LATE_BEFORE, bytes(8))]]) == [[], [("a", b"1")]]


def test_a_batch_handler_writes_headers_with_many_records(tester: Tester) -> None:
    def copy(batch: Any) -> None:
        batch.emit_many(OUT, batch.keys, batch.events, headers=batch.own_headers)

    tester.run(Group("g", Input(IN, batch=copy), Output(OUT)))
    tester.emit(IN, "k", 1, headers=MINE)
    tester.emit(IN, "k", 2)
    assert [record.headers for record in tester.records(OUT)] == [MINE, ()]
