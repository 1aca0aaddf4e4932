"""The dispatcher after a failure: all effects of one record are undone, and the other records are handled once."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from streamtable.base.limited_log import LimitedLog
from streamtable.base.ports import Codec
from streamtable.base.topics import Stream, Table
from streamtable.base.types import RecordBatch
from streamtable.codec.plain import Json, String
from streamtable.engine.calls import careful
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.task import Task
from streamtable.errors import HandlerFailed, RewindNeeded
from streamtable.graph.group import Group, Input, Join, OnError, Output, Persist, Visit
from streamtable.graph.visiting import VisitProgress
from streamtable.handlers.context import BatchContext, Context
from streamtable.tables.position import TablePosition

EVENTS = Stream("events", String(), String())
OUT = Stream("out", String(), String())
JSON: Codec[Any] = cast("Codec[Any]", Json())
NAMES: Table[str, Any] = Table("names", String(), JSON)
Make = Callable[..., RecordBatch]
MakeTask = Callable[..., Task]
Rows = Sequence[tuple[bytes, bytes]]


def commit(task: Task) -> list[Any]:
    work = task.work()
    task.committed(work, TablePosition(task.changelog_position + len(work.changes), exact=True))
    return work.outputs


def append(ctx: Context[str, list[str]], event: str) -> None:
    """Changes the row in place, and the joined table's row; and fails in the end."""
    row = ctx.value or []
    row.append(event)
    ctx.set(row)
    ctx.emit(OUT, ctx.key, event)
    (ctx.join(NAMES) or []).append(event)
    if event.startswith("bad"):
        raise ValueError(event)


def group_of(handler: Any = append, on_error: OnError = OnError.DEAD_LETTER) -> Group[str, Any]:
    return Group("g", Input(EVENTS, handler, on_error=on_error), Join(NAMES), Output(OUT), Persist(JSON))


def work_off(task: Task, records: RecordBatch) -> list[Any]:
    """All of it, with a commit at the end."""
    while task.next_offsets[records.topic] <= records.last_offset:
        try:
            task.process(records)
        except RewindNeeded:
            task.rewind()
    return commit(task)


def test_many_failures_cost_each_record_two_calls_and_one_rewind(make_task: MakeTask, batch: Make) -> None:
    calls = rewinds = 0

    def handle(ctx: Context[str, list[str]], event: str) -> None:
        nonlocal calls
        calls += 1
        append(ctx, event)

    task = make_task(group_of(handle))
    events = [(b"%d" % (n % 7), b"bad" if n % 3 else b"ok%d" % n) for n in range(300)]
    for first in range(0, 300, 100):
        records = batch("events", events[first : first + 100], first=first)
        while task.next_offsets["events"] <= records.last_offset:
            try:
                task.process(records)
            except RewindNeeded:
                rewinds += 1
                task.rewind()
        outputs = commit(task)
        assert [output.value for output in outputs if output.topic == "out"] == [
            value for _, value in events[first : first + 100] if value != b"bad"
        ]
    assert rewinds == 1
    assert calls <= 2 * 300
    kept = JSON.decode(task.stores["g-table"].get(b"0") or b"[]")
    assert kept == [value.decode() for key, value in events if key == b"0" and value != b"bad"]


def test_rows_changed_in_place_are_as_the_record_found_them_also_in_joined_tables(
    make_task: MakeTask, batch: Make
) -> None:
    seen: list[Any] = []

    def handle(ctx: Context[str, list[str]], event: str) -> None:
        seen.append((event, list(ctx.join(NAMES) or [])))
        if event.startswith("bad"):
            append(ctx, event)
        ctx.set([*(ctx.value or []), event])

    task = make_task(group_of(handle))
    task.process(batch("names", [(b"a", b'["x"]')]))
    commit(task)
    work_off(task, batch("events", [(b"a", b"1"), (b"a", b"bad1"), (b"a", b"bad2"), (b"a", b"2")]))
    assert task.stores["g-table"].get(b"a") == b'["1","2"]'
    assert seen[-1] == ("2", ["x"])


def test_a_batch_handler_is_called_three_times_with_a_record_at_most(
    make_task: MakeTask, batch: Make
) -> None:
    calls: dict[str, int] = {}

    def whole(records: BatchContext[str, str, list[str]]) -> None:
        rows = records.get_many(records.keys)
        for key, event in zip(records.keys, records.events, strict=True):
            calls[event] = calls.get(event, 0) + 1
            rows[key] = [*(rows[key] or []), event]
        records.put_many(rows)
        if any(event.startswith("bad") for event in records.events):
            raise ValueError

    group: Group[str, Any] = Group(
        "g", Input(EVENTS, batch=whole, on_error=OnError.DEAD_LETTER), Persist(JSON)
    )
    task = make_task(group)
    events = [(b"a", b"%s%d" % (b"bad" if n % 40 == 7 else b"ok", n)) for n in range(200)]
    letters = work_off(task, batch("events", events))
    assert len(letters) == 5
    assert max(calls.values()) == 3
    assert len(JSON.decode(task.stores["g-table"].get(b"a") or b"[]")) == 195


def test_after_many_records_without_a_failure_they_are_handled_fast_again(
    make_task: MakeTask, batch: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(careful, "CAREFUL_RECORDS", 10)
    task = make_task(group_of())
    work_off(task, batch("events", [(b"a", b"1"), (b"a", b"bad")]))
    assert task.work().traced
    work_off(task, batch("events", [(b"a", b"x")] * 10, first=2))
    assert not task.work().traced


def test_an_output_that_kafka_refuses_is_traced_to_its_record(make_task: MakeTask, batch: Make) -> None:
    task = make_task(group_of())
    records = batch("events", [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    refusal = ValueError("the broker does not take it")
    for known in ([], [1]):  # at first it is unknown which record caused it
        task.process(records)
        assert task.refused(known, refusal)  # type: ignore[arg-type] # any error
        task.rewind()
    outputs = work_off(task, records)
    assert [output.value for output in outputs if output.topic == "out"] == [b"1", b"3"]
    assert [output.key for output in outputs if output.topic == "g-dead-letters"] == [b"b"]
    assert not task.refused([], refusal)  # type: ignore[arg-type] # the same


def test_with_stop_a_refused_output_names_its_record_and_what_came_before_can_be_committed(
    make_task: MakeTask, batch: Make
) -> None:
    task = make_task(group_of(on_error=OnError.STOP))
    records = batch("events", [(b"a", b"1"), (b"b", b"2")])
    for known in ([], [1]):
        task.process(records)
        task.refused(known, ValueError("no key for 'out'"))  # type: ignore[arg-type] # any error
        task.rewind()
    with pytest.raises(HandlerFailed, match=r"no key for 'out'.*\(events\[0\]@1\)"):
        task.process(records)
    assert [output.value for output in commit(task)] == [b"1"]
    assert task.committed_offsets["events"] == 1


def test_a_visit_skips_the_rows_that_fail_and_visits_the_others(make_task: MakeTask, batch: Make) -> None:
    def visit(ctx: Context[str, str], argument: str) -> None:
        ctx.set("visited")
        if ctx.key in {"b", "d"}:
            ctx.fail("not this one")

    group: Group[str, str] = Group(
        "g",
        Input(EVENTS, lambda ctx, event: ctx.set(event)),
        Visit("v", visit, on_error=OnError.SKIP),
        Persist(String()),
    )
    task = make_task(group)
    work_off(task, batch("events", [(bytes([key]), b"new") for key in b"abcde"]))
    work_off(task, batch("g-visits", [(b"v", VisitProgress("1").encode())]))
    found = [task.stores["g-table"].get(bytes([key])) for key in b"abcde"]
    assert found == [b"visited", b"new", b"visited", b"new", b"visited"]


def test_of_many_equal_warnings_the_first_are_logged_and_the_others_counted(clock: Any) -> None:
    lines: list[dict[str, Any]] = []

    class Log:
        def warning(self, event: str, **facts: Any) -> None:
            lines.append({"event": event, **facts})

    said = LimitedLog(Log(), clock)
    for _ in range(1_000):
        said.warning("bad record", exc_info=ValueError())
    said.warning("something else")
    assert [line["event"] for line in lines].count("bad record") == 20
    assert ["exc_info" in line for line in lines[:2]] == [True, False]
    clock.sleep(11)
    said.warning("bad record")
    assert lines[-1] == {"event": "bad record", "left_out_before": 980}


def test_a_record_that_failed_on_what_an_earlier_one_of_its_key_had_done_is_tried_again() -> None:
    mode = CarefulMode()
    mode.condemn("events", 5, HandlerFailed("on the row of 2"), b"a")
    mode.condemn("events", 6, HandlerFailed("of another key"), b"b")
    mode.condemn("events", 2, HandlerFailed("its row is too large"), b"a")
    assert mode.failure_of("events", 5) is None
    assert mode.failure_of("events", 6) is not None
    assert mode.failure_of("events", 2) is not None
