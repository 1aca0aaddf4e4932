"""Records whose handler fails wait for their next attempt, with the later ones of their key behind them, and no others."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamtable import (
    Bytes,
    Context,
    EventTime,
    Group,
    Input,
    Json,
    Once,
    OnError,
    Output,
    Persist,
    State,
    Stream,
    String,
    Timer,
)  # fmt: skip
from streamtable.base.failpoint import COMMIT_STEPS
from streamtable.base.types import Committed
from streamtable.errors import GraphError, HandlerFailed, StateMeaningChanged
from streamtable.handlers.timers import PendingTimer
from streamtable_admin.offsets import TablePosition
from streamtable_calls import Call, Retry, RetryAfter, retried
from streamtable_calls.commands_to_group import CallCommand, command_record
from streamtable_testing import Tester
from streamtable_testing.faults import Fault

ORDERS = Stream[str, Any]("orders", String(), Json())
RESULTS = Stream[str, Any]("results", String(), Json())
SEEN = State[str, Any]("seen", key=String(), value=Json())
RETRY = Retry(on=(ConnectionError,), attempts=3)


STOPPED = (
    r"tried 2 times: ConnectionError:  \(orders\[0\]@0\). Correct the handler, or delete it: 'streamtable calls list bank' shows its id, "
    r"for 'streamtable calls drop bank --id ID'"
)


@dataclass
class Bank:
    """The other side of the handler: refuses the events that it is told to."""

    down: set[Any] = field(default_factory=set)
    error: Callable[[], Exception] = ConnectionError
    asked: list[Any] = field(default_factory=list)

    def handle(self, ctx: Context[str, Any], order: Any) -> None:
        self.asked.append(order)
        ctx.set([*(ctx.value or []), order])
        ctx.emit(RESULTS, ctx.key, order, timestamp_ms=max(ctx.timestamp_ms, 0))
        ctx.table(SEEN).put(f"{order}", ctx.offset)
        if order in self.down:
            raise self.error()


@pytest.fixture
def bank() -> Bank:
    return Bank()


def group_of(
    bank: Bank, retry: Retry = RETRY, on_error: OnError = OnError.DEAD_LETTER, **given: Any
) -> Group[str, Any]:
    edge = Input(ORDERS, bank.handle, on_error=on_error)
    return Group("bank", *retried(edge, retry, **given), SEEN, Output(RESULTS), Persist(Json()))


def refuse_one_commit(tester: Tester) -> None:
    left = [Fault.REFUSED]
    faults: Any = tester.kafka.faults
    faults.before = lambda process, call: left.pop() if call == "commit" and left else None


def results(tester: Tester, key: str = "a") -> list[Any]:
    return [record.value for record in tester.records(RESULTS) if record.key == key]


def let_pass(tester: Tester, seconds: int) -> None:
    """Advance the clock in small steps, so that no attempt is much later than its time."""
    for _ in range(seconds * 4):
        tester.advance(0.25)


def test_a_failing_record_holds_up_the_later_ones_of_its_key_and_no_others(
    tester: Tester, bank: Bank
) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down = {2}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2), ("b", 10), ("a", 3), ("b", 11), ("a", 4)])
    tester.emit_many(ORDERS, [("b", 12), ("a", 5)])
    assert (results(tester), results(tester, "b")) == ([1], [10, 11, 12])
    bank.down = set()
    tester.advance(1.1)
    assert results(tester) == [1, 2, 3, 4, 5]
    tester.emit(ORDERS, "a", 6)
    assert tester.table(group)["a"] == [1, 2, 3, 4, 5, 6]


def test_what_a_failed_attempt_has_done_is_undone(tester: Tester, bank: Bank) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down = {1}
    tester.emit(ORDERS, "a", 1)
    tester.advance(1.1)
    assert bank.asked.count(1) >= 2
    assert results(tester) == []
    assert "a" not in tester.table(group)
    assert tester.table(group, SEEN) == {}


@pytest.mark.parametrize(("command", "expected"), [("retry-now", [1, 2]), ("drop", [2])])
def test_a_command_hurries_or_drops_the_first_record_of_a_key_and_those_behind_it_follow(
    command: str, expected: list[int], tester: Tester, bank: Bank
) -> None:
    group = group_of(bank, Retry(on=(ConnectionError,), first=timedelta(hours=1), most=timedelta(hours=1)))
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2)])
    bank.down = set()
    pending = [record.key or b"" for record in tester.records(Stream("bank-calls", Bytes(), Bytes()))]
    first = min(key for key in pending if PendingTimer.decode(key).name)
    sent = command_record("bank", CallCommand(command), 0, first)
    tester.emit(Stream[bytes, bytes]("bank-retry", Bytes(), Bytes()), first, sent.value, headers=sent.headers)
    tester.advance(1)
    assert results(tester) == expected
    tester.emit(ORDERS, "a", 3)
    assert results(tester) == [*expected, 3]


def test_without_an_order_only_the_failing_record_waits(tester: Tester, bank: Bank) -> None:
    tester.run(group_of(bank, order="none"))
    bank.down = {1, 3}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2), ("a", 3), ("a", 4)])
    assert results(tester) == [2, 4]
    bank.down = {1}
    tester.advance(1.1)
    assert results(tester) == [2, 4, 3]
    bank.down = set()
    tester.advance(2.1)
    assert results(tester) == [2, 4, 3, 1]


@pytest.mark.parametrize(("behind", "expected"), [([], [3]), ([2], [2, 3])])
def test_the_key_of_a_record_that_was_dropped_while_the_group_was_stopped_is_free(
    behind: list[int], expected: list[int], tester: Tester, bank: Bank
) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", n) for n in [1, *behind]])
    tester.stop(group)
    drop_first_while_stopped(tester)
    bank.down = set()
    tester.start(group, disk=False)
    tester.emit(ORDERS, "a", 3)
    tester.advance(0.1)
    assert results(tester) == expected


def test_a_key_stays_free_or_held_over_a_restart_without_a_drop(tester: Tester, bank: Bank) -> None:
    group = group_of(bank, Retry(on=(ConnectionError,), first=timedelta(hours=1), most=timedelta(hours=1)))
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", 1), ("b", 2)])
    bank.down = set()
    tester.stop(group)
    tester.start(group)
    tester.emit_many(ORDERS, [("a", 3), ("b", 4)])
    assert (results(tester), results(tester, "b")) == ([], [2, 4])
    tester.advance(3_601)
    assert results(tester) == [1, 3]


def test_records_that_waited_in_order_are_handled_after_the_order_is_given_up(
    tester: Tester, bank: Bank
) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2), ("a", 3)])
    tester.stop(group)
    bank.down = set()
    unordered = group_of(bank, order="none")
    tester.start(unordered)
    let_pass(tester, 2)
    assert results(tester) == [1, 2, 3]
    tester.stop(unordered)
    tester.start(group)
    tester.emit(ORDERS, "a", 4)
    assert results(tester) == [1, 2, 3, 4]


def drop_first_while_stopped(tester: Tester) -> None:
    """Delete the first row of `bank`, and move its position behind that, as `drop_stopped` does."""
    rows = [record.key or b"" for record in tester.records(Stream("bank-calls", Bytes(), Bytes()))]
    first = min(key for key in rows if PendingTimer.decode(key).name)
    end = tester.emit_raw("bank-calls", first, None, partition=0).offset + 1
    for place, committed in tester.kafka.committed("bank").items():
        position = TablePosition.decode(committed.metadata)
        if position is not None and "calls" in position.tables:
            moved = replace(position, tables={**position.tables, "calls": end}).encode()
            tester.kafka.group("bank").offsets.committed[place] = Committed(committed.next_offset, moved)


def test_the_pauses_grow_and_the_attempts_survive_a_restart(tester: Tester, bank: Bank) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2)])
    tester.advance(1.1)  # the second attempt
    tester.crash(group)
    bank.down = set()
    tester.start(group, disk=False)
    tester.advance(1.5)
    assert results(tester) == []
    tester.advance(0.6)
    assert results(tester) == [1, 2]


def test_a_record_that_gives_up_is_a_dead_letter_and_the_next_of_its_key_follows(
    tester: Tester, bank: Bank
) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down = {1}
    tester.emit(ORDERS, "a", 1, headers=[("trace", b"t")], timestamp_ms=1_600_000_000_000)
    tester.emit(ORDERS, "a", 2)
    tester.advance(1.1)
    assert not tester.dead_letters(group)
    tester.advance(2.1)
    (letter,) = tester.dead_letters(group)
    assert "tried 3 times: ConnectionError" in letter.reason
    assert (letter.key, letter.value, letter.error) == (b"a", b"1", "ConnectionError")
    assert dict(letter.headers)["trace"] == b"t"
    assert (letter.origin.topic, letter.origin.offset) == ("orders", 0)
    assert letter.origin.timestamp_ms == 1_600_000_000_000
    assert results(tester) == [2]


def test_a_replayed_dead_letter_is_retried_again(tester: Tester, bank: Bank) -> None:
    group = group_of(bank, Retry(attempts=2, on=(ConnectionError,)))
    tester.run(group)
    bank.down = {1}
    tester.emit(ORDERS, "a", 1, timestamp_ms=1_600_000_000_000)
    tester.advance(1.1)
    tester.retry(group, tester.dead_letters(group)[0])
    tester.emit(ORDERS, "a", 2)
    assert results(tester) == []
    tester.advance(1.1)
    second = tester.dead_letters(group)[1]
    assert (second.origin.topic, second.origin.offset, second.origin.attempt) == ("orders", 0, 2)
    tester.retry(group, second)
    bank.down = set()
    tester.advance(1.1)
    assert results(tester) == [2, 1]
    assert tester.records(RESULTS)[1].timestamp_ms == 1_600_000_000_000


def test_another_error_and_a_refusal_are_not_retried(tester: Tester, bank: Bank) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down, bank.error = {1}, ValueError
    tester.emit_many(ORDERS, [("a", 1), ("a", 2)])
    assert [letter.error for letter in tester.dead_letters(group)] == ["ValueError"]
    bank.down, bank.error = {3, 4}, ConnectionError
    tester.emit_many(ORDERS, [("a", 3), ("a", 4), ("a", 5)])
    bank.error = KeyError
    tester.advance(1.1)  # which neither the one that had failed before nor the one behind it survives
    assert [letter.error for letter in tester.dead_letters(group)] == ["ValueError", "KeyError", "KeyError"]
    assert results(tester) == [2, 5]


def test_a_record_that_is_never_handled_in_time_gives_up(tester: Tester, bank: Bank) -> None:
    retry = Retry(
        first=timedelta(seconds=1), attempts=100, on=(ConnectionError,), give_up_after=timedelta(seconds=10)
    )
    group = group_of(bank, retry)
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2)])
    let_pass(tester, 6)
    assert not tester.dead_letters(group)
    let_pass(tester, 6)  # the fourth attempt; before the fifth one there would be 8 s
    assert "tried 4 times" in tester.dead_letters(group)[0].reason
    assert results(tester) == [2]


def test_the_other_side_says_when_a_record_is_handled_again(tester: Tester, bank: Bank) -> None:
    tester.run(group_of(bank))
    bank.down, bank.error = {1}, lambda: RetryAfter(30)
    tester.emit(ORDERS, "a", 1)
    bank.down = set()
    tester.advance(29)
    assert results(tester) == []
    tester.advance(2)
    assert results(tester) == [1]


@pytest.mark.parametrize("on_error", [OnError.SKIP, OnError.STOP])
def test_a_record_that_gives_up_is_treated_as_its_input_says(
    tester: Tester, bank: Bank, on_error: OnError
) -> None:
    group = group_of(bank, Retry(attempts=2, on=(ConnectionError,)), on_error)
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2)])
    if on_error is OnError.SKIP:
        tester.advance(1.1)
        assert results(tester) == [2]
        return
    with pytest.raises(HandlerFailed, match=STOPPED) as stopped:
        tester.advance(1.1)
    assert isinstance(stopped.value.__cause__, HandlerFailed)
    assert isinstance(stopped.value.__cause__.__cause__, ConnectionError)
    bank.down = set()
    tester.start(group)
    tester.advance(1.1)
    assert results(tester) == [1, 2]


def test_the_handler_sees_the_record_as_it_was(tester: Tester) -> None:
    seen: list[Any] = []

    def handle(ctx: Context[str, Any], order: Any) -> None:
        seen.append(
            (
                ctx.topic,
                ctx.offset,
                ctx.key,
                order,
                ctx.raw_value,
                ctx.timestamp_ms,
                list(ctx.headers),
                ctx.partition,
            )
        )
        if len(seen) < 4:
            raise ConnectionError

    edge = Input(ORDERS, handle, tombstones=True)
    tester.run(Group("bank", *retried(edge, RETRY), Persist(Json())))
    tester.emit(ORDERS, "a", None, headers=[("h", b"1"), ("none", None)], timestamp_ms=1_600_000_000_000)
    let_pass(tester, 4)
    assert len(seen) >= 4
    assert all(each == seen[0] for each in seen)
    assert seen[0][3] is None


def test_the_event_time_is_that_of_the_record(tester: Tester) -> None:
    seen: list[int] = []

    def handle(ctx: Context[str, Any], order: Any) -> None:
        seen.append(ctx.event_time_ms)
        if order == 1_600_000_000_000 and len(seen) < 4:
            raise ConnectionError

    edge = Input(ORDERS, handle, time=int)
    tester.run(Group("bank", *retried(edge, RETRY), EventTime(), Persist(Json())))
    tester.emit_many(ORDERS, [("a", 1_600_000_000_000), ("b", 1_600_000_005_000)])
    tester.advance(4)
    assert seen[-1] == 1_600_000_000_000
    assert seen.count(1_600_000_000_000) >= 3


def test_a_record_from_the_beginning_of_1970_keeps_its_event_time_while_it_waits(tester: Tester) -> None:
    seen: list[tuple[int, int]] = []

    def handle(ctx: Context[str, Any], at: int) -> None:
        seen.append((at, ctx.event_time_ms))
        if at == 5_000 and len(seen) < 3:
            raise ConnectionError

    edge = Input(ORDERS, handle, time=int)
    tester.run(Group("bank", *retried(edge, RETRY), EventTime(), Persist(Json())))
    tester.emit_many(ORDERS, [("a", 5_000), ("a", 0)])
    let_pass(tester, 4)
    assert seen[-2:] == [(5_000, 5_000), (0, 1)]


@pytest.mark.parametrize("step", COMMIT_STEPS)
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("disk", [True, False])
def test_a_crash_in_the_commit_loses_and_repeats_no_record(step: str, times: int, disk: bool) -> None:  # noqa: FBT001
    bank = Bank()
    with Tester() as tester:
        group = group_of(bank)
        tester.run(group)
        bank.down = {2, 5}
        tester.emit_many(ORDERS, [("a", 1), ("b", 5)])
        tester.crash(group, at=step, times=times)
        tester.emit_many(ORDERS, [("a", 2), ("a", 3), ("b", 6), ("a", 4)])
        for turn in range(12):
            if tester._of(group)[0].processor is None:
                tester.start(group, disk=disk)
            tester.advance(0.3)
            if turn == 5:
                bank.down = set()
        assert (results(tester), results(tester, "b")) == ([1, 2, 3, 4], [5, 6])


def test_a_partition_that_moves_takes_its_records_along(tester: Tester, bank: Bank) -> None:
    group = group_of(bank)
    tester.run(group, partitions=4)
    keys = [f"key-{n}" for n in range(12)]
    bank.down = {f"{key} 0" for key in keys}
    tester.emit_many(ORDERS, [(key, f"{key} {n}") for n in range(3) for key in keys])
    tester.join(group)
    tester.leave(group, 0)
    assert not tester.records(RESULTS)
    bank.down = set()
    tester.advance(3.5)
    assert all(results(tester, key) == [f"{key} {n}" for n in range(3)] for key in keys)


def test_a_record_whose_row_is_refused_after_its_handler_frees_its_key(tester: Tester) -> None:
    def handle(ctx: Context[str, Any], order: Any) -> None:
        if order == 1 and not asked:
            asked.append(order)
            raise ConnectionError
        ctx.set(object() if order == 1 else [*(ctx.value or []), order])

    asked: list[int] = []
    edge = Input(ORDERS, handle, on_error=OnError.DEAD_LETTER)
    group: Group[str, Any] = Group(
        "bank", *retried(edge, Retry(attempts=2, on=(ConnectionError,))), Persist(Json())
    )
    tester.run(group)
    asked.clear()
    tester.emit_many(ORDERS, [("a", 1), ("a", 2), ("a", 3)])
    tester.advance(3)
    tester.emit(ORDERS, "a", 4)
    tester.advance(3)
    assert len(tester.dead_letters(group)) == 1
    assert tester.table(group)["a"] == [2, 3, 4]


def test_the_inputs_of_a_partition_wait_while_too_many_records_are_kept(tester: Tester, bank: Bank) -> None:
    tester.run(group_of(bank, pending_max=10))
    bank.down = {0}
    tester.emit_many(ORDERS, [("a", n) for n in range(30)])
    tester.emit(ORDERS, "b", 100)
    assert results(tester, "b") == []
    bank.down = set()
    tester.advance(1.1)
    assert (results(tester), results(tester, "b")) == (list(range(30)), [100])


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_inputs_go_on_after_the_kept_record_that_filled_a_partition_is_undone(
    most: int, tester: Tester, bank: Bank
) -> None:
    group = group_of(bank, Retry(on=(ConnectionError,)), pending_max=most)
    tester.run(group)
    bank.down = {1, 2, 3}
    refuse_one_commit(tester)
    tester.emit_many(ORDERS, [("a", 1), ("b", 2), ("c", 3), ("d", 4)])
    bank.down = set()
    let_pass(tester, 10)
    assert sorted(record.value or 0 for record in tester.records(RESULTS)) == [1, 2, 3, 4]


def test_timers_and_calls_of_a_failed_attempt_are_undone_with_it(tester: Tester) -> None:
    fired: list[Any] = []
    call: Call[str, Any, Any, Any] = Call(
        "ask",
        str,
        request=Json(),
        response=Json(),
        then=lambda ctx, request, result: fired.append((request, result)),
    )
    remind: Timer[str, Any, Any] = Timer(
        "remind", lambda ctx, payload: fired.append(payload), Json(), clock="wall"
    )

    def handle(ctx: Context[str, Any], order: Any) -> None:
        ctx.call(call, order)
        ctx.timers.at(remind, ctx.timers.now_ms + 100, order)
        if order in down:
            raise ConnectionError

    down = {1}
    tester.run(Group("bank", *retried(Input(ORDERS, handle), RETRY), call, remind, Persist(Json())))
    tester.emit_many(ORDERS, [("a", 1), ("b", 2)])
    tester.advance(0.5)
    assert (fired, tester.calls(call).pending) == ([2], [2])
    down.clear()
    let_pass(tester, 2)
    assert (fired, sorted(tester.calls(call).pending)) == ([2, 1], [1, 2])


def test_an_attempt_that_failed_is_logged_with_its_error(tester: Tester, bank: Bank) -> None:
    tester.run(group_of(bank))
    bank.down = {1}
    with capture_logs() as lines:
        tester.emit(ORDERS, "a", 1)
    (line,) = [each for each in lines if each["event"] == "attempt failed, the record is handled again"]
    assert (line["call"], line["attempts"], line["error"]) == ("orders", 1, "ConnectionError: ")


def test_retries_that_are_removed_while_records_are_kept_are_refused(tester: Tester, bank: Bank) -> None:
    group = group_of(bank)
    tester.run(group)
    bank.down = {1}
    tester.emit_many(ORDERS, [("a", 1), ("a", 2)])
    tester.stop(group)
    with pytest.raises(StateMeaningChanged, match="2 calls of 'orders' are pending"):
        tester.start(group_of(bank, name="other"))


def handler(ctx: Context[str, Any], order: Any) -> None:
    raise AssertionError(f"never called: {ctx.key} {order}")


@pytest.mark.parametrize(
    "make",
    [
        lambda: retried(Input(ORDERS, batch=print), RETRY),
        lambda: retried(Input(ORDERS, handler, once=Once(str, within=timedelta(hours=1))), RETRY),
        lambda: retried(Input(ORDERS, handler), RETRY, order="any"),  # type: ignore[arg-type] # that is the test
        lambda: retried(Input(ORDERS, handler), RETRY, pending_max=0),
        lambda: retried(Input(ORDERS, handler), RETRY, name="a\0b"),
        lambda: Retry(give_up_after=timedelta(0)),
        lambda: Retry(on=ConnectionError),  # type: ignore[arg-type] # as `except` takes it
        lambda: Retry(on=(ConnectionError, "TimeoutError")),  # type: ignore[arg-type]
    ],
)
def test_retries_that_make_no_sense_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(GraphError):
        make()


def test_records_without_a_key_are_handled_and_not_retried(tester: Tester) -> None:
    handled = list[Any]()

    def handle(ctx: Context[str, Any], order: Any) -> None:
        handled.append((ctx.key, order))
        if order == "bad":
            raise ConnectionError

    edge = Input(ORDERS, handle, keyless=True, on_error=OnError.DEAD_LETTER)
    group = Group("bank", *retried(edge, RETRY))
    tester.run(group)
    for key, order in ((None, "good"), (b"a", "kept"), (None, "bad")):
        tester.emit_raw("orders", key, ORDERS.value.encode(order), partition=0)
    tester.advance(60)
    assert (None, "good") in handled
    assert ("a", "kept") in handled
    assert [letter.error for letter in tester.dead_letters(group)] == ["ConnectionError"]
