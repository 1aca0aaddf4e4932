"""Joins of windowed tables: a row for each key and window, such as the errors of a minute in proportion to its requests."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import Json, Long, Stream, String
from streamtable.errors import GraphError
from streamtable.flow import Flow, Hopping, Session, Sliding, Tumbling, WindowedTable
from streamtable.flow.windows.windows import TimeWindow, Window
from streamtable_testing.tester import Tester

SECOND = timedelta(seconds=1)
MINUTE = 60 * SECOND
REQUESTS = Stream("requests", String(), Long())  # a value is its own event time, and is odd for an error
PINGS = Stream("pings", String(), Long())
OUT: Stream[Any, Any] = Stream("out", String(), Json())
TUMBLING = Tumbling(MINUTE, grace=10 * SECOND)
HOPPING = Hopping(MINUTE, 20 * SECOND, grace=10 * SECOND)
OPERATORS = ["join", "left_join", "outer_join"]
JSON: Any = Json()


def pair(left: Any, right: Any) -> Any:
    return [left, right]


def counts(
    flow: Flow, window: TimeWindow = TUMBLING
) -> tuple[WindowedTable[str, int], WindowedTable[str, int]]:
    """Requests and errors by key and window."""
    requests = flow.stream(REQUESTS, time=lambda at: at)
    errors = requests.filter(lambda at: at % 2)
    return tuple(  # type: ignore[return-value] # of two
        stream.group_by_key().window(window).count(name)
        for name, stream in (("requests-a-minute", requests), ("errors-a-minute", errors))
    )


def joined(flow: Flow, operator: str, window: TimeWindow = TUMBLING) -> WindowedTable[str, Any]:
    requests, errors = counts(flow, window)
    made: WindowedTable[str, Any] = getattr(errors, operator)("both", requests, pair, value=JSON)
    return made


def final(tester: Tester) -> list[tuple[str, Any]]:
    return [(record.key or "", record.value) for record in tester.records(OUT)]


def write_final(table: WindowedTable[str, Any]) -> None:
    table.final().map(lambda key, row: (f"{key.key}@{key.start_ms}", row)).to(OUT)


def test_the_ratio_of_a_minute_is_written_once_when_the_minute_is_over(tester: Tester) -> None:
    flow = Flow("f")
    requests, errors = counts(flow)
    ratio = errors.join("ratio", requests, lambda bad, every: bad / every)
    write_final(ratio)
    tester.run(flow)
    for at in (1_000, 2_001, 3_000, 61_000, 59_001, 4_000, 62_001):
        tester.emit(REQUESTS, "a", at)
    assert final(tester) == []
    tester.emit(REQUESTS, "a", 130_000)
    assert final(tester) == [("a@0", 2 / 5), ("a@60000", 1 / 2)]
    assert [record.timestamp_ms for record in tester.records(OUT)] == [59_999, 119_999]
    both = next(state for state in flow.group().states if state.name == "ratio")
    assert [key.start_ms for key in tester.table(flow.group(), both)] == [120_000]  # the minute that is open


def test_each_change_of_a_side_is_a_change_of_the_joined_row(tester: Tester) -> None:
    flow = Flow("f")
    joined(flow, "left_join").changes().map(lambda key, row: (key.key, row)).to(OUT)
    tester.run(flow)
    for at in (1_001, 2_000, 3_001):
        tester.emit(REQUESTS, "a", at)
    assert final(tester)[-1] == ("a", [2, 3])
    assert [row for _, row in final(tester)][:2] == [[1, 1], [1, 2]]


def test_a_joined_row_comes_out_at_most_once_an_interval(tester: Tester) -> None:
    flow = Flow("f")
    joined(flow, "outer_join").every("live", 30 * SECOND).map(lambda key, row: (key.key, row)).to(OUT)
    tester.run(flow)
    for at in (1_001, 2_000, 3_001, 31_000, 95_000):
        tester.emit(REQUESTS, "a", at)
    assert final(tester) == [("a", [2, 3]), ("a", [2, 4])]


def by_definition(events: list[tuple[str, int]], operator: str, window: TimeWindow) -> dict[str, Any]:
    sides: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for key, at in events:
        for start in window.assign([at]).starts:
            sides[1][f"{key}@{start}"] += 1
            sides[0][f"{key}@{start}"] += at % 2
    left, right = ({key: count for key, count in side.items() if count} for side in sides)
    keys = {
        "join": left.keys() & right.keys(),
        "left_join": left.keys(),
        "outer_join": left.keys() | right.keys(),
    }
    return {key: [left.get(key), right.get(key)] for key in keys[operator]}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 20_000),
        st.sampled_from(["", "", "same batch", "commit", "crash", "lost disk"]),
    ),
    max_size=30,
)


@settings(max_examples=30, deadline=None)
@given(EVENTS, st.sampled_from(OPERATORS), st.sampled_from([TUMBLING, HOPPING]))
def test_the_final_rows_are_those_of_the_definition_each_of_them_once(
    drawn: list[tuple[str, int, str]], operator: str, window: TimeWindow
) -> None:
    flow, now = Flow("f"), 0
    write_final(joined(flow, operator, window))
    events: list[tuple[str, int]] = []
    with Tester(partitions=2) as tester:
        tester.run(flow)
        waiting: list[tuple[str, int]] = []
        for key, step, then in drawn:
            now += step
            waiting.append((key, max(0, now - step % 7_000)))  # out of order, but not late
            if then == "same batch":
                continue
            tester.emit_many(REQUESTS, waiting)
            events, waiting = events + waiting, []
            if then == "commit":
                tester.commit()
            elif then in {"crash", "lost disk"}:
                tester.crash(flow.group())
                tester.start(flow.group(), disk=then == "crash")
        tester.emit_many(REQUESTS, [*waiting, *((f"z{number}", 10_000_000) for number in range(8))])
        found = [each for each in final(tester) if not each[0].startswith("z")]
    assert len(found) == len(dict(found))
    assert dict(found) == by_definition(events + waiting, operator, window)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Tumbling(2 * MINUTE, grace=10 * SECOND), "tumbling windows of 120000 ms"),
        (Tumbling(MINUTE, grace=SECOND), "grace of 1000 ms"),
        (HOPPING, "hopping windows"),
        (Session(MINUTE, grace=10 * SECOND), "sessions"),
        (Sliding(MINUTE, grace=10 * SECOND), "sliding"),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_windows_that_differ_are_refused_with_both_names(other: Window, reason: str, *, swap: bool) -> None:
    grouped = Flow("f").stream(REQUESTS).group_by_key()
    left = grouped.window(TUMBLING).count("left")
    window: Any = other
    right = grouped.window(window).count("right")
    sides = (right, left) if swap else (left, right)
    with pytest.raises(GraphError, match="tumbling windows of 60000 ms") as raised:
        sides[0].join("both", sides[1], pair)
    assert reason in str(raised.value)


@pytest.mark.parametrize("window", [Session(MINUTE, grace=SECOND), Sliding(MINUTE, grace=SECOND)])
def test_windows_whose_bounds_come_from_the_records_of_a_side_are_refused(window: Any) -> None:
    grouped = Flow("f").stream(REQUESTS).group_by_key()
    left, right = (grouped.window(window).count(name) for name in ("left", "right"))
    with pytest.raises(GraphError, match="equal tumbling or hopping windows"):
        left.join("both", right, pair)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (
            lambda flow, left: left.join("both", flow.stream(PINGS).to_table("t"), pair),
            "takes a WindowedTable",
        ),
        (lambda flow, left: flow.stream(PINGS).to_table("t").join("both", left, pair), "rows of windows"),
        (lambda flow, left: flow.stream(PINGS).join_table(left, pair), "equal keys have different bytes"),
        (
            lambda flow, left: flow.stream(PINGS).join_as_of(
                "both", left.final().to_table("t"), pair, history=SECOND, grace=SECOND
            ),
            "rows of windows",
        ),
        (
            lambda flow, left: flow.stream(PINGS).join(
                "both", left.final(), pair, within=SECOND, grace=SECOND
            ),
            "equal keys have different bytes",
        ),
        (lambda _, left: left.map_values(str, value=String()).join("both", left, pair), "before filter"),
        (lambda _, left: left.join("both", left, pair).table, "not kept"),
        (lambda _, left: left.join("both", left, pair).every("e", SECOND), "codec by value="),
    ],
)
def test_what_cannot_be_joined_by_windows_is_refused(build: Callable[[Flow, Any], Any], reason: str) -> None:
    flow = Flow("f")
    left, _ = counts(flow)
    with pytest.raises(GraphError, match=reason):
        build(flow, left)
