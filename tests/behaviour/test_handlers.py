"""The input of handlers, and the effects of their calls."""

import time
from typing import Any

import pytest
from tests.behaviour.world import World, stream_of, text_stream

from streamtable import (
    BatchContext,
    Context,
    Count,
    Group,
    Input,
    Json,
    Last,
    Long,
    Max,
    Min,
    Output,
    Persist,
    Sum,
)
from streamtable.errors import GraphError

NOW_MS = round(time.time() * 1000)  # a real Kafka deletes records a week old, and refuses future ones


def count(ctx: Context[str, int], _: str) -> None:
    ctx.set((ctx.value or 0) + 1)


def test_each_event_is_counted_once_under_its_key(world: World) -> None:
    events = text_stream(world, "events")
    group = Group(world.name("g"), Input(events, count), Persist(Long()))
    world.run(group, partitions=4)
    world.emit_many(events, [(f"k{number % 7}", "x") for number in range(500)])
    world.settle()
    assert world.table(group) == {f"k{number}": 72 if number < 3 else 71 for number in range(7)}


def test_a_batch_handler_reads_and_writes_the_rows_of_many_keys_at_once(world: World) -> None:
    events = stream_of(world, "events", Long())

    def add(records: BatchContext[str, int, int]) -> None:
        rows = {key: row or 0 for key, row in records.get_many(records.keys).items()}
        for key, event in zip(records.keys, records.events, strict=True):
            rows[key] += event
        records.put_many({key: row or None for key, row in rows.items()})

    group = Group(world.name("g"), Input(events, batch=add), Persist(Long()))
    world.run(group)
    world.emit_many(events, [("a", 1), ("b", 5), ("a", 2), ("c", 1)])
    world.emit_many(events, [("a", 3), ("c", -1)])
    world.settle()
    assert world.table(group) == {"a": 6, "b": 5}


def test_aggregates_fold_the_events_of_a_key(world: World) -> None:
    events = stream_of(world, "events", Long())
    aggregates: dict[str, Any] = {
        "count": Count(),
        "sum": Sum(int),
        "min": Min(int),
        "max": Max(int),
        "last": Last(),
    }
    groups: dict[str, Group[str, int]] = {
        name: Group(world.name(name), Input(events, aggregate=aggregate), Persist(Long()))
        for name, aggregate in aggregates.items()
    }
    world.run(*groups.values())
    world.emit_many(events, [("a", 5), ("a", 2), ("b", 1), ("a", 3)])
    world.settle()
    assert {name: world.table(group)["a"] for name, group in groups.items()} == {
        "count": 3,
        "sum": 10,
        "min": 2,
        "max": 5,
        "last": 3,
    }


def test_several_inputs_meet_in_the_row_of_their_key(world: World) -> None:
    clicks, resets = text_stream(world, "clicks"), text_stream(world, "resets")
    group: Group[str, int] = Group(
        world.name("g"), Input(clicks, count), Input(resets, lambda ctx, _: ctx.delete()), Persist(Long())
    )
    world.run(group, partitions=3)
    world.emit_many(clicks, [(key, "x") for key in "abcdef"] * 2)
    world.settle()
    world.emit_many(resets, [("a", "x"), ("e", "x"), ("unknown", "x")])
    world.settle()
    assert world.table(group) == dict.fromkeys("bcdf", 2)


def test_a_deleted_row_is_gone_and_a_later_event_starts_it_again(world: World) -> None:
    events = text_stream(world, "events")

    def handle(ctx: Context[str, int], event: str) -> None:
        ctx.delete() if event == "delete" else count(ctx, event)

    group = Group(world.name("g"), Input(events, handle), Persist(Long()))
    world.run(group)
    world.emit_many(events, [("a", "x"), ("b", "x"), ("b", "x")])
    world.settle()
    world.emit_many(events, [("a", "delete"), ("b", "delete"), ("b", "x"), ("never", "delete")])
    world.settle()
    assert world.table(group) == {"b": 1}


def test_outputs_have_the_key_value_headers_and_time_that_they_were_given(world: World) -> None:
    events, out = text_stream(world, "events"), stream_of(world, "out", Json())

    def handle(ctx: Context[str, Any], event: str) -> None:
        ctx.emit(
            out,
            f"key of {event}",
            {"event": event},
            headers=[("h", b"1"), ("h", None)],
            timestamp_ms=NOW_MS - 77,
        )
        ctx.emit(out, "gone", None)

    group: Group[str, Any] = Group(world.name("g"), Input(events, handle), Output(out))
    world.run(group)
    world.emit(events, "a", "one")
    world.settle()
    first, second = world.records(out)
    assert (first.key, first.value) == ("key of one", {"event": "one"})
    assert (first.headers, first.timestamp_ms) == ((("h", b"1"), ("h", None)), NOW_MS - 77)
    assert (second.key, second.value, second.headers) == ("gone", None, ())
    assert second.timestamp_ms > 1_600_000_000_000


def test_a_handler_sees_headers_time_and_place_of_its_record(world: World) -> None:
    events = text_stream(world, "events")
    seen: list[Any] = []

    def look(ctx: Context[str, Any], event: str) -> None:
        seen.append(
            (ctx.topic, ctx.partition, ctx.offset, ctx.timestamp_ms, list(ctx.headers), ctx.key, event)
        )

    world.run(Group(world.name("g"), Input(events, look)), partitions=12)
    world.emit(events, "alice", "first", headers=[("h", b"1"), ("none", None)], timestamp_ms=NOW_MS)
    world.emit(events, "alice", "second", timestamp_ms=NOW_MS - 34)
    world.settle()
    assert seen == [
        (events.name, 9, 0, NOW_MS, [("h", b"1"), ("none", None)], "alice", "first"),
        (events.name, 9, 1, NOW_MS - 34, [], "alice", "second"),
    ]


def test_the_events_of_a_key_are_handled_in_their_order(world: World) -> None:
    events, out = stream_of(world, "events", Long()), stream_of(world, "out", Json())

    def append(ctx: Context[str, Any], event: int) -> None:
        ctx.set([*(ctx.value or []), event])
        ctx.emit(out, ctx.key, event)

    group: Group[str, Any] = Group(world.name("g"), Input(events, append), Output(out), Persist(Json()))
    world.run(group, partitions=4)
    for start in (0, 50):
        world.emit_many(events, [(f"k{number % 5}", number) for number in range(start, start + 50)])
    world.settle()
    expected = {f"k{rest}": list(range(rest, 100, 5)) for rest in range(5)}
    assert world.table(group) == expected
    emitted: dict[str | None, list[Any]] = {}
    for record in world.records(out):
        emitted.setdefault(record.key, []).append(record.value)
    assert emitted == expected


def test_a_group_reads_what_another_emits(world: World) -> None:
    events, counts = text_stream(world, "events"), stream_of(world, "counts", Long())

    def forward(ctx: Context[str, int], event: str) -> None:
        count(ctx, event)
        ctx.emit(counts, "all", 1)

    first = Group(world.name("first"), Input(events, forward), Output(counts), Persist(Long()))
    second: Group[str, int] = Group(world.name("second"), Input(counts, aggregate=Sum(int)), Persist(Long()))
    world.run(first, second, partitions=3)
    world.emit_many(events, [(f"k{number}", "x") for number in range(30)])
    world.settle()
    assert len(world.table(first)) == 30
    assert world.table(second) == {"all": 30}


def test_a_group_that_starts_with_the_latest_leaves_out_what_was_there(world: World) -> None:
    events = text_stream(world, "events")
    world.create(events)
    world.emit(events, "a", "before")
    early = Group(world.name("early"), Input(events, count), Persist(Long()))
    late = Group(world.name("late"), Input(events, count, start="latest"), Persist(Long()))
    world.run(early, late)
    world.settle()
    world.emit(events, "a", "after")
    world.settle()
    assert (world.table(early), world.table(late)) == ({"a": 2}, {"a": 1})


@pytest.mark.parametrize("keeps_table", [True, False])
def test_what_the_graph_does_not_declare_stops_the_group(
    keeps_table: bool,  # noqa: FBT001 - a parameter of the test
    world: World,
) -> None:
    events, out = text_stream(world, "events"), text_stream(world, "out")

    def handle(ctx: Context[str, int], event: str) -> None:
        if keeps_table:
            ctx.emit(out, "a", event)
        else:
            ctx.set(1)

    edges = [Persist(Long())] if keeps_table else []
    world.run(Group(world.name("g"), Input(events, handle), *edges))
    world.emit(events, "a", "x")
    with pytest.raises(GraphError, match="add"):
        world.settle()
