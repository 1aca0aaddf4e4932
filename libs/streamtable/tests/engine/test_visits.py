"""Visits of rows whose outputs Kafka refuses, or whose handler fails."""

from typing import Any

import pytest

from streamtable import Context, Group, Input, Json, OnError, Output, Persist, Stream, String, Visit
from streamtable.errors import HandlerFailed
from streamtable.graph.visiting import VisitProgress
from streamtable_testing.tester import Tester

EVENTS = Stream[str, Any]("events", String(), Json())
LOG = Stream[str, str]("log", String(), String())


def keep(ctx: Context[str, int], event: int) -> None:
    ctx.set(event)


def group_of(tester: Tester, visit: Any, on_error: OnError) -> Group[str, Any]:
    group = Group[str, Any](
        "g", Input(EVENTS, keep), Persist(Json()), Visit("v", visit, on_error=on_error), Output(LOG)
    )
    tester.run(group)
    for number in range(6):
        tester.emit(EVENTS, f"k{number}", number)
    return group


def begin(tester: Tester) -> None:
    tester.emit_raw("g-visits", b"v", VisitProgress("run").encode(), partition=0)


def test_rows_whose_outputs_kafka_refuses_are_skipped_and_the_others_are_visited(tester: Tester) -> None:
    def visit(ctx: Context[str, int], _: str) -> None:
        ctx.emit(LOG, ctx.key, "x" * (6000 if ctx.value in {1, 3, 4} else 10))

    group = group_of(tester, visit, OnError.SKIP)
    topic: Any = tester.kafka.topic("log")
    topic.untold_bytes_max = 5000
    begin(tester)
    assert [record.key for record in tester.records(LOG)] == ["k0", "k2", "k5"]
    assert tester.dead_letters(group) == []
    last = [VisitProgress.decode(message.value()) for _, message in tester.kafka.records("g-visits")][-1]
    assert last is not None
    assert (last.done, last.visited) == (True, 6)


def test_the_error_of_a_visit_names_the_row(tester: Tester) -> None:
    def visit(ctx: Context[str, int], _: str) -> None:
        if ctx.key == "k3":
            ctx.fail("bad row")

    group_of(tester, visit, OnError.STOP)
    with pytest.raises(HandlerFailed, match="bad row") as stopped:
        begin(tester)
    assert stopped.value.__cause__ is not None
    assert stopped.value.__cause__.__notes__ == ["at the row of key b'k3'"]
