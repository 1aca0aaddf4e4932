"""The handling of records that cannot be processed."""

from typing import Any

import pytest
from tests.behaviour.world import World, stream_of, text_stream

from streamtable import BatchContext, Context, Group, Input, Long, OnError, Output, Persist, Stream
from streamtable.errors import HandlerFailed


def count_or_fail(ctx: Context[str, int], event: str) -> None:
    ctx.set((ctx.value or 0) + 1)
    if event == "fail":
        raise ZeroDivisionError("as ordered")
    if event == "refuse":
        ctx.fail("not today")


def test_poison_goes_to_the_dead_letters_and_the_others_go_on(world: World) -> None:
    events = stream_of(world, "events", Long())
    group: Group[str, int] = Group(
        world.name("g"), Input(events, lambda ctx, event: ctx.set(event)), Persist(Long())
    )
    world.run(group, partitions=2)
    world.emit_many(events, [("a", 1), ("b", 1)])
    world.emit_raw(events.name, b"a", b"no long", partition=1, headers=[("h", b"x")])
    world.emit_raw(events.name, b"\xff", (7).to_bytes(8), partition=1)
    world.emit_raw(events.name, None, (7).to_bytes(8), partition=1)
    world.emit_raw(events.name, b"a", None, partition=1)
    world.emit_many(events, [("a", 2), ("b", 2)])
    world.settle()
    assert world.table(group) == {"a": 2, "b": 2}
    letters = world.dead_letters(group)
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"a", b"no long"),
        (b"\xff", (7).to_bytes(8)),
        (None, (7).to_bytes(8)),
        (b"a", None),
    ]
    assert [letter.error for letter in letters] == [
        "DeserializationError",
        "DeserializationError",
        "DeserializationError",
        "DeserializationError",
    ]
    assert "no key" in letters[2].reason
    assert "tombstone" in letters[3].reason
    origins = [letter.origin for letter in letters]
    assert {(origin.topic, origin.partition, origin.attempt) for origin in origins} == {(events.name, 1, 1)}
    assert [origin.offset - origins[0].offset for origin in origins] == [0, 1, 2, 3]
    assert letters[0].headers[0] == ("h", b"x")


def test_a_record_whose_handler_fails_goes_to_the_dead_letters_without_a_trace(world: World) -> None:
    events = text_stream(world, "events")
    group = Group(
        world.name("g"), Input(events, count_or_fail, on_error=OnError.DEAD_LETTER), Persist(Long())
    )
    world.run(group)
    world.emit_many(events, [("a", "x"), ("a", "fail"), ("b", "refuse"), ("a", "x"), ("c", "x")])
    world.settle()
    assert world.table(group) == {"a": 2, "c": 1}
    assert [(letter.key, letter.error, letter.origin.offset) for letter in world.dead_letters(group)] == [
        (b"a", "ZeroDivisionError", 1),
        (b"b", "Rejected", 2),
    ]
    assert "as ordered" in world.dead_letters(group)[0].reason


def test_a_record_to_be_skipped_is_left_out(world: World) -> None:
    events = text_stream(world, "events")
    group = Group(world.name("g"), Input(events, count_or_fail, on_error=OnError.SKIP), Persist(Long()))
    world.run(group)
    world.emit_many(events, [("a", "x"), ("a", "fail"), ("a", "x")])
    world.settle()
    assert world.table(group) == {"a": 2}
    assert world.dead_letters(group) == []


def test_the_one_bad_record_of_a_batch_is_found(world: World) -> None:
    events = text_stream(world, "events")

    def whole(records: BatchContext[str, str, int]) -> None:
        rows = {key: row or 0 for key, row in records.get_many(records.keys).items()}
        for key, event in zip(records.keys, records.events, strict=True):
            if event == "fail":
                raise ZeroDivisionError
            rows[key] += 1
        records.put_many(rows)

    group = Group(world.name("g"), Input(events, batch=whole, on_error=OnError.DEAD_LETTER), Persist(Long()))
    world.run(group)
    world.emit_many(events, [("a", "x")] * 5 + [("a", "fail")] + [("a", "x")] * 5)
    world.settle()
    assert world.table(group) == {"a": 10}
    assert [letter.origin.offset for letter in world.dead_letters(group)] == [5]


def test_a_row_that_does_not_fit_its_schema_is_the_fault_of_the_record_that_made_it(world: World) -> None:
    events = text_stream(world, "events")

    def handle(ctx: Context[str, Any], event: str) -> None:
        ctx.set(event if event == "text" else (ctx.value or 0) + 1)

    group: Group[str, Any] = Group(
        world.name("g"), Input(events, handle, on_error=OnError.DEAD_LETTER), Persist(Long())
    )
    world.run(group)
    world.emit_many(events, [("a", "x"), ("b", "text"), ("a", "x")])
    world.settle()
    assert world.table(group) == {"a": 2}
    (letter,) = world.dead_letters(group)
    assert (letter.key, letter.error) == (b"b", "SerializationError")
    assert f"the row of '{group.table.name}' for key b'b'" in letter.reason
    assert "Long: must be an int, not str" in letter.reason


def test_an_output_larger_than_its_topic_accepts_is_the_fault_of_its_record(world: World) -> None:
    events, out = text_stream(world, "events"), text_stream(world, "out")

    def handle(ctx: Context[str, Any], event: str) -> None:
        ctx.emit(out, ctx.key, event * 2)

    group: Group[str, Any] = Group(
        world.name("g"), Input(events, handle, on_error=OnError.DEAD_LETTER), Output(out)
    )
    world.run(group)
    world.emit_many(events, [("a", "x"), ("b", "x" * 600_000), ("a", "y")])
    world.settle()
    assert [record.value for record in world.records(out)] == ["xx", "yy"]
    assert [(letter.key, letter.error) for letter in world.dead_letters(group)] == [
        (b"b", "SerializationError")
    ]


def test_an_output_that_does_not_fit_its_schema_names_its_topic(world: World) -> None:
    events = text_stream(world, "events")
    out: Stream[str, Any] = stream_of(world, "out", Long())

    def handle(ctx: Context[str, Any], event: str) -> None:
        ctx.emit(out, ctx.key, event)

    group: Group[str, Any] = Group(
        world.name("g"), Input(events, handle, on_error=OnError.DEAD_LETTER), Output(out)
    )
    world.run(group)
    world.emit_many(events, [("a", "text")])
    world.settle()
    (letter,) = world.dead_letters(group)
    assert f"the record for '{out.name}' cannot be written: Long: must be an int, not str" in letter.reason


def test_a_failing_handler_stops_its_group_which_goes_on_once_it_is_mended(world: World) -> None:
    events, out = text_stream(world, "events"), text_stream(world, "out")
    broken = True

    def handle(ctx: Context[str, int], event: str) -> None:
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(out, ctx.key, event)
        if broken and event == "fail":
            raise ZeroDivisionError("as ordered")

    group = Group(world.name("g"), Input(events, handle), Output(out), Persist(Long()))
    world.run(group)
    world.emit(events, "a", "x")
    world.settle()
    world.emit_many(events, [("a", "y"), ("a", "fail"), ("a", "z")])
    with pytest.raises(HandlerFailed, match="as ordered") as caught:
        world.settle()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (events.name, 0, 2)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert [record.value for record in world.records(out)] in (["x"], ["x", "y"])
    broken = False
    world.start(group)
    world.settle()
    assert world.table(group) == {"a": 4}
    assert [record.value for record in world.records(out)] == ["x", "y", "fail", "z"]


def test_a_dead_letter_sent_again_is_handled_as_if_it_came_from_its_origin(world: World) -> None:
    events = text_stream(world, "events")
    broken = True

    def handle(ctx: Context[str, int], event: str) -> None:
        if broken and event == "fail":
            raise ZeroDivisionError
        ctx.set((ctx.value or 0) + 1)

    group = Group(world.name("g"), Input(events, handle, on_error=OnError.DEAD_LETTER), Persist(Long()))
    world.run(group, partitions=3)
    world.emit_many(events, [("a", "x"), ("a", "fail"), ("b", "fail")])
    world.settle()
    letters: dict[Any, Any] = {letter.key: letter for letter in world.dead_letters(group)}
    broken = False
    for letter in letters.values():
        world.emit_raw(
            group.retry, letter.key, letter.value, partition=letter.origin.partition, headers=letter.headers
        )
    world.emit_raw(group.retry, b"a", b"x", partition=letters[b"a"].origin.partition)  # comes from nowhere
    world.settle()
    assert world.table(group) == {"a": 2, "b": 1}
    (new,) = [letter for letter in world.dead_letters(group) if letter.origin.topic == group.retry]
    assert "no origin" in new.reason
