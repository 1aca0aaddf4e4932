"""Calls in a flow: their results are a stream, with the event times of their requests."""

from datetime import timedelta
from typing import Any

import pytest

from streamtable import Context, EventTime, Json, Long, Output, State, Stream, String
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.errors import GraphError
from streamtable.flow import Flow, KeyedStream, Tumbling
from streamtable_calls import Call, CallFailed, Retry, call_each
from streamtable_testing import Tester

MINUTE = 60_000
T = 1_600_000_000_000 // MINUTE * MINUTE
ORDERS = Stream[str, Any]("orders", String(), Json())
ASKED = Stream[str, Any]("asked", String(), Json())
OUT = Stream[str, Any]("out", String(), Json())


def never_called(request: Any) -> Any:
    raise AssertionError(f"a Tester runs no call, and {request!r} was given to one")


def call_of(**given: Any) -> Call[str, Any, Any, Any]:
    return Call("score", never_called, request=Json(), response=Json(), **given)


SCORE = call_of()


def flow_of(call: Call[str, Any, Any, Any] = SCORE, *edges: Any, **given: Any) -> Flow:
    flow = Flow("f")
    call_each(flow.stream(ORDERS), call, *edges, **given).to(OUT)
    return flow


def out(tester: Tester) -> list[Any]:
    return [(record.key, record.value) for record in tester.records(OUT)]


def test_the_result_of_each_call_is_a_record_with_the_key_and_the_event_time_of_its_request(
    tester: Tester,
) -> None:
    tester.run(flow_of())
    tester.emit(ORDERS, "a", "x", timestamp_ms=T)
    tester.emit(ORDERS, "b", "y", timestamp_ms=T + 1)
    assert out(tester) == []
    tester.calls(SCORE).answer(7, request="y")
    tester.calls(SCORE).answer(8)
    assert [(r.key, r.value, r.timestamp_ms) for r in tester.records(OUT)] == [
        ("b", 7, T + 1),
        ("a", 8, T),
    ]


def test_a_request_from_ahead_of_the_clock_keeps_its_event_time(tester: Tester) -> None:
    tester.run(flow_of())
    ahead_ms = int(tester.clock.now() * 1000) + 10 * MINUTE
    tester.emit(ORDERS, "a", "x", timestamp_ms=ahead_ms)
    tester.calls(SCORE).answer(7)
    assert [record.timestamp_ms for record in tester.records(OUT)] == [ahead_ms]


@pytest.mark.parametrize("at", [0, 1, 5_000])
def test_a_request_from_the_beginning_of_1970_keeps_its_event_time(at: int, tester: Tester) -> None:
    plain, called = Stream("plain", String(), Json()), Flow("f")
    requests = called.stream(ORDERS, time=int)
    requests.to(plain)
    call_each(requests, SCORE).to(OUT)
    tester.run(called)
    tester.emit(ORDERS, "a", at)
    tester.calls(SCORE).answer(7)
    times = [record.timestamp_ms for stream in (plain, OUT) for record in tester.records(stream)]
    assert times == [max(at, 1)] * 2


def test_the_results_of_a_key_are_in_the_order_of_its_requests(tester: Tester) -> None:
    call = call_of(retry=Retry(first=timedelta(minutes=1)))
    tester.run(flow_of(call))
    tester.emit_many(ORDERS, [("a", 1), ("a", 2), ("b", 3), ("a", 4)])
    calls = tester.calls(call)
    assert calls.pending == [1, 3]
    calls.fail(ConnectionError("refused"), request=1)
    calls.answer(30, request=3)
    assert calls.pending == []
    tester.advance(61)
    for request in (1, 2, 4):
        calls.answer(request * 10, request=request)
    assert out(tester) == [("b", 30), ("a", 10), ("a", 20), ("a", 40)]


def test_a_call_that_has_failed_is_a_dead_letter_and_the_next_result_follows(tester: Tester) -> None:
    flow = flow_of(call_of(retry=Retry(attempts=1)))
    tester.run(flow)
    tester.emit_many(ORDERS, [("a", 1), ("a", 2)])
    tester.calls(SCORE).fail(ConnectionError("refused"))
    tester.calls(SCORE).answer(20)
    assert out(tester) == [("a", 20)]
    (letter,) = tester.dead_letters(flow.group())
    assert "tried once: ConnectionError: refused" in letter.reason


def test_the_handlers_of_a_call_return_the_values_of_the_next_step_and_use_the_edges_of_the_step(
    tester: Tester,
) -> None:
    seen = State[str, int]("seen", key=String(), value=Long())

    def then(ctx: Context[str, Any], order: Any, score: Any) -> Any:
        count = (ctx.table(seen).get(ctx.key) or 0) + 1
        ctx.table(seen).put(ctx.key, count)
        ctx.emit(ASKED, ctx.key, order)
        return None if score == 0 else [f"{order} {score} {count}", "again"]

    def failed(ctx: Context[str, Any], order: Any, error: CallFailed) -> Any:
        return [f"{order} {error.reason}"]

    call = call_of(then=then, failed=failed, retry=None)
    tester.run(flow_of(call, seen, Output(ASKED), value=Json()))
    tester.emit_many(ORDERS, [("a", "x"), ("a", "y"), ("a", "z")])
    tester.calls(call).answer(0)
    tester.calls(call).answer(5)
    tester.calls(call).fail(ValueError("no"))
    assert out(tester) == [("a", "y 5 2"), ("a", "again"), ("a", "z ValueError: no")]
    assert [record.value for record in tester.records(ASKED)] == ["x", "y"]


@pytest.mark.parametrize("made", [{"id": 1, "score": 2}, "good", b"good"])
@pytest.mark.parametrize("handler", ["then", "failed"])
def test_a_handler_that_returns_one_value_in_the_place_of_a_list_makes_a_dead_letter(
    handler: str, made: Any, tester: Tester
) -> None:
    given = {"then": lambda *_: (), handler: lambda *_: made}
    call = call_of(retry=None, **given)
    flow = flow_of(call, value=Json())
    tester.run(flow)
    tester.emit(ORDERS, "a", "x")
    calls = tester.calls(call)
    if handler == "then":
        calls.answer(7)
    else:
        calls.fail(ValueError("down"))
    assert out(tester) == []
    (letter,) = tester.dead_letters(flow.groups[0])
    assert f"returned one {type(made).__name__}: return a list of values" in letter.reason


def test_a_window_behind_a_call_stays_open_until_its_results_are_there(tester: Tester) -> None:
    flow = Flow("f", event_time=EventTime(idle_after=timedelta(seconds=5)))
    scores = call_each(flow.stream(ORDERS), SCORE)
    sums = scores.group_by_key().window(Tumbling(timedelta(minutes=1), grace=timedelta(0)))
    counts = sums.count("counts")
    counts.final().map(lambda key, count: (f"{key.key}@{(key.start_ms - T) // MINUTE}", count)).to(OUT)
    tester.run(flow)
    tester.emit(ORDERS, "a", "first", timestamp_ms=T)
    tester.emit(ORDERS, "b", "second", timestamp_ms=T + 10)
    for minute in (3, 4, 5):
        tester.emit(ORDERS, "c", minute, timestamp_ms=T + minute * MINUTE)
    calls = tester.calls(SCORE)
    for minute in (3, 4, 5):
        calls.answer(0, request=minute)
    calls.answer(0, request="second")
    tester.advance(30)  # the input is idle, and one call is not answered
    assert out(tester) == []
    calls.answer(0, request="first")
    tester.advance(30)
    assert sorted(out(tester)) == [("a@0", 1), ("b@0", 1), ("c@3", 1), ("c@4", 1), ("c@5", 1)]


@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_a_crash_loses_and_repeats_no_result(step: str) -> None:
    with Tester() as tester:
        flow = flow_of()
        tester.run(flow)
        tester.emit_many(ORDERS, [("a", 1), ("b", 2), ("a", 3)])
        tester.crash(flow.group(), at=step)
        for _ in range(20):
            if tester._of(flow.group())[0].processor is None:
                tester.start(flow.group(), disk=False)
            if pending := tester.calls(SCORE).pending:
                tester.calls(SCORE).answer(pending[0])
        assert sorted(out(tester)) == [("a", 1), ("a", 3), ("b", 2)]
        assert [value for key, value in out(tester) if key == "a"] == [1, 3]


def test_a_handler_that_makes_other_values_needs_their_codec() -> None:
    with pytest.raises(GraphError, match=r"call_each\(\) of call 'score' .* value="):
        flow_of(call_of(then=lambda ctx, order, score: [score]))


def test_a_call_in_a_flow_twice_is_refused() -> None:
    flow = Flow("f")
    orders = flow.stream(ORDERS)
    call_each(orders, SCORE)
    with pytest.raises(GraphError, match="two steps named 'score'"):
        call_each(orders, SCORE)


def test_the_handler_of_a_result_may_call_again(tester: Tester) -> None:
    def then(ctx: Context[str, Any], page: int, more: bool) -> Any:  # noqa: FBT001
        if more:
            ctx.call(call, page + 1)
        return [page]

    call = call_of(then=then)
    tester.run(flow_of(call, value=Json()))
    tester.emit(ORDERS, "a", 1)
    tester.calls(call).answer(True)
    tester.calls(call).answer(False, request=2)
    assert out(tester) == [("a", 1), ("a", 2)]


def counted_every_minute() -> tuple[Flow, KeyedStream[str, int | None]]:
    flow = Flow("f")
    counts = flow.stream(ORDERS, time=lambda order: T + order).group_by_key().count("n")
    return flow, counts.every("live", timedelta(minutes=1))


def test_what_comes_out_after_an_interval_needs_a_topic_before_its_calls(tester: Tester) -> None:
    _, live = counted_every_minute()
    with pytest.raises(GraphError, match=r"every\(\).*repartition"):
        call_each(live, SCORE)
    flow, live = counted_every_minute()
    call_each(live.repartition("counted"), SCORE).to(OUT)
    tester.run(flow)
    for at in (0, 1, MINUTE + 1):
        tester.emit(ORDERS, "a", at)
    tester.calls(SCORE).answer(70, request=2)
    assert [(r.key, r.value, r.timestamp_ms) for r in tester.records(OUT)] == [("a", 70, T + MINUTE - 1)]
