"""Restarts, crashes, lost disks, members that come and go: nothing is lost, and nothing counted twice."""

from collections import Counter
from typing import Any

import pytest
from tests.behaviour.groups import counting
from tests.behaviour.world import World

from streamtable import Group, Guarantee, Stream, String


def events_of(group: Group[Any, Any]) -> Stream[str, str]:
    return Stream(group.inputs[0].stream.name, String(), String())


def some(number: int) -> list[tuple[str, str]]:
    """Return this many events of each of ten keys."""
    return [(f"k{key}", "x") for key in range(10)] * number


@pytest.mark.parametrize("disk", [True, False])
def test_a_restarted_group_goes_on_where_it_was(
    disk: bool,  # noqa: FBT001 - a parameter of the test
    world: World,
) -> None:
    group = counting(world.name)
    world.run(group, partitions=3)
    world.emit_many(events_of(group), some(2))
    world.settle()
    world.stop(group)
    world.emit_many(events_of(group), some(1))
    assert set(world.table(group).values()) == {2}
    world.start(group, disk=disk)
    world.settle()
    world.emit_many(events_of(group), some(1))
    world.settle()
    assert world.table(group) == {f"k{key}": 4 for key in range(10)}


def test_a_crash_between_two_steps_of_a_commit_counts_everything_once(world: World) -> None:
    steps = ("changelog-produced", "offsets-sent", "committed", "store-written")
    for step in steps:
        world.create(events_of(counting(world.name, step)))
        world.emit_many(events_of(counting(world.name, step)), some(5))
        world.run_to_crash(step, at=step)
    for step in steps:
        world.start(counting(world.name, step), disk=step != "offsets-sent")
    world.settle()
    for step in steps:
        group = counting(world.name, step)
        assert world.table(group) == {f"k{key}": 5 for key in range(10)}
        counts: Stream[str, int] = group.outputs[0].stream
        assert Counter(record.key for record in world.records(counts)) == {f"k{key}": 5 for key in range(10)}


def test_at_least_once_loses_nothing_in_a_crash_but_counts_again(world: World) -> None:
    group = counting(world.name)
    world.create(events_of(group))
    world.emit_many(events_of(group), some(5))
    world.run_to_crash("", at="flushed", guarantee=Guarantee.AT_LEAST_ONCE)
    world.start(group)
    world.settle()
    counts = world.table(group)
    assert counts.keys() == {f"k{key}" for key in range(10)}
    assert min(counts.values()) >= 5
    assert 50 < sum(counts.values()) <= 100


def test_at_least_once_counts_once_when_nothing_happens(world: World) -> None:
    group = counting(world.name)
    world.run(group, partitions=2, guarantee=Guarantee.AT_LEAST_ONCE)
    world.emit_many(events_of(group), some(3))
    world.settle()
    world.stop(group)
    world.start(group, disk=False)
    world.emit_many(events_of(group), some(1))
    world.settle()
    assert world.table(group) == {f"k{key}": 4 for key in range(10)}


def test_members_share_the_work_while_others_join_and_leave(world: World) -> None:
    group = counting(world.name)
    events = events_of(group)
    world.run(group, members=2, partitions=4)
    world.emit_many(events, some(2))
    world.settle()
    world.join(group)
    world.emit_many(events, some(2))
    world.settle()
    world.leave(group, 0)
    world.emit_many(events, some(2))
    world.settle()
    world.leave(group, 0)
    world.emit_many(events, some(2))
    world.settle()
    assert world.table(group) == {f"k{key}": 8 for key in range(10)}
    counts: Stream[str, int] = group.outputs[0].stream
    emitted: dict[str | None, list[int | None]] = {}
    for record in world.records(counts):
        emitted.setdefault(record.key, []).append(record.value)
    assert emitted == {f"k{key}": [1, 2, 3, 4, 5, 6, 7, 8] for key in range(10)}


def test_more_members_than_partitions_do_no_harm(world: World) -> None:
    group = counting(world.name)
    world.run(group, partitions=1)
    world.emit_many(events_of(group), some(2))
    world.settle()
    world.join(group)
    world.leave(group, 0)
    world.emit_many(events_of(group), some(2))
    world.settle()
    assert world.table(group) == {f"k{key}": 4 for key in range(10)}


def test_a_table_that_moves_to_another_disk_brings_deletes_with_it(world: World) -> None:
    group = counting(world.name)
    world.run(group)
    world.emit_many(events_of(group), some(1))
    world.settle()
    world.stop(group)
    world.emit_raw(group.table.name, b"k3", None)  # as a tool deletes a row, while the group is down
    world.start(group, disk=False)
    world.settle()
    world.emit_many(events_of(group), [("k4", "x")])
    world.settle()
    expected = {f"k{key}": 1 for key in range(10)} | {"k4": 2}
    del expected["k3"]
    assert world.table(group) == expected
