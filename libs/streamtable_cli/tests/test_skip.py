"""`streamtable group skip`: the record goes to the dead letters, the group continues, and nothing else changes."""

import shlex
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from streamtable import Group, Input, Long, Persist, Stream, String
from streamtable.base.types import NextOffset, TopicPartition
from streamtable.errors import HandlerFailed
from streamtable.tables.position import TablePosition
from streamtable.tables.seen import SeenInputs

BAD = 13


@pytest.fixture
def group(world: World) -> Group[str, int]:
    """A group that counts two inputs and stops on 13."""

    def add(ctx: Any, number: int) -> None:
        if number == BAD:
            raise ValueError("13 is unlucky")
        ctx.set((ctx.value or 0) + number)

    names = [world.create(name, partitions=2) for name in ("in", "more")]
    inputs = [Input(Stream(name, String(), NUMBER), add) for name in names]
    made: Group[str, int] = Group(world.topics.name("g"), *inputs, Persist(Long()))
    world.create("g-table", partitions=2, config={"cleanup.policy": "compact"})
    for topic in ("g-dead-letters", "g-retry"):
        world.create(topic, partitions=2)
    return made


def send(world: World, topic: str, *numbers: int, partition: int = 0) -> None:
    world.send(
        world.topics.name(topic), *((b"a", NUMBER.encode(number)) for number in numbers), partition=partition
    )


def stands_at(cli: Cli, group: str, topic: str) -> int | None:
    """Return the committed offset of partition 0; None before the group exists."""
    ran = cli("group", "lag", group, "--json")
    found = ran.json["partitions"] if ran.code == 0 else []
    return next((e["committed"] for e in found if (e["topic"], e["partition"]) == (topic, 0)), None)


def offsets(cli: Cli, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    found = cli("group", "lag", group, "--json").good().json
    return {
        (each["topic"], each["partition"]): (each["committed"], each["table_position"])
        for each in found["partitions"]
    }


def test_the_command_in_the_error_skips_the_record_and_nothing_else(
    group: Group[str, int], world: World, cli: Cli
) -> None:
    send(world, "more", 100)
    send(world, "in", 1, 2, BAD, 4)
    with pytest.raises(HandlerFailed, match="13 is unlucky") as stopped, world.running(group, stop=False):
        pass
    admin = world.kafka.admin()
    until(lambda: not admin.describe_groups([group.name])[group.name].members, "the processor has left")
    admin.close()
    topic = world.topics.name("in")
    before = offsets(cli, group.name)
    assert before[topic, 0][0] == 2, "what is good before it is committed"
    command = shlex.split(str(stopped.value).split("'")[-2])
    assert command == ["streamtable", "group", "skip", group.name, topic, "0", "2"]
    cli(*command[1:], "--yes").good()
    after = offsets(cli, group.name)
    assert after == {**before, (topic, 0): (3, before[topic, 0][1])}
    (letter,) = cli("dead-letters", "list", group.name, "--json").good().lines
    assert (letter["origin"]["topic"], letter["origin"]["offset"]) == (topic, 2)
    shown = cli("dead-letters", "show", group.name, "0:0").good().out
    assert "skipped by an operator" in shown
    with world.running(group) as processor:
        until(lambda: stands_at(cli, group.name, topic) == 4, "the group has gone on")
        assert processor.group.name == group.name
    rows = cli("table", "get", group.table.name, "a").good().out
    assert "107" in rows


def test_only_the_next_record_of_a_stopped_group_can_be_skipped(
    group: Group[str, int], world: World, cli: Cli
) -> None:
    topic = world.topics.name("in")
    send(world, "in", 1, 2, 3)
    with world.running(group):
        until(lambda: stands_at(cli, group.name, topic) == 3, "it is handled")
        refused = cli("group", "skip", group.name, topic, "0", "2", "--yes")
        assert (refused.code, "live member" in refused.err) == (2, True)
    send(world, "in", 4, 5)
    before = offsets(cli, group.name)
    for offset, code, why in (
        (2, 2, "it is at 3"),
        (4, 2, "its next record is 3"),
        (9, 2, "its next record is 3"),
    ):
        ran = cli("group", "skip", group.name, topic, "0", str(offset), "--yes")
        assert (ran.code, why in ran.err) == (code, True), ran.err
    nothing = cli("group", "skip", group.name, topic, "1", "0", "--yes")
    assert (nothing.code, "has no record at 0" in nothing.err) == (1, True), nothing.err
    unasked = cli("group", "skip", group.name, topic, "0", "3")
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    assert offsets(cli, group.name) == before
    admin = world.kafka.admin()
    marks = admin.watermarks([TopicPartition(group.dead_letters, 0)])
    admin.close()
    assert [mark.high for mark in marks.values()] == [0]


def test_a_record_of_a_recreated_input_is_not_skipped(group: Group[str, int], world: World, cli: Cli) -> None:
    send(world, "in", BAD)
    place = TopicPartition(world.topics.name("in"), 0)
    seen = SeenInputs(9, SeenInputs.ids_of({place.topic: "an earlier id"}, {place.topic: NextOffset(9)}))
    world.commit(group.name, {place: 0}, TablePosition(0, exact=True, seen=seen).encode())
    ran = cli("group", "skip", group.name, *map(str, place), "0", "--yes")
    assert ran.code == 2
    assert f"{place.topic} was deleted and created again" in ran.err
    assert cli("dead-letters", "list", group.name, "--json").good().lines == []
