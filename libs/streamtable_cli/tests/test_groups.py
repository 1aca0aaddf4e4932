"""`streamtable group list|describe|lag` of a real group."""

from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from streamtable.types import TopicPartition
from streamtable_admin.offsets import partition_ranges


def test_a_group_is_seen_at_work_and_after(cli: Cli, world: World) -> None:
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


def test_the_end_of_a_transaction_is_no_lag(cli: Cli, world: World) -> None:
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


def test_a_group_that_is_not_there_is_exit_code_1(cli: Cli) -> None:
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
