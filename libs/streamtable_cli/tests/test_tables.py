"""`streamtable table` on the changelog of a real processor."""

import json
import signal
import sys
from pathlib import Path

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from streamtable import Long, String
from streamtable.base.partitioner import partition_for
from streamtable.base.types import RecordBatch
from streamtable.flow import Windowed, WindowedKey
from streamtable.kafka.reader import KafkaTableReader


def fill(world: World, cli: Cli) -> str:
    """Rows a1=1, a2=5, b1=2; c1 deleted."""
    topic = world.topics.create("t-table", partitions=3, config={"cleanup.policy": "compact"})
    rows = {b"a1": 1, b"a2": 3, b"b1": 2, b"c1": 4}
    world.send(topic, *((key, Long().encode(value)) for key, value in rows.items()))
    world.send(topic, (b"a2", Long().encode(5)), (b"c1", None))
    return topic


def test_a_row_is_shown_with_its_position_and_the_end_offset(cli: Cli, world: World) -> None:
    table = fill(world, cli)
    ran = cli("table", "get", table, "a2").good()
    assert ran.out == '"a2": long 5\n'
    assert "read up to" in ran.err
    found = cli("table", "get", table, "a2", "--json").good().json
    assert found["value"] == {"type": "long", "value": 5}
    assert found["position"] > found["offset"]
    assert 0 <= found["age_seconds"] < 30


@pytest.mark.parametrize(("key", "said"), [("c1", "was deleted"), ("zz", "has no row"), ("", "has no row")])
def test_a_missing_row_is_exit_code_1(key: str, said: str, cli: Cli, world: World) -> None:
    ran = cli("table", "get", fill(world, cli), key)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err


def test_a_row_is_searched_in_the_partition_given_by_the_graph(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    table = world.topics.create("t-table", partitions=8, config={"cleanup.policy": "compact"})
    keys = [f"k{number}" for number in range(8)]
    for key in keys:
        place = partition_for(key.encode(), 8, "fnv1a")
        world.send(table, (key.encode(), Long().encode(1)), partition=place)
    (tmp_path / "goka_shop.py").write_text(
        "from streamtable import *\n"
        f"TABLE = Table({table!r}, String(), Long(), partitioner='fnv1a')\n"
        "IN = Stream('in', String(), Long(), partitioner='fnv1a')\n"
        "GROUP = Group('g', Input(IN, aggregate=Count()), Join(TABLE), Persist(Long()))\n"
    )
    for key in keys:
        assert "long 1" in cli("table", "get", table, key, "--graph", "goka_shop:GROUP").good().out
    del sys.modules["goka_shop"]
    assert "found with --graph" in "".join(cli("table", "get", table, key).err for key in keys)


def test_a_row_of_a_window_is_searched_in_the_partition_of_its_key(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    table = world.topics.create("w-table", partitions=8, config={"cleanup.policy": "compact"})
    window = WindowedKey(String(), 60_000)
    keys = {key: window.encode(Windowed(key, 0, 60_000)) for key in "abcd"}
    for key, data in keys.items():
        world.send(table, (data, Long().encode(1)), partition=partition_for(key.encode(), 8))
    (tmp_path / "windows_shop.py").write_text(
        "from streamtable import *\n"
        "from streamtable.flow import WindowedKey\n"
        f"TABLE = Table({table!r}, WindowedKey(String(), 60_000), Long())\n"
        "GROUP = Group('g', Input(Stream('in', String(), Long()), lambda ctx, _: None), Lookup(TABLE))\n"
    )
    for key, data in keys.items():
        for asked in ((data.hex(), "--key-type", "hex"), (json.dumps([key, 0, 60_000]),)):
            assert "long 1" in cli("table", "get", table, *asked, "--graph", "windows_shop:GROUP").good().out
    for wrong in ('"a"', '["a", 0]', '["a", "0", 60000]', "[1, 0, 60000]"):
        ran = cli("table", "get", table, wrong, "--graph", "windows_shop:GROUP")
        assert ran.code == 2
        assert 'A key in a window is a list, such as ["alice", START_MS, END_MS]' in " ".join(ran.err.split())
    del sys.modules["windows_shop"]


def test_a_misspelt_table_is_an_error_with_a_suggestion(cli: Cli, world: World) -> None:
    table = fill(world, cli)
    assert f"there is {table}" in cli("table", "get", table.removesuffix("-table"), "a1").err


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ((), ["a1", "a2", "b1"]),
        (("--prefix", "a"), ["a1", "a2"]),
        (("--from", "a2"), ["a2", "b1"]),
        (("--to", "a2"), ["a1"]),
        (("--from", "a2", "--to", "b1"), ["a2"]),
        (("--limit", "2"), ["a1", "a2"]),
        (("--prefix", "x"), []),
    ],
)
def test_rows_are_scanned_in_order(flags: tuple[str, ...], keys: list[str], cli: Cli, world: World) -> None:
    lines = cli("table", "scan", fill(world, cli), *flags, "--json").good().lines
    assert [line["key"]["value"] for line in lines] == keys


@pytest.mark.parametrize("command", ["scan", "watch"])
def test_a_prefix_is_refused_where_no_encoded_key_begins_with_another_one(
    command: str, cli: Cli, world: World
) -> None:
    ran = cli("table", command, fill(world, cli), "--prefix", "7", "--key-type", "long")
    assert (ran.code, "begins with another one" in ran.err) == (2, True)


def test_numbers_below_0_come_last_in_the_order_of_bytes(cli: Cli, world: World) -> None:
    ran = cli("table", "scan", fill(world, cli), "--from=-5", "--to", "5", "--key-type", "long")
    assert (ran.code, "numbers below 0 come last" in ran.err) == (2, True)


def test_each_partition_of_a_state_may_have_a_row_of_a_key(cli: Cli, world: World) -> None:
    """Its rows are in the partitions of the tasks that have written them."""
    table = world.topics.create("t-state", partitions=2, config={"cleanup.policy": "compact"})
    for number in range(2):
        world.send(table, (b"k", Long().encode(number)), partition=number)

    def scanned() -> list[tuple[int, int]]:
        lines = cli("table", "scan", table, "--json").good().lines
        return [(line["partition"], line["value"]["value"]) for line in lines]

    assert scanned() == [(0, 0), (1, 1)]
    world.send(table, (b"k", None), partition=0)
    assert scanned() == [(1, 1)]
    for key, code in (("k", partition_for(b"k", 2) == 0), ("none", True)):
        ran = cli("table", "get", table, key)
        assert ran.code == code
        assert "other partitions may have rows of this key" in " ".join(ran.err.split())


def test_an_empty_range_is_rejected(cli: Cli, world: World) -> None:
    ran = cli("table", "scan", fill(world, cli), "--from", "b", "--to", "a")
    assert ran.code == 2
    assert "not after" in ran.err


def test_rows_of_a_running_processor_can_be_read(cli: Cli, world: World) -> None:
    group = world.group()
    with world.running(group):
        world.send(world.topics.name("in"), *((b"k%d" % (n % 5), NUMBER.encode(n)) for n in range(50)))
        expected = {f"k{k}": sum(n for n in range(50) if n % 5 == k) for k in range(5)}

        def rows() -> dict[str, int]:
            lines = cli("table", "scan", group.table.name, "--json").good().lines
            return {line["key"]["value"]: line["value"]["value"] for line in lines}

        until(lambda: rows() == expected, "all is counted")


def test_changes_are_shown_as_they_come(cli: Cli, world: World) -> None:
    table = fill(world, cli)
    process = cli.process("table", "watch", table, "--key", "a1", "--json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert first["value"]["value"] == 1
    world.send(table, (b"b1", Long().encode(8)), (b"a1", Long().encode(9)), (b"a1", None))
    changes = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [change["value"]["value"] for change in changes] == [9, None]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_broker_that_freezes_during_a_read_is_an_error_not_a_partial_table(
    frozen_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = frozen_broker
    world = World(broker.bootstrap_servers, Topics(broker.bootstrap_servers), tmp_path)
    table = world.topics.create("t-table", partitions=1, config={"cleanup.policy": "compact"})
    # Far more than the client has fetched (queued.max.messages.kbytes) before it is asked for the first record.
    world.send(table, *((b"k%d" % n, b"v" * 900_000) for n in range(24)))
    batch = KafkaTableReader.poll

    def freeze(reader: KafkaTableReader, max_records: int, timeout: float) -> list[RecordBatch]:
        broker.pause()
        return batch(reader, 1, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaTableReader, "poll", freeze)
        ran = Cli(broker.bootstrap_servers)("table", "scan", table)
    broker.resume()
    assert (ran.code, ran.out) == (1, "")
    assert "Kafka" in ran.err
