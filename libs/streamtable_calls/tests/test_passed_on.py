"""The watermark that a group passes on stays behind the event time of its oldest pending call, or record to be retried."""

from datetime import timedelta
from typing import Any

import pytest

import streamtable_calls.pending_times
from streamtable import Context, EventTime, Group, Input, Json, Long, Output, Persist, Stream, String
from streamtable_calls import Call, Retry, retried
from streamtable_calls.partition import PartitionCalls
from streamtable_calls.process import ProcessCalls
from streamtable_testing import Tester

READ = Stream[str, int]("read", String(), Long())
MADE = Stream[str, int]("made", String(), Long())


def answered(ctx: Context[str, Any], request: int, result: int) -> None:
    ctx.emit(MADE, ctx.key, request, timestamp_ms=request)


CALL: Call[str, int, int, Any] = Call("f", int, request=Long(), response=Long(), then=answered)


def on_read(ctx: Context[str, Any], at: int) -> None:
    ctx.call(CALL, at)


def reader() -> tuple[Group[str, Any], list[tuple[int, bool]]]:
    seen: list[tuple[int, bool]] = []

    def on_made(ctx: Context[str, Any], at: int) -> None:
        seen.append((at, ctx.late_before_ms > at))

    silent = EventTime(idle_after=timedelta(seconds=5))
    return Group("reader", Input(MADE, on_made, watermarks=True), silent, Persist(Json())), seen


@pytest.mark.parametrize("restart", [False, True])
def test_a_reader_waits_for_the_results_of_pending_calls(tester: Tester, restart: bool) -> None:  # noqa: FBT001
    maker = Group("maker", Input(READ, on_read, time=int), CALL, Output(MADE, watermarks=True))
    group, seen = reader()
    tester.run(maker)
    tester.run(group)
    tester.emit_many(READ, [("a", 1_000_000), ("b", 2_000_000), ("c", 9_000_000)])
    if restart:
        tester.crash(maker)
        tester.start(maker, disk=False)
    tester.calls(CALL).answer(1, request=2_000_000)
    tester.advance(30)  # its input is idle, and its calls are not
    assert tester.watermark_ms(group) == 1_000_000
    tester.calls(CALL).answer(1, request=1_000_000)
    tester.calls(CALL).answer(1, request=9_000_000)
    tester.emit(READ, "a", 9_500_000)
    assert tester.watermark_ms(group) >= 9_000_000
    assert seen == [(2_000_000, False), (1_000_000, False), (9_000_000, False)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_reader_waits_for_the_oldest_call_whatever_the_order_of_keys_and_answers(
    tester: Tester,
    restart: bool,  # noqa: FBT001
) -> None:
    maker = Group("maker", Input(READ, on_read, time=int), CALL, Output(MADE, watermarks=True))
    group, _ = reader()
    tester.run(maker)
    tester.run(group)
    ages = {"d": 1_000_000, "c": 2_000_000, "b": 3_000_000, "a": 4_000_000, "e": 9_000_000}
    for key, at in ages.items():  # each in a commit of its own
        tester.emit(READ, key, at)
    if restart:
        tester.crash(maker)
        tester.start(maker, disk=False)
    for at, oldest in ((3_000_000, 1_000_000), (1_000_000, 2_000_000), (2_000_000, 4_000_000)):
        tester.calls(CALL).answer(1, request=at)
        tester.emit(READ, "e", 9_000_000 + oldest)
        assert tester.watermark_ms(group) == oldest


def test_a_reader_waits_for_a_record_that_is_retried(tester: Tester) -> None:
    down = True

    def handle(ctx: Context[str, Any], at: int) -> None:
        if down and at == 1_000_000:
            raise ConnectionError
        ctx.emit(MADE, ctx.key, at, timestamp_ms=at)

    edge = Input(READ, handle, time=int)
    maker: Group[str, Any] = Group("maker", *retried(edge, Retry()), Output(MADE, watermarks=True))
    group, seen = reader()
    tester.run(maker)
    tester.run(group)
    tester.emit_many(READ, [("a", 1_000_000), ("a", 2_000_000), ("c", 9_000_000)])
    assert tester.watermark_ms(group) == 1_000_000
    down = False
    tester.advance(4)
    tester.emit(READ, "c", 9_500_000)
    assert tester.watermark_ms(group) >= 9_000_000
    assert seen == [(9_000_000, False), (1_000_000, False), (2_000_000, False), (9_500_000, False)]


def test_rows_that_are_gone_take_no_memory_while_an_older_one_stays(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamtable_calls.pending_times, "_SPARE", 10)
    opened: list[PartitionCalls] = []
    open_ = ProcessCalls.open

    def open_and_note(self: ProcessCalls, partition: int, rows: Any) -> PartitionCalls:
        opened.append(open_(self, partition, rows))
        return opened[-1]

    monkeypatch.setattr(ProcessCalls, "open", open_and_note)
    maker = Group("maker", Input(READ, on_read, time=int), CALL, Output(MADE, watermarks=True))
    tester.run(maker)
    tester.emit(READ, "a", 1_000_000)
    for at in range(2_000_000, 2_000_060):
        tester.emit(READ, "b", at)
        tester.calls(CALL).answer(1, request=at)
    heap = opened[0]._times._heap
    assert heap is not None
    assert 0 < len(heap) < 20
