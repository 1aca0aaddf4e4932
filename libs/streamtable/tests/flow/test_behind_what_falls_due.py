"""Records that come out when event time has passed their own are in time for the steps behind, in the same group as behind a topic."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import EventTime, Json, Long, Stream, String, Table
from streamtable.flow import Flow, Hopping, KeyedStream, Session, Sliding, Tumbling
from streamtable_testing.tester import Tester

TIMES = Stream("times", String(), Long())  # a value is its own event time
OTHERS = Stream("others", String(), Long())
MADE = Stream("made", String(), Long())
FINAL: Stream[str, Any] = Stream("final", String(), Json())
LIVE: Stream[str, Any] = Stream("live", String(), Json())
OUT: Stream[str, Any] = Stream("out", String(), Json())
IDLE = EventTime(idle_after=timedelta(seconds=30))
NEVER = EventTime(idle_after=None)
START = 1_000_000

Records = KeyedStream[str, int]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def window_of(window: Any) -> Callable[[Records, Records], Any]:
    return lambda left, _: left.group_by_key().window(window).count("first").final()


def every(left: Records, _: Records) -> Any:
    return left.group_by_key().window(Tumbling(ms(10), grace=ms(3))).count("first").every("changes", ms(4))


def rows_every(left: Records, _: Records) -> Any:
    return left.group_by_key().count("first").every("changes", ms(4))


def joined_windows(left: Records, right: Records) -> Any:
    tables = [
        each.group_by_key().window(Tumbling(ms(10), grace=ms(3))).count(name)
        for each, name in ((left, "first"), (right, "second"))
    ]
    return tables[0].outer_join("both", tables[1], lambda one, other: (one or 0) + (other or 0)).final()


def windows_twice(left: Records, right: Records) -> Any:
    first = window_of(Tumbling(ms(5), grace=ms(3)))(left, right)
    return first.group_by_key().window(Tumbling(ms(10), grace=ms(0))).count("second").final()


def join_of(operator: str) -> Callable[[Records, Records], Any]:
    def joined(left: Records, right: Records) -> Any:
        return getattr(left, operator)("both", right, lambda *_: 1, within=(ms(4), ms(10)), grace=ms(3))

    return joined


def as_of(left: Records, right: Records) -> Any:
    return left.left_join_as_of("both", right.to_table("rows"), lambda *_: 1, history=ms(20), grace=ms(7))


EMITTERS: dict[str, Callable[[Records, Records], Any]] = {
    "tumbling": window_of(Tumbling(ms(10), grace=ms(7))),
    "hopping": window_of(Hopping(ms(10), ms(5), grace=ms(3))),
    "sliding": window_of(Sliding(ms(10), grace=ms(3))),
    "session": window_of(Session(ms(5), grace=ms(3))),
    "windows of windows": windows_twice,
    "joined windows": joined_windows,
    "every, of windows": every,
    "every, of rows": rows_every,
    "left_join": join_of("left_join"),
    "outer_join": join_of("outer_join"),
    "left_join_as_of": as_of,
}
BEHIND = [Tumbling(ms(1), grace=ms(0)), Tumbling(ms(10), grace=ms(0)), Session(ms(3), grace=ms(0))]
BEHIND += [Hopping(ms(10), ms(5), grace=ms(0)), Sliding(ms(5), grace=ms(0))]
STEPS = st.tuples(
    st.sampled_from([TIMES, OTHERS]),
    st.sampled_from("pq"),
    st.sampled_from([0, 1, 2, 3, 5, 20, 60]),
    st.sampled_from([0, 0, 0, 0, 1, 9, 40]),
    st.sampled_from(["", "", "", "same batch", "same batch", "crash", "lost disk"]),
)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(EMITTERS)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(BEHIND),
    st.sampled_from([1, 3, 10_000]),
    st.lists(STEPS, min_size=3, max_size=25),
)
def test_windows_count_all_that_falls_due_and_close_once(
    emitter: str,
    through: bool,  # noqa: FBT001 - drawn
    disorder: bool,  # noqa: FBT001 - drawn
    window: Any,
    at_once: int,
    steps: list[tuple[Stream[str, int], str, int, int, str]],
) -> None:
    flow = Flow("f", event_time=IDLE)
    left, right = (flow.stream(each, time=lambda at: at) for each in (TIMES, OTHERS))
    made = EMITTERS[emitter](left, right).map_values(lambda _: 1)
    if through:
        made = made.map(lambda _, one: ("k", one)).repartition("again", key=String(), value=Long())
    made.map(lambda _, one: ("k", one)).to(MADE)
    counts = made.group_by_key().window(window).count("counts")
    counts.final().map(lambda key, count: (repr(key), count)).to(FINAL)
    counts.every("live", ms(4)).map(lambda key, count: (repr(key), count)).to(LIVE)
    with Tester(poll_records=at_once) as tester:
        tester.run(flow)
        at = START
        waiting: list[tuple[Stream[str, int], str, int]] = []
        for stream, key, step, back, then in [*steps, (TIMES, "p", 0, 0, "")]:
            at += step
            waiting.append((stream, key, at - back if disorder else at))
            if then == "same batch":
                continue
            for each in (TIMES, OTHERS):
                tester.emit_many(each, [(key, value) for to, key, value in waiting if to == each])
            waiting = []
            for group in flow.groups if then else ():
                tester.crash(group)
                tester.start(group, disk=then == "crash")
        for _ in range(3):
            tester.advance(200)
        rows = {repr(key): count for key, count in tester.table(counts.table).items()}
        final = [(record.key, record.value) for record in tester.records(FINAL)]
        live = {each.key: each.value for each in tester.records(LIVE)}
        sent = len(tester.records(MADE))
    assert sorted(final) == sorted(rows.items()), "each window comes out once, with all that it has"
    assert {key: count for key, count in live.items() if count is not None} == rows
    if not disorder and not isinstance(window, Hopping | Sliding):  # in these a record counts several times
        assert sum(rows.values()) == sent, "none is late"


@pytest.mark.parametrize("through", [False, True])
def test_what_a_join_as_of_a_time_returns_is_in_time_for_the_next_join(
    tester: Tester, *, through: bool
) -> None:
    second = timedelta(seconds=1)
    flow = Flow("f", event_time=NEVER)
    left, right = (flow.stream(each, time=lambda at: at) for each in (TIMES, OTHERS))
    rows = flow.stream(MADE, time=lambda at: at).to_table("rows")
    found = left.join_as_of(
        "found", rows, lambda at, _: at, history=3600 * second, grace=5 * second, value=Long()
    )
    if through:
        found = found.repartition("again", beside=right)
    found.join("both", right, lambda *both: both, within=second, grace=0 * second).to(OUT)
    tester.run(flow)
    tester.emit(MADE, "a", START)
    for at in range(START + 1_000, START + 30_000, 1_000):
        tester.emit(TIMES, "a", at)
        tester.emit(OTHERS, "a", at + 500)
        tester.emit(MADE, "z", at)
    pairs = [record.value for record in tester.records(OUT)]
    assert pairs[:3] == [
        [START + 1_000, START + 1_500],
        [START + 2_000, START + 1_500],
        [START + 2_000, START + 2_500],
    ]
    assert len(pairs) > 40


def test_changes_that_come_out_at_the_end_of_a_window_belong_to_it_behind_a_topic(tester: Tester) -> None:
    flow = Flow("f", event_time=NEVER)
    rows = flow.stream(TIMES, time=lambda at: at).group_by_key().count("rows")
    again = rows.every("live", ms(5)).repartition("again")
    counts = again.group_by_key().window(Tumbling(ms(60), grace=ms(0))).count("counts")
    tester.run(flow)
    for key, at in [("a", 57), ("b", 90), ("c", 300)]:
        tester.emit(TIMES, key, at)
    assert {(key.key, key.start_ms): n for key, n in tester.table(counts.table).items()} == {
        ("a", 0): 1,
        ("b", 60): 1,
    }


def test_changes_from_before_the_first_event_come_out_with_the_time_of_that_event(tester: Tester) -> None:
    people: Table[str, int] = Table("people-table", String(), Long(), group="people")
    flow = Flow("f", event_time=NEVER)
    flow.stream(TIMES, time=lambda at: at).group_by_key().count("n")
    flow.table(people).every("live", ms(5)).to(OUT)
    tester.create(TIMES)
    tester.kafka.create_topic("people-table", 1)
    tester.emit_raw("people-table", b"p", Long().encode(1), timestamp_ms=START)
    tester.run(flow)
    tester.emit(TIMES, "a", START)
    assert [(each.key, each.value, each.timestamp_ms) for each in tester.records(OUT)] == [
        ("p", 1, START - 1)
    ]
