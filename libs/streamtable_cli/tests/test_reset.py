"""`streamtable group reset`: the refusals, the preview, and a table that is exact afterwards."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, add, until

from localkafka.waiting import Deadline
from streamtable import Group, Input, Kafka, Long, Persist, Stream, String
from streamtable.base.ports import TopicDescription
from streamtable.base.types import Committed, NextOffset, TopicPartition
from streamtable.errors import InputLost, StateLost
from streamtable.graph.group import Changes, Join, Loop, Visit
from streamtable.graph.visiting import VisitProgress
from streamtable.kafka.admin import KafkaAdmin
from streamtable_admin.cluster import Cluster
from streamtable_admin.rights import UserAdmin
from streamtable_cli.reset import empty


def ignore(ctx: Any, event: Any) -> None: ...


@pytest.fixture
def plain(world: World) -> str:
    """A group without a table, from another tool: 10 records in each of 2 partitions, 4 and 6 of them processed."""
    topic = world.topics.create("in", partitions=2)
    for partition in range(2):
        world.send(topic, *((b"k", b"%d" % n) for n in range(10)), partition=partition)
    group = world.topics.name("g")
    admin = world.kafka.admin()
    places = {
        TopicPartition(topic, 0): Committed(NextOffset(4)),
        TopicPartition(topic, 1): Committed(NextOffset(6)),
    }
    _ask(lambda: admin.set_offsets(group, places))
    admin.close()
    return group


def _ask(do: Any) -> None:
    """Retry, as the coordinator of a new broker takes a moment."""

    def done() -> bool:
        try:
            do()
        except Exception:  # noqa: BLE001 - asked again until the deadline
            return False
        return True

    until(done, "the broker does it")


def offsets(cli: Cli, group: str) -> dict[tuple[str, int], int]:
    # A transaction with offsets may not have ended yet: the command then reports that and is repeated.
    deadline = Deadline(60)
    while (ran := cli("group", "lag", group, "--json")).code:
        assert not deadline.passed(), ran.err
    return {(each["topic"], each["partition"]): each["committed"] for each in ran.json["partitions"]}


# ---- without a table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "expected"), [("earliest", [0, 0]), ("latest", [10, 10])])
def test_offsets_are_set_after_yes(to: str, expected: list[int], plain: str, cli: Cli) -> None:
    ran = cli("group", "reset", plain, "--to", to, "--yes").good()
    assert "-4" in ran.out or "+6" in ran.out
    assert "the offsets of 2 partitions were set" in ran.err
    assert list(offsets(cli, plain).values()) == expected


def test_without_yes_the_plan_is_shown_and_nothing_is_changed(plain: str, cli: Cli) -> None:
    before = offsets(cli, plain)
    ran = cli("group", "reset", plain, "--to", "earliest")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert plain.replace("-g", "-in") in ran.out
    assert offsets(cli, plain) == before
    assert cli("group", "reset", plain, "--to", "earliest", "--json").code == 2
    assert offsets(cli, plain) == before


@pytest.mark.parametrize(("to", "times"), [("earliest", 1), ("latest", 0)])
def test_a_reset_to_earlier_offsets_warns_that_outputs_are_repeated(
    to: str, times: int, plain: str, cli: Cli
) -> None:
    ran = cli("group", "reset", plain, "--to", to, "--yes").good()
    assert " ".join(ran.out.split()).count("are sent again") == times


@pytest.mark.parametrize(("answer", "code", "expected"), [("y\n", 0, [0, 0]), ("n\n", 2, [4, 6])])
def test_a_terminal_prompts_for_confirmation(
    answer: str, code: int, expected: list[int], plain: str, cli: Cli
) -> None:
    terminal, stdin = os.openpty()
    process = cli.process("group", "reset", plain, "--to", "earliest", stdin=stdin)
    os.write(terminal, answer.encode())
    _, err = process.communicate(timeout=60)
    os.close(terminal)
    os.close(stdin)
    assert "Do it?" in err
    assert process.returncode == code
    assert list(offsets(cli, plain).values()) == expected


def test_offsets_are_given_as_json_or_in_a_file(plain: str, cli: Cli, world: World, tmp_path: Path) -> None:
    topic = world.topics.name("in")
    ran = cli("group", "reset", plain, "--to", json.dumps({topic: {"1": 3}}), "--yes", "--json").good()
    assert ran.json["moves"] == [{"topic": topic, "partition": 1, "from": 6, "to": 3}]
    assert offsets(cli, plain) == {(topic, 0): 4, (topic, 1): 3}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({topic: {"0": "latest", "1": "earliest"}}))
    cli("group", "reset", plain, "--to", f"@{file}", "--yes").good()
    assert offsets(cli, plain) == {(topic, 0): 10, (topic, 1): 0}
    file.write_text(json.dumps({topic: "latest"}))
    cli("group", "reset", plain, "--to", f"@{file}", "--yes").good()
    assert offsets(cli, plain) == {(topic, 0): 10, (topic, 1): 10}


@pytest.mark.parametrize("low", [8, 10], ids=["some are left", "none is left"])
@pytest.mark.parametrize("retention", ["-1", "604800000"], ids=["purged", "deleted by age"])
def test_a_topic_that_was_purged_is_not_read_again_unless_that_is_accepted(
    retention: str, low: int, cli: Cli, world: World
) -> None:
    topic = world.topics.create("in", partitions=1, config={"retention.ms": retention})
    world.send(topic, *((b"k", b"%d" % n) for n in range(10)), partition=0)
    group, place = world.topics.name("g"), TopicPartition(topic, 0)
    admin = world.kafka.admin()
    _ask(lambda: admin.set_offsets(group, {place: Committed(NextOffset(10))}))
    admin.delete_records({place: low})
    admin.close()
    cli("group", "reset", group, "--to", "latest", "--yes").good()  # nothing is read again
    refused = cli("group", "reset", group, "--to", "earliest", "--yes")
    if retention == "-1":
        assert refused.code == 2
        for words in (topic, f"below offset {low}", "--to latest --empty-table", "the group that writes the topic", "--accept-purged"):  # fmt: skip
            assert words in " ".join(refused.err.split())
        assert offsets(cli, group) == {(topic, 0): 10}
        cli("group", "reset", group, "--to", json.dumps({topic: "latest"}), "--yes").good()
        cli("group", "reset", group, "--to", "earliest", "--accept-purged", "--yes").good()
    assert offsets(cli, group) == {(topic, 0): low}


def test_offsets_are_set_by_time(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=2)
    now = int(time.time() * 1000)
    for hours in (3, 2, 1):
        world.send(topic, (b"k", b"v"), partition=0, timestamp=now - hours * 3_600_000)
    group = world.topics.name("g")
    _ask(lambda: cli("group", "reset", group, "--topic", topic, "--to", "150m", "--yes").good())
    assert offsets(cli, group) == {(topic, 0): 1, (topic, 1): 0}


@pytest.mark.parametrize("way", ["all", "named", "json", "a part"])
def test_what_is_pending_in_its_own_topics_is_dropped_where_all_of_its_inputs_are_set(
    way: str, plain: str, cli: Cli, world: World
) -> None:
    """The inputs, read again, hold the replayed dead letters; with a part of them, the others do not."""
    stream = world.topics.name("in")
    own = [world.topics.create(name, partitions=1) for name in ("g-loop", "g-retry")]
    for topic in own:
        world.send(topic, (b"k", b"pending"), partition=0)
        world.commit(plain, {TopicPartition(topic, 0): 0})
    flags = {
        "all": ("--to", "earliest"),
        "named": ("--to", "earliest", "--topic", stream),
        "json": ("--to", json.dumps({stream: "earliest"})),
        "a part": ("--to", json.dumps({stream: {"0": "earliest"}})),
    }[way]
    ran = cli("group", "reset", plain, *flags, "--yes").good()
    assert {f"Pending records in {topic} are dropped" in ran.out for topic in own} == {way != "a part"}
    expected = {(stream, 0): 0, (stream, 1): 0} | dict.fromkeys(((topic, 0) for topic in own), 1)
    if way == "a part":
        expected = {(stream, 0): 0, (stream, 1): 6} | dict.fromkeys(((topic, 0) for topic in own), 0)
    assert offsets(cli, plain) == expected


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("", "expected earliest"),
        ("Earliest", "expected earliest"),
        ("2026-13-01T00:00Z", "expected earliest"),
        ("2026-01-01T00:00", "expected earliest"),
        ("-1", "expected earliest"),
        ("{", "not valid JSON"),
        ("{}", "offsets by topic"),
        ('{"IN": {}}', "offsets by topic"),
        ('{"IN": {"00": 1}}', "no partition '00'"),
        ('{"IN": {"0": 1, "00": "latest"}}', "no partition '00'"),
        ("{" * 100_000, "not valid JSON"),
        ('{"IN": {"0": 1, "0": 2}}', "stands twice"),
        ('{"IN": {"0": 1}, "IN": {"0": 1}}', "stands twice"),
        ('{"IN": {"2": 1}}', "no partition '2'"),
        ('{"IN": {"-1": 1}}', "no partition '-1'"),
        ('{"IN": {"00000000000000000001": 1}}', "no partition"),
        ('{"IN": {"\uff10": 1}}', "no partition"),
        ('{"IN": {"0": 11}}', "holds 0 to 10, not 11"),
        ('{"IN": {"0": -1}}', "holds 0 to 10, not -1"),
        ('{"IN": {"0": 99999999999999999999999}}', "holds 0 to 10"),
        ('{"IN": {"0": %s}}' % ("9" * 5000), "not valid JSON"),
        ('{"IN": {"0": 1.5}}', "expected an offset"),
        ('{"IN": {"0": true}}', "expected an offset"),
        ('{"IN": {"0": null}}', "expected an offset"),
        ('{"IN": {"0": "5"}}', "expected an offset"),
        ('{"IN": [1, 2]}', "expected an offset"),
        ('{"IN": {"0": NaN}}', "expected an offset"),
        ("@/none/of/ours", "cannot be read"),
        ("@", "cannot be read"),
    ],
    ids=range(29),
)
def test_an_invalid_target_is_rejected(to: str, said: str, plain: str, cli: Cli, world: World) -> None:
    before = offsets(cli, plain)
    ran = cli("group", "reset", plain, "--yes", "--to", to.replace("IN", world.topics.name("in")))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err) < 1_000
    assert offsets(cli, plain) == before


def test_a_huge_json_is_read_and_one_too_huge_refused(
    plain: str, cli: Cli, world: World, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({world.topics.name("in"): {str(n): 0 for n in range(200_000)}}))
    assert "no partition '2'" in cli("group", "reset", plain, "--to", f"@{file}", "--yes").err
    file.write_text(" " * 10_000_001)
    assert "more than" in cli("group", "reset", plain, "--to", f"@{file}", "--yes").err


def test_topics_and_json_exclude_each_other(plain: str, cli: Cli) -> None:
    assert "exclude each other" in cli("group", "reset", plain, "--to", '{"a": {"0": 1}}', "--topic", "a").err


@pytest.mark.parametrize("flags", [("--topic", "none-of-ours"), ()])
def test_a_missing_group_or_topic_is_exit_code_1(flags: tuple[str, ...], cli: Cli, world: World) -> None:
    ran = cli("group", "reset", world.topics.name("missing"), "--to", "earliest", "--yes", *flags)
    assert ran.code == 1


def test_a_group_without_a_table_has_none_to_empty(plain: str, cli: Cli) -> None:
    ran = cli("group", "reset", plain, "--to", "earliest", "--yes", "--empty-table")
    assert ran.code == 2
    assert "keeps no table" in ran.err


def test_a_group_with_live_members_is_not_reset(cli: Cli, world: World) -> None:
    group = world.group()
    with world.running(group):
        until(lambda: cli("group", "describe", group.name).code == 0, "it has joined")
        # A new group commits its start offsets, one partition after the other.
        until(lambda: {*offsets(cli, group.name).values()} == {0}, "it has begun everywhere")
        before = offsets(cli, group.name)
        ran = cli("group", "reset", group.name, "--to", "earliest", "--empty-table", "--yes")
        assert ran.code == 2
        assert "has 1 live member (" in ran.err
        assert offsets(cli, group.name) == before
        place = TopicPartition(world.topics.name("in"), 0)
        admin = world.kafka.admin()
        with pytest.raises(Exception, match="it has members"):
            admin.set_offsets(group.name, {place: Committed(NextOffset(0))})
        admin.close()


def test_a_table_position_in_the_metadata_of_a_group_without_a_table_is_ignored(
    cli: Cli, world: World
) -> None:
    """A processor commits a position with its offsets even without a table."""
    for name in ("in", "g-dead-letters", "g-retry"):
        world.topics.create(name, partitions=1)
    stream = Stream(world.topics.name("in"), String(), Long())
    group: Group[str, Any] = Group(world.topics.name("g"), Input(stream, ignore))
    with world.running(group):
        world.send(stream.name, (b"k", Long().encode(1)))
        until(lambda: offsets(cli, group.name).get((stream.name, 0)) == 1, "it has committed one")
    cli("group", "reset", group.name, "--to", "earliest", "--yes").good()
    assert offsets(cli, group.name)[stream.name, 0] == 0


# ---- with a table --------------------------------------------------------------------------------------------------------


def rows(cli: Cli, table: str) -> dict[str, int]:
    lines = cli("table", "scan", table, "--json").good().lines
    return {line["key"]["value"]: line["value"]["value"] for line in lines}


def sums(numbers: range) -> dict[str, int]:
    return {f"k{k}": sum(n for n in numbers if n % 7 == k) for k in range(7)}


def send(world: World, numbers: range) -> None:
    world.send(world.topics.name("in"), *((b"k%d" % (n % 7), NUMBER.encode(n)) for n in numbers))


def test_a_group_with_a_table_is_refused_without_emptying_it(cli: Cli, world: World) -> None:
    group = world.group()
    with world.running(group):
        send(world, range(30))
        until(lambda: rows(cli, group.table.name) == sums(range(30)), "all is counted")
    before = offsets(cli, group.name)
    ran = cli("group", "reset", group.name, "--to", "earliest", "--yes")
    assert ran.code == 2
    assert "--empty-table" in ran.err
    part = json.dumps({world.topics.name("in"): {"0": 0}})
    ran = cli("group", "reset", group.name, "--to", part, "--yes", "--empty-table")
    assert ran.code == 2
    assert "all inputs must be set" in ran.err
    assert offsets(cli, group.name) == before
    assert rows(cli, group.table.name) == sums(range(30))


@pytest.mark.parametrize(("to", "times"), [("latest", 1), ("earliest", 0), ("json", 0)])
def test_a_reset_to_the_end_warns_of_records_that_the_emptied_table_will_not_have(
    to: str, times: int, cli: Cli, world: World
) -> None:
    group, topic = world.group(), world.topics.name("in")
    with world.running(group):
        send(world, range(30))
        until(lambda: rows(cli, group.table.name) == sums(range(30)), "all is counted")
    to = json.dumps({topic: "earliest"}) if to == "json" else to
    ran = cli("group", "reset", group.name, "--to", to, "--yes", "--empty-table").good()
    assert " ".join(ran.out.split()).count(f"without the records that are now in {topic}.") == times


def test_after_a_reset_the_table_is_exactly_the_result_of_the_input_from_there(
    cli: Cli, world: World
) -> None:
    group = world.group()
    stream = world.topics.name("in")
    with world.running(group):
        send(world, range(100))
        until(lambda: rows(cli, group.table.name) == sums(range(100)), "all is counted")
    half = {place: end // 2 for place, end in offsets(cli, group.name).items()}
    to = json.dumps({t: {str(p): half[topic, p] for topic, p in half if topic == t} for t, _ in half})
    cli("group", "reset", group.name, "--to", to, "--yes", "--empty-table").good()
    assert rows(cli, group.table.name) == {}
    left: dict[str, int] = {}
    for partition in range(2):
        lines = cli(
            "topics", "tail", stream, "-p", str(partition), "--offset", str(half[stream, partition]), "--json"
        )
        for line in lines.good().lines:
            left[line["key"]["value"]] = left.get(line["key"]["value"], 0) + line["value"]["value"]
    # This machine still has a local copy of the old table, which must not be used.
    with world.running(group):
        until(lambda: rows(cli, group.table.name) == left, "the second half is counted again")
        send(world, range(100, 120))
        expected = {f"k{k}": left.get(f"k{k}", 0) + sums(range(100, 120))[f"k{k}"] for k in range(7)}
        until(lambda: rows(cli, group.table.name) == expected, "it continues from there")
    cli("group", "reset", group.name, "--to", "earliest", "--yes", "--empty-table").good()
    with world.running(group):
        until(lambda: rows(cli, group.table.name) == sums(range(120)), "all of it is counted again")


def twice(ctx: Any, number: int) -> None:
    """Counts a number for its key and, through the loop, for the next key."""
    ctx.set((ctx.value or 0) + number)
    ctx.loopback(
        Stream(f"{ctx.topic.removesuffix('-in')}-g-loop", String(), NUMBER),
        f"k{(int(ctx.key[1:]) + 1) % 7}",
        number,
    )


def grow(ctx: Any, argument: str) -> None:
    ctx.set(ctx.value + int(argument))


RESET = ("group", "reset", "--to", "earliest", "--yes", "--empty-table")


def expire(world: World, group: Group[str, int]) -> tuple[str, ...]:
    """Delete the offsets of a group, as the broker does a week after its last member has left. Return the flags that name its inputs."""
    with closing(world.kafka.admin()) as admin:
        _ask(lambda: admin.delete_group(group.name))
    return "--topic", world.topics.name("in")


@pytest.mark.parametrize("committed", ["kept", "expired"])
def test_a_reset_does_not_repeat_loop_events_and_visits(committed: str, cli: Cli, world: World) -> None:
    """The inputs, read again, emit the loop events again; old visits do not run on the new table."""
    for name in ("in", "g-loop", "g-visits", "g-dead-letters", "g-retry"):
        world.create(name, partitions=2)
    world.create("g-table", partitions=2, config={"cleanup.policy": "compact"})
    loop = Stream(world.topics.name("g-loop"), String(), NUMBER)
    group: Group[str, int] = Group(
        world.topics.name("g"),
        Input(Stream(world.topics.name("in"), String(), NUMBER), twice),
        Loop(loop, add),
        Visit("grow", grow),
        Persist(Long()),
    )
    one = sums(range(50))
    both = {f"k{k}": one[f"k{k}"] + one[f"k{(k - 1) % 7}"] for k in range(7)}
    with world.running(group):
        send(world, range(50))
        until(lambda: rows(cli, group.table.name) == both, "all is counted")
        cli("visit", group.name, "grow", "--argument", "1000").good()
        assert rows(cli, group.table.name) == {key: value + 1000 for key, value in both.items()}
    # No member has processed these.
    world.send(loop.name, (b"k1", NUMBER.encode(5)))
    world.send(group.visits_topic, (b"grow", VisitProgress("old", "7").encode()), partition=0)
    inputs = expire(world, group) if committed == "expired" else ()
    ran = cli(*RESET, group.name, *inputs).good()
    assert f"Pending records in {loop.name} are dropped" in ran.out
    with world.running(group):
        until(lambda: rows(cli, group.table.name) == both, "all is counted again")
        until(lambda: cli("group", "lag", group.name, "--json").json["lag"] == 0, "all is read")
        assert rows(cli, group.table.name) == both
    # Naming the inputs is enough: loop and visits are set too.
    to = json.dumps({world.topics.name("in"): "latest", group.retry: "latest"})
    cli("group", "reset", group.name, "--to", to, "--yes", "--empty-table").good()
    # A loop that is named is set as requested.
    to = json.dumps({world.topics.name("in"): "latest", group.retry: "latest", loop.name: "earliest"})
    cli("group", "reset", group.name, "--to", to, "--yes", "--empty-table").good()
    assert {offsets(cli, group.name)[loop.name, number] for number in range(2)} == {0}


@pytest.mark.parametrize("committed", ["kept", "expired"])
def test_a_reset_does_not_repeat_replayed_dead_letters(committed: str, cli: Cli, world: World) -> None:
    """The inputs, read again, hold the records that were replayed."""
    group = world.group(partitions=1)
    once = sums(range(20))
    with world.running(group):
        send(world, range(20))
        world.letter(group, b"k1", NUMBER.encode(1000), offset=1, partition=0)
        cli("dead-letters", "replay", group.name, "--all").good()
        replayed = {**once, "k1": once["k1"] + 1000}
        until(lambda: rows(cli, group.table.name) == replayed, "all is counted")
    cli(*RESET, group.name, *(expire(world, group) if committed == "expired" else ())).good()
    with world.running(group):
        until(lambda: rows(cli, group.table.name) == once, "all is counted again")
        until(lambda: cli("group", "lag", group.name, "--json").json["lag"] == 0, "all is read")
        assert rows(cli, group.table.name) == once


def test_a_reset_counts_the_dead_letters_of_records_that_are_handled_again(cli: Cli, world: World) -> None:
    group = world.group(partitions=1)
    stream = world.topics.name("in")
    with world.running(group):
        send(world, range(20))
        until(lambda: rows(cli, group.table.name) == sums(range(20)), "all is counted")
        world.letter(group, b"k0", NUMBER.encode(7), offset=7)
        cli("dead-letters", "replay", group.name, "--all").good()
        until(lambda: rows(cli, group.table.name)["k0"] == sums(range(20))["k0"] + 7, "it is counted again")
    for offset in (-1, 4, 11, 19):
        world.letter(group, b"k1", NUMBER.encode(1000), offset=offset)
    with closing(world.kafka.admin()) as admin:
        (mark,) = admin.watermarks([TopicPartition(group.dead_letters, 0)]).values()

    def said(to: Any) -> list[str]:
        ran = cli("group", "reset", group.name, "--to", json.dumps({stream: to}), "--empty-table")
        return [line for line in ran.out.splitlines() if "never replayed" in line]

    assert said("latest") == []
    assert "2 dead letters never replayed" in said({"0": 11})[0]
    (line,) = said({"0": 12})
    assert "1 dead letter never replayed: the records are handled again. Replay none of them" in line
    assert "replay others by their names" in line, (
        "there are letters before these, which nothing handles again"
    )
    (line,) = said("earliest")
    assert "3 dead letters never replayed" in line
    since = line.partition("--since ")[2].split()[0]
    ran = cli(*RESET, group.name, "--json").good()
    assert ran.json["letters"] == [f"0:{mark.high - ago}" for ago in (3, 2, 1)]
    with world.running(group):
        cli("dead-letters", "replay", group.name, "--since", since).good()
        until(lambda: rows(cli, group.table.name) == sums(range(20)), "all is counted again")
        until(lambda: cli("group", "lag", group.name, "--json").json["lag"] == 0, "all is read")
        assert rows(cli, group.table.name) == sums(range(20))


def test_a_reset_rebuilds_a_table_from_joined_tables(cli: Cli, world: World) -> None:
    """With "earliest", each row of a table with handled changes is a newly inserted row; plain joins are only loaded."""
    first = world.group()
    with world.running(first):
        send(world, range(50))
        until(lambda: rows(cli, first.table.name) == sums(range(50)), "all is counted")

    def changed(ctx: Any, change: Any) -> None:
        ctx.set((ctx.value or 0) + (change.new or 0) - (change.old or 0))

    def joined(ctx: Any, number: int) -> None:
        ctx.set(ctx.join(first.table))

    def holds(group: Group[str, int], expected: dict[str, int]) -> bool:
        return rows(cli, group.table.name) == expected

    follows = world.group(name="f")  # creates the topics
    world.create("f-handled", partitions=2, config={"cleanup.policy": "compact"})
    stream = Stream(world.create("more", partitions=2), String(), NUMBER)
    follows = Group(follows.name, Changes(first.table, changed, start="earliest"), Persist(Long()))
    plain: Group[str, int] = Group(
        world.group(name="p").name, Input(stream, joined), Join(first.table), Persist(Long())
    )
    world.send(stream.name, *((b"k%d" % k, NUMBER.encode(1)) for k in range(7)))
    for group in (follows, plain):
        for _ in range(2):
            with world.running(group):
                until(partial(holds, group, sums(range(50))), "the table is built")
            cli("group", "reset", group.name, "--to", "earliest", "--yes", "--empty-table").good()
            assert rows(cli, group.table.name) == {}
    cli("group", "reset", follows.name, "--to", "latest", "--yes", "--empty-table").good()
    with world.running(follows), world.running(first):
        send(world, range(50, 57))
        added = sums(range(50, 57))
        until(lambda: rows(cli, follows.table.name) == added, "what was there is taken as known")


@pytest.mark.parametrize("rows", ["kept", "emptied"])
def test_a_group_with_a_recreated_input_continues_at_the_reset_offset(
    rows: str, cli: Cli, world: World
) -> None:
    """With Kafka's own tool, rows stay and records of the new topic are added; a reset empties the table."""
    group = world.group(partitions=1)
    stream, table = group.inputs[0].stream.name, group.table.name

    def row() -> Any:
        ran = cli("table", "get", table, "k", "--json")
        return ran.json["value"]["value"] if ran.code == 0 else None

    with world.running(group):
        world.send(stream, (b"k", NUMBER.encode(5)))
        until(lambda: row() == 5, "it is counted")
    admin = world.kafka.admin()
    admin.delete_topic(stream)
    until(lambda: stream not in admin.topic_partitions(), "the topic is gone")
    world.topics.create("in", partitions=1)
    world.send(stream, (b"k", NUMBER.encode(1)), (b"k", NUMBER.encode(1)))
    with pytest.raises(InputLost, match="created again"), world.running(group, stop=False):
        pass
    if rows == "kept":
        until(lambda: cli("group", "describe", group.name, "--json").json["state"] == "empty", "it is empty")
        world.commit(group.name, {TopicPartition(stream, 0): 0})
    else:
        ids = admin.topic_ids([stream])
        reset = ("group", "reset", group.name, "--to", "earliest", "--empty-table", "--yes")
        refused = cli(*reset)
        assert (refused.code, row()) == (2, 5)
        for said in (stream, ids[stream], "digest", "--accept-recreated"):
            assert said in refused.err
        partly = cli(*reset, "--accept-recreated", "--topic", group.retry)
        assert (partly.code, row()) == (2, 5)
        assert f"add --topic {stream}" in partly.err
        cli(*reset, "--accept-recreated").good()
    with world.running(group):
        until(lambda: row() == (7 if rows == "kept" else 2), "the new records are counted")
    admin.close()


def test_the_table_keeps_its_settings(cli: Cli, world: World) -> None:
    group = world.group(partitions=3)
    admin = world.kafka.admin()
    admin.alter_topic(group.table.name, {"min.compaction.lag.ms": "12345"})
    with world.running(group):
        send(world, range(10))
        until(lambda: rows(cli, group.table.name) == sums(range(10)), "all is counted")
    before = admin.describe([group.table.name])[group.table.name]
    cli("group", "reset", group.name, "--to", "latest", "--yes", "--empty-table").good()
    after = admin.describe([group.table.name])[group.table.name]
    admin.close()
    assert (after.partitions, after.config) == (3, before.config)
    assert after.topic_id != before.topic_id


@pytest.mark.parametrize("step", ["deleted", "created"])
def test_an_interrupted_reset_does_no_harm_and_can_be_repeated(
    step: str, cli: Cli, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = world.group()
    with world.running(group):
        send(world, range(40))
        until(lambda: rows(cli, group.table.name) == sums(range(40)), "all is counted")

    class Killed(BaseException):
        """As far as the steps that follow are concerned, the process is gone."""

    def killed(*_: Any) -> None:
        raise Killed

    target = (KafkaAdmin, "create_topics") if step == "deleted" else (KafkaAdmin, "set_offsets")
    with monkeypatch.context() as patch:
        patch.setattr(*target, killed)
        with pytest.raises(Killed):
            cli("group", "reset", group.name, "--to", "earliest", "--yes", "--empty-table")
    if step == "created":
        with pytest.raises(StateLost), world.running(group, stop=False):
            pass
    else:
        until(lambda: group.table.name not in cli("topics", "list").out, "the topic is gone")
    ran = cli("group", "reset", group.name, "--to", "earliest", "--yes", "--empty-table").good()
    assert ("is missing" in ran.err) == (step == "deleted")
    with world.running(group):
        until(lambda: rows(cli, group.table.name) == sums(range(40)), "all is counted again")


def test_the_deletion_of_a_topic_is_awaited(world: World, cli: Cli) -> None:
    group = world.group()
    admin = Kafka(world.kafka.bootstrap_servers, admin_timeout=20).admin_of(UserAdmin)
    for _ in range(3):
        before = admin.describe([group.table.name])[group.table.name].topic_id
        empty(Cluster(world.kafka, admin), group.table.name, partitions=2)
        assert admin.describe([group.table.name])[group.table.name].topic_id != before
    admin.close()


def test_a_table_topic_that_a_stale_broker_does_not_know_is_still_emptied(
    world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker with stale metadata reports that the topic does not exist."""
    group = world.group()
    with world.running(group):
        send(world, range(20))
        until(lambda: rows(cli, group.table.name) == sums(range(20)), "all is counted")
    before = offsets(cli, group.name)
    really = KafkaAdmin.describe
    asked: list[object] = []

    def late(admin: KafkaAdmin, names: Iterable[str]) -> Mapping[str, TopicDescription]:
        asked.append(names)
        return {} if len(asked) == 1 else really(admin, names)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaAdmin, "describe", late)
        ran = cli("group", "reset", group.name, "--to", "earliest", "--yes", "--empty-table")
    assert ran.code == 1
    assert "was not missing" in ran.err
    assert offsets(cli, group.name) == before
