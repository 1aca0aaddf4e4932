"""Windows behind a repartition whose producers are not equally far: only records that are late at their source are late."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtable import EventTime, Group, Input, Long, OnError, Output, Stream, String, Timer
from streamtable.base.types import Guarantee
from streamtable.base.watermarks import Mark
from streamtable.errors import GraphError
from streamtable.flow import Flow, Session, Tumbling, Windowed, WindowedTable
from streamtable.handlers.context import BatchContext, Context
from streamtable_testing.tester import Tester

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
T = 1_700_000_000_000 // HOUR * HOUR - HOUR  # the clock of the Tester begins within the hour that follows
VIEWS = Stream("views", String(), Long())
CLICKS = Stream("clicks", String(), Long())
OUT = Stream("out", String(), Long())
PRODUCERS = 2


def counting(
    idle_after: timedelta | None = None, grace: timedelta = timedelta(0)
) -> tuple[Flow, WindowedTable[str, int]]:
    """Records with their event times as values, counted by user and minute behind a repartition."""
    flow = Flow("f", event_time=EventTime(idle_after=idle_after))
    views = flow.stream(VIEWS, time=lambda at: at).map(lambda key, at: (key[0], at))
    users = views.repartition("by-user", key=String(), value=Long())
    table = users.group_by_key().window(Tumbling(timedelta(minutes=1), grace=grace)).count("counts")
    table.final().map(lambda key, count: (f"{key.key}@{(key.start_ms - T) // MINUTE}", count)).to(OUT)
    return flow, table


def view(tester: Tester, producer: int, user: str, at: int) -> None:
    tester.emit_raw(VIEWS.name, String().encode(user), Long().encode(at), partition=producer)


def finals(tester: Tester) -> list[tuple[str | None, int | None]]:
    return [(each.key, each.value) for each in tester.records(OUT)]


def run(tester: Tester, flow: Flow, partitions: int = 1) -> None:
    """Two partitions before the repartition, and this many behind it."""
    tester.create(VIEWS, partitions=PRODUCERS)
    tester.create(Stream("f-by-user", String(), Long()), partitions=partitions)
    tester.run(flow)


def test_a_record_of_a_producer_that_is_behind_is_not_late(tester: Tester) -> None:
    flow, table = counting()
    run(tester, flow)
    view(tester, 0, "a", T + 30 * MINUTE)
    view(tester, 1, "a", T)
    view(tester, 0, "a", T + 31 * MINUTE)
    view(tester, 1, "a", T + 1)
    assert tester.table(table.table)[Windowed("a", T, T + MINUTE)] == 2


def test_a_window_closes_when_the_last_producer_has_passed_it(tester: Tester) -> None:
    flow, _ = counting()
    run(tester, flow)
    view(tester, 1, "a", T)
    view(tester, 0, "a", T + 30 * MINUTE)
    assert finals(tester) == []
    view(tester, 1, "b", T + 10 * MINUTE)
    assert finals(tester) == [("a@0", 1)]
    assert tester.watermark_ms(flow.group("by-user")) == T + 10 * MINUTE


def test_a_record_that_is_late_at_its_source_is_late_behind_it(tester: Tester) -> None:
    flow, table = counting()
    run(tester, flow)
    view(tester, 0, "a", T + 5 * MINUTE)
    view(tester, 0, "a", T)
    assert set(tester.table(table.table)) == {Windowed("a", T + 5 * MINUTE, T + 6 * MINUTE)}
    view(tester, 1, "a", T)
    assert tester.table(table.table)[Windowed("a", T, T + MINUTE)] == 1


def test_a_producer_that_drops_all_its_records_lets_windows_close(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    views = flow.stream(VIEWS, time=lambda at: at).filter(lambda key, at: key == "a", with_key=True)
    users = views.repartition("by-user")
    users.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).count(
        "counts"
    ).final().map(lambda key, count: (key.key, count)).to(OUT)
    run(tester, flow)
    view(tester, 0, "a", T)
    view(tester, 0, "a", T + 5 * MINUTE)
    assert finals(tester) == []
    view(tester, 1, "left out", T + 5 * MINUTE)
    assert finals(tester) == [("a", 1)]


def test_a_producer_without_records_lets_windows_close_when_its_input_is_idle(tester: Tester) -> None:
    flow, _ = counting(idle_after=timedelta(seconds=30))
    run(tester, flow)
    view(tester, 0, "a", T)
    view(tester, 0, "a", T + 5 * MINUTE)
    assert finals(tester) == []
    tester.advance(60)
    assert finals(tester) == [("a@0", 1)], (
        "the other minute is not over, as little time has passed since its record"
    )
    tester.advance(90)
    assert finals(tester) == [("a@0", 1), ("a@5", 1)]


def test_the_windows_of_silent_streams_close_through_two_repartitions(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=timedelta(seconds=30)))
    users = flow.stream(VIEWS, time=lambda at: at).repartition("by-user").repartition("again")
    users.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).count(
        "counts"
    ).final().map(lambda key, count: (key.key, count)).to(OUT)
    run(tester, flow, partitions=3)
    view(tester, 1, "a", T)
    tester.advance(60)
    assert finals(tester) == []
    tester.advance(120)
    assert finals(tester) == [("a", 1)]


def test_the_watermarks_of_producers_are_the_same_after_a_restart_from_an_empty_disk(tester: Tester) -> None:
    flow, _ = counting()
    run(tester, flow)
    view(tester, 0, "a", T + 30 * MINUTE)
    view(tester, 1, "a", T)
    group = flow.group("by-user")
    for disk in (True, False):
        tester.crash(group)
        tester.start(group, disk=disk)
        assert tester.watermark_ms(group) == T
    view(tester, 1, "a", T + 10 * MINUTE)
    assert finals(tester) == [("a@0", 1)]
    assert tester.watermark_ms(group) == T + 10 * MINUTE


@pytest.mark.parametrize("guarantee", list(Guarantee))
@pytest.mark.parametrize("at", ["outputs-produced", "flushed", "offsets-sent", "committed"])
def test_marks_of_a_commit_that_a_crash_has_undone_close_nothing(
    tester: Tester, guarantee: Guarantee, at: str
) -> None:
    flow, table = counting()
    tester.create(VIEWS, partitions=PRODUCERS)
    tester.create(Stream("f-by-user", String(), Long()))
    tester.run(flow, guarantee=guarantee)
    view(tester, 0, "a", T)
    view(tester, 1, "a", T)
    tester.crash(flow.group(), at)
    view(tester, 0, "a", T + 1)
    view(tester, 0, "a", T + 10 * MINUTE)
    view(tester, 1, "a", T + 10 * MINUTE)
    tester.start(flow.group())
    tester.advance(1)
    counted = tester.table(table.table)
    assert counted[Windowed("a", T, T + MINUTE)] >= 3
    assert guarantee is Guarantee.AT_LEAST_ONCE or counted[Windowed("a", T, T + MINUTE)] == 3
    assert finals(tester)[0][0] == "a@0"


def test_marks_reach_no_handler_and_no_dead_letters(tester: Tester) -> None:
    events: list[int] = []
    flow = Flow("f", event_time=EventTime(idle_after=None))
    users = (
        flow.stream(VIEWS, time=lambda at: at).repartition("by-user").peek(lambda _, at: events.append(at))
    )
    users.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).count("counts")
    run(tester, flow, partitions=2)
    view(tester, 0, "a", T)
    view(tester, 1, "b", T + HOUR)
    marks = [record for _, record in tester.kafka.records("f-by-user") if record.key() is None]
    assert [Mark.read(record.headers() or ()) for record in marks] == [
        *[Mark(0, 2, T), Mark(1, 2, T + HOUR)] * 2
    ]
    assert sorted(events) == [T, T + HOUR]
    assert tester.dead_letters(flow.group("by-user")) == []


def test_a_closed_window_is_in_time_for_the_window_behind_it(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    minutes = (
        flow.stream(VIEWS, time=lambda at: at)
        .group_by_key()
        .window(Tumbling(timedelta(minutes=1), grace=timedelta(seconds=5)))
        .count("minutes")
    )
    hours = (
        minutes.final()
        .map(lambda key, count: (key.key, count))
        .repartition("by-user", key=String(), value=Long())
    )
    hours.group_by_key().window(Tumbling(timedelta(hours=1), grace=timedelta(0))).sum(
        "hours", lambda n: n
    ).final().map(lambda key, count: (f"{key.key}@{(key.start_ms - T) // HOUR}", count)).to(OUT)
    tester.create(VIEWS, partitions=1)
    tester.run(flow)
    view(tester, 0, "a", T - HOUR)
    view(tester, 0, "a", T - HOUR + 59 * MINUTE)
    view(tester, 0, "a", T)  # the last minute of the hour is still in its grace
    assert finals(tester) == []
    view(tester, 0, "a", T + HOUR + MINUTE)  # all of it at once, and more
    assert finals(tester) == [("a@-1", 2), ("a@0", 1)]


def test_sessions_behind_sessions_lose_nothing(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    gap = Session(timedelta(minutes=5), grace=timedelta(seconds=30))
    sessions = flow.stream(VIEWS, time=lambda at: at).group_by_key().window(gap).count("sessions")
    again = sessions.final().map(lambda key, n: ("all", n)).repartition("by-user", key=String(), value=Long())
    again.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).sum(
        "sum", lambda n: n
    ).final().map(lambda key, n: (str((key.start_ms - T) // MINUTE), n)).to(OUT)
    tester.create(VIEWS, partitions=1)
    tester.run(flow)
    view(tester, 0, "a", T)
    view(tester, 0, "b", T + MINUTE)
    view(tester, 0, "a", T + 50 * MINUTE)
    view(tester, 0, "a", T + HOUR)
    assert finals(tester) == [("0", 1), ("1", 1), ("50", 1)]


def test_more_producers_than_before_are_waited_for(tester: Tester) -> None:
    flow, _ = counting()
    run(tester, flow)
    for producer in (0, 1):
        view(tester, producer, "a", T)
    grown = Mark(2, 3, T + 2 * MINUTE)
    tester.emit_raw("f-by-user", None, None, partition=0, headers=[grown.header])
    for producer in (0, 1):
        view(tester, producer, "a", T + 30 * MINUTE)
    assert tester.watermark_ms(flow.group("by-user")) == T + 2 * MINUTE
    assert finals(tester) == [("a@0", 2)]


def test_records_of_an_older_version_count_until_the_first_mark(tester: Tester) -> None:
    """They carry nothing: their event times are all that is known, as before there were watermarks."""
    flow, _ = counting()
    tester.create(VIEWS, partitions=1)
    tester.run(flow.group("by-user"))
    for at in (T, T + 10 * MINUTE):
        tester.emit_raw("f-by-user", b"a", Long().encode(at), timestamp_ms=at)
    assert finals(tester) == [("a@0", 1)]
    tester.run(flow.group())
    view(tester, 0, "a", T + 20 * MINUTE)
    assert finals(tester) == [("a@0", 1), ("a@10", 1)]


@pytest.mark.parametrize(
    "header",
    [
        ("streamtable-watermark", b"short"),
        ("streamtable-watermark", None),
        Mark(5, 2, T).header,
        Mark(0, 2_000_000_000, T).header,
        Mark(0, 1, 1 << 62).header,
    ],
)
def test_a_mark_that_no_producer_can_have_written_is_a_dead_letter(
    tester: Tester, header: tuple[str, bytes | None]
) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None), on_error=OnError.DEAD_LETTER)
    users = flow.stream(VIEWS, time=lambda at: at).repartition("by-user")
    users.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).count("counts")
    run(tester, flow)
    tester.emit_raw("f-by-user", None, None, partition=0, headers=[header])
    assert len(tester.dead_letters(flow.group("by-user"))) == 1
    assert tester.watermark_ms(flow.group("by-user")) == -1


def click(tester: Tester, partition: int, at: int) -> None:
    tester.emit_raw(CLICKS.name, b"a", Long().encode(at), partition=partition)


def joining(group: str) -> Flow:
    """Views and clicks of the same time and user, where the clicks come through a topic beside the views."""
    flow = Flow("f", event_time=EventTime(idle_after=None))
    views = flow.stream(VIEWS, time=lambda at: at)
    clicks = flow.stream(CLICKS, time=lambda at: at, group=group).repartition("clicks-by-user", beside=views)
    views.join("both", clicks, max, within=timedelta(minutes=1), grace=timedelta(0), value=Long()).to(OUT)
    return flow


def test_a_record_that_comes_through_a_topic_beside_another_stream_is_late_only_if_it_was_at_its_source(
    tester: Tester,
) -> None:
    flow = joining("clicks")
    tester.create(VIEWS, partitions=1)
    tester.create(CLICKS, partitions=2)
    tester.create(Stream("f-clicks-by-user", String(), Long()), partitions=1)
    tester.run(*flow.groups)
    click(tester, 0, T + 30 * MINUTE)
    click(tester, 1, T)
    view(tester, 0, "a", T + 1)
    assert finals(tester) == [("a", T + 1)]


def test_a_topic_that_leads_back_to_its_own_group_carries_the_watermark_of_what_feeds_it(
    tester: Tester,
) -> None:
    flow = joining("")
    (group,) = flow.groups
    assert group.stages.inputs == {"views": 0, "clicks": 0, "f-clicks-by-user": 1}
    tester.create(VIEWS, CLICKS, Stream("f-clicks-by-user", String(), Long()), partitions=2)
    tester.run(flow)
    click(tester, 0, T + 30 * MINUTE)
    click(tester, 1, T)
    view(tester, 0, "a", T + 30 * MINUTE)
    view(tester, 1, "a", T + 30 * MINUTE)
    assert tester.watermark_ms(group) == T, "the other task reads a click of this time"
    click(tester, 1, T + 10 * MINUTE)
    assert tester.watermark_ms(group) == T + 10 * MINUTE


def test_a_closed_session_is_open_for_a_record_of_a_producer_that_is_behind(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=None))
    users = flow.stream(VIEWS, time=lambda at: at).repartition("by-user")
    gap = Session(timedelta(minutes=5), grace=timedelta(0))
    counted = users.group_by_key().window(gap).count("sessions")
    run(tester, flow)
    tester.stop(flow.group("by-user"))
    for producer, at in ((0, T), (0, T + 8 * MINUTE), (1, T + 4 * MINUTE)):
        view(tester, producer, "a", at)
    tester.start(flow.group("by-user"))  # which gets all three in one batch
    assert dict(tester.table(counted.table)) == {Windowed("a", T, T + 8 * MINUTE): 3}


# ---- in ordinary groups ------------------------------------------------------------------------------------------------

MIDDLE = Stream("middle", String(), Long())


def test_records_carry_whether_they_are_late_through_ordinary_groups(tester: Tester) -> None:
    seen: list[tuple[int, int, int]] = []

    def on_record(ctx: Context[str, None], at: int) -> None:
        ctx.emit(MIDDLE, "k", at, timestamp_ms=at)

    def on_middle(ctx: Context[str, None], at: int) -> None:
        seen.append((at - T, ctx.late_before_ms - T, ctx.watermark_ms - T if ctx.watermark_ms >= 0 else -1))

    first = Group("first", Input(VIEWS, on_record, time=lambda at: at), Output(MIDDLE, watermarks=True))
    second = Group("second", Input(MIDDLE, on_middle, watermarks=True), EventTime(idle_after=None))
    tester.create(VIEWS, partitions=2)
    tester.create(MIDDLE, partitions=1)
    tester.run(first, second)
    view(tester, 0, "a", T + 100)
    view(tester, 1, "a", T + 10)
    view(tester, 0, "a", T + 50)
    view(tester, 1, "a", T + 20)
    assert seen == [(100, 100, -1), (10, 10, -1), (50, 100, 10), (20, 20, 10)]
    assert tester.watermark_ms(second) == T + 20


@pytest.mark.parametrize("edge", [Output(MIDDLE, watermarks=True), Output(MIDDLE, event_times=True)])
def test_records_of_handlers_have_the_event_time_of_the_record_or_timer_that_has_made_them(
    edge: Output, tester: Tester
) -> None:
    remind: Timer[str, int, None] = Timer("t", lambda ctx, at: ctx.emit(MIDDLE, "k", at), payload=Long())

    def on_record(ctx: Context[str, None], at: int) -> None:
        ctx.emit(MIDDLE, "k", at)
        ctx.emit_many(MIDDLE, ["k"], [at])
        ctx.emit(MIDDLE, "k", 7, timestamp_ms=7)
        ctx.timers.at(remind, at + 10, at + 10)

    tester.run(Group("first", Input(VIEWS, on_record, time=lambda at: at), edge, remind))
    view(tester, 0, "a", 0)
    view(tester, 0, "a", 20)
    found = [
        (record.value, record.timestamp_ms) for record in tester.records(MIDDLE) if record.value is not None
    ]
    assert found == [(0, 1), (0, 1), (7, 7), (20, 20), (20, 20), (7, 7)]
    view(tester, 0, "b", 40)
    assert (30, 30) in [(record.value, record.timestamp_ms) for record in tester.records(MIDDLE)]


def test_a_window_behind_a_handler_of_a_group_counts_by_the_time_of_events(tester: Tester) -> None:
    def on_record(ctx: Context[str, None], at: int) -> None:
        ctx.emit(MIDDLE, ctx.key, at)

    first = Group("first", Input(VIEWS, on_record, time=lambda at: at), Output(MIDDLE, event_times=True))
    flow = Flow("f")
    minutes = Tumbling(timedelta(minutes=1), grace=timedelta(0))
    counts = flow.stream(MIDDLE).group_by_key().window(minutes).count("c")
    tester.run(first, flow)
    for minute in (1, 2, 2, 3):
        view(tester, 0, "a", minute * MINUTE)
    assert {key.start_ms // MINUTE: n for key, n in tester.table(counts.table).items()} == {1: 1, 2: 2, 3: 1}


def test_records_for_other_outputs_and_of_batches_have_the_time_of_their_commit(tester: Tester) -> None:
    def on_batch(batch: BatchContext[str, int, None]) -> None:
        batch.emit(MIDDLE, "k", 1)
        batch.emit_many(MIDDLE, ["k"], [2])

    edge = Output(MIDDLE, event_times=True)
    batches = Group("batches", Input(VIEWS, batch=on_batch, time=lambda at: at), edge)
    handle: Any = lambda ctx, at: ctx.emit(MIDDLE, "k", 3)  # noqa: E731 - as short as the others
    tester.run(batches, Group("plain", Input(VIEWS, handle, time=lambda at: at), Output(MIDDLE)))
    view(tester, 0, "a", 20)
    now_ms = int(tester.clock.now() * 1000)
    assert {record.value: record.timestamp_ms for record in tester.records(MIDDLE)} == {
        1: now_ms,
        2: now_ms,
        3: now_ms,
    }


def test_a_batch_says_of_its_records_that_none_is_late(tester: Tester) -> None:
    seen: list[int] = []

    def on_batch(batch: BatchContext[str, int, None]) -> None:
        for at in batch.events:
            batch.emit(MIDDLE, "k", at, timestamp_ms=at)
        batch.emit_many(
            MIDDLE,
            ["k"] * len(batch),
            batch.events,
            late_before_ms=batch.late_before_ms,
            timestamps_ms=batch.events,
        )

    def on_middle(ctx: Context[str, None], at: int) -> None:
        seen.append(ctx.late_before_ms - T)

    first = Group("first", Input(VIEWS, batch=on_batch, time=lambda at: at), Output(MIDDLE, watermarks=True))
    second = Group("second", Input(MIDDLE, on_middle, watermarks=True), EventTime(idle_after=None))
    tester.run(first, second)
    view(tester, 0, "a", T + 100)
    seen.clear()
    tester.emit_many(VIEWS, [("a", T + 200), ("a", T + 50)])
    assert seen == [100, 100, 200, 200]


def test_a_timer_fires_before_the_record_behind_the_mark(tester: Tester) -> None:
    seen: list[str] = []
    remind: Timer[str, str, None] = Timer(
        "remind", lambda ctx, text: seen.append(text), clock="event", payload=String()
    )

    def on_record(ctx: Context[str, None], at: int) -> None:
        ctx.emit(MIDDLE, "k", at, timestamp_ms=at)

    def on_middle(ctx: Context[str, None], at: int) -> None:
        seen.append(f"record {at - T}")
        ctx.timers.at(remind, at + 10, f"timer {at - T + 10}", id=str(at))

    first = Group("first", Input(VIEWS, on_record, time=lambda at: at), Output(MIDDLE, watermarks=True))
    second = Group("second", Input(MIDDLE, on_middle, watermarks=True), remind, EventTime(idle_after=None))
    tester.create(VIEWS, partitions=1)
    tester.run(first)
    for at in (T, T + 20, T + 30):
        view(tester, 0, "a", at)
    tester.run(second)
    # A mark comes behind the record that has moved the watermark of its producer.
    assert seen == ["record 0", "record 20", "timer 10", "record 30", "timer 30"]


def test_a_timer_emits_to_a_window_behind_a_repartition_before_it_closes(tester: Tester) -> None:
    remind: Timer[str, Any, int] = Timer(
        "remind", lambda ctx, at: ctx.emit(later.read_from, ctx.key, at, timestamp_ms=at), payload=Long()
    )

    def on_view(ctx: Context[str, Any], at: int) -> Sequence[int]:
        ctx.timers.at(remind, at + MINUTE + 1, at + MINUTE)
        return [at]

    flow = Flow("f", event_time=EventTime(idle_after=None))
    later = flow.stream(VIEWS, time=lambda at: at).process(on_view, remind, value=Long()).repartition("later")
    windows = later.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0)))
    finals_of = windows.count("counts").final()
    finals_of.map(lambda key, count: (f"{key.key}@{(key.start_ms - T) // MINUTE}", count)).to(OUT)
    tester.create(VIEWS, partitions=1)
    tester.run(flow)
    view(tester, 0, "a", T)
    view(tester, 0, "b", T + 1)
    view(tester, 0, "c", T + 9 * MINUTE)
    assert sorted(finals(tester)) == [("a@0", 1), ("a@1", 1), ("b@0", 1), ("b@1", 1)]


def test_watermarks_need_local_tables() -> None:
    with pytest.raises(GraphError, match="local tables"):
        Input(VIEWS, custom=print, watermarks=True)


# ---- for any interleaving ----------------------------------------------------------------------------------------------

Event = tuple[int, str, int]


def expected(events: Sequence[Event]) -> Mapping[Windowed[str], int]:
    """Count each record that is in time in its own partition: what a single reader of that partition would decide."""
    counts: Counter[Windowed[str]] = Counter()
    reached = [0, 0, 0]
    for producer, user, at in events:
        reached[producer] = max(reached[producer], at)
        start = at // MINUTE * MINUTE
        if start + MINUTE + 30 * SECOND > reached[producer]:
            counts[Windowed(user, start, start + MINUTE)] += 1
    return counts


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 20).map(lambda step: T + step * 20 * SECOND)
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=30, deadline=None)
@given(events=EVENTS, at_once=st.integers(1, 6), behind=st.integers(1, 3), crash=st.integers(0, 30))
def test_rows_and_final_results_are_the_same_however_producers_interleave(
    events: list[Event], at_once: int, behind: int, crash: int
) -> None:
    flow, table = counting(timedelta(seconds=30), grace=timedelta(seconds=30))
    counts = expected(events)
    with Tester(work_on_request=True) as tester:
        tester.create(VIEWS, partitions=3)
        tester.create(Stream("f-by-user", String(), Long()), partitions=behind)
        tester.run(flow, members=2)
        for number, (producer, user, at) in enumerate(events):
            view(tester, producer, user, at)
            if number % at_once == 0:
                tester.work()
            if number == crash:
                for group in flow.groups:
                    tester.crash(group)
                    tester.start(group, disk=number % 2 == 0)
        tester.work()
        for _ in range(20):
            tester.clock.advance(10)
            tester.work()
        assert dict(tester.table(table.table)) == dict(counts)
        assert sorted(finals(tester)) == sorted(
            (f"{key.key}@{(key.start_ms - T) // MINUTE}", count) for key, count in counts.items()
        )
