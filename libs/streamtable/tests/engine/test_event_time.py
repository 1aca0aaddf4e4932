"""Event time through the Tester: the watermark, what it makes of records, and where it is after a restart."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from streamtable import (
    BatchContext,
    Changes,
    Context,
    Count,
    Due,
    EventTime,
    Group,
    Input,
    Json,
    Long,
    Loop,
    Once,
    OnError,
    Persist,
    RowChange,
    State,
    Stream,
    String,
    Table,
    Visit,
)
from streamtable.base.types import TopicPartition
from streamtable.errors import GraphError, HandlerFailed
from streamtable.flow import Flow, Tumbling
from streamtable.tables.position import TablePosition
from streamtable_testing import Tester

A: Stream[str, Any] = Stream("a", String(), Json())
B: Stream[str, Any] = Stream("b", String(), Json())
T = 1_600_000_000_000
NEVER_IDLE = EventTime(idle_after=None)
Seen = list[tuple[Any, int, int, int]]


def at(event: Any) -> int:
    return T + int(event)


def seen_by(seen: Seen) -> Callable[[Context[str, Any], Any], None]:
    def handler(ctx: Context[str, Any], event: Any) -> None:
        seen.append((event, *(ms - T if ms >= 0 else ms for ms in times_of(ctx))))

    return handler


def times_of(ctx: Context[Any, Any]) -> tuple[int, int, int]:
    return ctx.event_time_ms, ctx.watermark_ms, ctx.late_before_ms


def emit(tester: Tester, stream: Stream[str, Any], events: Iterable[Any]) -> None:
    tester.emit_many(stream, [("k", event) for event in events])


def committed(tester: Tester, group: Group[Any, Any], topic: str) -> TablePosition:
    found = TablePosition.decode(tester.kafka.committed(group.name)[TopicPartition(topic, 0)].metadata)
    assert found is not None
    return found


# ---- one input -------------------------------------------------------------------------------------------------------


def test_a_record_is_late_before_the_greatest_time_seen_up_to_and_including_it(tester: Tester) -> None:
    seen: Seen = []
    tester.run(Group("g", Input(A, seen_by(seen), time=at), NEVER_IDLE))
    emit(tester, A, [10, 5, 30, 20])
    assert seen == [(10, 10, -1, 10), (5, 5, 10, 10), (30, 30, 10, 30), (20, 20, 30, 30)]
    emit(tester, A, [25])
    assert seen[-1] == (25, 25, 30, 30)


def test_the_same_times_come_with_a_batch_however_records_are_cut_into_batches(tester: Tester) -> None:
    seen: list[tuple[int, int]] = []
    watermarks: list[int] = []

    def handler(batch: BatchContext[str, Any, Any]) -> None:
        watermarks.append(batch.watermark_ms)
        seen.extend(zip(batch.event_times_ms, batch.late_before_ms, strict=True))

    tester.run(Group("g", Input(A, batch=handler, time=at), NEVER_IDLE))
    emit(tester, A, [10, 5])
    emit(tester, A, [7, 30])
    assert watermarks == [-1, T + 10]
    assert seen == [(T + 10, T + 10), (T + 5, T + 10), (T + 7, T + 10), (T + 30, T + 30)]


def test_a_time_may_be_a_datetime_with_a_time_zone(tester: Tester) -> None:
    seen: Seen = []
    utc = Input(A, seen_by(seen), time=lambda event: datetime.fromtimestamp(event / 1000, UTC))
    tester.run(Group("g", utc, NEVER_IDLE))
    emit(tester, A, [T + 5, T + 1_999])
    assert [each[1] for each in seen] == [5, 1_999]


def test_the_timestamp_of_the_record_is_its_event_time_unless_an_input_says_otherwise(tester: Tester) -> None:
    seen: Seen = []
    tester.run(Group("g", Input(A, seen_by(seen)), NEVER_IDLE))
    tester.emit(A, "k", 1, timestamp_ms=T + 70)
    assert seen == [(1, 70, -1, 70)]


def test_a_group_that_does_not_follow_event_time_has_no_watermark(tester: Tester) -> None:
    def handler(ctx: Context[str, Any], event: Any) -> None:
        assert ctx.event_time_ms == event
        ctx.watermark_ms  # noqa: B018 - it raises

    tester.run(Group("g", Input(A, handler)))
    with pytest.raises(GraphError, match="add EventTime"):
        tester.emit(A, "k", T, timestamp_ms=T)


def test_what_a_group_without_event_time_commits_says_nothing_of_it(tester: Tester) -> None:
    group = Group("g", Input(A, aggregate=Count()), Persist(Long()))
    tester.run(group)
    emit(tester, A, [1])
    assert committed(tester, group, "a").time is None


# ---- several inputs --------------------------------------------------------------------------------------------------


def test_the_watermark_is_the_least_stream_time_of_the_inputs(tester: Tester) -> None:
    seen: Seen = []
    group = Group("g", Input(A, seen_by(seen), time=at), Input(B, seen_by(seen), time=at), NEVER_IDLE)
    tester.run(group)
    emit(tester, A, [100])
    assert tester.watermark_ms(group) == -1
    emit(tester, B, [40])
    assert tester.watermark_ms(group) == T + 40
    emit(tester, B, [200])
    assert tester.watermark_ms(group) == T + 100
    # The other input is far ahead: that alone makes no record late.
    emit(tester, A, [90])
    assert seen[-1] == (90, 90, 100, 100)
    emit(tester, B, [150])
    assert seen[-1] == (150, 150, 100, 200)


def test_the_watermark_before_each_record_counts_the_records_before_it(tester: Tester) -> None:
    seen: Seen = []
    group = Group("g", Input(A, seen_by(seen), time=at), Input(B, seen_by(seen), time=at), NEVER_IDLE)
    tester.run(group)
    emit(tester, B, [50])
    emit(tester, A, [10, 40, 60, 70])
    assert [each[2] for each in seen[1:]] == [-1, 10, 40, 50]


# ---- restarts and rewinds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disk", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_stream_times_and_watermark_are_the_same_after_a_restart(
    tester: Tester, *, disk: bool, crash: bool
) -> None:
    seen: Seen = []
    group = Group(
        "g", Input(A, seen_by(seen), time=at), Input(B, seen_by(seen), time=at), NEVER_IDLE, Persist(Long())
    )
    tester.run(group)
    emit(tester, A, [100])
    emit(tester, B, [60])
    if crash:
        tester.crash(group)
    else:
        tester.stop(group)
    tester.start(group, disk=disk)
    assert tester.watermark_ms(group) == T + 60
    emit(tester, A, [70])
    emit(tester, B, [50])
    assert seen[2:] == [(70, 70, 60, 100), (50, 50, 60, 60)]


def test_times_move_with_a_partition_to_another_process() -> None:
    with Tester(partitions=2) as tester:
        seen: Seen = []
        group = Group("g", Input(A, seen_by(seen), time=at), NEVER_IDLE)
        tester.run(group)
        for key in "abcdef":
            tester.emit(A, key, 100)
        tester.join(group)
        assert [tester.watermark_ms(group, partition) for partition in (0, 1)] == [T + 100] * 2
        for key in "abcdef":
            tester.emit(A, key, 30)
        assert seen[6:] == [(30, 30, 100, 100)] * 6


def test_an_aborted_commit_takes_the_times_back(tester: Tester) -> None:
    seen: Seen = []

    def fails_once(ctx: Context[str, Any], event: Any) -> None:
        seen.append((event, *times_of(ctx)))
        if event == 500 and len(seen) < 4:
            raise ValueError("not today")

    group = Group("g", Input(A, fails_once, time=at, on_error=OnError.SKIP), NEVER_IDLE)
    tester.run(group)
    emit(tester, A, [100])
    emit(tester, A, [400, 500, 300])
    # The second batch came twice, the second time record by record.
    assert [each[:1] + each[3:] for each in seen] == [
        (100, T + 100), (400, T + 400), (500, T + 500), (400, T + 400), (500, T + 500), (300, T + 500)
    ]  # fmt: skip


@pytest.mark.parametrize("at_step", ["offsets-sent", "committed", "begun", "flushed"])
def test_a_crash_at_any_step_of_a_commit_leaves_the_times_of_the_offsets(at_step: str) -> None:
    with Tester() as tester:
        seen: Seen = []
        group = Group("g", Input(A, seen_by(seen), time=at), Persist(Long()), NEVER_IDLE)
        tester.run(group)
        emit(tester, A, [100])
        tester.crash(group, at=at_step)
        emit(tester, A, [300])
        tester.start(group)
        emit(tester, A, [200])
        late = {event: late_before for event, _, _, late_before in seen}
        assert late == {100: 100, 300: 300, 200: 300}
        assert tester.watermark_ms(group) == T + 300


# ---- records that are handled again ------------------------------------------------------------------------------------


def test_a_record_whose_handler_fails_advances_event_time_all_the_same(tester: Tester) -> None:
    def handler(ctx: Context[str, Any], event: Any) -> None:
        if event == 500:
            raise ValueError("no")

    group = Group("g", Input(A, handler, time=at, on_error=OnError.DEAD_LETTER), NEVER_IDLE)
    tester.run(group)
    emit(tester, A, [100, 500, 200])
    assert tester.watermark_ms(group) == T + 500
    assert len(tester.dead_letters(group)) == 1


def test_a_dead_letter_sent_again_has_its_own_time_and_does_not_advance(tester: Tester) -> None:
    seen: Seen = []
    broken = [True]

    def handler(ctx: Context[str, Any], event: Any) -> None:
        if event == 50 and broken[0]:
            raise ValueError("no")
        seen_by(seen)(ctx, event)

    group = Group(
        "g",
        Input(A, handler, time=at, on_error=OnError.DEAD_LETTER),
        Input(B, seen_by(seen), time=at),
        NEVER_IDLE,
    )
    tester.run(group)
    emit(tester, A, [50])
    emit(tester, B, [20])
    before = tester.watermark_ms(group)
    broken[0] = False
    tester.retry(group, tester.dead_letters(group)[0])
    assert seen[-1] == (50, 50, 20, 50)
    assert tester.watermark_ms(group) == before == T + 20


def test_a_dead_letter_sent_again_is_dated_as_its_origin(tester: Tester) -> None:
    seen: Seen = []
    broken = [True]

    def handler(ctx: Context[str, Any], event: Any) -> None:
        if broken[0]:
            raise ValueError("no")
        seen_by(seen)(ctx, event)

    group = Group("g", Input(A, handler, on_error=OnError.DEAD_LETTER), NEVER_IDLE)
    tester.run(group)
    tester.emit(A, "k", 1, timestamp_ms=T + 70)
    broken[0] = False
    tester.retry(group, tester.dead_letters(group)[0])
    assert seen == [(1, 70, 70, 70)]


def test_records_handled_carefully_have_the_times_of_the_whole_batch(tester: Tester) -> None:
    seen: Seen = []

    def handler(batch: BatchContext[str, Any, Any]) -> None:
        if 500 in batch.events:
            raise ValueError("no")
        seen.extend(
            (event, event_ms - T, 0, late - T)
            for event, event_ms, late in zip(
                batch.events, batch.event_times_ms, batch.late_before_ms, strict=True
            )
        )

    group = Group("g", Input(A, batch=handler, time=at, on_error=OnError.SKIP), NEVER_IDLE)
    tester.run(group)
    emit(tester, A, [100, 90, 500, 200])
    assert seen == [(100, 100, 0, 100), (90, 90, 0, 100), (200, 200, 0, 500)]


def test_a_repeated_event_is_left_out_and_does_not_disturb_the_times(tester: Tester) -> None:
    seen: Seen = []
    once = Once(by=str, within=timedelta(days=1))
    group = Group("g", Input(A, seen_by(seen), time=at, once=once), NEVER_IDLE)
    tester.run(group)
    emit(tester, A, [100, 100, 50, 100, 70])
    assert seen == [(100, 100, -1, 100), (50, 50, 100, 100), (70, 70, 100, 100)]


def test_loops_changes_and_visits_see_the_watermark_and_do_not_advance_it(tester: Tester) -> None:
    seen: list[tuple[str, int]] = []
    loop = Stream("g-loop", String(), Json())
    other = Table("other-table", String(), Json(), group="other")

    def handler(ctx: Context[str, Any], event: Any) -> None:
        ctx.set(event)
        ctx.loopback(loop, ctx.key, event)

    def looped(ctx: Context[str, Any], event: Any) -> None:
        seen.append(("loop", ctx.watermark_ms))
        assert ctx.late_before_ms == ctx.watermark_ms

    def changed(ctx: Context[str, Any], change: RowChange[Any]) -> None:
        seen.append(("change", ctx.watermark_ms))

    def visited(ctx: Context[str, Any], argument: str) -> None:
        seen.append(("visit", ctx.watermark_ms))

    group = Group(
        "g",
        Input(A, handler, time=at),
        Loop(loop, looped),
        Changes(other, changed),
        Visit("all", visited),
        Persist(Json()),
        NEVER_IDLE,
    )
    tester.run(Group("other", Input(B, lambda ctx, event: ctx.set(event)), Persist(Json())), group)
    emit(tester, A, [40])
    emit(tester, B, [1])
    assert seen == [("loop", T + 40), ("change", T + 40)]
    assert tester.watermark_ms(group) == T + 40


# ---- graph -----------------------------------------------------------------------------------------------------------


def test_an_input_with_a_time_makes_its_group_follow_event_time() -> None:
    assert Group("g", Input(A, seen_by([]))).event_time is None
    assert Group("g", Input(A, seen_by([]), time=at)).event_time == EventTime()
    assert Group("g", Input(A, seen_by([])), NEVER_IDLE).event_time is NEVER_IDLE


@pytest.mark.parametrize(("clock", "follows"), [("event", True), ("wall", False)])
def test_rows_that_fall_due_in_event_time_make_their_group_follow_it(
    clock: Literal["event", "wall"], *, follows: bool
) -> None:
    due = Due[str, int](lambda key, data: 0, lambda due: None, clock=clock)
    group = Group("g", Input(A, seen_by([])), State("kept", key=String(), value=Long(), due=due))
    assert (group.event_time is not None) is follows


def test_two_event_times_of_a_group_are_refused() -> None:
    with pytest.raises(GraphError, match="two edges 'EventTime'"):
        Group("g", Input(A, seen_by([])), EventTime(), NEVER_IDLE)


def test_event_time_needs_an_input_to_follow() -> None:
    loop = Loop(Stream("g-loop", String(), Json()), seen_by([]))
    with pytest.raises(GraphError, match="no Input that event time could follow"):
        Group("g", loop, EventTime())


@pytest.mark.parametrize("wrong", [{"idle_after": timedelta(0)}, {"max_ahead": timedelta(days=40_000)}])
def test_an_event_time_setting_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=next(iter(wrong))):
        EventTime(**wrong)


# ---- invalid times, clocks from the future ---------------------------------------------------------------------------


def test_an_invalid_time_stops_the_process_at_its_record(tester: Tester) -> None:
    group = Group("g", Input(A, lambda ctx, event: ctx.set(event), time=at), Persist(Json()), NEVER_IDLE)
    tester.run(group)
    with pytest.raises(HandlerFailed, match=r"event time .* cannot be read: ValueError") as raised:
        emit(tester, A, [100, "x", 200])
    assert (raised.value.topic, raised.value.offset) == ("a", 1)
    assert tester.table(group) == {"k": 100}


@pytest.mark.parametrize("wrong", [-5, 1.5, True, None, "2020", T * 1000, datetime(2020, 1, 1)])  # noqa: DTZ001
def test_a_record_with_an_invalid_time_goes_to_the_dead_letters_and_does_not_advance(
    tester: Tester, wrong: Any
) -> None:
    seen: Seen = []
    times = {"good": T, "bad": wrong}
    group = Group(
        "g",
        Input(A, seen_by(seen), time=lambda event: times[event], on_error=OnError.DEAD_LETTER),
        NEVER_IDLE,
    )
    tester.run(group)
    emit(tester, A, ["bad", "good"])
    assert [each[0] for each in seen] == ["good"]
    assert [letter.error for letter in tester.dead_letters(group)] == ["InvalidEventTime"]
    assert tester.watermark_ms(group) == T


@pytest.mark.parametrize("wrong", [-1, -2, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)])
def test_an_event_before_1970_is_refused_as_that_and_not_as_one_without_a_timestamp(
    tester: Tester, wrong: Any
) -> None:
    group = Group("g", Input(A, seen_by([]), time=lambda _: wrong, on_error=OnError.DEAD_LETTER), NEVER_IDLE)
    tester.run(group)
    emit(tester, A, ["bad"])
    (letter,) = tester.dead_letters(group)
    assert letter.error == "InvalidEventTime"
    assert "it is before 1970" in letter.reason


def test_a_record_without_a_timestamp_has_no_event_time(tester: Tester) -> None:
    group = Group("g", Input(A, seen_by([]), on_error=OnError.DEAD_LETTER), NEVER_IDLE)
    tester.run(group)
    producer = tester.kafka.producer()  # an emitter refuses to send such a record; another program may
    producer.produce(A.name, A.key.encode("k"), A.value.encode(1), lambda _: None, timestamp_ms=-1)
    tester.work()
    (letter,) = tester.dead_letters(group)
    assert "no timestamp" in letter.reason


def test_a_record_from_too_far_in_the_future_is_a_dead_letter_and_does_not_advance(tester: Tester) -> None:
    seen: Seen = []
    now = int(tester.clock.now() * 1000)
    group = Group("g", Input(A, seen_by(seen), time=lambda event: now + event))
    tester.run(group)
    emit(tester, A, [0, 3_700_000, 3_500_000])
    assert [each[0] for each in seen] == [0, 3_500_000]
    (letter,) = tester.dead_letters(group)
    assert letter.error == "FutureEventTime"
    assert "3600 s ahead" in letter.reason
    assert now <= tester.watermark_ms(group) <= now + 1_000, "no further than its own timestamp"


def test_a_record_from_the_future_is_handled_when_it_is_sent_again_later(tester: Tester) -> None:
    seen: Seen = []
    now = int(tester.clock.now() * 1000)
    group = Group("g", Input(A, seen_by(seen), time=lambda event: now + event), NEVER_IDLE)
    tester.run(group)
    emit(tester, A, [4_000_000])
    tester.advance(1_000)
    tester.retry(group, tester.dead_letters(group)[0])
    assert [each[0] for each in seen] == [4_000_000]
    assert tester.watermark_ms(group) == -1


def test_without_a_limit_the_future_is_as_good_as_any_time(tester: Tester) -> None:
    seen: Seen = []
    group = Group("g", Input(A, seen_by(seen), time=lambda event: event), EventTime(max_ahead=None))
    tester.run(group)
    emit(tester, A, [4_000_000_000_000])
    assert [event for event, *_ in seen] == [4_000_000_000_000]
    assert tester.watermark_ms(group) <= tester.clock.now() * 1000
    tester.emit(A, "k", 4_000_000_000_000, timestamp_ms=3_900_000_000_000)
    assert tester.watermark_ms(group) == 3_900_000_000_000


def test_one_wrong_clock_makes_no_honest_record_late(tester: Tester) -> None:
    late: list[bool] = []
    now = int(tester.clock.now() * 1000)

    def on_click(ctx: Context[str, Any], event: int) -> None:
        late.append(event + 60_000 <= ctx.late_before_ms)

    tester.run(Group("g", Input(A, on_click, time=lambda event: event)))
    for minute in range(5):
        tester.emit(A, "liar", now + minute * 60_000 + 299_000)
        tester.emit(A, "honest", now + minute * 60_000 - 10_000)
        tester.advance(60)
    assert late == [False] * 10


def test_a_record_without_a_timestamp_moves_the_watermark_to_its_claimed_time(tester: Tester) -> None:
    group = Group("g", Input(A, seen_by([]), time=at), NEVER_IDLE)
    tester.run(group)
    tester.kafka.append("a", b"k", b"7", partition=0, timestamp_ms=-1)
    tester.work()
    assert tester.watermark_ms(group) == T + 7


# ---- idle inputs -----------------------------------------------------------------------------------------------------


def idle_group(seen: Seen, idle_after: timedelta | None = timedelta(seconds=30)) -> Group[str, Any]:
    return Group(
        "g",
        Input(A, seen_by(seen), time=at),
        Input(B, seen_by(seen), time=at),
        EventTime(idle_after=idle_after),
    )


def test_an_idle_input_does_not_hold_the_watermark_back(tester: Tester) -> None:
    group = idle_group([])
    tester.run(group)
    emit(tester, B, [40])
    for event in range(100, 900, 100):
        emit(tester, A, [event])
        tester.advance(5)
        if event < 700:
            assert tester.watermark_ms(group) == T + 40
    assert tester.watermark_ms(group) == T + 800


def test_an_input_that_has_never_had_a_record_is_idle_too(tester: Tester) -> None:
    group = idle_group([])
    tester.run(group)
    for event in range(100, 1_000, 100):
        emit(tester, A, [event])
        tester.advance(5)
    assert tester.watermark_ms(group) == T + 900


def test_the_watermark_does_not_go_back_when_an_idle_input_comes_back_and_its_record_is_late(
    tester: Tester,
) -> None:
    seen: Seen = []
    group = idle_group(seen)
    tester.run(group)
    emit(tester, B, [40])
    for event in range(100, 1_000, 100):
        emit(tester, A, [event])
        tester.advance(5)
    emit(tester, B, [300])
    assert seen[-1] == (300, 300, 900, 900)
    emit(tester, A, [2_000])
    assert tester.watermark_ms(group) == T + 900


def test_when_all_inputs_are_idle_the_watermark_advances_by_the_time_that_has_passed(tester: Tester) -> None:
    group = idle_group([])
    tester.run(group)
    emit(tester, A, [1])
    emit(tester, B, [2])
    tester.advance(60)
    assert 24_000 <= tester.watermark_ms(group) - T <= 30_010, "60 s after the last event, less idle_after"
    tester.advance(600)
    assert 624_000 <= tester.watermark_ms(group) - T <= 630_010


def test_old_events_behind_a_silence_are_in_time(tester: Tester) -> None:
    seen: Seen = []
    group = idle_group(seen)
    tester.run(group)
    tester.advance(3_600)
    assert tester.watermark_ms(group) == -1, "without an event nothing moves"
    emit(tester, A, range(0, 20_000_000, 1_000_000))
    assert [late_before for *_, late_before in seen] == list(range(0, 20_000_000, 1_000_000))


def test_what_silence_has_advanced_is_committed_and_goes_on_after_a_restart(tester: Tester) -> None:
    group = idle_group([])
    tester.run(group)
    emit(tester, A, [1])
    emit(tester, B, [2])
    tester.advance(120)
    time = committed(tester, group, "a").time
    assert time is not None
    watermark = tester.watermark_ms(group)
    assert watermark - 30_000 <= time.watermark_ms <= watermark
    tester.crash(group)
    tester.start(group)
    restored = tester.watermark_ms(group)
    assert watermark - 30_000 <= restored <= watermark
    tester.advance(120)
    assert restored + 110_000 <= tester.watermark_ms(group) <= restored + 121_000


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_event_ends_the_silence_that_went_on_after_a_restart(
    tester: Tester, *, restarts: bool
) -> None:
    group = idle_group([])
    tester.run(group)
    emit(tester, A, [1])
    emit(tester, B, [2])
    tester.advance(120)
    if restarts:
        tester.crash(group)
        tester.start(group)
    emit(tester, A, [5])
    before = tester.watermark_ms(group)
    tester.advance(45)
    assert tester.watermark_ms(group) == before, (
        "45 s of silence, from 5 ms on, are less than is passed already"
    )


def test_idle_inputs_do_not_commit_more_often_than_once_in_idle_after(tester: Tester) -> None:
    group = idle_group([])
    tester.run(group)
    emit(tester, A, [1])
    emit(tester, B, [2])
    tester.advance(100)
    commits = set()
    for _ in range(60):
        tester.advance(5)
        commits.add(committed(tester, group, "a").time)
    assert 8 <= len(commits) <= 11


def test_without_idle_after_the_watermark_waits_for_each_input(tester: Tester) -> None:
    group = idle_group([], None)
    tester.run(group)
    emit(tester, A, [100])
    tester.advance(3_600)
    assert tester.watermark_ms(group) == -1


def test_a_process_that_stood_still_takes_no_input_for_idle() -> None:
    with Tester(work_on_request=True) as tester:
        group = idle_group([])
        tester.run(group)
        tester.work()
        emit(tester, B, [40])
        for event in range(100, 1_000, 100):
            emit(tester, A, [event])
            tester.work()
            tester.clock.advance(5)
            tester.work()
        assert tester.watermark_ms(group) == T + 900
        tester.clock.advance(600)  # it stands still; meanwhile both get records
        emit(tester, A, [5_000])
        emit(tester, B, [4_000])
        tester.work()
        assert tester.watermark_ms(group) == T + 4_000


@pytest.mark.parametrize("claimed", [True, False])
def test_event_times_that_look_like_seconds_are_warned_of_once(logged: list[Any], claimed: bool) -> None:  # noqa: FBT001 - a parameter
    times = Stream("times", String(), Long())
    flow = Flow("f")
    counted = flow.stream(times, time=(lambda at: at) if claimed else None).group_by_key()
    counted.window(Tumbling(timedelta(minutes=1), grace=timedelta(0))).count("n")
    with Tester() as tester:
        tester.run(flow)
        for at in (10**9 - 1, 1_700_000_000, 1_700_000_060, 10**10):
            tester.emit(times, "a", at, timestamp_ms=10**12 if claimed else at)
    (warning,) = [line for line in logged if line["event"] == "event times look like seconds"]
    assert warning["place"] == "times[0]@1"
    assert "1700000000 is 1970-01-20" in warning["reason"]
    assert "and 2023-11-14" in warning["reason"]
