"""Timers: each fires once, in order, in event time between the records and by the wall clock whenever it is time."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.ports import Decoded
from streamtable.base.topics import Stream, Table
from streamtable.codec.plain import Json, Long, String
from streamtable.errors import GraphError, HandlerFailed, StateMeaningChanged
from streamtable.graph.group import Changes, EventTime, Group, Input, OnError, Output, Persist
from streamtable.graph.once import Once
from streamtable.graph.row_change import RowChange
from streamtable.graph.timer import Timer
from streamtable.handlers.context import Context
from streamtable_testing import Tester
from streamtable_testing.consumer import VirtualGroupConsumer

EVENTS = Stream[str, Any]("events", String(), Json())
LOG = Stream("log", String(), String())


def fired(ctx: Context[str, int], payload: Any) -> None:
    ctx.set((ctx.value or 0) + 1)
    ctx.emit(LOG, ctx.key, f"{payload['name']} of {ctx.key} at {ctx.timestamp_ms % 1_000_000}")
    for order in payload.get("then", ()):
        obey(ctx, order)


EVENT = Timer[str, Any, int]("in-event-time", fired, Json())
WALL = Timer[str, Any, int]("by-the-clock", fired, Json(), clock="wall")
NAMES = {"event": EVENT, "wall": WALL}


def obey(ctx: Context[str, int], order: Any) -> None:
    timer = NAMES[order.get("clock", "event")]
    if order.get("bad"):
        ctx.fail("bad")
    elif order.get("cancel"):
        ctx.timers.cancel(timer, order.get("id", ""))
    else:
        ctx.timers.at(timer, order["at"], order, order.get("id", ""))


def handle(ctx: Context[str, int], event: Any) -> None:
    ctx.emit(LOG, ctx.key, f"event {event['n']}")
    for order in event.get("do", ()):
        obey(ctx, order)


def group_of(
    on_error: OnError = OnError.STOP, timers: Iterable[Timer[str, Any, int]] = (EVENT, WALL)
) -> Group[str, int]:
    return Group("timed", Input(EVENTS, handle, on_error=on_error), Output(LOG), Persist(Long()), *timers)


class Timed:
    """A group that runs; times are milliseconds after a round second of the Tester's clock."""

    def __init__(self, tester: Tester, group: Group[str, int], **given: Any) -> None:
        self.tester = tester
        self.group = group
        self.zero = (int(tester.clock.now()) // 1000 + 1) * 1_000_000
        tester.clock.advance(self.zero / 1000 - tester.clock.now())
        self.n = 0
        tester.run(group, **given)

    def send(self, *events: tuple[int, list[Any]], key: str = "a") -> None:
        """Send events of these times, together, each with what its handler is to do."""
        for at, do in events:
            self.n += 1
            value = EVENTS.value.encode({"n": self.n, "do": [self.timed(order) for order in do]})
            self.tester.kafka.append(EVENTS.name, key.encode(), value, timestamp_ms=self.zero + at)
        self.tester.work()

    def timed(self, order: Any) -> Any:
        then = [self.timed(each) for each in order.get("then", ())]
        return {**order, "at": self.zero + order.get("at", 0), "then": then}

    @property
    def log(self) -> list[str]:
        return [record.value or "" for record in self.tester.records(LOG)]


def test_event_timers_fire_between_the_records_of_one_batch(tester: Tester) -> None:
    timed = Timed(tester, group_of())
    timed.send(
        (0, [{"name": "late", "at": 100}, {"name": "early", "at": 10, "id": "1"}]),
        (5, []),
        (10, []),
        (11, [{"name": "now", "at": 11, "id": "2"}, {"name": "past", "at": 3, "id": "3"}]),
        (12, []),
        (50, [{"cancel": True}]),
        (200, []),
    )
    assert timed.log == [
        "event 1", "event 2", "event 3", "early of a at 10", "event 4", "past of a at 3", "now of a at 11",
        "event 5", "event 6", "event 7",
    ]  # fmt: skip
    assert tester.table(timed.group) == {"a": 3}


def test_a_timer_that_a_timer_sets_comes_before_later_ones(tester: Tester) -> None:
    timed = Timed(tester, group_of())
    timed.send(
        (0, [
            {"name": "one", "at": 10, "id": "1", "then": [{"name": "new", "at": 15, "id": "new"}, {"cancel": True, "id": "3"}]},
            {"name": "two", "at": 20, "id": "2", "then": [{"name": "again", "at": 40, "id": "2"}]},
            {"name": "three", "at": 30, "id": "3"},
            {"name": "four", "at": 50, "id": "4", "then": [{"name": "moved", "at": 70, "id": "5"}]},
            {"name": "five", "at": 60, "id": "5"},
        ]),
        (65, []),
        (80, []),
    )  # fmt: skip
    assert timed.log == [
        "event 1", "event 2", "one of a at 10", "new of a at 15", "two of a at 20", "again of a at 40", "four of a at 50",
        "event 3", "moved of a at 70",
    ]  # fmt: skip


def test_timers_of_different_keys_do_not_meet(tester: Tester) -> None:
    timed = Timed(tester, group_of())
    timed.send((0, [{"name": "one", "at": 10}]), key="a")
    timed.send((1, [{"name": "two", "at": 10}]), key="b")
    timed.send((2, [{"cancel": True}]), key="c")
    timed.send((20, []), key="c")
    assert timed.log[-2:] == ["one of a at 10", "two of b at 10"]
    assert tester.table(timed.group) == {"a": 1, "b": 1}


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("disk", [True, False], ids=["disk kept", "disk lost"])
@pytest.mark.parametrize("clock", ["event", "wall"])
def test_each_timer_fires_once_whenever_the_process_was_killed(
    step: str,
    disk: bool,  # noqa: FBT001 - a parameter of the test
    clock: str,
    tester: Tester,
) -> None:
    timed = Timed(tester, group_of())
    orders = [{"name": f"t{at}", "at": at, "id": str(at), "clock": clock} for at in (3000, 1000, 2000)]
    timed.send((0, orders))
    tester.advance(0.5)
    tester.crash(timed.group, at=step)
    timed.send((1500, []))
    tester.advance(1)
    tester.start(timed.group, disk=disk)
    timed.send((2500, []))
    tester.advance(60)
    timed.send((60_000, []))
    fired = [line for line in timed.log if not line.startswith("event")]
    assert fired == ["t1000 of a at 1000", "t2000 of a at 2000", "t3000 of a at 3000"]
    assert tester.table(timed.group) == {"a": 3}


def test_missed_timers_of_the_wall_clock_fire_at_the_start_in_order(tester: Tester) -> None:
    timed = Timed(tester, group_of())
    orders = [{"name": f"t{at}", "at": at * 1000, "id": str(at), "clock": "wall"} for at in (30, 10, 20, 900)]
    timed.send((0, orders))
    tester.stop(timed.group)
    tester.advance(100)
    tester.start(timed.group)
    assert timed.log == ["event 1", "t10 of a at 10000", "t20 of a at 20000", "t30 of a at 30000"]
    tester.advance(1000)
    assert timed.log[-1] == "t900 of a at 900000"


def test_an_event_timer_of_a_silent_stream_fires_when_the_stream_is_idle(tester: Tester) -> None:
    timed = Timed(tester, group_of())
    timed.send((0, [{"name": "alone", "at": 10_000}]))
    tester.advance(20)
    assert timed.log == ["event 1"]
    tester.advance(60)
    assert timed.log == ["event 1", "alone of a at 10000"]


@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_a_timer_whose_handler_fails_fails_alone(on_error: OnError, tester: Tester) -> None:
    frail = Timer[str, Any, int]("in-event-time", fired, Json(), on_error=on_error)
    NAMES["event"] = frail
    try:
        timed = Timed(tester, group_of(timers=[frail]))
        timed.send(
            (0, [
                {"name": "one", "at": 10, "id": "1"},
                {"name": "two", "at": 20, "id": "2", "then": [{"name": "no", "at": 25}, {"cancel": True, "id": "3"}, {"bad": True}]},
                {"name": "three", "at": 30, "id": "3"},
            ]),
            (100, []),
            (200, []),
        )  # fmt: skip
    finally:
        NAMES["event"] = EVENT
    assert timed.log == ["event 1", "event 2", "one of a at 10", "three of a at 30", "event 3"]
    assert tester.table(timed.group) == {"a": 2}
    assert len(tester.dead_letters(timed.group)) == (1 if on_error is OnError.DEAD_LETTER else 0)


@pytest.mark.parametrize("on_error", OnError)
@pytest.mark.parametrize("clock", ["event", "wall"])
def test_a_timer_whose_output_kafka_refuses_fails_alone(
    clock: Any, on_error: OnError, tester: Tester
) -> None:
    def large(ctx: Context[str, int], size: int) -> None:
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(LOG, ctx.key, "x" * size)

    def each(ctx: Context[str, int], event: Any) -> None:
        for size in event["do"]:
            ctx.timers.at(timer, ctx.timestamp_ms + 10, size["at"] - timed.zero, str(size["at"]))

    timer = Timer[str, Any, int]("large", large, Json(), clock=clock, on_error=on_error)
    timed = Timed(tester, Group("timed", Input(EVENTS, each), Output(LOG), Persist(Long()), timer))
    log = tester.kafka.topics["log"]
    log.untold_bytes_max = 5000
    stops = pytest.raises(HandlerFailed, match="rows of state") if on_error is OnError.STOP else nullcontext()
    timed.send((0, [{"at": size} for size in (1, 6000, 2, 7000, 3)]))
    with stops as stopped:
        timed.send((100, []))
        tester.advance(30)
    if stopped is not None:
        return
    assert sorted(map(len, timed.log)) == [1, 2, 3]
    assert tester.table(timed.group) == {"a": 3}
    assert len(tester.dead_letters(timed.group)) == (2 if on_error is OnError.DEAD_LETTER else 0)
    log.untold_bytes_max = 10_000
    timed.send((0, [{"at": 6000}]), (200, []))  # the same timer of the same time
    tester.advance(30)
    assert sorted(map(len, timed.log)) == [1, 2, 3, 6000]


def test_a_timer_that_stops_the_process_leaves_what_came_before(tester: Tester) -> None:
    timed = Timed(tester, group_of())
    with pytest.raises(HandlerFailed):
        timed.send((0, [{"name": "two", "at": 20, "then": [{"bad": True}]}]), (10, []), (20, []), (30, []))
    assert timed.log == ["event 1", "event 2", "event 3"]
    with pytest.raises(HandlerFailed):
        tester.start(timed.group)
    assert timed.log == ["event 1", "event 2", "event 3"]


def test_a_record_that_fails_sets_and_cancels_no_timer(tester: Tester) -> None:
    timed = Timed(tester, group_of(OnError.SKIP))
    for _ in range(2):  # in a hurry, and carefully
        timed.send((0, [{"name": "one", "at": 50, "id": "1"}]))
        timed.send((1, [{"name": "two", "at": 60, "id": "2"}, {"cancel": True, "id": "1"}, {"bad": True}]))
    timed.send((100, []))
    assert timed.log == ["event 1", "event 3", "event 5", "one of a at 50"]


@pytest.mark.parametrize("rarely", [False, True], ids=["commits each time", "commits at the end"])
def test_what_a_timer_for_a_time_that_has_passed_emits_with_the_watermark_is_in_time(
    rarely: bool,  # noqa: FBT001 - a parameter
) -> None:
    def ring(ctx: Context[str, None], payload: str) -> None:
        ctx.emit(between, ctx.key, payload, timestamp_ms=max(ctx.timestamp_ms, ctx.watermark_ms))

    def first(ctx: Context[str, None], event: Any) -> None:
        ctx.emit(between, ctx.key, f"event {event}", timestamp_ms=ctx.event_time_ms)
        if event == 60:
            ctx.timers.at(timer, ctx.event_time_ms + 5, "timer")

    def second(ctx: Context[str, None], text: str) -> None:
        late = ctx.event_time_ms + 10 <= ctx.late_before_ms
        ctx.emit(LOG, ctx.key, f"{text}{': late' if late else ''}")

    between = Stream("between", String(), String())
    timer = Timer[str, str, None]("t", ring, String())
    groups = [
        Group("first", Input(EVENTS, first), Output(between, watermarks=True), timer, EventTime()),
        Group("second", Input(between, second, watermarks=True), Output(LOG), EventTime()),
    ]
    with Tester(commit_on_request=rarely) as tester:
        tester.create(EVENTS, between, LOG)
        tester.run(*groups)
        zero = int(tester.clock.now() * 1000)
        for at in (0, 100, 60, 101):
            tester.emit(EVENTS, "a", at, timestamp_ms=zero + at)
        for _ in range(3):
            tester.commit()
        found = [record.value for record in tester.records(LOG)]
    assert found == ["event 0", "event 100", "event 60: late", "timer", "event 101"]


def test_many_timers_that_are_due_at_once_fire_before_the_next_record(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamtable.engine.firing.runner._ROWS_OF_SLICE_MAX", 10)
    timed = Timed(tester, group_of())
    timed.send(
        (0, [{"name": f"t{at}", "at": at, "id": str(at)} for at in range(1, 61)]),
        (100, []),
        (101, []),
        (102, []),
    )
    expected = [f"t{at} of a at {at}" for at in range(1, 61)]
    assert timed.log == ["event 1", "event 2", *expected, "event 3", "event 4"]


@pytest.mark.parametrize("between", [None, b"{bad", b""], ids=["good", "bad", "deleted"])
@pytest.mark.parametrize("once", [False, True], ids=["each", "once"])
@pytest.mark.parametrize("careful", [False, True], ids=["together", "carefully"])
def test_a_timer_that_is_due_fires_before_the_next_record_also_over_records_that_are_left_out(
    careful: bool,  # noqa: FBT001 - a parameter, as the next
    once: bool,  # noqa: FBT001
    between: bytes | None,
    tester: Tester,
) -> None:
    counted = Once[Any]("n", timedelta(days=1)) if once else None
    reads = Input(EVENTS, handle, on_error=OnError.SKIP, once=counted, tombstones="skip")
    timed = Timed(tester, Group("timed", reads, Output(LOG), Persist(Long()), EVENT))
    timed.send((0, [{"bad": True}] if careful else []))

    def append(number: int, at: int, *do: Any) -> None:
        value = EVENTS.value.encode({"n": number, "do": [timed.timed(order) for order in do]})
        tester.kafka.append(EVENTS.name, b"a", value, timestamp_ms=timed.zero + at)

    append(2, 10, {"name": "past", "at": 3})
    if between is not None:
        tester.kafka.append(EVENTS.name, b"a", between or None, timestamp_ms=timed.zero + 11)
    append(3, 12)
    tester.work()
    assert timed.log[-3:] == ["event 2", "past of a at 3", "event 3"]


@pytest.mark.parametrize("careful", [False, True], ids=["together", "carefully"])
def test_a_timer_that_is_due_fires_before_the_next_change_of_a_table(
    careful: bool,  # noqa: FBT001 - a parameter
    tester: Tester,
) -> None:
    def changed(ctx: Context[str, int], change: RowChange[Any]) -> None:
        user: Any = change.new
        if user["bad"]:
            ctx.fail("bad")
        handle(ctx, user)

    users = Table[str, Any]("users", String(), Json())
    changes = Changes(users, changed, start="earliest", on_error=OnError.SKIP)
    tester.create(Stream("users", String(), Json()))
    timed = Timed(tester, Group("timed", Input(EVENTS, handle), changes, Output(LOG), Persist(Long()), EVENT))
    timed.send((10, []))
    past = timed.timed({"name": "past", "at": 3})
    for number in (1, 2, 3):
        value = Json().encode({"n": number, "bad": careful and number == 1, "do": [past]})
        tester.kafka.append("users", b"a", value, timestamp_ms=timed.zero)
    tester.work()
    expected = [f"event {number}" for number in (1, 2, 3)][int(careful) :]
    assert timed.log[1:] == [line for event in expected for line in (event, "past of a at 3")]


def test_a_timer_that_is_due_fires_before_the_next_replayed_record() -> None:
    def mended_later(ctx: Context[str, int], event: Any) -> None:
        if not mended:
            ctx.fail("bad")
        handle(ctx, event)

    mended = False
    reads = Input(EVENTS, mended_later, on_error=OnError.DEAD_LETTER)
    with Tester(work_on_request=True) as tester:
        timed = Timed(tester, Group("timed", reads, Output(LOG), Persist(Long()), EVENT))
        timed.send(*((10, [{"name": "past", "at": 3}]) for _ in range(3)))
        mended = True
        for letter in tester.dead_letters(timed.group):
            tester.retry(timed.group, letter)
        tester.work()
        assert timed.log == [line for n in (1, 2, 3) for line in (f"event {n}", "past of a at 3")]


def test_timers_between_all_records_of_a_batch_neither_decode_nor_read_them_again_and_again(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def paused(_: VirtualGroupConsumer, places: Any) -> None:
        raise AssertionError(f"{places} are read again")

    monkeypatch.setattr(VirtualGroupConsumer, "pause", paused)
    decoded = list[int]()

    class Counted(Json):
        def decode_many(self, data: Sequence[bytes | None]) -> Decoded[Any]:
            decoded.append(len(data))
            return super().decode_many(data)

    reads = Input(Stream("events", String(), Counted()), handle)
    timed = Timed(tester, Group("timed", reads, Output(LOG), Persist(Long()), EVENT))
    timed.send(*((at, [{"name": "next", "at": at}]) for at in range(300)))
    timed.send(*((at, []) for at in range(300, 1000)))
    assert tester.table(timed.group) == {"a": 300}
    assert sum(decoded) < 3 * 1000


def test_a_timer_that_is_not_in_the_graph_cannot_be_set(tester: Tester) -> None:
    timed = Timed(tester, group_of(timers=[WALL]))
    with pytest.raises(GraphError, match="does not have the timer 'in-event-time'"):
        timed.send((0, [{"name": "one", "at": 10}]))


def test_a_pending_timer_keeps_its_meaning_and_needs_its_handler(tester: Tester) -> None:
    timed = Timed(tester, group_of())
    timed.send((0, [{"name": "one", "at": 60_000, "clock": "wall"}]))
    tester.stop(timed.group)
    other = Timer[str, Any, int]("by-the-clock", fired, String(), clock="wall")
    with pytest.raises(StateMeaningChanged, match="timer by-the-clock"):
        tester.start(group_of(timers=[EVENT, other]))
    tester.start(group_of(timers=[EVENT, Timer("new", fired, Json(), clock="wall")]))
    with pytest.raises(GraphError, match="'by-the-clock' of group 'timed' is due"):
        tester.advance(100)
    tester.start(timed.group)
    assert timed.log == ["event 1", "one of a at 60000"]
