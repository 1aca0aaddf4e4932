"""Several streams that are aggregated into one table, through the engine without a broker."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtable import Json, Long, Stream, String
from streamtable.errors import GraphError
from streamtable.flow import Flow, Session, Tumbling
from streamtable_testing.tester import Tester

VIEWS = Stream("views", String(), Long())
SALES = Stream("sales", String(), Long())
JSON: Any = Json()


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def none() -> list[int]:
    return [0, 0]


def view(row: list[int], _: int) -> list[int]:
    return [row[0] + 1, row[1]]


def sale(row: list[int], price: int) -> list[int]:
    return [row[0], row[1] + price]


def cogrouped(flow: Flow) -> Any:
    views = flow.stream(VIEWS, time=lambda value: value).group_by_key()
    return views.cogroup(view).cogroup(flow.stream(SALES, time=lambda value: value).group_by_key(), sale)


def test_values_of_each_stream_are_added_to_the_same_row(tester: Tester) -> None:
    flow = Flow("f")
    table = cogrouped(flow).aggregate("both", none, value=JSON)
    tester.run(flow)
    tester.emit_many(VIEWS, [("a", 1), ("a", 2), ("b", 3)])
    tester.emit_many(SALES, [("a", 10), ("c", 20)])
    assert table.table.name == "f-both"
    assert tester.table(table.table) == {"a": [2, 10], "b": [1, 0], "c": [0, 20]}


def test_windows_and_sessions_of_several_streams_are_aggregated(tester: Tester) -> None:
    flow = Flow("f")
    both = cogrouped(flow)
    tumbling = both.window(Tumbling(ms(10), grace=ms(100))).aggregate("tumbling", none, value=JSON)
    session = both.window(Session(ms(5), grace=ms(100))).aggregate(
        "session", none, lambda one, two: [one[0] + two[0], one[1] + two[1]], value=JSON
    )
    tester.run(flow)
    tester.emit_many(VIEWS, [("a", 1), ("a", 9), ("a", 14)])
    tester.emit(SALES, "a", 5)
    assert {key.start_ms: row for key, row in tester.table(tumbling.table).items()} == {0: [2, 5], 10: [1, 0]}
    assert {(key.start_ms, key.end_ms): row for key, row in tester.table(session.table).items()} == {
        (1, 14): [3, 5]
    }


def test_streams_of_different_groups_are_refused() -> None:
    flow = Flow("f")
    views = flow.stream(VIEWS).group_by_key().cogroup(view)
    with pytest.raises(GraphError, match=r"cogroup\(\)"):
        views.cogroup(flow.stream(SALES, group="other").group_by_key(), sale)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 9)), max_size=20),
    st.data(),
)
def test_rows_are_those_of_the_definition_however_the_input_is_divided_and_restarted(
    events: Sequence[tuple[bool, str, int]], data: st.DataObject
) -> None:
    bounds = [0, *sorted(data.draw(st.sets(st.integers(0, len(events))))), len(events)]
    restarts = data.draw(st.sets(st.integers(0, len(bounds))))
    flow = Flow("f")
    table = cogrouped(flow).aggregate("both", none, value=JSON)
    with Tester(work_on_request=True) as tester:
        tester.run(flow)
        for number, (begin, end) in enumerate(pairwise(bounds)):
            for viewed, key, value in events[begin:end]:
                tester.emit(VIEWS if viewed else SALES, key, value)
            tester.work()
            if number in restarts:
                tester.crash(flow.group())
                tester.start(flow.group(), disk=number % 2 == 0)
        tester.work()
        expected: dict[str, list[int]] = {}
        for viewed, key, value in events:
            row = expected.setdefault(key, none())
            expected[key] = view(row, value) if viewed else sale(row, value)
        assert tester.table(table.table) == expected
