"""State tables on the command line: described, reset with the table, and dropped with the group."""

from typing import Any

from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, add, until
from libs.streamtable_cli.tests.test_drop import left

from streamtable import Group, Input, Long, Persist, State, Stream, String
from streamtable_cli.graphs import text_of

TOTALS = State("totals", key=String(), value=Long())


def test_a_reset_empties_the_states_and_a_drop_deletes_their_topics(cli: Cli, world: World) -> None:
    for name in ("g-totals", "g-states"):
        world.create(name, partitions=2, config={"cleanup.policy": "compact"})
    bare = world.group()  # makes the other topics
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


def test_a_description_names_the_states() -> None:
    stream = Stream("in", String(), Long())
    text = text_of([Group[str, int]("g", Input(stream, add), TOTALS)])
    assert "keeps   g-totals (String → Long)" in text
    assert "keeps   g-states (meanings of states)" in text
