"""`streamtable group drop`: the deleted parts, the preview, and the refusals."""

import sys
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from streamtable.base.types import TopicPartition
from streamtable.errors import ConfigurationError, RetryLater
from streamtable.graph.group import Join
from streamtable.kafka.admin import KafkaAdmin


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder without infra/topics.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def group(world: World) -> str:
    """A group without running processes: with offsets, a table, a retry topic and dead letters."""
    made = world.group()
    stream = world.topics.name("in")
    world.send(stream, (b"k", b"v"), (b"l", b"v"))
    world.send(made.table.name, (b"k", b"row"))
    world.commit(made.name, {TopicPartition(stream, number): 1 for number in range(2)})
    return made.name


def left(world: World, group: str) -> tuple[list[str], bool]:
    """Return the topics of the group, and whether it has offsets."""
    admin = world.kafka.admin()
    places = [TopicPartition(world.topics.name("in"), number) for number in range(2)]
    offsets: dict[str, Any] = {}

    def asked() -> bool:
        try:
            offsets.update({str(p): c for p, c in admin.stable_offsets(group, places).items() if c})
        except RetryLater:
            return False
        return True

    until(asked, "the offsets are reported")
    topics = [name for name in admin.topic_partitions() if name.startswith(f"{group}-")]
    admin.close()
    return topics, bool(offsets)


def test_a_drop_deletes_all_of_a_group_and_nothing_else(
    cli: Cli, world: World, group: str, tmp_path: Path
) -> None:
    for name in ("g-loop", "g-visits"):
        world.create(name, partitions=2)
    assert len(left(world, group)[0]) == 5
    ran = cli("--state-dir", str(tmp_path / "st"), "group", "drop", group, "--yes").good()
    assert "offsets" in ran.out
    assert "2 partitions" in ran.out
    assert f"{group}-table" in ran.out
    assert str(tmp_path / "st" / group) in ran.err
    until(lambda: left(world, group) == ([], False), "it has gone")
    assert world.topics.name("in") in cli("topics", "list").good().out
    ran = cli("group", "drop", group, "--yes")
    assert ran.code == 1
    assert "there is no group" in ran.err


def test_without_yes_the_plan_is_shown_and_nothing_is_changed(cli: Cli, world: World, group: str) -> None:
    before = left(world, group)
    ran = cli("group", "drop", group)
    assert ran.code == 2
    assert "--yes" in ran.err
    assert f"{group}-retry" in ran.out
    assert cli("group", "drop", group, "--json").code == 2
    assert left(world, group) == before


def test_a_group_with_live_members_is_not_dropped(cli: Cli, world: World) -> None:
    made = world.group()
    with world.running(made):
        until(lambda: world.topics.name("in") in cli("group", "describe", made.name).out, "it has joined")
        ran = cli("group", "drop", made.name, "--yes")
        assert ran.code == 2
        assert "has 1 live member (" in ran.err
        admin = world.kafka.admin()
        with pytest.raises(ConfigurationError, match="it has members"):
            admin.delete_group(made.name)
        admin.close()
    assert len(left(world, made.name)[0]) == 3


@pytest.mark.parametrize("edge", ["joins", "lookups"])
def test_a_group_whose_table_is_declared_as_read_is_not_dropped(
    cli: Cli, world: World, group: str, tmp_path: Path, edge: str
) -> None:
    file = tmp_path / "topics.yaml"
    stream, other = world.topics.name("in"), world.topics.name("other")
    file.write_text(
        f"topics: {{{stream}: }}\n"
        f"groups: {{{group}: {{inputs: [{stream}]}}, {other}: {{inputs: [{stream}], {edge}: [{group}-table]}}}}\n"
    )
    ran = cli("group", "drop", group, "--file", str(file), "--yes")
    assert ran.code == 2
    assert f"{other} reads {group}-table" in ran.err
    (tmp_path / "looking_shop.py").write_text(
        "from streamtable import *\nfrom streamtable.graph.group import Lookup\n"
        "def handle(ctx, event): ...\n"
        f"LOOKS = Group({other!r}, Input(Stream('in', String(), Long()), handle),"
        f" Lookup(Table('{group}-table', String(), Long())))\n"
    )
    ran = cli("group", "drop", group, "--graph", "looking_shop:LOOKS", "--yes")
    del sys.modules["looking_shop"]
    assert f"{other} reads {group}-table" in ran.err
    assert len(left(world, group)[0]) == 3
    # A group that is itself declared would be recreated.
    file.write_text(f"topics: {{{stream}: }}\ngroups: {{{group}: {{inputs: [{stream}]}}}}\n")
    assert "still declared" in cli("group", "drop", group, "--file", str(file), "--yes").good().err
    until(lambda: left(world, group) == ([], False), "it has gone")


def test_a_group_whose_table_a_live_member_joins_is_not_dropped(cli: Cli, world: World) -> None:
    made = world.group()
    with world.running(made):
        world.send(world.topics.name("in"), *((b"k%d" % n, NUMBER.encode(n)) for n in range(9)))
        until(lambda: len(cli("table", "scan", made.table.name, "--json").lines) == 9, "it has a table")
    joining = world.group(Join(made.table), name="j")
    with world.running(joining):
        until(lambda: made.table.name in cli("group", "describe", joining.name).out, "the table is joined")
        ran = cli("group", "drop", made.name, "--yes")
    assert ran.code == 2
    assert f"{joining.name} reads {made.table.name}" in ran.err


def test_a_group_with_unreplayed_dead_letters_is_not_dropped(cli: Cli, world: World, group: str) -> None:
    graph = world.group()
    for offset in range(2):
        world.letter(graph, b"k", b"bad", offset=offset)
    ran = cli("group", "drop", group, "--yes")
    assert ran.code == 2
    assert "2 dead letters never replayed (0:0, 0:1)" in ran.err
    cli("dead-letters", "replay", group, "--all").good()
    # Replayed, but not processed.
    ran = cli("group", "drop", group, "--yes")
    assert ran.code == 2
    assert f"2 records in {group}-retry that it has not processed" in ran.err
    assert len(left(world, group)[0]) == 3
    ran = cli("group", "drop", group, "--yes", "--with-dead-letters", "--json").good()
    assert ran.json["retries_not_done"] == 2
    until(lambda: left(world, group) == ([], False), "it has gone")


def test_a_group_with_pending_calls_or_retried_records_is_not_dropped(
    cli: Cli, world: World, group: str
) -> None:
    calls = world.create("g-calls", partitions=2)
    world.send(calls, (b"done", b"row"), (b"k", b"row"), (b"done", None), (b"\0", b"own"), partition=1)
    ran = cli("group", "drop", group, "--yes")
    assert ran.code == 2
    assert (
        f"group {group!r} has 1 pending call or retried record: see `streamtable calls list {group}`"
        in ran.err
    )
    assert len(left(world, group)[0]) == 4
    ran = cli("group", "drop", group, "--yes", "--with-dead-letters", "--json").good()
    assert ran.json["calls_not_done"] == 1
    until(lambda: left(world, group) == ([], False), "it has gone")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_drop_can_be_repeated(
    after: int, cli: Cli, world: World, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.letter(world.group(), b"k", b"bad", offset=0)
    really, done = KafkaAdmin.delete_topic, list[str]()

    class Killed(BaseException):
        """As far as the steps that follow are concerned, the process is gone."""

    def killed(admin: KafkaAdmin, name: str) -> None:
        if len(done) == after:
            raise Killed
        done.append(name)
        really(admin, name)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaAdmin, "delete_topic", killed)
        with pytest.raises(Killed):
            cli("group", "drop", group, "--yes", "--with-dead-letters")
    until(lambda: not set(done) & set(left(world, group)[0]), "what was deleted is gone")
    assert "1 dead letter never replayed" in cli("group", "drop", group, "--yes").err
    cli("group", "drop", group, "--yes", "--with-dead-letters").good()
    until(lambda: left(world, group) == ([], False), "it has gone")


def test_an_unreachable_broker_is_reported_quickly(nowhere: Cli) -> None:
    ran = nowhere("group", "drop", "g")
    assert ran.code == 1
    assert "no answer from Kafka at 127.0.0.1:9" in ran.err
