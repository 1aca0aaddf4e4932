"""Joins, changes, lookups, loops, visits and deferred work: what handlers reach beside the row of their key."""

from collections import Counter
from typing import Any

from tests.behaviour.world import World, stream_of, text_stream

from streamtable import (
    Bytes,
    Changes,
    Context,
    Group,
    Input,
    Join,
    Json,
    Long,
    Lookup,
    Loop,
    OnError,
    Output,
    Persist,
    RowChange,
    Stream,
    String,
    Visit,
)
from streamtable.errors import HandlerFailed
from streamtable.graph.visiting import VisitProgress


def users_of(world: World) -> Group[str, int]:
    """A group that keeps the last number of each user; a negative one deletes the row."""

    def keep(ctx: Context[str, int], event: int) -> None:
        ctx.set(event) if event >= 0 else ctx.delete()

    return Group(world.name("users"), Input(stream_of(world, "numbers", Long()), keep), Persist(Long()))


def numbers_of(users: Group[str, int]) -> Stream[str, int]:
    stream: Stream[str, int] = users.inputs[0].stream
    return stream


def test_a_joined_table_that_another_group_keeps_is_followed_while_both_run(world: World) -> None:
    users, events, out = users_of(world), text_stream(world, "events"), stream_of(world, "out", Json())

    def look(ctx: Context[str, Any], event: str) -> None:
        ctx.emit(out, ctx.key, [event, ctx.join(users.table)])

    group: Group[str, Any] = Group(world.name("g"), Input(events, look), Join(users.table), Output(out))
    world.run(users, group, partitions=3)
    for event, number in [("first", 1), ("second", 2), ("gone", -1), ("back", 4)]:
        world.emit_many(
            numbers_of(users), [(f"k{key}", number + key if number > 0 else -1) for key in range(5)]
        )
        world.settle()
        world.emit_many(events, [(f"k{key}", event) for key in range(5)])
        world.settle()
    emitted = {key: [r.value for r in world.records(out) if r.key == f"k{key}"] for key in range(5)}
    assert emitted == {
        key: [["first", 1 + key], ["second", 2 + key], ["gone", None], ["back", 4 + key]] for key in range(5)
    }


def test_a_joined_table_is_complete_again_after_both_groups_were_away_and_a_disk_was_lost(
    world: World,
) -> None:
    users, events = users_of(world), text_stream(world, "events")

    def look(ctx: Context[str, int], event: str) -> None:
        ctx.set((ctx.value or 0) * 100 + (ctx.join(users.table) or 0))

    group = Group(world.name("g"), Input(events, look), Join(users.table), Persist(Long()))
    world.run(users, group, partitions=2)
    world.emit_many(numbers_of(users), [("a", 1), ("b", 2)])
    world.settle()
    for disk, number in [(True, 3), (False, 5)]:
        world.emit_many(events, [("a", "x"), ("b", "x")])
        world.settle()
        world.stop(group)
        world.emit_many(numbers_of(users), [("a", number)])
        world.settle()
        world.stop(users)
        world.start(users, disk=disk)
        world.start(group, disk=disk)
        world.settle()
    world.emit_many(events, [("a", "x"), ("b", "x")])
    world.settle()
    assert world.table(group) == {"a": 10305, "b": 20202}


def test_a_joined_table_may_be_written_by_any_producer(world: World) -> None:
    events = text_stream(world, "events")
    users = stream_of(world, "anybodys", Long())
    world.create(users)
    world.emit_raw(users.name, b"a", (7).to_bytes(8))
    world.emit_raw(users.name, b"b", (8).to_bytes(8))
    world.emit_raw(users.name, b"b", None)
    world.emit_raw(users.name, None, b"of no key")
    table = table_of(users)

    def look(ctx: Context[str, int], event: str) -> None:
        ctx.set(ctx.join(table) or 0)

    group = Group(world.name("g"), Input(events, look), Join(table), Persist(Long()))
    world.run(group)
    world.settle()
    world.emit_many(events, [("a", "x"), ("b", "x")])
    world.settle()
    assert world.table(group) == {"a": 7, "b": 0}


def table_of(stream: Stream[str, int]) -> Any:
    from streamtable import Table  # noqa: PLC0415 - beside its only use

    return Table(stream.name, stream.key, stream.value)


def test_changes_are_handled_once_in_order_with_old_and_new_row_over_restarts(world: World) -> None:
    users, out = users_of(world), stream_of(world, "out", Json())

    def changed(ctx: Context[str, int], change: RowChange[int]) -> None:
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(out, ctx.key, [change.old, change.new])

    group = Group(
        world.name("g"), Changes(users.table, changed, start="earliest"), Output(out), Persist(Long())
    )
    world.run(users, group, partitions=2)
    for restart in (None, True, False):
        if restart is not None:
            world.stop(group)
        for number in (1, 2, -1):
            world.emit_many(numbers_of(users), [("a", number), ("b", number)])
            world.settle()
        if restart is not None:
            world.start(group, disk=restart)
        world.settle()
    for key in "ab":
        emitted = [record.value for record in world.records(out) if record.key == key]
        assert emitted == [[None, 1], [1, 2], [2, None]] * 3
    assert world.table(group) == {"a": 9, "b": 9}


def test_a_new_group_takes_the_rows_that_are_there_as_known_or_as_changes(world: World) -> None:
    users = users_of(world)
    seen: dict[str, list[Any]] = {"latest": [], "earliest": []}

    def noting(name: str) -> Any:
        return lambda ctx, change: seen[name].append((ctx.key, change.old, change.new))

    world.run(users)
    world.emit_many(numbers_of(users), [("a", 1), ("b", 2)])
    world.settle()
    groups: list[Group[str, Any]] = [
        Group(world.name("late"), Changes(users.table, noting("latest"))),
        Group(world.name("early"), Changes(users.table, noting("earliest"), start="earliest")),
    ]
    world.run(*groups)
    world.settle()
    world.emit_many(numbers_of(users), [("a", 5)])
    world.settle()
    assert seen == {"latest": [("a", 1, 5)], "earliest": [("a", None, 1), ("b", None, 2), ("a", 1, 5)]}


def test_a_loop_reaches_the_rows_of_other_keys(world: World) -> None:
    follows = text_stream(world, "follows")
    loop: Stream[str, str] = Stream(world.name("g-loop"), String(), String())
    seen: list[Any] = []

    def follow(ctx: Context[str, Any], other: str) -> None:
        ctx.set({**(ctx.value or {}), "follows": 1 + (ctx.value or {}).get("follows", 0)})
        ctx.loopback(loop, other, ctx.key, headers=[("by", ctx.key.encode())])

    def followed(ctx: Context[str, Any], by: str) -> None:
        seen.append(list(ctx.headers) == [("by", by.encode())])
        ctx.set({**(ctx.value or {}), "by": sorted([*(ctx.value or {}).get("by", []), by])})

    group: Group[str, Any] = Group(
        world.name("g"), Input(follows, follow), Loop(loop, followed), Persist(Json())
    )
    world.run(group, partitions=4)
    world.emit_many(follows, [("a", "b"), ("b", "c"), ("c", "b"), ("d", "b")])
    world.settle()
    assert world.table(group) == {
        "a": {"follows": 1},
        "b": {"follows": 1, "by": ["a", "c", "d"]},
        "c": {"follows": 1, "by": ["b"]},
        "d": {"follows": 1},
    }
    assert seen == [True] * 4


def test_a_lookup_finds_the_row_of_any_key(world: World) -> None:
    users, events = users_of(world), text_stream(world, "events")

    def look(ctx: Context[str, int], event: str) -> None:
        ctx.set(sum(ctx.lookup(users.table, key) or 0 for key in event))

    group = Group(world.name("g"), Input(events, look), Lookup(users.table), Persist(Long()))
    world.run(users, partitions=3)
    world.emit_many(numbers_of(users), [("a", 1), ("b", 20), ("c", 300)])
    world.settle()
    world.run(group)
    world.emit_many(events, [("x", "abc"), ("y", "bz")])
    world.settle()
    assert world.table(group) == {"x": 321, "y": 20}


def test_a_visit_handles_each_row_of_all_partitions_once(world: World) -> None:
    numbers, out = stream_of(world, "numbers", Long()), stream_of(world, "out", Json())

    def keep(ctx: Context[str, int], event: int) -> None:
        ctx.set(event)

    def visit(ctx: Context[str, int], argument: str) -> None:
        ctx.emit(out, ctx.key, argument)
        if ctx.value == 0:
            ctx.delete()
        else:
            ctx.set((ctx.value or 0) + 1000)

    group = Group(world.name("g"), Input(numbers, keep), Output(out), Persist(Long()), Visit("v", visit))
    world.run(group, partitions=2)
    world.emit_many(numbers, [(f"k{number}", number) for number in range(2_500)])
    world.settle()
    unreadable = (
        b'{"run":"run","argument":"","cursor":"","visited":0,"done":false}'  # as earlier builds wrote them
    )
    for partition in range(2):
        world.emit_raw(group.visits_topic, b"v", unreadable, partition=partition)
        world.emit_raw(
            group.visits_topic, b"v", VisitProgress("run", "argument").encode(), partition=partition
        )
    world.settle()
    assert world.table(group) == {f"k{number}": number + 1000 for number in range(1, 2_500)}
    visited = Counter(record.key for record in world.records(out))
    assert visited == {f"k{number}": 1 for number in range(2_500)}
    progress = [
        VisitProgress.decode(r.value) for r in world.records(Stream(group.visits_topic, String(), Bytes()))
    ]
    assert sum(each.visited for each in progress if each and each.done) == 2_500
    assert [letter.value for letter in world.dead_letters(group)] == [unreadable] * 2


# ---- what Goka documents as its holes, and where else they are held closed ---------------------------------------
# Two counters after a kill, with the disk and without: test_lives, tests/faults/test_crash_rounds.
# Reads during recovery: test_views. Tombstones older than the local copy: recovery's own test, and the simulation.


def test_a_failed_record_is_not_committed_by_the_good_ones_behind_it_at_shutdown(world: World) -> None:
    events = text_stream(world, "events")
    broken = True

    def handle(ctx: Context[str, int], event: str) -> None:
        if broken and event == "fail":
            raise ZeroDivisionError
        ctx.set((ctx.value or 0) + 1)

    group = Group(world.name("g"), Input(events, handle), Persist(Long()))
    world.run(group)
    world.settle()
    world.emit_many(events, [("a", "fail"), *[("a", "good")] * 20])
    try:
        world.settle()
    except HandlerFailed:
        broken = False
    assert not broken
    world.start(group)
    world.settle()
    assert world.table(group) == {"a": 21}


def test_an_output_that_cannot_be_sent_undoes_the_row_it_belongs_to(world: World) -> None:
    events = text_stream(world, "events")
    large, numbers = stream_of(world, "large", String()), stream_of(world, "numbers", Long())

    def handle(ctx: Context[str, int], event: str) -> None:
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(large, ctx.key, event * (2_000_000 if event == "l" else 1))
        number: Any = "no number" if event == "u" else 1
        ctx.emit(numbers, ctx.key, number)

    group = Group(
        world.name("g"),
        Input(events, handle, on_error=OnError.DEAD_LETTER),
        Output(large),
        Output(numbers),
        Persist(Long()),
    )
    world.run(group)
    world.emit_many(events, [("a", "x"), ("a", "l"), ("a", "u"), ("a", "y")])
    world.settle()
    assert world.table(group) == {"a": 2}
    assert [record.value for record in world.records(large)] == ["x", "y"]
    assert [record.value for record in world.records(numbers)] == [1, 1]
    assert [(letter.value, letter.error) for letter in world.dead_letters(group)] == [
        (b"l", "SerializationError"),
        (b"u", "SerializationError"),
    ]


def test_acknowledgements_in_any_order_lose_nothing_of_a_key(world: World) -> None:
    """Goka commits the offset of whatever is done first: here a commit covers all records before it, or none."""
    events, out = text_stream(world, "events"), stream_of(world, "out", Long())

    def handle(ctx: Context[str, int], event: str) -> None:
        ctx.set((ctx.value or 0) + 1)
        ctx.emit(
            out, f"{ctx.key}{ctx.value}", ctx.value
        )  # goes to any partition, so it is answered in any order

    group = Group(world.name("g"), Input(events, handle), Output(out), Persist(Long()))
    world.run(group, partitions=4)
    for _ in range(3):
        world.emit_many(events, [(f"k{number % 5}-", "x") for number in range(200)])
        world.settle()
        world.stop(group)
        world.start(group)
    world.settle()
    assert world.table(group) == {f"k{key}-": 120 for key in range(5)}
    assert Counter(record.key for record in world.records(out)) == {
        f"k{key}-{number}": 1 for key in range(5) for number in range(1, 121)
    }
