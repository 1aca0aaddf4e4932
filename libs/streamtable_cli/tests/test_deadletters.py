"""`streamtable dead-letters` on letters of a real processor: listed, filtered, and replayed exactly once."""

import signal
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import Cli, Ran, World, until

from localkafka.waiting import wait_until
from streamtable import Avro, Group, Long, Plain
from streamtable.base.deadletter import (
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TIMESTAMP,
    ORIGIN_TOPIC,
    REPLAYED_OFFSET,
    TIME,
    replayed_marker,
)
from streamtable.base.topics import Stream
from streamtable.base.types import TopicPartition
from streamtable_admin.text import at


@pytest.fixture
def group(world: World) -> Group[str, int]:
    """Four dead letters: bad numbers of a, b, c and d, two in each partition."""
    made = world.group(partitions=2)
    for number, key in enumerate((b"a", b"b", b"c", b"d")):
        world.letter(made, key, b"bad " + key, offset=number, partition=number % 2)
    return made


def letters(cli: Cli, group: Group[Any, Any], *flags: str) -> list[dict[str, Any]]:
    return whole(cli, "dead-letters", "list", group.name, "--json", *flags).lines


def whole(cli: Cli, *command: str) -> Ran:
    """A reading of all that is committed: the markers of a transaction come a moment after its commit."""

    def read() -> Ran | None:
        ran = cli(*command).good()
        return None if "is shown up to" in ran.err else ran

    ran = wait_until(read)
    assert ran is not None
    return ran


def sent(cli: Cli, group: Group[Any, Any]) -> Counter[str]:
    """Values in the retry topic."""
    lines = whole(cli, "topics", "tail", group.retry, "--offset", "0", "--json").lines
    return Counter(line["value"]["value"] for line in lines)


def test_letters_are_listed_with_origin_and_reason(group: Group[str, int], cli: Cli, world: World) -> None:
    found = {letter["key"]["value"]: letter for letter in letters(cli, group)}
    assert found.keys() == {"a", "b", "c", "d"}
    letter = found["a"]
    assert letter["origin"]["topic"] == world.topics.name("in")
    assert (letter["error"], letter["attempt"], letter["replayed"]) == ("DeserializationError", 1, None)
    assert "no number" in letter["message"]
    ran = cli("dead-letters", "list", group.name).good()
    assert letter["letter"] in ran.out
    assert "4 dead letters, 4 of them never replayed" in ran.err


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        (("--error", "DeserializationError"), 4),
        (("--error", "HandlerFailed"), 0),
        (("--origin-topic", "other"), 0),
        (("--since", "10m"), 4),
        (("--until", "10m"), 0),
        (("--until", "2100-01-01T00:00Z", "--since", "1970-01-01T00:00Z"), 4),
        (("--grep", "bad [ab]"), 2),
        (("--grep", "no number"), 4),
        (("--grep", "^$"), 0),
    ],
)
def test_letters_are_filtered(flags: tuple[str, ...], count: int, group: Group[str, int], cli: Cli) -> None:
    assert len(letters(cli, group, *flags)) == count


def test_only_the_requested_partitions_are_read(group: Group[str, int], cli: Cli) -> None:
    parts = [len(letters(cli, group, "--partition", str(number))) for number in range(2)]
    assert sum(parts) == 4
    assert cli("dead-letters", "list", group.name, "--partition", "2").code == 1


def in_one_line(text: str) -> str:
    """Return a text of the command line without its line breaks."""
    return " ".join(text.split())


def test_a_timer_is_not_replayed_and_stays_unreplayed(group: Group[str, int], cli: Cli, world: World) -> None:
    world.letter(group, b"timer", b"bad timer", offset=-1, partition=0)
    (timer,) = (each["letter"] for each in letters(cli, group) if each["key"]["value"] == "timer")
    ran = cli("dead-letters", "replay", group.name, timer)
    assert ran.code == 2
    assert "holds a timer" in ran.err
    ran = cli("dead-letters", "replay", group.name, "--all").good()
    assert "4 dead letters sent" in ran.out
    assert f'1 holds a timer or another due row, and cannot be replayed: ["{timer}"]' in in_one_line(ran.err)
    again = cli(
        "dead-letters", "replay", group.name, "--all"
    ).good()  # with nothing to replay, as for a scheduled job
    assert "0 dead letters sent" in again.out
    assert "4 were replayed before" in in_one_line(again.err)
    assert "1 holds a timer" in in_one_line(again.err)
    assert sent(cli, group).keys() == {"bad a", "bad b", "bad c", "bad d"}
    assert [each["letter"] for each in letters(cli, group) if each["replayed"] is None] == [timer]


@pytest.mark.parametrize(
    ("flags", "said"), [(("--grep", "("), "not a regular expression"), (("--since", "now"), "with its zone")]
)
def test_an_invalid_filter_is_rejected(
    flags: tuple[str, ...], said: str, group: Group[str, int], cli: Cli
) -> None:
    for command in ("list", "replay"):
        ran = cli("dead-letters", command, group.name, *flags)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err


def test_one_letter_is_shown_in_full(group: Group[str, int], cli: Cli) -> None:
    name = next(letter["letter"] for letter in letters(cli, group) if letter["key"]["value"] == "b")
    out = cli("dead-letters", "show", group.name, name).good().out
    assert f"value hex {b'bad b'.hex()}" in out
    assert 'value     "bad b"' in out
    assert "streamtable-origin-offset" in out
    assert "replayed  never" in out
    found = cli("dead-letters", "show", group.name, name, "--json").good().json
    assert (found["value_hex"], found["key_hex"]) == (b"bad b".hex(), b"b".hex())


@pytest.mark.parametrize("command", ["show", "replay"])
@pytest.mark.parametrize("name", ["0:999999", "1:999999"])
def test_a_missing_letter_is_exit_code_1(name: str, command: str, group: Group[str, int], cli: Cli) -> None:
    ran = cli("dead-letters", command, group.name, name)
    assert (ran.code, ran.out) == (1, "")
    assert f"no dead letter {name}" in ran.err
    assert not sent(cli, group)


@pytest.mark.parametrize(
    "name",
    ["", "0", ":", "0:", ":1", "0:-1", "a:b", "0:1:2", "0x1:0", "0:" + "9" * 30, "\uff10:1", "0:1.0", "0:1 "],
)
def test_an_invalid_name_of_a_letter_is_rejected(name: str, nowhere: Cli) -> None:
    for command in ("show", "replay"):
        ran = nowhere("dead-letters", command, "some", name)
        assert (ran.code, ran.out) == (2, "")
        assert "PARTITION:OFFSET" in ran.err


def test_a_group_without_dead_letters_is_exit_code_1(cli: Cli) -> None:
    ran = cli("dead-letters", "list", "none-of-ours")
    assert (ran.code, ran.out) == (1, "")
    assert "none-of-ours-dead-letters" in ran.err


# ---- replay ----------------------------------------------------------------------------------------------------------------


def test_a_replay_selects_the_letters_that_a_list_with_the_same_graph_shows(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = world.group(partitions=1)
    for offset, number in enumerate((42, 7)):
        world.letter(made, b"k", Avro("long", Plain()).encode(number), offset=offset)
    (tmp_path / "letters_shop.py").write_text(
        "from streamtable import *\n"
        f"IN = Stream({made.inputs[0].stream.name!r}, String(), Avro('long', Plain()))\n"
        f"GROUP = Group({made.name!r}, Input(IN, aggregate=Count()), Persist(Long()))\n"
    )
    chosen = ("--grep", "^long 42$", "--graph", "letters_shop:GROUP")
    listed = [each["letter"] for each in letters(cli, made, *chosen)]
    assert (
        cli("dead-letters", "replay", made.name, *chosen, "--json").good().json["sent"] == listed == ["0:0"]
    )
    del sys.modules["letters_shop"]


def test_a_letter_is_replayed_once_even_if_the_command_is_repeated(group: Group[str, int], cli: Cli) -> None:
    name = letters(cli, group)[0]["letter"]
    assert cli("dead-letters", "replay", group.name, name, "--json").good().json["sent"] == [name]
    again = cli("dead-letters", "replay", group.name, name, "--json").good().json
    assert (again["sent"], again["replayed_before"]) == ([], [name])
    assert sent(cli, group).total() == 1
    found = {letter["letter"]: letter["replayed"] for letter in letters(cli, group)}
    assert found.pop(name)
    assert not any(found.values())
    rest = cli("dead-letters", "replay", group.name, "--all", "--json").good().json
    assert sorted(rest["sent"]) == sorted(found)
    assert sent(cli, group) == dict.fromkeys(("bad a", "bad b", "bad c", "bad d"), 1)
    cli("dead-letters", "replay", group.name, name, "--again").good()
    assert sorted(sent(cli, group).values()) == [1, 1, 1, 2]


def test_letters_are_selected_by_filters(group: Group[str, int], cli: Cli) -> None:
    cli("dead-letters", "replay", group.name, "--grep", "bad [ac]").good()
    assert sent(cli, group) == {"bad a": 1, "bad c": 1}


@pytest.mark.parametrize("step", ["begun", "outputs-produced", "flushed", "committed"])
def test_a_killed_and_repeated_replay_sends_exactly_once(step: str, group: Group[str, int], cli: Cli) -> None:
    command = ("dead-letters", "replay", group.name, "--all")
    killed = cli.run(*command, env={"STREAMTABLE_FAILPOINT": step})
    assert killed.code == -signal.SIGKILL
    ran = cli(*command, "--json").good()
    assert len(ran.json["sent"]) == (0 if step == "committed" else 4)
    assert sent(cli, group) == dict.fromkeys(("bad a", "bad b", "bad c", "bad d"), 1)
    assert all(letter["replayed"] for letter in letters(cli, group))


def test_a_letter_is_replayed_unchanged_and_handled_as_at_its_origin(cli: Cli, world: World) -> None:
    """A codec that can read the value was deployed after the failure."""
    now = int(time.time() * 1000) - 60_000
    made = world.group(partitions=1)
    world.send(world.topics.name("in"), (b"k", b"oops"), headers=[("trace", b"7")], timestamp=now)
    with world.running(made):
        until(lambda: len(letters(cli, made)) == 1, "a dead letter")
    cli("dead-letters", "replay", made.name, "--all").good()
    (record,) = whole(cli, "topics", "tail", made.retry, "--json").lines
    headers = {each["name"]: each["value"] for each in record["headers"]}
    assert (headers["trace"], headers["streamtable-origin-offset"]) == ("7", "0")
    assert record["value"]["value"] == "oops"
    assert headers["streamtable-origin-timestamp-ms"] == str(now)
    stream = Stream(world.topics.name("in"), made.inputs[0].stream.key, Oops())
    mended: Group[str, int] = Group(made.name, replace(made.inputs[0], stream=stream), made.persist)  # type: ignore[arg-type]  # there is one
    with world.running(mended):
        until(lambda: cli("table", "get", made.table.name, "k").code == 0, "it is counted")
    assert cli("table", "get", made.table.name, "k").good().out == '"k": long 42\n'


class Oops(Long):
    """Reads what Long does not."""

    def decode(self, data: bytes) -> int:
        return 42 if data == b"oops" else super().decode(data)


def test_several_replays_at_the_same_time_send_each_letter_once(cli: Cli, world: World) -> None:
    made = world.group(partitions=1)
    for number in range(30):
        world.letter(made, b"k", b"bad %d" % number, offset=number)
    running = [cli.process("dead-letters", "replay", made.name, "--all") for _ in range(3)]
    for process in running:
        out, err = process.communicate(timeout=60)
        assert process.returncode in (0, 1), out + err
        assert "Traceback" not in err
    cli("dead-letters", "replay", made.name, "--all").good()
    assert sent(cli, made) == {f"bad {number}": 1 for number in range(30)}


def test_a_marker_beyond_an_open_transaction_is_awaited(cli: Cli, world: World) -> None:
    made = world.group(partitions=1)
    world.letter(made, b"k", b"bad", offset=0)
    outbox = world.kafka.transactional_producer(world.topics.name("tx"))
    outbox.open(30)
    outbox.begin()
    outbox.produce(made.dead_letters, b"k", b"of a processor that is not there any more")
    outbox.flush(30)
    marker = replayed_marker(made.dead_letters, 0, 0, group=made.name, now=time.time())
    world.send(made.dead_letters, (None, None), headers=marker.headers)
    assert "is shown up to 1" in cli("dead-letters", "list", made.name).err
    # The broker aborts the transaction after ten seconds.
    ran = cli("dead-letters", "replay", made.name, "--all", "--json").good()
    outbox.close()
    assert ran.json == {"group": made.name, "sent": [], "replayed_before": ["0:0"], "rows": []}
    assert not sent(cli, made)


def test_markers_are_not_letters_and_follow_their_letter(group: Group[str, int], cli: Cli) -> None:
    cli("dead-letters", "replay", group.name, "--all").good()
    lines = whole(cli, "topics", "tail", group.dead_letters, "--offset", "0", "--json").lines
    markers = [line for line in lines if any(each["name"] == REPLAYED_OFFSET for each in line["headers"])]
    assert (len(lines), len(markers), len(letters(cli, group))) == (8, 4, 4)
    for marker in markers:
        assert marker["key"]["type"] == marker["value"]["type"] == "null"
        (offset,) = [int(each["value"]) for each in marker["headers"] if each["name"] == REPLAYED_OFFSET]
        assert offset < marker["offset"]


def test_a_record_that_is_not_a_letter_is_listed_and_not_replayed(cli: Cli, world: World) -> None:
    made = world.group(partitions=1)
    world.send(made.dead_letters, (b"k", b"from elsewhere"))
    for number in (b"\xff", b"9" * 5_000):
        world.send(made.dead_letters, (b"k", b"v"), headers=[(REPLAYED_OFFSET, number), (TIME, number)])
    assert [letter["origin"] for letter in letters(cli, made)] == [None, None, None]
    assert "unknown" in cli("dead-letters", "list", made.name).good().out
    ran = cli("dead-letters", "replay", made.name, "--all")
    assert ran.code == 2
    assert "does not name its origin" in ran.err
    assert not sent(cli, made)


@pytest.fixture
def too_large(cli: Cli, world: World) -> Group[str, int]:
    """One dead letter, whose value is at its origin only."""
    made = world.group(partitions=1)
    admin = world.kafka.admin()
    admin.alter_topic(made.dead_letters, {"max.message.bytes": "2000"})
    until(
        lambda: admin.describe([made.dead_letters])[made.dead_letters].config["max.message.bytes"] == "2000",
        "the setting is there",
    )
    world.send(world.topics.name("in"), (b"k", b"x" * 5_000), headers=[("trace", b"7")])
    admin.close()
    with world.running(made):
        until(lambda: len(letters(cli, made)) == 1, "a dead letter")
    return made


def test_a_value_that_was_too_large_for_the_dead_letters_is_fetched_from_its_origin(
    too_large: Group[str, int], cli: Cli
) -> None:
    made = too_large
    (letter,) = letters(cli, made)
    assert (letter["value"]["type"], letter["value_omitted_bytes"]) == ("null", "5000")
    cli("dead-letters", "replay", made.name, "--all").good()
    assert sent(cli, made) == {"x" * 5_000: 1}
    (record,) = whole(cli, "topics", "tail", made.retry, "--json").lines
    assert {"name": "trace", "type": "text", "value": "7"} in record["headers"]


@pytest.mark.parametrize("origin", ["expired", "deleted", "created again"])
def test_a_letter_whose_value_is_gone_from_its_origin_is_named_and_not_replayed(
    origin: str, too_large: Group[str, int], cli: Cli, world: World
) -> None:
    topic = world.topics.name("in")
    with closing(world.kafka.admin()) as admin:
        if origin == "expired":
            world.send(topic, (b"k", b"later"))
            admin.delete_records({TopicPartition(topic, 0): 1})
        else:
            admin.delete_topic(topic)
            until(lambda: topic not in admin.topic_partitions(), "the origin is gone")
        if origin == "created again":
            world.topics.create("in", partitions=1)
    ran = cli("dead-letters", "replay", too_large.name, "--all")
    assert ran.code == 2
    said = f"dead letter 0:0 has no value, and {topic}[0]@0 does not hold it any more"
    assert said in in_one_line(ran.err)
    assert not sent(cli, too_large)


def test_a_replayed_letter_has_the_current_time_and_its_original_time_in_a_header(
    cli: Cli, world: World
) -> None:
    made = world.group(partitions=1)
    now_ms = int(time.time() * 1000)
    hour_ago_ms = now_ms - 3_600_000
    headers = [
        (ORIGIN_TOPIC, b"in"),
        (ORIGIN_PARTITION, b"0"),
        (ORIGIN_OFFSET, b"0"),
        (ORIGIN_TIMESTAMP, b"%d" % hour_ago_ms),
    ]
    world.send(made.dead_letters, (b"k", b"v"), headers=headers, timestamp=hour_ago_ms)
    cli("dead-letters", "replay", made.name, "--all").good()
    (record,) = whole(cli, "topics", "tail", made.retry, "--offset", "0", "--json").lines
    assert record["timestamp"] >= at(now_ms)
    assert (ORIGIN_TIMESTAMP, str(hour_ago_ms)) in {
        (each["name"], each["value"]) for each in record["headers"]
    }


def test_a_letter_too_large_for_the_retry_topic_is_refused_and_nothing_is_sent(
    group: Group[str, int], cli: Cli, world: World
) -> None:
    admin = world.kafka.admin()
    admin.alter_topic(group.retry, {"max.message.bytes": "200"})
    until(lambda: admin.topics([group.retry])[group.retry].max_message_bytes == 200, "the setting is there")
    ran = cli("dead-letters", "replay", group.name, "--all")
    assert ran.code == 2
    assert "max.message.bytes" in ran.err
    assert not sent(cli, group)
    admin.delete_topic(group.retry)
    until(lambda: group.retry not in admin.topic_partitions(), "the topic is gone")
    missing = cli("dead-letters", "replay", group.name, "--all")
    assert missing.code == 1
    assert group.retry in missing.err
    assert admin.watermarks([TopicPartition(group.dead_letters, 0)])
    admin.close()
