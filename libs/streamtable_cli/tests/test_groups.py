"""`streamtable group list|describe|lag` of a real group."""

import json

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.errors import RetryLater
from streamtable_admin.offsets import partition_ranges
from streamtable_cli.output import show_json, show_table


def test_a_group_is_described_while_it_runs_and_afterwards(cli: Cli, world: World) -> None:
    group = world.group(partitions=2)
    stream = world.topics.name("in")

    def lag() -> dict[str, int]:
        ran = cli("group", "lag", group.name, "--json")
        topics: dict[str, int] = ran.json["topics"] if ran.code == 0 else {}
        return topics

    with world.running(group):
        world.send(stream, *((b"k%d" % n, NUMBER.encode(n)) for n in range(20)))
        until(lambda: lag().get(stream) == 0, "all is processed")
        listed = {each["name"]: each for each in cli("group", "list", "--json").good().json}
        assert listed[group.name] == {
            "name": group.name,
            "state": "stable",
            "protocol": "consumer",
            "members": 1,
        }
        described = cli("group", "describe", group.name, "--json").good().json
        (member,) = described["members"]
        assert {"topic": stream, "partition": 0} in member["partitions"]
        assert described["table"] == group.table.name
        assert f"{stream} 0-1" in cli("group", "describe", group.name).good().out
    found = cli("group", "lag", group.name, "--json").good().json
    parts = [each for each in found["partitions"] if each["topic"] == stream]
    assert sum(each["committed"] for each in parts) == 20
    assert all(each["exact"] and each["table_position"] > 0 for each in parts)
    world.send(stream, (b"k", NUMBER.encode(1)))
    assert lag()[stream] == 1
    until(lambda: cli("group", "describe", group.name, "--json").json["state"] == "empty", "it is empty")
    shown = cli("group", "lag", group.name).good().out
    assert f"{stream}: lag 1" in shown
    assert f"{group.name}-retry" not in shown, "nothing was ever written to it"
    assert f"{group.name}-retry: lag 0" in cli("group", "lag", group.name, "--all").good().out


def test_a_transaction_marker_is_not_lag(cli: Cli, world: World) -> None:
    """The topic that a transaction wrote ends with a marker, at which a group that has read all has not arrived."""
    stream = world.topics.create("in", partitions=1)
    world.transaction((stream, b"k", b"v"), (stream, b"k", b"w"))
    place = TopicPartition(stream, 0)
    admin = world.kafka.admin()
    group = world.topics.name("g")

    def lag(committed: int) -> tuple[int, int]:
        world.commit(group, {place: committed})
        (found,) = cli("group", "lag", group, "--json").good().json["partitions"]
        return found["end"], found["lag"]

    assert admin.watermarks([place])[place].high == 3
    admin.close()
    assert [lag(committed) for committed in (2, 1, 0, 3)] == [(3, 0), (3, 1), (3, 2), (3, 0)]
    world.send(stream, *((b"k", b"v") for _ in range(150)))
    assert lag(3) == (153, 150)


def test_the_lag_of_a_partition_that_a_group_has_not_come_to_is_shown_as_unknown(
    cli: Cli, world: World
) -> None:
    """As after partitions were added to an input, while the group that has read it is stopped."""
    stream = world.topics.create("in", partitions=2)
    group = world.topics.name("g")
    world.commit(group, {TopicPartition(stream, 0): 0})
    found = cli("group", "lag", group, "--json").good().json
    assert [(each["partition"], each["lag"]) for each in found["partitions"]] == [(0, 0), (1, None)]
    assert found["lag"] == 0, "there is nothing in it"
    world.send(stream, *((b"k%d" % n, b"v") for n in range(20)))
    found = cli("group", "lag", group, "--json").good().json
    assert (found["lag"], found["topics"]) == (None, {stream: None})
    assert cli("group", "describe", group, "--json").good().json["lag"] is None
    assert "lag unknown" in cli("group", "describe", group).good().out


def test_a_missing_group_is_exit_code_1(cli: Cli) -> None:
    for command in ("describe", "lag"):
        ran = cli("group", command, "none-of-ours")
        assert (ran.code, ran.out) == (1, "")
        assert (
            ran.err == "error: there is no group 'none-of-ours': it has no members and no committed offsets\n"
        )


def test_partitions_are_shown_as_ranges() -> None:
    places = [TopicPartition("a", n) for n in (3, 0, 1, 7, 2)] + [TopicPartition("b", 5)]
    assert partition_ranges(places) == "a 0-3,7; b 5"
    assert partition_ranges([]) == ""


OBEYED = "\x1b]0;owned\x07\x9b2J\x7f\u202egpj.exe"
"""A terminal's title, a cleared screen by a C1 control character, and text from right to left."""


def assert_harmless(shown: str) -> None:
    assert all(each.isprintable() or each == "\n" for each in shown), ascii(shown)


@pytest.mark.broker
def test_control_characters_in_a_groups_name_are_escaped(cli: Cli, world: World) -> None:
    stream = world.topics.create("in", partitions=1)
    group = f"{world.topics.name('group')}-{OBEYED}"
    offsets = {TopicPartition(stream, 0): Committed(NextOffset(0))}

    def committed() -> bool:
        try:
            world.kafka.admin().set_offsets(group, offsets)
        except RetryLater:  # the group's coordinator has not been found yet
            return False
        return True

    until(committed, "the group is there")
    for arguments in (
        ("group", "list"),
        ("group", "describe", group),
        ("group", "lag", group),
        ("doctor", "--group", group, "--over", "0"),
    ):
        for form in ((), ("--json",)):
            ran = cli(*arguments, *form)
            assert "owned" in ran.out or arguments[1] == "lag"
            assert_harmless(ran.out)
            assert_harmless(ran.err)
    assert group in {each["name"] for each in cli("group", "list", "--json").good().json}


def test_control_characters_in_tables_and_json_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("what", "found"), [(OBEYED, "two\nlines"), (7, OBEYED)])
    shown = capsys.readouterr().out
    assert_harmless(shown)
    assert "\\u001b]0;owned\\u0007\\u009b2J" in shown
    assert "lines" in shown.splitlines()[2]
    show_json({OBEYED: [OBEYED]})
    document = capsys.readouterr().out
    assert_harmless(document)
    assert json.loads(document) == {OBEYED: [OBEYED]}
