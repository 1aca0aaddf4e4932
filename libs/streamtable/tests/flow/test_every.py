"""Changes of tables without windows, at most one for each key and interval of event time."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import Context, EventTime, Json, Long, Stream, String, Table
from streamtable.errors import GraphError
from streamtable.flow import Flow, Tumbling
from streamtable_testing.tester import Tester

TIMES = Stream("times", String(), Long())  # a value is its own event time
OTHERS = Stream("others", String(), Long())
OUT: Stream[str, Any] = Stream("out", String(), Json())
TEN = timedelta(milliseconds=10)
NEVER_IDLE = EventTime(idle_after=timedelta(hours=1))


def written(tester: Tester) -> list[tuple[Any, Any, int]]:
    return [(record.key, record.value, record.timestamp_ms) for record in tester.records(OUT)]


def test_a_row_that_changes_often_comes_out_once_an_interval_with_its_last_value(tester: Tester) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    flow.stream(TIMES, time=lambda at: at).group_by_key().count("n").every("live", TEN).to(OUT)
    tester.run(flow)
    for key, at in [("a", 1), ("a", 3), ("b", 4), ("a", 9), ("b", 12), ("b", 25), ("b", 41)]:
        tester.emit(TIMES, key, at)
    assert written(tester) == [("a", 3, 9), ("b", 1, 9), ("b", 2, 19), ("b", 3, 29)]


def test_a_row_of_a_derived_table_that_is_gone_comes_out_as_a_deletion(tester: Tester) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    latest = flow.stream(TIMES, time=lambda at: at).to_table("latest")
    latest.filter(lambda at: at % 2).every("live", TEN).to(OUT)
    tester.run(flow)
    for at in (1, 11, 12, 31):
        tester.emit(TIMES, "a", at)
    assert written(tester) == [("a", 1, 9), ("a", None, 19)]


@pytest.mark.parametrize("windows", [False, True])
def test_the_last_value_wins_where_the_inputs_of_a_table_are_far_apart(
    tester: Tester, *, windows: bool
) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    streams = [flow.stream(stream, time=lambda at: at) for stream in (TIMES, OTHERS)]
    grouped = streams[0].merge(streams[1]).group_by_key()
    table: Any = grouped.count("n")
    if windows:
        table = grouped.window(Tumbling(100 * TEN, grace=TEN)).count("w")
    table.every("live", TEN).map(lambda key, row: ("a", row)).to(OUT)
    tester.run(flow)
    for stream, at in [(TIMES, 25), (OTHERS, 5), (OTHERS, 6)]:
        tester.emit(stream, "a", at)
    for stream in (TIMES, OTHERS):
        tester.emit(stream, "z", 99)
    values = [value for _, value, _ in written(tester)]
    assert values == sorted(values)
    assert values[-1] == 3


def test_an_interval_needs_an_input_with_event_time() -> None:
    flow = Flow("f")
    flow.table(Table("people-table", String(), Long(), group="people")).every("live", TEN).to(OUT)
    with pytest.raises(GraphError, match="no Input that event time could follow"):
        assert flow.groups


@pytest.mark.parametrize("interval", [timedelta(0), 5, timedelta(microseconds=3)])
def test_an_interval_that_is_no_duration_is_refused(interval: Any) -> None:
    with pytest.raises(GraphError, match=r"every\('live'\) has interval"):
        Flow("f").stream(TIMES).to_table("t").every("live", interval)


STREAMS = st.sampled_from([TIMES, OTHERS])
END = 100_000
THEN = st.sampled_from(["", "", "same batch", "commit", "crash", "lost disk"])


@settings(max_examples=30, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(STREAMS, st.sampled_from("abc"), st.integers(0, 30), THEN), min_size=3, max_size=30),
)
def test_changes_are_at_most_one_an_interval_and_the_last_one_is_the_row(
    repartitioned: bool,  # noqa: FBT001 - drawn
    drawn: list[tuple[Stream[str, int], str, int, str]],
) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    streams = [flow.stream(stream, time=lambda at: at) for stream in (TIMES, OTHERS)]
    merged = streams[0].merge(streams[1]).filter(lambda at: at < END)
    grouped = (
        merged.group_by("all", lambda _: "all", key=String(), value=Long())
        if repartitioned
        else merged.group_by_key()
    )
    table = grouped.count("n")
    table.every("live", TEN).to(OUT)
    groups = flow.groups
    now = dict.fromkeys(("times", "others"), 0)
    with Tester(partitions=2) as tester:
        tester.run(flow)
        waiting: dict[str, list[tuple[str, int]]] = {"times": [], "others": []}

        def emit() -> None:
            for stream in (TIMES, OTHERS):
                tester.emit_many(stream, waiting[stream.name])
                waiting[stream.name] = []

        for stream, key, step, then in drawn:
            now[stream.name] += step
            waiting[stream.name].append((key, now[stream.name]))
            if then == "same batch":
                continue
            emit()
            if then == "commit":
                tester.commit()
            elif then in {"crash", "lost disk"}:
                for group in groups:
                    tester.crash(group)
                    tester.start(group, disk=then == "crash")
        emit()
        for stream in (TIMES, OTHERS):
            tester.emit_many(stream, [(f"z{number}", END) for number in range(8)])
        rows, found = dict(tester.table(table.table)), written(tester)
    assert {key: row for key, row, _ in found} == rows
    spans = [(key, at // 10) for key, _, at in found]
    assert len(spans) == len(set(spans))
    for key in rows:
        assert [row for each, row, _ in found if each == key] == sorted(
            row for each, row, _ in found if each == key
        )


def test_what_comes_out_after_an_interval_has_no_record_to_be_processed_with() -> None:
    live = Flow("f").stream(TIMES, time=lambda at: at).group_by_key().count("n").every("live", TEN)
    with pytest.raises(
        GraphError,
        match=r"process\(\) after windows, every\(\).*Put repartition\(name, value=codec\) between them",
    ):
        live.process(lambda ctx, count: [count])


def test_what_comes_out_after_an_interval_is_processed_behind_a_topic(tester: Tester) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    live = flow.stream(TIMES, time=lambda at: at).group_by_key().count("n").every("live", TEN)

    def stamped(ctx: Context[str, Any], count: Any) -> Any:
        return [[ctx.key, count, ctx.timestamp_ms]]

    live.repartition("again").process(stamped, value=Json()).to(OUT)
    tester.run(flow)
    for at in (1, 2, 11):
        tester.emit(TIMES, "a", at)
    assert written(tester) == [("a", ["a", 2, 9], 9)]


RECORDS = [(1, 1), (2, 10), (3, 100), (15, 1_000), (25, 10_000), (60, 100_000)]
"""Event times, and values whose sum shows which records are in it."""
SUMS = [(9, 111), (19, 1_111), (29, 11_111)]
HOUR = Tumbling(timedelta(hours=1), grace=timedelta(0))
NUMBERS: Stream[str, Any] = Stream("numbers", String(), Json())
OTHER_NUMBERS: Stream[str, Any] = Stream("other-numbers", String(), Json())


def sums(flow: Flow, stream: Stream[str, Any] = NUMBERS, name: str = "n") -> Any:
    numbered = flow.stream(stream, time=lambda pair: pair[0])
    return numbered.group_by_key().sum(name, lambda pair: pair[1])


def windowed(flow: Flow) -> Any:
    numbered = flow.stream(NUMBERS, time=lambda pair: pair[0])
    return numbered.group_by_key().window(HOUR).sum("n", lambda pair: pair[1])


def joined(flow: Flow) -> Any:
    other = sums(flow, OTHER_NUMBERS, "other")
    return sums(flow).left_join("both", other, lambda left, _: left, value=Long())


def grouped(flow: Flow) -> Any:
    return sums(flow).group_by("all", lambda _: "all", key=String()).sum("of-all", lambda row: row)


def far_behind(flow: Flow) -> Any:
    return grouped(flow).to_stream().filter(bool).repartition("again", value=Long()).to_table("last")


@pytest.mark.parametrize("poll_records", [1, 2, 3, 4, 10_000])
@pytest.mark.parametrize("made", [sums, windowed, joined, grouped, far_behind])
def test_the_rows_at_the_ends_of_intervals_do_not_depend_on_batches(made: Any, poll_records: int) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    made(flow).every("live", TEN).map(lambda _, row: ("a", row)).to(OUT)
    with Tester(work_on_request=True, poll_records=poll_records) as tester:
        tester.create(NUMBERS, OTHER_NUMBERS)
        tester.run(flow)
        tester.emit_many(OTHER_NUMBERS, [("z", [100, 0])])
        tester.emit_many(NUMBERS, [("a", [at, number]) for at, number in RECORDS])
        tester.work()
        assert [(at, row) for _, row, at in written(tester)] == SUMS


def test_each_of_two_intervals_of_a_table_has_its_rows(tester: Tester) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    table = sums(flow)
    for interval in (10, 15):
        live = table.every(f"live-{interval}", timedelta(milliseconds=interval))
        live.map(lambda _, row, interval=interval: (str(interval), row)).to(OUT)
    tester.run(flow)
    tester.emit_many(NUMBERS, [("a", [at, number]) for at, number in RECORDS])
    assert [(at, row) for key, row, at in written(tester) if key == "10"] == SUMS
    assert [(at, row) for key, row, at in written(tester) if key == "15"] == [(14, 111), (29, 11_111)]


@pytest.mark.parametrize("step", ["filter", "map_values"])
def test_a_row_of_a_derived_table_comes_out_when_its_window_closes(tester: Tester, step: str) -> None:
    flow = Flow("f", event_time=NEVER_IDLE)
    numbered = flow.stream(TIMES, time=lambda at: at).group_by_key()
    counts: Any = numbered.window(Tumbling(TEN, grace=timedelta(0))).count("n")
    derived = counts.filter(bool) if step == "filter" else counts.map_values(abs, value=Long())
    derived.every("live", 100 * TEN).map(lambda window, row: (window.key, row)).to(OUT)
    tester.run(flow)
    for at in (1, 3, 12):
        tester.emit(TIMES, "a", at)
    assert written(tester) == [("a", 2, 9)]
