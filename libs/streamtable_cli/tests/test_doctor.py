"""`streamtable doctor`: a healthy deployment, and the finding for each problem."""

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, SECONDS_MAX, Cli, World, until

import streamtable_native.native
from localkafka.fixtures import OwnBroker
from localkafka.process import reserve_port
from streamtable import Avro, EventTime, Input, Kafka, Long, Stream, String
from streamtable.kafka.admin import BrokerAddress
from streamtable_admin import cluster_checks
from streamtable_admin.cluster import Cluster
from streamtable_admin.findings import Level
from streamtable_admin.reachability import advertised, bootstrap
from streamtable_cli import checks


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without declared topics, with a state folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMTABLE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def facts(ran_json: Any, subject: str) -> list[tuple[str, str]]:
    return [(each["level"], each["fact"]) for each in ran_json if each["subject"] == subject]


def test_a_healthy_deployment_has_no_problems(cli: Cli, world: World, folder: Path) -> None:
    group = world.group(partitions=2)
    stream = world.topics.name("in")
    (folder / "topics.yaml").write_text(f"topics: {{{stream}: {{partitions: 2}}}}\n")
    (folder / "well_of_tests.py").write_text(
        "from streamtable import *\n"
        f"GROUP = Group({group.name!r}, Input(Stream({stream!r}, String(), Long()), aggregate=Count()), Persist(Long()))\n"
    )
    with world.running(group):
        world.send(stream, (b"k", NUMBER.encode(1)))
        until(lambda: cli("table", "get", group.table.name, "k").code == 0, "it is counted")
        ran = cli("doctor", "--file", "topics.yaml", "--graph", "well_of_tests:GROUP", "--json").good()
    found = ran.json
    assert not [each for each in found if each["level"] == "problem"]
    assert facts(found, "topics") == [("ok", "1 is as declared in topics.yaml")]
    assert facts(found, f"graph {group.name}") == [("ok", "its 4 topics exist; the inputs have 2 partitions")]
    assert facts(found, f"rows of {group.table.name}") == [
        ("ok", "the whole topic (1 record) can be decoded")
    ]
    (members, letters) = facts(found, f"group {group.name}")
    assert members[0] == "ok"
    assert members[1].startswith("stable, 1 member (consumer protocol), lag ")
    assert letters == ("ok", "no dead letters")
    assert [level for level, _ in facts(found, "clock")] == ["ok"]
    assert any("KIP-848" in each["fact"] for each in found)
    assert any("one broker only" in each["fact"] for each in found)
    del sys.modules["well_of_tests"]


LONG = Long()
"""The codec of the rows of `World.group`."""


def test_rows_that_the_codec_of_a_graph_cannot_decode_are_a_problem_named_with_their_offset(
    cli: Cli, world: World, folder: Path
) -> None:
    """A row that was written again or deleted since then is not a problem."""
    group = world.group(partitions=1)
    table = group.table.name
    (folder / "rows_of_tests.py").write_text(
        "from streamtable import *\n"
        f"GROUP = Group({group.name!r}, Input(Stream({world.topics.name('in')!r}, String(), Long()), aggregate=Count()), "
        "Persist(Long()))\n"
    )
    world.send(table, (b"good", LONG.encode(1)), (b"bad", b"\0"), (b"mended", b"\0"), (b"gone", b"\0"))
    world.send(table, (b"mended", LONG.encode(2)), (b"gone", None), (b"\xff", LONG.encode(3)))
    arguments = ("doctor", "--graph", "rows_of_tests:GROUP", "--over", "0", "--json")
    ran = cli(*arguments)
    assert ran.code == 1
    assert facts(ran.json, f"rows of {table}") == [
        (
            "problem",
            f"2 rows cannot be decoded: {table}[0]@1, {table}[0]@6; read the whole topic (7 records)",
        )
    ]
    assert facts(cli(*arguments, "--rows", "1").json, f"rows of {table}") == [
        (
            "problem",
            f"1 row cannot be decoded: {table}[0]@6; read the newest 1 record (the last 1 offsets of each partition)",
        )
    ]
    world.send(table, (b"bad", None), (b"\xff", None))
    assert facts(cli(*arguments).json, f"rows of {table}") == [
        ("ok", "the whole topic (9 records) can be decoded")
    ]
    assert facts(cli(*arguments, "--rows", "0").json, f"rows of {table}") == []
    del sys.modules["rows_of_tests"]


def test_native_loops_that_are_installed_and_refused_are_a_warning(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamtable_native.native, "KNOWN", ("1.0",))
    found = facts(cli("doctor", "--over", "0", "--json").json, "native loops")
    assert [level for level, _ in found] == ["warning"]
    assert found[0][1].startswith("Python does their work: confluent-kafka ")
    assert list(checks.native_loops("off")) == []
    monkeypatch.setitem(sys.modules, "streamtable_native", None)  # as if it was not installed
    assert list(checks.native_loops("auto")) == []


def test_a_row_of_an_aborted_transaction_is_ignored(cli: Cli, world: World) -> None:
    group = world.group(partitions=1)
    table = group.table.name
    outbox = world.kafka.transactional_producer(f"{group.name}-other", transaction_seconds=300)
    outbox.open(SECONDS_MAX)
    outbox.begin()
    outbox.produce(table, b"bad", b"\0")
    outbox.flush(SECONDS_MAX)
    outbox.abort(SECONDS_MAX)
    outbox.close()
    world.send(table, (b"good", NUMBER.encode(1)))
    ran = cli("doctor", "--group", group.name, "--over", "0", "--json")
    assert facts(ran.json, f"rows of {table}") == [
        ("ok", "the whole topic (1 record) can be decoded by the schemas that they name")
    ]


def test_rows_of_a_group_known_by_name_are_decoded_by_the_schemas_that_they_name(
    cli: Cli, world: World, folder: Path
) -> None:
    group = world.group(partitions=1)
    table = group.table.name

    def found(*flags: str) -> list[tuple[str, str]]:
        ran = cli("doctor", "--group", group.name, "--over", "0", *flags, "--json")
        return facts(ran.json, f"rows of {table}")

    assert found() == []
    unknown = Avro({"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]})
    world.send(table, (b"unknown", unknown.encode({"n": 1})), (b"plain", b"\0"))
    assert found() == [
        (
            "ok",
            "not decoded: no row in the whole topic (2 records) names a known schema; see --graph and --schemas",
        )
    ]
    world.send(table, (b"good", NUMBER.encode(1)))
    assert found() == [
        (
            "warning",
            f"2 rows cannot be decoded: {table}[0]@0, {table}[0]@1; read the whole topic (3 records)",
        )
    ]
    (folder / "schemas").mkdir()
    (folder / "schemas" / "row.avsc").write_text(
        '{"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}'
    )
    world.send(table, (b"plain", None))
    assert found("--schemas", "schemas") == [
        ("ok", "the whole topic (4 records) can be decoded by the schemas that they name")
    ]


def test_the_input_that_holds_a_watermark_back_is_named_while_the_group_runs(cli: Cli, world: World) -> None:
    silent = Stream(world.create("silent", partitions=1), String(), NUMBER)
    follows: Input[str, int, int] = Input(silent, lambda ctx, number: None)
    group = world.group(follows, EventTime(idle_after=None), partitions=1)
    now, hour = time.time_ns() // 1_000_000, 3_600_000
    world.send(world.topics.name("in"), (b"k", NUMBER.encode(1)), timestamp=now)
    world.send(silent.name, (b"k", NUMBER.encode(1)), timestamp=now - hour)

    def said() -> list[str]:
        found = facts(
            cli("doctor", "--group", group.name, "--over", "0", "--json").json, f"group {group.name}"
        )
        return [fact for level, fact in found if level == "warning" and silent.name in fact]

    with world.running(group):
        until(said, "the watermark is committed")
        (fact,) = said()
    assert fact.startswith("partition 0 has the watermark ")
    assert f"{silent.name} holds it back, it has been silent since " in fact


def test_missing_topics_and_lag_are_reported_with_a_remedy(cli: Cli, world: World, folder: Path) -> None:
    group = world.group(partitions=2)
    stream = world.topics.name("in")
    (folder / "topics.yaml").write_text(
        f"topics: {{{stream}: {{partitions: 3}}, {world.topics.name('missing')}: }}\n"
    )
    world.letter(group, b"k", b"bad", offset=0)
    ran = cli("doctor", "--file", "topics.yaml", "--group", group.name)
    assert ran.code == 1
    assert "declared, but does not exist" in ran.out
    assert "partitions is 2, declared is 3" in ran.out
    assert "streamtable topics apply --file topics.yaml" in ran.out
    assert "has never run" in ran.out
    assert "1 dead letter never replayed" in ran.out
    cli("dead-letters", "replay", group.name, "--all").good()
    (_, letters) = facts(cli("doctor", "--group", group.name, "--json").json, f"group {group.name}")
    assert letters == ("ok", "1 dead letter, all replayed")


def test_without_a_broker_each_address_is_checked(nowhere: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        servers = f"127.0.0.1:9,no-such-host.invalid:9092,127.0.0.1:{deaf.getsockname()[1]}"
        ran = nowhere("--timeout", "1", "--bootstrap-servers", servers, "doctor")
    assert ran.code == 1
    assert "nothing listens there" in ran.out
    assert "the name cannot be resolved" in ran.out
    assert "does not respond like Kafka" in ran.out


def test_an_unreachable_advertised_address_is_explained(
    own_broker: OwnBroker,
) -> None:
    """A broker in a container often does this."""
    with reserve_port(0) as held:
        unused = held.getsockname()[1]
    broker = own_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{unused}"})
    # The broker has just started, and its first response may take a while.
    ran = Cli(broker.bootstrap_servers)("--timeout", "60", "doctor", "--json")
    assert ran.code == 1
    (problem,) = [each for each in ran.json if each["level"] == "problem"]
    assert problem["fact"] == f"advertises 127.0.0.1:{unused}: nothing listens there"
    assert "advertised.listeners" in problem["advice"]


def test_an_advertised_name_that_is_unknown_and_a_loopback_seen_from_outside() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        brokers = [BrokerAddress(1, "broker.invalid", 9092), BrokerAddress(2, "127.0.0.1", port)]
        unknown, loopback = advertised(brokers, "kafka.example.org:9092", 2)
        (inside,) = advertised(brokers[1:], f"localhost:{port}", 2)
    assert (unknown.level, loopback.level, inside.level) == (Level.PROBLEM, Level.WARNING, Level.OK)
    assert "cannot be resolved" in unknown.fact
    assert "which is this machine" in loopback.fact


def test_ipv6_addresses_are_checked_without_brackets() -> None:
    (found,) = bootstrap("[::1]:9", 1)
    assert found.fact.startswith("::1:9: ")


@pytest.mark.parametrize(
    ("free", "level"), [(10 << 20, Level.PROBLEM), (500 << 20, Level.WARNING), (10 << 30, Level.OK)]
)
def test_the_free_space_for_state_is_checked(
    free: int, level: Level, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        pass

    usage = Usage()
    usage.free = free  # type: ignore[attr-defined]  # what shutil answers has more
    monkeypatch.setattr("streamtable_cli.checks.shutil.disk_usage", lambda path: usage)
    (found,) = checks.state_dir(folder / "not" / "made" / "yet")
    assert found.level is level
    assert "MiB" in found.fact


def test_an_inaccessible_state_dir_is_a_problem(folder: Path) -> None:
    (found,) = checks.state_dir(folder / ("x" * 300))
    assert found.level is Level.PROBLEM
    assert "too long" in found.fact


@pytest.mark.parametrize(
    ("newest_in", "level"), [(None, Level.OK), (-60.0, Level.OK), (0.5, Level.OK), (90.0, Level.WARNING)]
)
def test_a_clock_behind_the_brokers_is_reported(newest_in: float | None, level: Level) -> None:
    class Admin:
        def newest_timestamp(self, topic: str) -> int | None:
            return None if newest_in is None else int((time.time() + newest_in) * 1000)

    (found,) = cluster_checks.clock(Cluster(Kafka("localhost:9092"), Admin()))  # type: ignore[arg-type]  # all that it asks
    assert found.level is level


def settings(**changes: str) -> Iterator[Any]:
    class Admin:
        def broker_settings(self, number: int) -> dict[str, str]:
            good = {
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                "default.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                "min.insync.replicas": "2",
                "offsets.retention.minutes": "10080",
                "transaction.max.timeout.ms": "900000",
                "auto.create.topics.enable": "false",
                "unclean.leader.election.enable": "false",
            }
            return good | {name.replace("_", "."): value for name, value in changes.items()}

    brokers = [BrokerAddress(number, "h", 9092) for number in range(3)]
    return cluster_checks.settings(Cluster(Kafka("localhost:9092"), Admin()), brokers)  # type: ignore[arg-type]  # all that it asks


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transaction_state_log_min_isr", "1"),
        ("min_insync_replicas", "1"),
        ("offsets_topic_replication_factor", "1"),
        ("offsets_retention_minutes", "1440"),
        ("transaction_max_timeout_ms", "5000"),
        ("auto_create_topics_enable", "true"),
        ("unclean_leader_election_enable", "true"),
    ],
)
def test_settings_that_can_lose_data_are_warnings(name: str, value: str) -> None:
    found = [each for each in settings(**{name: value}) if each.level is Level.WARNING]
    assert [each.fact for each in found] == [f"{name.replace('_', '.')} is {value}"]
    assert found[0].advice


def test_good_settings_are_no_warnings() -> None:
    assert [each.level for each in settings()] == [Level.OK]


@pytest.mark.parametrize(
    "arguments",
    [("--file", "none.yaml"), ("--graph", "none_of_ours:GROUP"), ("--group",), ("--nope",)],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], nowhere: Cli) -> None:
    ran = nowhere("doctor", *arguments)
    assert (ran.code, ran.out) == (2, "")
