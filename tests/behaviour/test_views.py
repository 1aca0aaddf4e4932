"""Views follow a group's table."""

import pytest
from tests.behaviour.world import World, text_stream

from streamtable import Ack, Context, Group, Guarantee, Input, Long, Lookup, Persist, Stream
from streamtable.errors import NotReady


def count(ctx: Context[str, int], event: str) -> None:
    ctx.delete() if event == "delete" else ctx.set((ctx.value or 0) + 1)


def counted(world: World) -> tuple[Stream[str, str], Group[str, int]]:
    events = text_stream(world, "events")
    return events, Group(world.name("g"), Input(events, count), Persist(Long()))


def test_a_view_answers_for_all_keys_and_follows(world: World) -> None:
    events, group = counted(world)
    world.run(group, partitions=3)
    world.emit_many(events, [(f"k{number}", "x") for number in range(20)])
    world.settle()
    view = world.view(group.table)
    assert view.ready
    assert view.get("k7") == 1
    assert view.get("unknown") is None
    world.emit_many(events, [("k7", "x"), ("k8", "delete"), ("new", "x")])
    world.settle()
    world.until(lambda: view.get("k7") == 2 and view.get("k8") is None and view.get("new") == 1)
    assert view.get_many(["k7", "k8", "k9", "unknown"]) == {"k7": 2, "k9": 1}
    assert len(list(view.iterate())) == 20


def test_a_views_rows_come_in_the_order_of_their_keys(world: World) -> None:
    events, group = counted(world)
    world.run(group, partitions=3)
    world.emit_many(events, [(key, "x") for key in ("b", "ab", "c", "a", "abc")])
    world.settle()
    view = world.view(group.table)
    assert view.range() == [("a", 1), ("ab", 1), ("abc", 1), ("b", 1), ("c", 1)]
    assert view.range("ab", "b") == [("ab", 1), ("abc", 1)]
    assert view.range(limit=2) == [("a", 1), ("ab", 1)]
    assert list(view.iterate(prefix="ab")) == [("ab", 1), ("abc", 1)]
    assert list(view.iterate(after="abc")) == [("b", 1), ("c", 1)]


def test_a_watch_tells_changes_and_deletes_of_what_it_watches(world: World) -> None:
    events, group = counted(world)
    world.run(group)
    world.emit(events, "a", "x")
    world.settle()
    view = world.view(group.table)
    with view.watch(key="a") as one, view.watch() as every:
        for key, event, row in (("b", "x", 1), ("a", "x", 2), ("a", "delete", None)):
            world.emit(events, key, event)
            # Of changes that come together only the last one of a key is reported.
            world.until(lambda: view.get(key) == row)  # noqa: B023 - called at once
        changes = [next(every) for _ in range(3)]
        assert [(change.key, change.value) for change in changes] == [("b", 1), ("a", 2), ("a", None)]
        assert [(change.key, change.value) for change in (next(one), next(one))] == [("a", 2), ("a", None)]
        assert [change.offset for change in changes] == sorted(change.offset for change in changes)


def test_an_answer_says_up_to_where_it_holds_everything(world: World) -> None:
    events, group = counted(world)
    world.run(group)
    world.emit(events, "a", "x")
    world.settle()
    view = world.view(group.table)
    answer = view.answer("a")
    assert (answer.value, answer.partition, answer.stale) == (1, 0, False)
    assert answer.offset >= 1
    assert answer.age_seconds < 5
    world.until(lambda: view.lag() == 0)
    assert view.position()[0].ready


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_view_can_be_waited_for_until_it_shows_an_event(world: World, guarantee: Guarantee) -> None:
    events, group = counted(world)
    world.run(group, partitions=3, guarantee=guarantee)
    world.settle()
    view = world.view(group.table)
    for number, key in enumerate(("a", "b", "a", "c", "a"), 1):
        ack = world.emit(events, key, "x")
        view.wait_for(Ack.parse(ack.token), 30)
        assert view.get(key) == (number + 1) // 2 if key == "a" else 1
    view.wait_for(world.emit(events, "nothing", "delete"), 30)


def test_an_event_that_is_not_there_yet_is_not_shown(world: World) -> None:
    events, group = counted(world)
    world.run(group)
    ack = world.emit(events, "a", "x")
    world.settle()
    view = world.view(group.table)
    with pytest.raises(NotReady, match="not yet past the event"):
        view.wait_for(Ack(ack.topic, ack.partition, ack.offset + 1), 3.0)


def test_a_snapshot_is_of_one_partition_and_one_offset(world: World) -> None:
    events, group = counted(world)
    world.run(group, partitions=3)
    world.emit_many(events, [(f"k{number}", "x") for number in range(20)])
    world.settle()
    view = world.view(group.table)
    rows: dict[str, int] = {}
    for partition in range(3):
        with view.snapshot(partition) as snapshot:
            assert snapshot.offset == view.position()[partition].offset
            rows |= dict(snapshot)
    assert rows == {f"k{number}": 1 for number in range(20)}


def test_a_handler_looks_up_rows_of_any_key_in_a_table_partitioned_otherwise(world: World) -> None:
    events, group = counted(world)

    def ask(ctx: Context[str, int], key: str) -> None:
        ctx.set(ctx.lookup(group.table, key) or 0)

    asked = text_stream(world, "asked")
    asking = Group(world.name("asking"), Input(asked, ask), Lookup(group.table), Persist(Long()))
    world.run(group, partitions=3)
    world.emit_many(events, [(f"k{number % 7}", "x") for number in range(28)])
    world.settle()
    world.run(asking, partitions=2)
    world.emit_many(asked, [(f"q{number}", f"k{number}") for number in range(8)])
    world.settle()
    assert world.table(asking) == {f"q{number}": 4 for number in range(7)} | {"q7": 0}
