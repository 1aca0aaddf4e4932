"""A handler changes rows of its own partition only: elsewhere no view would find them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.behaviour.world import World, text_stream

from streamtable import Aggregate, BatchContext, Count, Group, Input, Long, Loop, Persist
from streamtable.base.partitioner import partition_for
from streamtable.errors import WrongPartition
from streamtable.handlers.aggregate_rows import AggregateRows

PARTITIONS = 4
HERE = "a"
THERE = next(
    key for key in "bcdefgh" if partition_for(key.encode(), PARTITIONS) != partition_for(b"a", PARTITIONS)
)


def write(records: BatchContext[str, str, int]) -> None:
    records.put_many(dict.fromkeys(records.events, 1))


def delete(records: BatchContext[str, str, int]) -> None:
    records.put_many(dict.fromkeys(records.events))


def read(records: BatchContext[str, str, int]) -> None:
    records.put_many(dict.fromkeys(records.keys, len(records.get_many(records.events))))


class CountEvents(Count):
    """Counts by the event in place of the key."""

    def fold(self, rows: AggregateRows[int], keys: Sequence[bytes], events: Sequence[Any]) -> None:
        counts = rows.changing([event.encode() for event in events])
        for event in events:
            counts[event.encode()] = (counts[event.encode()] or 0) + 1


def group_of(
    world: World, how: Callable[[BatchContext[str, str, int]], None] | Aggregate[str, int]
) -> Group[str, int]:
    events = text_stream(world, "events")
    if isinstance(how, Aggregate):
        return Group(world.name("g"), Input(events, aggregate=how), Persist(Long()))
    return Group(world.name("g"), Input(events, batch=how), Persist(Long()))


@pytest.mark.parametrize(
    "how", [write, delete, read, CountEvents()], ids=["write", "delete", "read", "aggregate"]
)
def test_a_row_whose_key_belongs_to_another_partition_is_refused(world: World, how: Any) -> None:
    group, events = group_of(world, how), text_stream(world, "events")
    world.run(group, partitions=PARTITIONS)
    world.emit(events, HERE, HERE)
    world.settle()
    rows = world.table(group)
    world.emit(events, HERE, THERE)
    here, there = (partition_for(key.encode(), PARTITIONS) for key in (HERE, THERE))
    with pytest.raises(
        WrongPartition,
        match=rf"key b'{THERE}', which belongs to partition {there} .* task of partition {here}.* loopback",
    ) as caught:
        world.settle()
    assert (caught.value.topic, caught.value.partition) == (f"{group.name}-table", here)
    assert (caught.value.key, caught.value.key_partition) == (THERE.encode(), there)
    assert world.table(group) == rows


def test_every_row_that_a_batch_may_write_is_found_by_a_view(world: World) -> None:
    events, loop = text_stream(world, "events"), text_stream(world, "g-loop")

    def spread(records: BatchContext[str, str, int]) -> None:
        records.put_many(dict.fromkeys(records.keys, 1))
        for key in records.events:
            records.loopback(loop, key, "x")

    group: Group[str, int] = Group(
        world.name("g"), Input(events, batch=spread), Loop(loop, lambda ctx, _: ctx.set(2)), Persist(Long())
    )
    world.run(group, partitions=PARTITIONS)
    world.emit_many(events, [(f"k{number}", f"friend-of-k{number}") for number in range(100)])
    world.settle()
    view = world.view(group.table)
    world.until(lambda: len(list(view.iterate())) == 200)
    assert all(view.get(f"k{n}") == 1 and view.get(f"friend-of-k{n}") == 2 for n in range(100))


@pytest.mark.parametrize("how", [write, read], ids=["write", "read"])
def test_the_key_of_a_record_is_accepted_wherever_its_producer_has_put_it(world: World, how: Any) -> None:
    group, events = group_of(world, how), text_stream(world, "events")
    world.run(group, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        key = f"k{partition}"
        world.emit_raw(events.name, key.encode(), key.encode(), partition=partition)
    world.settle()
    assert world.table(group) == {f"k{partition}": 1 for partition in range(PARTITIONS)}
