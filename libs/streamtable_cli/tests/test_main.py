"""The behaviour common to all commands: flags, exit codes, errors without tracebacks, signals and closed pipes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from select import select

import pytest
from libs.streamtable_cli.tests.bench import COMMAND, Cli, World, until

from localkafka.waiting import Deadline
from streamtable_cli import reset

COMMANDS = [
    ("topics", "list"),
    ("topics", "tail", "some"),
    ("table", "get", "some-table", "key"),
    ("table", "scan", "some-table"),
    ("table", "watch", "some-table"),
    ("group", "list"),
    ("group", "describe", "some"),
    ("group", "lag", "some"),
    ("group", "reset", "some", "--to", "earliest"),
    ("dead-letters", "list", "some"),
    ("dead-letters", "show", "some", "0:0"),
    ("dead-letters", "replay", "some", "--all"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unreachable_broker_is_named_within_five_seconds(command: tuple[str, ...], nowhere: Cli) -> None:
    end = Deadline(5)
    ran = nowhere("--timeout", "1", *command)
    assert not end.passed()
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert "127.0.0.1:9" in ran.err


def test_the_default_timeout_is_below_five_seconds(nowhere: Cli) -> None:
    end = Deadline(4)
    assert nowhere("topics", "list").code == 1
    assert not end.passed()  # leaves a second for the start of Python


def test_an_error_of_the_program_is_one_line_without_a_traceback(nowhere: Cli) -> None:
    ran = nowhere.run("topics", "list")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1)


def test_the_version_is_shown_without_kafka(nowhere: Cli) -> None:
    assert nowhere("--version").out.startswith("streamtable ")


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("", "not empty"),
        ("  ", "not empty"),
        ("localhost", "host:port"),
        ("localhost:0", "1 to 65535"),
        ("localhost:65536", "1 to 65535"),
        ("localhost:9092,localhost:9092", "each once"),
        ("::1:9092", "IPv6 in brackets"),
        ("localhost:9092 # the usual", "host:port"),
        ("'localhost:9092'", "host:port"),
        ("local host:9092", "host:port"),
        ("kafka:1e3", "host:port"),
        (",", "host:port"),
    ],
)
def test_malformed_addresses_are_rejected_before_connecting(servers: str, said: str, nowhere: Cli) -> None:
    ran = nowhere("--bootstrap-servers", servers, "topics", "list")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "--bootstrap-servers" in ran.err


@pytest.mark.parametrize("servers", ["127.0.0.1:9, 127.0.0.1:19", "[::1]:9"])
def test_lists_with_spaces_and_ipv6_in_brackets_are_addresses(servers: str, nowhere: Cli) -> None:
    ran = nowhere("--timeout", "0.5", "--bootstrap-servers", servers, "topics", "list")
    assert ran.code == 1
    assert "no answer" in ran.err


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STREAMTABLE_BOOTSTRAP_SERVERS", ""),
        ("STREAMTABLE_BOOTSTRAP_SERVERZ", "localhost:9092"),
        ("STREAMTABLE_STATE_DIR", " "),
        ("STREAMTABLE_START_TIMEOUT", "nan"),
        ("STREAMTABLE_KAFKA_GROUP_ID", "mine"),
    ],
)
def test_an_invalid_setting_in_the_environment_is_named(variable: str, value: str, nowhere: Cli) -> None:
    ran = nowhere("topics", "list", env={variable: value})
    assert (ran.code, ran.out) == (2, "")
    assert variable in ran.err


def test_a_flag_overrides_the_environment(nowhere: Cli) -> None:
    flag = ("--bootstrap-servers", "127.0.0.1:19")
    ran = nowhere(
        "--timeout", "0.5", *flag, "topics", "list", env={"STREAMTABLE_BOOTSTRAP_SERVERS": "nonsense"}
    )
    assert "127.0.0.1:19" in ran.err


@pytest.mark.parametrize("option", ["sasl.username", "=x", ""])
def test_a_librdkafka_option_needs_a_name_and_a_value(option: str, nowhere: Cli) -> None:
    ran = nowhere("--option", option, "topics", "list")
    assert ran.code == 2
    assert "NAME=VALUE" in ran.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("isolation.level=read_uncommitted", "refused"),
        ("no.such.option=1", "no.such.option"),
        ("acks=", "not empty"),
    ],
)
def test_an_option_that_breaks_a_guarantee_or_does_not_exist_is_refused(
    option: str, said: str, nowhere: Cli
) -> None:
    ran = nowhere("--option", option, "topics", "list")
    assert ran.code == 2
    assert said in ran.err


def test_a_secret_is_not_shown_in_an_error(nowhere: Cli) -> None:
    ran = nowhere("-X", "sasl.password=hunter2", "-X", "no.such.option=1", "topics", "list")
    assert ran.code == 2
    assert "hunter2" not in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list", "--nope"),
        ("nope",),
        ("topics", "nope"),
        ("topics", "tail"),
        ("table", "get", "some-table"),
        ("--timeout", "0", "topics", "list"),
        ("--timeout", "soon", "topics", "list"),
        ("--timeout", "nan", "topics", "list"),
        ("topics", "tail", "some", "--last", "-1"),
        ("topics", "tail", "some", "--last", "1_0_0_x"),
        ("topics", "tail", "some", "--offset", str(2**63)),
        ("topics", "tail", "some", "--last", "3", "--offset", "4"),
        ("topics", "tail", "some", "--since", "1h", "--offset", "4"),
        ("topics", "tail", "some", "--partition", "-1"),
        ("table", "scan", "some-table", "--limit", "0"),
        ("table", "watch", "some-table", "--key", "a", "--prefix", "b"),
        ("table", "get", "some-table", "a", "--key-type", "float"),
        ("group", "reset", "some"),
        ("dead-letters", "replay", "some"),
        ("dead-letters", "replay", "some", "0:1", "--all"),
        ("dead-letters", "replay", "some", "--all", "--error", "DeserializationError"),
        ("graph", "show"),
        ("graph", "show", "a:B", "--format", "png"),
        ("graph", "show", "a:B", "--format", "svg", "--json"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(command: tuple[str, ...], nowhere: Cli) -> None:
    ran = nowhere(*command)
    assert (ran.code, ran.out) == (2, "")
    assert "Error" in ran.err


@pytest.mark.parametrize(
    "group", ["", "a/b", "..", ".", "g" * 300, "g" * 245, "a b", "grün", "a\nb", "$(id)"]
)
@pytest.mark.parametrize(
    "command",
    [
        ("group", "reset", "{}", "--to", "earliest"),
        ("dead-letters", "list", "{}"),
        ("dead-letters", "show", "{}", "0:0"),
        ("dead-letters", "replay", "{}", "--all"),
    ],
    ids=lambda command: command[1],
)
def test_an_invalid_group_name_is_rejected(command: tuple[str, ...], group: str, nowhere: Cli) -> None:
    if group == "g" * 245 and command[1] == "reset":
        return  # allowed for a group, although its topics' names would be too long
    ran = nowhere(*(group if part == "{}" else part for part in command))
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be a topic name" in ran.err


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 300, "*", "a b", "grün", "-n"])
def test_odd_names_of_topics_and_groups_are_not_found(name: str, cli: Cli) -> None:
    for command in (("topics", "tail"), ("group", "lag"), ("table", "scan")):
        ran = cli(*command, "--", name)
        assert (ran.code, ran.out) == (1, ""), command
        assert ran.err.startswith("error: there is no ")


def test_help_works_with_any_settings(nowhere: Cli) -> None:
    for command in ((), ("topics",), ("topics", "tail"), ("group", "reset")):
        ran = nowhere(*command, "--help", env={"STREAMTABLE_NONSENSE": "1"}).good()
        assert ran.out.startswith("Usage: streamtable")


def test_shell_completion_is_available(nowhere: Cli) -> None:
    env = {"_STREAMTABLE_COMPLETE": "complete_bash", "COMP_WORDS": "streamtable top", "COMP_CWORD": "1"}
    assert nowhere.run(env=env).out.split() == ["topics"]


def test_ctrl_c_is_quiet_and_130(cli: Cli, world: World) -> None:
    topic = world.topics.create("in")
    process = cli.process("topics", "tail", topic, "--follow", "--last", "0")
    assert process.stdout is not None
    deadline = Deadline(30)
    while not select([process.stdout], [], [], 0.2)[0]:
        assert not deadline.passed()
        world.send(topic, (b"k", b"seen"))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")


def _reading(pid: int) -> bool:
    """Return whether the client's threads exist."""
    return len(list(Path(f"/proc/{pid}/task").iterdir())) > 3


def test_ctrl_c_during_a_wait_for_a_broker_is_quiet_too(nowhere: Cli) -> None:
    process = nowhere.process("--timeout", "60", "topics", "list")
    until(lambda: _reading(process.pid), "it waits")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")


def test_a_pipe_that_is_closed_early_is_quiet(cli: Cli, world: World) -> None:
    topic = world.topics.create("in")
    world.send(topic, *((b"k", b"x" * 1000) for _ in range(500)))
    shell = " ".join([*COMMAND, "topics", "tail", topic, "--offset", "0"]) + " | head -n 1"
    done = subprocess.run(
        shell,
        shell=True,
        env={**os.environ, **cli.environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_a_terminal_that_lacks_a_character_shows_its_code_and_ends_no_command() -> None:
    program = (
        "import streamtable_cli.main as cli; cli.app = lambda **_: print('\\u4e2d \\xe9')\n"
        "from streamtable_cli.__main__ import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, b"\\u4e2d \xe9\n"), ended.stderr


def test_every_command_that_asks_can_be_told_not_to() -> None:
    modules = Path(reset.__file__).parent.glob("*.py")
    asking = {path.stem for path in modules if "refuse_unconfirmed(" in path.read_text()}
    assert asking >= {"reset", "skip", "drop"}
    for name in asking:
        assert '"--yes"' in Path(reset.__file__).with_name(f"{name}.py").read_text(), name
    prompts = [
        path.name for path in Path(reset.__file__).parent.glob("*.py") if "typer.confirm" in path.read_text()
    ]
    assert prompts == ["reset.py"]
