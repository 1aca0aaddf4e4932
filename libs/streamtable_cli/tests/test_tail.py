"""`streamtable topics list` and `tail` on topics of any kind."""

import json
import time
from pathlib import Path

import pytest
from libs.streamtable_cli.tests.bench import Cli, World, until

from streamtable import Avro

CLICK = {"type": "record", "name": "shop.Click", "fields": [{"name": "user", "type": "string"}]}


def test_topics_are_listed_with_their_partitions_and_records(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=3, config={"cleanup.policy": "compact"})
    world.send(topic, (b"a", b"1"), (b"b", b"2"))
    found = {each["name"]: each for each in cli("topics", "list", "--json").good().json}
    assert found[topic] == {
        "name": topic,
        "partitions": 3,
        "replicas": 1,
        "cleanup_policy": "compact",
        "records": 2,
    }
    assert not any(name.startswith("__") for name in found)
    assert topic in cli("topics", "list").good().out


def test_internal_topics_are_listed_on_request(cli: Cli, world: World) -> None:
    outbox = world.kafka.transactional_producer(world.topics.name("tx"), transaction_seconds=300)
    outbox.open(30)
    outbox.close()
    assert "__transaction_state" in cli("topics", "list", "--internal").good().out


def test_the_last_records_come_in_the_order_of_time_over_all_partitions(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=2, config={"retention.ms": "-1"})
    for number in range(10):
        world.send(topic, (b"k", b"%d" % number), partition=number % 2, timestamp=1_000 + number)
    lines = cli("topics", "tail", topic, "-n", "3", "--json").good().lines
    assert [line["value"]["value"] for line in lines] == ["7", "8", "9"]
    assert [(line["partition"], line["offset"]) for line in lines] == [(1, 3), (0, 4), (1, 4)]
    assert lines[-1]["timestamp"] == "1970-01-01T00:00:01.009Z"


def test_markers_of_transactions_do_not_hide_older_records(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=1)
    outbox = world.kafka.transactional_producer(world.topics.name("tx"), transaction_seconds=300)
    outbox.open(30)
    for number in range(6):
        outbox.begin()
        outbox.produce(topic, b"k", b"%d" % number)
        outbox.flush(30)
        outbox.commit(30)
    outbox.begin()
    outbox.produce(topic, b"k", b"aborted")
    outbox.flush(30)
    outbox.abort(30)
    outbox.close()
    lines = cli("topics", "tail", topic, "-n", "5", "--json").good().lines
    assert [line["value"]["value"] for line in lines] == ["1", "2", "3", "4", "5"]


def test_records_of_an_open_transaction_are_left_out_with_a_note(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=1)
    world.send(topic, (b"k", b"before"))
    outbox = world.kafka.transactional_producer(world.topics.name("tx"), transaction_seconds=300)
    outbox.open(30)
    outbox.begin()
    outbox.produce(topic, b"k", b"not yet")
    outbox.flush(30)
    ran = cli("topics", "tail", topic).good()
    outbox.abort(30)
    outbox.close()
    assert '"before"' in ran.out
    assert "not yet" not in ran.out
    assert f"{topic}[0] is shown up to 1" in ran.err


@pytest.mark.parametrize(("offset", "values"), [("0", "012"), ("2", "2"), ("3", ""), (str(2**63 - 1), "")])
def test_tail_starts_at_an_offset(offset: str, values: str, cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=1)
    world.send(topic, (b"k", b"0"), (b"k", b"1"), (b"k", b"2"))
    lines = cli("topics", "tail", topic, "--offset", offset, "--json").good().lines
    assert "".join(line["value"]["value"] for line in lines) == values


def test_tail_starts_at_a_time(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=1)
    now = int(time.time() * 1000)
    world.send(topic, (b"k", b"old"), timestamp=now - 7_200_000)
    world.send(topic, (b"k", b"new"), timestamp=now - 60_000)
    assert '"new"' in (ran := cli("topics", "tail", topic, "--since", "1h").good()).out
    assert '"old"' not in ran.out
    assert cli("topics", "tail", topic, "--since", "10s").good().out == ""
    assert cli("topics", "tail", topic, "--since", "2026-03-01T00:00").code == 2


def test_only_the_requested_partitions_are_read(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=3)
    for number in range(3):
        world.send(topic, (b"k", b"%d" % number), partition=number)
    lines = cli("topics", "tail", topic, "-p", "2", "--partition", "0", "--json").good().lines
    assert sorted(line["partition"] for line in lines) == [0, 2]
    missing = cli("topics", "tail", topic, "-p", "3")
    assert (missing.code, missing.out) == (1, "")
    assert "it has 0 to 2" in missing.err


def test_records_of_every_kind_are_shown_and_poison_with_the_reason(
    cli: Cli, world: World, tmp_path: Path
) -> None:
    topic = world.topics.create("in", partitions=1)
    (tmp_path / "click.avsc").write_text(json.dumps(CLICK))
    click = Avro(CLICK).encode({"user": "[red]a[/red]"})
    world.send(
        topic, (None, None), (b"", b""), (b"\xff", click), (b"k", click[:-1]), (b"\x1b]0;x\x07", b"\x00")
    )
    world.send(topic, (b"k", b"v"), headers=[("h", None), ("h", b"\xff"), ("", b"text"), ("n\n", b"")])
    ran = cli("topics", "tail", topic, "--offset", "0", "--schemas", str(tmp_path)).good()
    shown = [line.split(" ", 2)[2] for line in ran.out.splitlines()]
    assert shown[0] == "null: null"
    assert shown[1] == '"": ""'
    assert shown[2] == 'hex ff: shop.Click {"user": "[red]a[/red]"}'
    assert shown[3].startswith(f'"k": hex {click[:-1].hex()} (Click')
    assert shown[4] == "hex 1b5d303b7807: hex 00"
    assert shown[5] == r'"k": "v" h=null h=hex ff ="text" n\n=""'


def test_records_of_an_open_transaction_are_shown_when_it_commits(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=1)
    outbox = world.kafka.transactional_producer(world.topics.name("tx"), transaction_seconds=300)
    outbox.open(30)
    outbox.begin()
    outbox.produce(topic, b"k", b"late")
    outbox.flush(30)
    world.send(topic, (b"k", b"behind it"))
    process = cli.process("topics", "tail", topic, "--follow", "--json")
    assert process.stdout is not None
    until(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 5, "its reader has begun")
    outbox.commit(30)
    outbox.close()
    values = [json.loads(process.stdout.readline())["value"]["value"] for _ in range(2)]
    process.terminate()
    process.communicate(timeout=120)
    assert values == ["late", "behind it"]


def test_follow_shows_new_records(cli: Cli, world: World) -> None:
    topic = world.topics.create("in", partitions=2)
    world.send(topic, (b"k", b"first"))
    process = cli.process("topics", "tail", topic, "--follow", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"]["value"] == "first"
    world.send(topic, (b"k", b"second"))
    assert json.loads(process.stdout.readline())["value"]["value"] == "second"
    process.terminate()
    process.communicate(timeout=120)
    until(lambda: process.poll() is not None, "it has ended")
