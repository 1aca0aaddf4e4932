"""State tables on the command line: described, reset with the table, and dropped with the group."""

from contextlib import closing
from typing import Any

from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, add, until
from libs.streamtable_cli.tests.test_drop import left

from streamtable import Group, Input, Long, Persist, State, Stream, String, Timer
from streamtable_cli.graphs import text_of

TOTALS = State("totals", key=String(), value=Long())


def ignore(ctx: Any, payload: str) -> None: ...


def test_a_reset_empties_the_states_and_a_drop_deletes_their_topics(cli: Cli, world: World) -> None:
    for name in ("g-totals", "g-states"):
        world.create(name, partitions=2, config={"cleanup.policy": "compact"})
    bare = world.group()  # creates the other topics
    stream = bare.inputs[0].stream

    def handle(ctx: Any, number: int) -> None:
        add(ctx, number)
        ctx.table(TOTALS).put(ctx.key, ctx.value)

    group: Group[str, int] = Group(bare.name, Input(stream, handle), Persist(Long()), TOTALS)
    state = group.state_table(TOTALS).name
    world.send(stream.name, *((b"k", NUMBER.encode(number)) for number in range(5)))

    def row() -> Any:
        ran = cli("table", "get", state, "k", "--json")
        return ran.out if ran.code == 0 else None

    for _ in range(2):
        with world.running(group):
            until(lambda: row() is not None, "the state has the row")
        ran = cli("group", "reset", group.name, "--to", "earliest", "--empty-table", "--yes").good()
        assert state in ran.out
        assert row() is None
    with world.running(group):
        until(lambda: row() is not None, "the state has the row")
    ran = cli("group", "drop", group.name, "--yes").good()
    assert state in ran.out
    assert f"{group.name}-states" in ran.out
    until(lambda: left(world, group.name) == ([], False), "its topics are gone")


def test_a_state_that_the_program_has_left_is_emptied_by_a_reset_and_dropped_with_the_group(
    cli: Cli, world: World
) -> None:
    for name in ("g-totals", "g-states"):
        world.create(name, partitions=1, config={"cleanup.policy": "compact"})
    bare = world.group(partitions=1)
    stream = bare.inputs[0].stream

    def handle(ctx: Any, number: int) -> None:
        ctx.table(TOTALS).put(ctx.key, number)

    group: Group[str, int] = Group(bare.name, Input(stream, handle), Persist(Long()), TOTALS)
    state = group.state_table(TOTALS).name
    world.send(stream.name, (b"k", NUMBER.encode(5)))
    with world.running(group):
        until(lambda: cli("table", "get", state, "k").code == 0, "the state has the row")
    world.send(stream.name, (b"k", NUMBER.encode(6)))
    with world.running(bare):
        until(lambda: cli("table", "get", bare.table.name, "k").code == 0, "the group has gone on")
    ran = cli("group", "reset", group.name, "--to", "earliest", "--empty-table", "--yes").good()
    assert state in ran.out
    with world.running(group):
        until(lambda: cli("table", "get", state, "k").code == 0, "the state is built again")
    world.send(stream.name, (b"k", NUMBER.encode(7)))
    with world.running(bare):
        until(lambda: cli("table", "get", bare.table.name, "k").code == 0, "the group has gone on again")
    ran = cli("group", "drop", group.name, "--yes").good()
    assert state in ran.out


def test_topics_that_may_be_states_are_named_when_the_offsets_that_name_the_states_have_expired(
    cli: Cli, world: World
) -> None:
    group = world.group(TOTALS)
    state = world.create("g-totals", partitions=2, config={"cleanup.policy": "compact"})
    for table in (group.table.name, state):
        world.send(table, (b"k", b"row"))
    everything = ("--topic", group.inputs[0].stream.name, "--to", "earliest", "--empty-table", "--yes")
    assert f"state tables: {state}" in cli("group", "reset", group.name, *everything).good().err
    with closing(world.kafka.admin()) as admin:
        admin.delete_group(group.name)
    assert f"that are theirs, {state}" in cli("group", "drop", group.name, "--yes").good().err


def test_a_description_names_the_states() -> None:
    stream = Stream("in", String(), Long())
    timer = Timer[str, str, int]("wake", ignore, String(), clock="wall")
    text = text_of([Group[str, int]("g", Input(stream, add), TOTALS, timer)])
    assert "timer   wake in wall time: ignore" in text
    assert "keeps   g-wall-timers (pending timers)" in text
    assert "keeps   g-totals (String → Long)" in text
    assert "keeps   g-states (meanings of states)" in text
