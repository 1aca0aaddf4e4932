"""Calls in the order of each key, with exactly one result, over failures, crashes and rebalances."""

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from streamtable import (
    Bytes,
    Context,
    Group,
    Guarantee,
    Input,
    Json,
    OnError,
    Output,
    Persist,
    Stream,
    String,
)
from streamtable.base.clock import SystemClock
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.engine.named.state import KeptState
from streamtable.errors import ConfigurationError, GraphError, HandlerFailed, RetryLater, StateMeaningChanged
from streamtable.handlers.timers import PendingTimer
from streamtable.observe import Metrics
from streamtable.store.memory import MemoryStores
from streamtable_admin.declaration import _declared
from streamtable_calls import Call, CallFailed, Retry, RetryAfter, call_id, call_ids
from streamtable_calls.commands_to_group import CallCommand, command_record
from streamtable_calls.metrics import CallMeters
from streamtable_calls.partition import Attempt, Outcome, PartitionCalls
from streamtable_calls.pending import CallState, PendingCall
from streamtable_testing import Tester
from streamtable_testing.faults import Fault

ORDERS = Stream[str, Any]("orders", String(), Json())
RESULTS = Stream[str, Any]("results", String(), Json())


def never_called(request: Any) -> Any:
    raise AssertionError(f"a Tester runs no call, and {request!r} was given to one")


def scored(ctx: Context[str, Any], order: Any, score: Any) -> None:
    if score == "refuse":
        ctx.fail("the handler does not like it")
    ctx.set([*(ctx.value or []), score])
    ctx.emit(RESULTS, ctx.key, {"order": order, "score": score, "at": ctx.timestamp_ms})
    if score == "again":
        ctx.call(SCORE, f"{order} again")


def call_of(**given: Any) -> Call[str, Any, Any, Any]:
    return Call("score", never_called, request=Json(), response=Json(), **{"then": scored, **given})


SCORE = call_of()


def group_of(call: Call[str, Any, Any, Any] = SCORE, on_error: OnError = OnError.STOP) -> Group[str, Any]:
    def handle(ctx: Context[str, Any], order: Any) -> None:
        ctx.call(call, order)
        if order == "fail":
            ctx.fail("after the call")

    return Group("scores", Input(ORDERS, handle, on_error=on_error), call, Output(RESULTS), Persist(Json()))


def refuse_one_commit(tester: Tester) -> None:
    left = [Fault.REFUSED]
    faults: Any = tester.kafka.faults
    faults.before = lambda process, call: left.pop() if call == "commit" and left else None


def results(tester: Tester, key: str = "a") -> list[Any]:
    mine = [record.value or {} for record in tester.records(RESULTS) if record.key == key]
    return [(value["order"], value["score"]) for value in mine]


def test_a_result_is_handled_with_the_row_of_its_key_and_the_time_of_its_request(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    tester.emit(ORDERS, "a", "x", timestamp_ms=1_600_000_000_000)
    assert tester.calls(SCORE).pending == ["x"]
    assert "a" not in tester.table(group)
    tester.calls(SCORE).answer(7)
    assert tester.table(group)["a"] == [7]
    assert [record.value for record in tester.records(RESULTS)] == [
        {"order": "x", "score": 7, "at": 1_600_000_000_000}
    ]
    assert tester.calls(SCORE).pending == []


class OfRegistry(Json):
    """JSON whose schema is in a registry that may be away, or lack it."""

    away = False
    missing = False

    def prepare(self) -> None:
        if self.missing:
            raise ConfigurationError("the registry has no such subject")

    def encode(self, value: Any) -> bytes:
        self._ask()
        return super().encode(value)

    def decode(self, data: bytes) -> Any:
        self._ask()
        return super().decode(data)

    def _ask(self) -> None:
        if self.away:
            raise RetryLater("the registry does not answer")


def of_registry(**codecs: OfRegistry) -> Call[str, Any, Any, Any]:
    given: Any = {"request": Json(), "response": Json(), **codecs}
    return Call("score", never_called, then=scored, **given)


def test_the_result_of_a_call_is_written_when_the_registry_of_its_codec_answers_again(tester: Tester) -> None:
    codec = OfRegistry()
    call = of_registry(response=codec)
    group = group_of(call)
    tester.run(group)
    tester.emit_many(ORDERS, [("a", "x"), ("b", "y")])
    codec.away = True
    tester.calls(call).answer(7, request="x")
    tester.calls(call).answer(8, request="y")
    assert (tester.table(group), tester.dead_letters(group)) == ({}, [])
    codec.away = False
    tester.advance(60)
    assert tester.table(group) == {"a": [7], "b": [8]}


def test_a_pending_call_waits_for_the_registry_of_its_request_when_its_partition_is_taken_over(
    tester: Tester,
) -> None:
    codec = OfRegistry()
    call = of_registry(request=codec)
    group = group_of(call)
    tester.run(group)
    tester.emit_many(ORDERS, [("a", "x"), ("a", "y"), ("b", "z")])
    codec.away = True
    tester.stop(group)
    tester.start(group)
    tester.advance(1)
    codec.away = False
    tester.advance(60)
    assert tester.dead_letters(group) == []
    for order in ("x", "z", "y"):
        tester.calls(call).answer(order.upper(), request=order)
    assert tester.table(group) == {"a": ["X", "Y"], "b": ["Z"]}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_result_is_not_given_to_a_handler_that_nothing_would_run(tester: Tester) -> None:
    async def waits(ctx: Any, order: Any, score: Any) -> None:
        scored(ctx, order, score)

    call = call_of(then=lambda *given: waits(*given))  # noqa: PLW0108 - which hides it
    tester.run(group_of(call))
    tester.emit(ORDERS, "a", "x")
    with pytest.raises(GraphError, match="nothing would run it"):
        tester.calls(call).answer(7)


@pytest.mark.parametrize("part", ["request", "response"])
def test_a_group_does_not_start_without_the_schemas_of_its_calls(tester: Tester, part: str) -> None:
    codec = OfRegistry()
    codec.missing = True
    with pytest.raises(ConfigurationError, match="no such subject"):
        tester.run(group_of(of_registry(**{part: codec})))


def test_the_call_of_a_record_without_a_timestamp_has_no_time(tester: Tester) -> None:
    tester.run(group_of())
    tester.emit_raw(ORDERS.name, b"a", b'"x"', timestamp_ms=-1)
    tester.calls(SCORE).answer(7)
    assert [record.value for record in tester.records(RESULTS)] == [{"order": "x", "score": 7, "at": 0}]


def test_a_call_that_is_made_by_the_result_of_one_without_a_time_has_none(tester: Tester) -> None:
    tester.run(group_of())
    tester.emit_raw(ORDERS.name, b"a", b'"x"', timestamp_ms=-1)
    tester.calls(SCORE).answer("again")
    tester.calls(SCORE).answer(7)
    assert [(record.value or {})["at"] for record in tester.records(RESULTS)] == [0, 0]


def test_calls_of_one_key_run_one_after_the_other_and_those_of_others_meanwhile(tester: Tester) -> None:
    tester.run(group_of())
    for key, order in (("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")):
        tester.emit(ORDERS, key, order)
    calls = tester.calls(SCORE)
    assert calls.pending == ["1", "2"]
    calls.answer(20, request="2")
    assert calls.pending == ["1"]
    for order in ("1", "3", "4"):
        calls.answer(int(order) * 10, request=order)
    assert results(tester) == [("1", 10), ("3", 30), ("4", 40)]


def test_without_an_order_all_calls_of_a_key_run(tester: Tester) -> None:
    call = call_of(order="none")
    tester.run(group_of(call))
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2"), ("a", "3")])
    assert tester.calls(call).pending == ["1", "2", "3"]
    tester.calls(call).answer(2, request="2")
    tester.calls(call).answer(1, request="1")
    assert results(tester) == [("2", 2), ("1", 1)]


def test_a_failed_attempt_is_repeated_with_the_same_id_after_a_pause_that_grows(tester: Tester) -> None:
    tester.run(group_of())
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2")])
    calls = tester.calls(SCORE)
    ids = list(calls.ids)
    calls.fail(ConnectionError("refused"))
    assert calls.pending == []  # and the next one of its key waits behind it
    tester.advance(1.1)
    assert (calls.pending, calls.ids) == (["1"], ids)
    calls.fail(ConnectionError("refused"))
    tester.advance(1.1)
    assert calls.pending == []
    tester.advance(1.0)
    calls.answer(1)
    calls.answer(2)
    assert results(tester) == [("1", 1), ("2", 2)]
    assert len(ids) == 1
    assert ids[0].startswith("scores/0/")


def test_a_group_whose_tables_were_emptied_gives_no_id_a_second_time() -> None:
    ids: list[str] = []
    for now in (1_700_000_000.0, 1_700_000_060.0):  # each Tester begins without a table
        with Tester(now=now) as tester:
            tester.run(group_of(), partitions=1)
            tester.emit_many(ORDERS, [(f"key-{n}", n) for n in range(100)])
            ids += tester.calls(SCORE).ids
    assert len(set(ids)) == 200


def test_the_other_side_says_when_to_try_again(tester: Tester) -> None:
    tester.run(group_of())
    tester.emit(ORDERS, "a", "1")
    tester.calls(SCORE).fail(RetryAfter(30))
    tester.advance(29)
    assert tester.calls(SCORE).pending == []
    tester.advance(2)
    assert tester.calls(SCORE).pending == ["1"]


@pytest.mark.parametrize(
    ("seconds", "pending"), [(float("nan"), [1]), (-1.0, [1]), (float("inf"), []), (1e20, [])]
)
def test_whatever_time_the_other_side_says_the_process_goes_on(
    tester: Tester, seconds: float, pending: list[int]
) -> None:
    tester.run(group_of())
    tester.emit_many(ORDERS, [("a", 1), ("b", 2)])
    tester.calls(SCORE).fail(RetryAfter(seconds), request=1)
    tester.calls(SCORE).answer(7, request=2)
    assert results(tester, "b") == [(2, 7)]
    tester.advance(1.1)
    assert tester.calls(SCORE).pending == pending


class Mute(ConnectionError):
    def __str__(self) -> str:
        raise AttributeError("it has no response")


def test_an_error_whose_message_cannot_be_made_is_an_error_like_any_other(tester: Tester) -> None:
    tester.run(group_of())
    tester.emit(ORDERS, "a", 1)
    tester.calls(SCORE).fail(Mute())
    tester.advance(1.1)
    tester.calls(SCORE).answer(7)
    assert results(tester) == [(1, 7)]


def test_a_handler_whose_body_would_never_run_is_refused(tester: Tester) -> None:
    async def waits(ctx: Context[str, Any], order: Any, score: Any) -> None:
        ctx.set(score)

    def yields(ctx: Context[str, Any], order: Any, score: Any) -> Any:
        ctx.set(score)
        yield score

    for role in ("then", "failed"):
        with pytest.raises(GraphError, match=f"{role} of call 'score' is a coroutine function"):
            call_of(**{role: waits})
    call = call_of(then=yields)
    tester.run(group_of(call))
    tester.emit(ORDERS, "a", 1)
    with pytest.raises(GraphError, match="yields values, which only a flow passes on"):
        tester.calls(call).answer(7)


def test_a_call_that_is_not_tried_again_is_a_dead_letter_and_the_next_one_of_its_key_follows(
    tester: Tester,
) -> None:
    call = call_of(retry=Retry(attempts=2, on=(ConnectionError,)))
    group = group_of(call)
    tester.run(group)
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2"), ("a", "3")])
    tester.calls(call).fail(ConnectionError("refused"))
    tester.advance(1.1)
    tester.calls(call).fail(ConnectionError("refused again"))
    tester.calls(call).fail(ValueError("no such order"))  # which is not retried
    tester.calls(call).answer(3)
    reasons = [letter.reason for letter in tester.dead_letters(group)]
    assert "tried 2 times: ConnectionError: refused again" in reasons[0]
    assert "tried once: ValueError: no such order" in reasons[1]
    assert results(tester) == [("3", 3)]


def test_a_call_without_a_handler_is_done_with_its_result(tester: Tester) -> None:
    call = call_of(then=None)
    tester.run(group_of(call))
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2")])
    tester.calls(call).answer(10)
    assert tester.calls(call).pending == ["2"]


def test_a_handler_can_take_the_failure_itself(tester: Tester) -> None:
    def failed(ctx: Context[str, Any], order: Any, error: CallFailed) -> None:
        ctx.set([order, error.attempts, error.reason])

    call = call_of(retry=None, failed=failed)
    group = group_of(call)
    tester.run(group)
    tester.emit(ORDERS, "a", "1")
    tester.calls(call).fail(ValueError("no"))
    assert tester.table(group)["a"] == ["1", 1, "ValueError: no"]


def test_a_result_that_does_not_fit_its_codec_fails_the_call(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    tester.emit(ORDERS, "a", "1")
    tester.calls(SCORE).answer(object())
    assert len(tester.dead_letters(group)) == 1


def test_a_record_that_fails_has_made_no_call(tester: Tester) -> None:
    tester.run(group_of(on_error=OnError.DEAD_LETTER))
    tester.emit_many(ORDERS, [("a", "1"), ("a", "fail"), ("a", "2")])
    assert tester.calls(SCORE).pending == ["1"]
    tester.calls(SCORE).answer(1)
    assert tester.calls(SCORE).pending == ["2"]


def test_a_call_does_not_start_before_the_commit_of_its_record() -> None:
    with Tester(commit_on_request=True) as tester:
        tester.run(group_of())
        tester.emit(ORDERS, "a", "1")
        assert tester.calls(SCORE).pending == []
        tester.commit()
        assert tester.calls(SCORE).pending == ["1"]


@pytest.mark.parametrize("score", [1, "refuse"])
def test_the_next_call_of_a_key_starts_although_a_commit_came_before_the_handler_of_the_result(
    tester: Tester, score: Any
) -> None:
    def then(ctx: Context[str, Any], order: Any, score: Any) -> None:
        tester.clock.advance(0.01)  # so that a commit is due before the handler was called for all
        scored(ctx, order, score)

    call = call_of(then=then)
    tester.run(group_of(call), partitions=1)
    keys = [f"key-{n}" for n in range(100)]
    tester.emit_many(ORDERS, [(key, 1) for key in keys])
    for executor, attempt in tester.calls(call)._ready():
        executor.answer(attempt, score)
    tester.work()
    tester.emit_many(ORDERS, [(key, 2) for key in keys])
    assert tester.calls(call).pending == [2] * len(keys)


def test_the_handler_of_a_result_may_call_again(tester: Tester) -> None:
    tester.run(group_of())
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2")])
    tester.calls(SCORE).answer("again")
    tester.calls(SCORE).answer(2)
    assert tester.calls(SCORE).pending == ["1 again"]


def test_a_failure_while_a_result_is_handled_undoes_that_result_alone(tester: Tester) -> None:
    group = group_of()
    tester.run(group, partitions=1)
    tester.emit_many(ORDERS, [("a", "1"), ("b", "2"), ("c", "3")])
    tester.calls(SCORE).answer(1)
    tester.calls(SCORE).answer("refuse")
    tester.calls(SCORE).answer(3)
    assert dict(tester.table(group)) == {"a": [1], "c": [3]}
    assert [letter.error for letter in tester.dead_letters(group)] == ["Rejected"]


def test_a_handler_that_stops_the_process_gets_its_result_again(tester: Tester) -> None:
    refuses = True

    def then(ctx: Context[str, Any], order: Any, score: Any) -> None:
        if refuses:
            ctx.fail("not yet")
        scored(ctx, order, score)

    call = call_of(then=then, on_error=OnError.STOP)
    group = group_of(call)
    tester.run(group)
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2")])
    way_on = r"'streamtable calls list scores' shows its id, for 'streamtable calls drop scores --id ID' \(scores-calls\[0\]\)"
    with pytest.raises(HandlerFailed, match=f"not yet. Correct the handler, or delete it: {way_on}"):
        tester.calls(call).answer(1)
    refuses = False
    tester.start(group)
    if tester.calls(call).pending == [
        "1"
    ]:  # the answer was not committed: it is asked for again, with the same id
        tester.calls(call).answer(1)
    tester.calls(call).answer(2)
    assert results(tester) == [("1", 1), ("2", 2)]


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("disk", [True, False])
def test_a_crash_in_the_commit_loses_and_repeats_no_result(step: str, times: int, disk: bool) -> None:  # noqa: FBT001
    with Tester() as tester:
        group = group_of()
        tester.run(group)
        tester.emit(ORDERS, "a", "0")
        tester.calls(SCORE).answer(0)
        tester.crash(group, at=step, times=times)
        tester.emit_many(ORDERS, [("a", "1"), ("b", "2"), ("a", "3")])
        for _ in range(20):
            if tester._of(group)[0].processor is None:
                tester.start(group, disk=disk)
            if calls := tester.calls(SCORE).pending:
                tester.calls(SCORE).answer(int(calls[0]))
        assert results(tester) == [("0", 0), ("1", 1), ("3", 3)]
        assert results(tester, "b") == [("2", 2)]


def test_the_attempts_survive_a_restart(tester: Tester) -> None:
    group = group_of(call_of(retry=Retry(attempts=3)))
    tester.run(group)
    tester.emit(ORDERS, "a", "1")
    for pause in (1.1, 2.1):
        tester.calls(SCORE).fail(ConnectionError("refused"))
        tester.stop(group)
        tester.start(group, disk=False)
        assert tester.calls(SCORE).pending == []  # not before its time
        tester.advance(pause)
    tester.calls(SCORE).fail(ConnectionError("refused"))
    assert "tried 3 times" in tester.dead_letters(group)[0].reason


def test_a_partition_that_moves_takes_its_pending_calls_along(tester: Tester) -> None:
    group = group_of()
    tester.run(group, partitions=4)
    keys = [f"key-{n}" for n in range(12)]
    tester.emit_many(ORDERS, [(key, f"{key} {n}") for n in range(2) for key in keys])
    before = sorted(zip(tester.calls(SCORE).pending, tester.calls(SCORE).ids, strict=True))
    tester.join(group)
    assert sorted(zip(tester.calls(SCORE).pending, tester.calls(SCORE).ids, strict=True)) == before
    for count in range(24):
        if count == 10:
            tester.leave(group, 0)
        tester.calls(SCORE).answer(count)
    for key in keys:
        assert [order for order, _ in results(tester, key)] == [f"{key} 0", f"{key} 1"]


def test_a_result_for_a_partition_that_has_moved_is_dropped(tester: Tester) -> None:
    group = group_of()
    tester.run(group)
    tester.emit(ORDERS, "a", "1")
    _, attempt = tester.calls(SCORE)._ready()[0]
    tester.stop(group)
    attempt.calls.arrive(Outcome(attempt.row_key, 13))
    tester.start(group)
    assert results(tester) == []
    tester.calls(SCORE).answer(1)
    assert results(tester) == [("1", 1)]


def test_calls_that_are_made_before_a_process_has_found_the_pending_ones_run_once_and_behind_them() -> None:
    with Tester(commit_on_request=True) as tester:
        group = group_of()
        tester.run(group)
        tester.emit(ORDERS, "a", "1")
        tester.commit()
        tester.crash(group)
        tester.emit_many(ORDERS, [("a", "2"), ("b", "3")])
        tester.start(group)
        tester.commit()
        assert sorted(tester.calls(SCORE).pending) == ["1", "3"]


def test_a_failed_attempt_is_logged_with_its_error(tester: Tester) -> None:
    tester.run(group_of())
    tester.emit(ORDERS, "a", "1")
    with capture_logs() as lines:
        tester.calls(SCORE).fail(ConnectionError("refused"))
    (line,) = [line for line in lines if line["event"] == "attempt failed, the call is repeated"]
    assert (line["call"], line["attempts"], line["error"]) == ("score", 1, "ConnectionError: refused")


def test_a_result_may_be_larger_than_a_record(tester: Tester) -> None:
    def then(ctx: Context[str, Any], order: Any, score: Any) -> None:
        if score == "refuse":
            ctx.fail("so that records are handled one by one from here")
        ctx.emit(RESULTS, ctx.key, {"order": order, "score": len(score)})

    call = call_of(then=then)
    tester.run(group_of(call))
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2"), ("a", "3")])
    for score in ("x" * 3_000_000, "refuse", "x" * 3_000_000):
        tester.calls(call).answer(score)
    assert results(tester) == [("1", 3_000_000), ("3", 3_000_000)]


def test_a_request_that_fits_into_a_record_fits_with_its_error_too(tester: Tester) -> None:
    group = group_of(on_error=OnError.DEAD_LETTER)
    tester.run(group)
    most = next(size for size in range(1_048_576, 0, -100) if _fits(tester, group, size))
    tester.calls(SCORE).fail(ConnectionError("\N{SNOWMAN}" * 1000))
    tester.advance(2)
    assert [len(request) for request in tester.calls(SCORE).pending] == [most]


def _fits(tester: Tester, group: Group[str, Any], size: int) -> bool:
    if size > 1_047_500:  # the record of the input is too large
        return False
    before = len(tester.dead_letters(group))
    tester.emit(ORDERS, "a", "x" * size)
    return len(tester.dead_letters(group)) == before


def test_a_standby_takes_over_the_pending_calls(tester: Tester) -> None:
    group = group_of()
    tester.run(group, members=2, partitions=2, standby=True)
    tester.emit_many(ORDERS, [(f"key-{n}", str(n)) for n in range(10)])
    ids = sorted(tester.calls(SCORE).ids)
    tester.leave(group, 0)
    assert sorted(tester.calls(SCORE).ids) == ids
    for _ in range(10):
        tester.calls(SCORE).answer(1)
    assert len(tester.records(RESULTS)) == 10


def test_with_at_least_once_no_result_is_lost_by_a_crash(tester: Tester) -> None:
    group = group_of()
    tester.run(group, guarantee=Guarantee.AT_LEAST_ONCE)
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2")])
    tester.crash(group, at="changelog-produced")
    tester.calls(SCORE).answer(1)
    tester.start(group)
    for _ in range(3):
        if tester.calls(SCORE).pending:
            tester.calls(SCORE).answer(2)
    assert {order for order, _ in results(tester)} == {"1", "2"}
    assert tester.calls(SCORE).pending == []


def test_the_inputs_of_a_partition_wait_while_too_many_calls_are_pending(tester: Tester) -> None:
    call = call_of(pending_max=10)
    tester.run(group_of(call))
    tester.emit_many(ORDERS, [(f"key-{n}", str(n)) for n in range(30)])
    assert len(tester.calls(call).pending) == 10
    for _ in range(30):
        tester.calls(call).answer(1)
    assert len(tester.records(RESULTS)) == 30


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_the_inputs_go_on_after_the_call_that_filled_a_partition_is_undone_with_its_record(
    most: int, tester: Tester
) -> None:
    call = call_of(pending_max=most)
    group = group_of(call, OnError.DEAD_LETTER)
    tester.run(group)
    tester.emit_many(ORDERS, [("a", "1"), ("b", "2"), ("c", "fail"), ("d", "4")])
    for order in ("1", "2", "4"):
        tester.advance(1)
        tester.calls(call).answer(1, request=order)
    assert {record.key for record in tester.records(RESULTS)} == {"a", "b", "d"}
    assert [letter.key for letter in tester.dead_letters(group)] == [b"c"]


def test_the_inputs_go_on_after_a_commit_with_as_many_calls_as_may_be_pending_is_refused(
    tester: Tester,
) -> None:
    call = call_of(pending_max=3)
    tester.run(group_of(call))
    refuse_one_commit(tester)
    tester.emit_many(ORDERS, [(key, key) for key in "abcde"])
    tester.advance(60)
    for order in "abcde":
        tester.calls(call).answer(1, request=order)
    assert len(tester.records(RESULTS)) == 5


def test_commands_are_taken_while_the_inputs_of_their_partition_wait(tester: Tester) -> None:
    call = call_of(pending_max=10)
    group = group_of(call)
    tester.run(group, partitions=1)
    tester.emit_many(ORDERS, [(f"key-{n}", str(n)) for n in range(30)])
    for _ in range(10):
        tester.calls(call).fail(RetryAfter(3600))
    assert tester.calls(call).pending == []
    send_command(tester, group, CallCommand.RETRY_NOW, b"key-0", 1)
    assert tester.calls(call).pending == ["0"]
    for number in (2, 3, 4):
        send_command(tester, group, CallCommand.DROP, b"key-%d" % (number - 1), number)
    assert tester.calls(call).pending == ["0", "10", "11", "12"]


def test_a_call_that_is_removed_while_it_is_pending_is_refused(tester: Tester) -> None:
    other = Call("other", never_called, request=Json(), response=Json(), then=scored)
    tester.run(group_of())
    tester.emit(ORDERS, "a", "1")
    tester.stop(group_of())
    with pytest.raises(StateMeaningChanged, match=r"1 calls of 'score' are pending.*calls drop scores score"):
        tester.start(group_of(other))


def send_command(
    tester: Tester, group: Group[str, Any], command: CallCommand, raw_key: bytes, number: int
) -> None:
    """Send a command for a call of partition 0, by its number from 1."""
    kept = tester.records(Stream("scores-calls", Bytes(), Bytes()))
    first = min(filter(None, (PendingTimer.decode(record.key or b"").id for record in kept)))
    row_key = PendingTimer("score", raw_key, f"{int(first, 16) + number - 1:016x}").encode()
    record = command_record(group.name, command, 0, row_key)
    tester.emit_raw(
        record.topic, record.key, record.value, partition=record.partition, headers=record.headers
    )


def test_the_metrics_count_the_pending_calls_and_each_attempt_once(tester: Tester) -> None:
    call = call_of(retry=Retry(attempts=2))
    group = group_of(call)
    tester.run(group, partitions=2)
    for key in ("a", "b", "c", "d"):
        tester.emit(ORDERS, key, key, timestamp_ms=int(tester.clock.now() * 1000) - 60_000)
    tester.calls(call).answer(1, request="a")
    tester.calls(call).fail(ConnectionError("refused"), request="b")
    tester.advance(1.1)
    tester.calls(call).fail(ConnectionError("refused"), request="b")
    registry = CollectorRegistry()
    metrics = Metrics.register(registry)
    processor = tester._of(group)[0].processor
    assert processor is not None
    assert processor.member is not None
    companions = processor.member.assignment.companions
    assert companions is not None

    def value(name: str, **more: str) -> float | None:
        labels = {"group": "scores", "call": "score", **more}
        return registry.get_sample_value(f"streamtable_calls_{name}", labels)

    for _ in range(2):
        companions.measure(metrics)
        assert (value("pending"), value("running")) == (2, 2)
        assert (value("oldest_seconds") or 0) >= 60
        assert [value("attempts_total", outcome=each) for each in ("answered", "retried", "failed")] == [
            1,
            1,
            1,
        ]
    companions.close()
    assert value("pending") is None


def test_a_call_that_waits_is_tried_at_once_when_it_is_asked_for(tester: Tester) -> None:
    group = group_of()
    tester.run(group, partitions=1)
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2")])
    tester.calls(SCORE).fail(RetryAfter(3600))
    assert tester.calls(SCORE).pending == []
    send_command(tester, group, CallCommand.RETRY_NOW, b"a", 1)
    assert tester.calls(SCORE).pending == ["1"]
    send_command(tester, group, CallCommand.RETRY_NOW, b"a", 1)
    send_command(tester, group, CallCommand.RETRY_NOW, b"a", 2)  # it waits for its key, not for a time
    send_command(tester, group, CallCommand.RETRY_NOW, b"b", 7)  # there is none
    assert tester.calls(SCORE).pending == ["1"]
    tester.calls(SCORE).answer(1)
    tester.calls(SCORE).answer(2)
    assert results(tester) == [("1", 1), ("2", 2)]
    assert tester.dead_letters(group) == []


def test_a_call_that_is_dropped_has_no_result_and_the_next_one_of_its_key_follows(tester: Tester) -> None:
    group = group_of()
    tester.run(group, partitions=1)
    tester.emit_many(ORDERS, [("a", "1"), ("a", "2"), ("a", "3")])
    _, running = tester.calls(SCORE)._ready()[0]
    send_command(tester, group, CallCommand.DROP, b"a", 1)
    assert tester.calls(SCORE).pending == ["2"]
    send_command(tester, group, CallCommand.DROP, b"a", 3)
    assert tester.calls(SCORE).pending == ["2"]
    running.calls.arrive(Outcome(running.row_key, 1))
    tester.calls(SCORE).answer(2)
    assert results(tester) == [("2", 2)]
    tester.stop(group)
    tester.start(group, disk=False)
    assert tester.calls(SCORE).pending == []


def test_a_dead_letter_of_a_call_that_is_replayed_is_pending_again_with_the_same_id(tester: Tester) -> None:
    call = call_of(retry=None)
    group = group_of(call)
    tester.run(group, partitions=1)
    tester.emit(ORDERS, "a", "1")
    ids = list(tester.calls(call).ids)
    tester.calls(call).fail(ValueError("out of order"))
    (letter,) = tester.dead_letters(group)
    tester.retry(group, letter)
    tester.retry(group, letter)  # which changes nothing: it is pending
    assert (tester.calls(call).pending, tester.calls(call).ids) == (["1"], ids)
    tester.calls(call).answer(1)
    assert results(tester) == [("1", 1)]
    assert len(tester.dead_letters(group)) == 1


class Started:
    """Remembers the requests that it is to run."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def start(self, attempt: Attempt) -> None:
        self.requests.append(attempt.request)

    def drop(self, attempt: Attempt) -> None: ...
    def running(self, call: str) -> int:
        return 0

    def durations(self, call: str) -> list[float]:
        return []

    def cancel(self, calls: PartitionCalls) -> None: ...
    def close(self) -> None: ...


def test_an_answer_that_was_not_handled_is_written_again_before_the_next_call_of_its_key() -> None:
    (state,) = group_of().all_states
    kept = KeptState(state, MemoryStores().open("scores-calls", 0), 1_000_000, 1_000_000)
    rows, started = kept.handle, Started()
    first, second = (PendingTimer("score", b"a", f"{number:016x}").encode() for number in (1, 2))
    answer = PendingCall(b"1", 0, state=CallState.ANSWERED, answer=b"10").row(1_000)
    rows.raw.put(first, answer)
    rows.raw.put(second, PendingCall(b"2", 0).row())
    kept.store.write(kept.rows(kept.changes()), b"the last owner's")
    kept.committed()
    meters = CallMeters("scores")
    calls = PartitionCalls("scores", 0, {"score": SCORE.settings}, {}, rows, started, SystemClock(), meters)
    assert calls.work() == 1
    assert kept.table.changed_keys() == [first]
    assert (calls.pending["score"], started.requests, rows.raw.get(first)) == (2, [], answer)
    assert calls.work() == 0
    calls.undone()
    assert calls.work() == 1, "a rewind has taken it back"
    rows.raw.put(first, None)
    calls.placed(first)  # its handler has been called
    calls.committed()
    calls.work()
    assert (calls.pending["score"], started.requests) == (1, [2])


def test_a_dead_letter_of_a_call_that_was_too_large_for_its_topic_says_so_when_it_is_replayed(
    tester: Tester,
) -> None:
    group = group_of()
    tester.run(group, partitions=1)
    row_key = PendingTimer("score", b"a", f"{1:016x}").encode()
    record = command_record(group.name, CallCommand.DROP, 0, row_key)
    tester.emit_raw(record.topic, row_key, None, partition=0, headers=list(record.headers)[:-1])
    (letter,) = tester.dead_letters(group)
    assert b"the dead letter holds no pending call" in (dict(letter.headers)["streamtable-message"] or b"")
    assert tester.calls(SCORE).pending == []


@pytest.mark.parametrize("key", [None, b"", b"no timer", PendingTimer("other", b"a", "1").encode()])
def test_a_command_for_a_row_that_cannot_be_is_a_dead_letter(tester: Tester, key: bytes | None) -> None:
    group = group_of()
    tester.run(group, partitions=1)
    record = command_record(group.name, CallCommand.DROP, 0, b"")
    tester.emit_raw(record.topic, key, None, partition=0, headers=record.headers)
    tester.emit(ORDERS, "a", "1")
    assert tester.calls(SCORE).pending == ["1"]
    assert len(tester.dead_letters(group)) == 1


def test_another_codec_of_pending_calls_is_refused(tester: Tester) -> None:
    tester.run(group_of())
    tester.stop(group_of())
    other = Call("score", never_called, request=String(), response=Json(), then=scored)
    with pytest.raises(StateMeaningChanged):
        tester.start(group_of(other))


def test_a_call_that_the_graph_does_not_have_is_refused(tester: Tester) -> None:
    def handle(ctx: Context[str, Any], order: Any) -> None:
        ctx.call(call_of(order="none"), order)

    tester.run(Group("scores", Input(ORDERS, handle), SCORE, Output(RESULTS), Persist(Json())))
    with pytest.raises(GraphError, match="score"):
        tester.emit(ORDERS, "a", "1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "some"},
        {"at_once": 0},
        {"batch": 0},
        {"pending_max": 0},
        {"timeout": timedelta(0)},
        {"breaker": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(GraphError):
        call_of(**wrong)


def test_calls_run_64_at_once_for_30_seconds_each_and_pause_after_20_failures_by_default() -> None:
    settings = SCORE.settings
    assert (settings.at_once, settings.batch, settings.batch_within) == (64, 1, timedelta(0))
    assert (settings.timeout, settings.pending_max, settings.breaker) == (timedelta(seconds=30), 10_000, 20)


def test_a_call_with_another_handler_is_the_same_call_and_another_declaration_is_not() -> None:
    same = SCORE.handled_by(lambda *_: None)
    equal: list[object] = [same == SCORE, call_of(batch=2) == SCORE, SCORE == "score"]
    assert equal == [True, False, False]
    assert len({SCORE, same}) == 1
    assert repr(SCORE) == "Call('score')"


@pytest.mark.parametrize("asked", [call_id, call_ids])
def test_there_is_an_id_only_while_a_call_runs(asked: Any) -> None:
    with pytest.raises(GraphError, match="while it runs"):
        asked()


def test_a_declaration_of_topics_has_the_table_of_the_calls() -> None:
    declared = _declared(group_of())
    assert (declared.timers, declared.named_tables) == (["call"], ["states", "calls"])
