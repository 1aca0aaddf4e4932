"""Settings as people mistype them, and start-ups that cannot work: refused with the setting's name, and no secret is shown.

What each setting accepts is in its own package's tests.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.system.bench import Bench, until

from localkafka.broker import Broker
from localkafka.fixtures import Topics
from servicekit.process.edge_settings import EdgeSettings
from streamtable import App, Count, Group, Input, Kafka, Long, Persist, Settings, Stream, String
from streamtable.base.ports import TopicDescription
from streamtable.engine.settings import ProcessorSettings
from streamtable.errors import ConfigurationError, Fenced, GraphError, StoreBroken, StoreInUse
from streamtable.store.rocksdb import RocksStores

SECRET = "hunter2"
PLAIN = [
    "BOOTSTRAP_SERVERS",
    "INSTANCE_ID",
    "STATE_DIR",
    "HTTP_ADDRESS",
    "GRPC_ADDRESS",
    "METRICS_ADDRESS",
    "GUARANTEE",
    "COMMIT_INTERVAL",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "STATIC_MEMBERSHIP",
    "STATE_RETENTION",
    "GROUP_PROTOCOL",
    "START_TIMEOUT",
    "SHUTDOWN_TIMEOUT",
    "STALL_TIMEOUT",
    "STALL_EXIT",
]
SECONDS = [
    "COMMIT_INTERVAL",
    "STATE_RETENTION",
    "START_TIMEOUT",
    "SHUTDOWN_TIMEOUT",
    "STALL_TIMEOUT",
    "STALL_EXIT",
]
ADDRESSES = ["HTTP_ADDRESS", "GRPC_ADDRESS", "METRICS_ADDRESS"]
LIMIT = 2_000  # of characters of a message: nothing a person would not read


def refusal(**variables: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_environment({f"STREAMTABLE_{name}": value for name, value in variables.items()})
    return full_message(caught.value)


def full_message(error: BaseException) -> str:
    """The message, after checking that the whole traceback contains no secret."""
    assert SECRET not in "".join(traceback.format_exception(error))
    assert SECRET not in repr(error)
    return str(error)


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(
    "value",
    ["", " ", "\t", "\n", "#", "# none", "''", '""', "'info'", '"1"', "1 # a second", "\x00", "\ud800"],
)
def test_nothing_quotes_and_comments_are_no_values(name: str, value: str) -> None:
    if name == "STATE_DIR" and value.isprintable() and value.strip():  # a folder may have any name
        assert Settings.from_environment({"STREAMTABLE_STATE_DIR": value}).state_dir.name == value
    else:
        assert f"STREAMTABLE_{name}" in refusal(**{name: value})


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize(
    "value",
    [
        "-1",
        "nan",
        "inf",
        "1e9",
        "1_000",
        "0x10",
        "1,5",
        "1.",
        ".5",
        "5s",
        "5 s",
        "1m",
        "PT5S",
        "00:05",
        "\uff15",
        "9" * 5_000,
        "1000000000000",
    ],
)
def test_durations_are_plain_decimal_seconds(name: str, value: str) -> None:
    message = refusal(**{name: value})
    assert f"STREAMTABLE_{name}" in message
    assert "seconds, a plain decimal number from" in message
    assert len(message) < LIMIT


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize(
    "value",
    [
        "65536",
        "localhost:65536",
        "localhost:-1",
        "localhost:0x50",
        "localhost:8080 ",
        "local host:80",
        "::1:80",
        "[::1]",
        "[::1]:99999",
        "[::1%eth0]:80/x",
        "http://localhost:80",
        "localhost:80/path",
        "user:hunter2@localhost:80",
        "999.0.0.1:80",
        "x" * 300 + ":80",
    ],
)
def test_addresses_are_one_host_and_one_port(name: str, value: str) -> None:
    message = refusal(**{name: value})
    assert f"STREAMTABLE_{name}" in message
    assert len(message) < LIMIT


@pytest.mark.parametrize(
    "value",
    [
        "localhost",
        "localhost:0",
        "localhost:65536",
        "a:1,a:1",
        "a:1, A:1",
        "a:1,",
        ",a:1",
        "a:1 b:2",
        "a:1;b:2",
        "[::1]:1,[0:0::1]:1",
        "SASL_SSL://a:1",
        "user:hunter2@a:1",
    ],
)
def test_servers_are_hosts_and_ports_each_once(value: str) -> None:
    assert "STREAMTABLE_BOOTSTRAP_SERVERS" in refusal(BOOTSTRAP_SERVERS=value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("STREAMTABLE_BOOTSTRAP_SERVER", "STREAMTABLE_BOOTSTRAP_SERVERS"),
        ("STREAMTABLE_COMMIT_INTERVALL", "STREAMTABLE_COMMIT_INTERVAL"),
        ("STREAMTABLE_STATEDIR", "STREAMTABLE_STATE_DIR"),
        ("Streamtable_State_Dir", "STREAMTABLE_STATE_DIR"),
        ("STREAMTABLE_LOGLEVEL", "STREAMTABLE_LOG_LEVEL"),
    ],
)
def test_a_name_that_nearly_is_one_is_refused_with_the_one_that_was_meant(typed: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{typed}: there is no such setting; did you mean {meant}"):
        Settings.from_environment({typed: "x"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 0, True, None, "soon", 10**400])
def test_numbers_given_in_a_program_are_checked_too(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="seconds"):
        Settings(commit_interval=value)
    if not isinstance(value, str | None) and value is not True:
        for name in ("commit_interval", "poll_timeout", "cache_bytes", "poll_records", "commit_bytes"):
            with pytest.raises(ConfigurationError, match=name):
                ProcessorSettings("i", **{name: value})


@pytest.mark.parametrize("value", ["", "a b", "a/b", "..\n", "x" * 101, "\u00e9", "a\x00"])
def test_an_instance_id_that_kafka_or_a_path_would_choke_on_is_refused_wherever_it_is_given(
    value: str,
) -> None:
    assert "STREAMTABLE_INSTANCE_ID" in refusal(INSTANCE_ID=value)
    with pytest.raises(ConfigurationError, match="instance_id"):
        ProcessorSettings(value)


def test_settings_of_the_edge_that_belong_together_are_set_together() -> None:
    for variables in ({"RATE_BURST": "5"}, {"JWT_ISSUER": "me"}):
        with pytest.raises(ConfigurationError, match="SERVICEKIT_"):
            EdgeSettings.from_environment({f"SERVICEKIT_{name}": value for name, value in variables.items()})


# ---- secrets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"security.protocol": "nonsense"},
        {"sasl.mechanism": "nonsense", "security.protocol": "SASL_SSL"},
        {"no.such.option": "1"},
        {"ssl.key.pem": SECRET, "security.protocol": "SSL"},
        {"ssl.certificate.pem": SECRET, "security.protocol": "SSL"},
        {"ssl.ca.pem": SECRET, "security.protocol": "SSL"},
        {"socket.timeout.ms": "soon"},
    ],
)
def test_options_that_the_client_refuses_are_reported_without_the_secrets_beside_them(
    options: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    kafka = Kafka("127.0.0.1:1", {"sasl.username": "me", "sasl.password": SECRET, **options})
    assert SECRET not in repr(kafka)
    with pytest.raises(ConfigurationError) as caught:
        kafka.producer().close(0.1)
    assert "refuses its settings" in full_message(caught.value)
    assert SECRET not in "".join(capfd.readouterr())


def test_a_secret_in_the_wrong_setting_is_not_shown() -> None:
    for name in ("BOOTSTRAP_SERVERS", "HTTP_ADDRESS"):
        assert f"STREAMTABLE_{name}" in refusal(**{name: f"user:{SECRET}@localhost:9092"})
    assert "STREAMTABLE_KAFKA_SASL_PASSWORD" in refusal(KAFKA_SASL_PASSWORD=f"{SECRET}\n")
    assert "STREAMTABLE_SASL_PASSWORD" in refusal(SASL_PASSWORD=SECRET)
    assert "STREAMTABLE_KAFKA_ACKS" in refusal(KAFKA_ACKS="1", KAFKA_SASL_PASSWORD=SECRET)


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../up", "a b", "a\x00", "caf\u00e9", "x" * 250, "x" * 300]
)
def test_names_that_are_no_topics_are_refused_when_the_graph_is_made(name: str) -> None:
    with pytest.raises(GraphError, match="cannot be a topic name"):
        Stream(name, String(), String())
    with pytest.raises(GraphError, match="cannot be a topic name"):
        Group(name, Input(Stream("in", String(), String()), aggregate=Count()), Persist(Long()))


def test_a_group_whose_topics_would_have_too_long_names_is_refused() -> None:
    with pytest.raises(GraphError, match="cannot be a topic name"):
        Group("x" * 240, Input(Stream("in", String(), String()), aggregate=Count()), Persist(Long()))


# ---- state folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["/etc/hostname", "/etc/hostname/below", "/" + "x" * 300, "~nobody-here/state"]
)
def test_a_state_folder_that_cannot_be_one_is_refused_with_its_setting(value: str) -> None:
    message = refusal(STATE_DIR=value)
    assert "STREAMTABLE_STATE_DIR" in message
    assert "a folder to keep tables in" in message


def test_a_state_folder_that_is_missing_is_made_and_one_behind_a_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for folder in (tmp_path / "missing" / "deep", tmp_path / "link"):
        stores = RocksStores(Settings(state_dir=folder).state_dir, memory_bytes=8 << 20)
        stores.open("t", 0).close()
        stores.close()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["t"]


@pytest.mark.parametrize("folder", ["/proc/state", "/dev/null/state", "/sys/state"])
def test_a_state_folder_that_cannot_be_written_is_reported_with_path_and_cause(folder: str) -> None:
    stores = RocksStores(Path(folder), memory_bytes=8 << 20)
    with pytest.raises(
        StoreBroken, match=f"{folder}.*cannot be used: .*; check space, permissions and the disk"
    ):
        stores.open("t", 0)
    stores.close()


def test_a_dangling_link_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    stores = RocksStores(tmp_path / "link", memory_bytes=8 << 20)
    with pytest.raises(StoreBroken, match=str(tmp_path / "link")):
        stores.open("t", 0)
    stores.close()


def test_a_state_folder_that_another_process_holds_is_refused_with_its_holder(tmp_path: Path) -> None:
    first, second = (RocksStores(tmp_path, memory_bytes=8 << 20) for _ in range(2))
    held = first.open("t", 0)
    with pytest.raises(
        StoreInUse, match=f"is held by .*{os.getpid()}.*a folder serves one process at a time"
    ):
        second.open("t", 0)
    held.close()
    first.close()
    second.close()


# ---- on a broker ---------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(broker: Broker, topics: Topics, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(broker.bootstrap_servers, topics, tmp_path)
    yield made
    made.close()


def test_of_two_processes_with_one_instance_id_one_stops_and_says_why(bench: Bench) -> None:
    group = bench.counting()
    bench.send(bench.name("in"), ("a", "x"))
    first = bench.run(group)
    bench.wait_handled(group, first)
    second = bench.run(group, state="other")

    def fenced() -> bool:
        bench.send(bench.name("in"), ("a", "x"))
        return first.error is not None or second.error is not None

    until(fenced, "one of them has stopped")
    error = first.error or second.error
    assert isinstance(error, Fenced)
    assert "give each process an instance id of its own" in str(error)


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        (TopicDescription("replicated", 1, 3, {}), "replicat"),
        (TopicDescription("none", 0, 1, {}), "artition"),
        (TopicDescription("odd", 1, 1, {"no.such.setting": "1"}), "no.such.setting"),
        (TopicDescription("bad", 1, 1, {"cleanup.policy": "sometimes"}), "cleanup.policy"),
    ],
)
def test_a_topic_that_the_cluster_cannot_create_is_reported_by_name(
    bench: Bench, description: TopicDescription, reason: str
) -> None:
    named = replace(description, name=bench.name(description.name))
    with pytest.raises(ConfigurationError, match=reason) as caught:
        bench.cluster.create_topics([named])
    assert named.name in str(caught.value)


def test_two_topics_whose_names_differ_in_a_dot_only_are_refused_by_name(bench: Bench) -> None:
    bench.cluster.create_topics([TopicDescription(bench.name("a.b"), 1, 1, {})])
    with pytest.raises(ConfigurationError, match="collides") as caught:
        bench.cluster.create_topics([TopicDescription(bench.name("a_b"), 1, 1, {})])
    assert bench.name("a_b") in str(caught.value)


def test_a_command_with_invalid_arguments_ends_at_once_and_names_all_of_them_without_a_traceback() -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "STREAMTABLE_COMMIT_INTERVAL": "5s",
        "STREAMTABLE_KAFKA_SASL_PASSWORD": f"{SECRET} ",
        "STREAMTABLE_LOGLEVEL": "info",
    }
    command = [str(Path(sys.executable).parent / "click-count"), "processor"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    for name in environment.keys() - {"PATH"}:
        assert name in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert SECRET not in ended.stderr + ended.stdout


def test_a_processor_refuses_what_its_settings_refuse(tmp_path: Path) -> None:
    group: Group[str, int] = Group(
        "g", Input(Stream("in", String(), String()), aggregate=Count()), Persist(Long())
    )
    with pytest.raises(ConfigurationError, match="instance_id"):
        App(Kafka("127.0.0.1:1"), tmp_path).processor(group, instance_id="a/b")
