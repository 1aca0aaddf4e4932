import subprocess
import sys

import pytest
from typer.testing import CliRunner

from localkafka.waiting import Deadline
from tweet_reach.main import app

COMMANDS = ["emitter", "load", "processor", "view", "query"]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_and_its_environment(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "TWEET_REACH_BATCH_SECONDS" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["load", "--rate", "nan"],
        ["load", "--keys", "0"],
        ["processor", "--workers", "0"],
        ["query", "--limit", "1"],
        ["processor", "--stage", "third"],
    ],
)
def test_wrong_arguments_end_with_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_neither_sketches_nor_the_client_of_a_store_are_imported_by_who_does_without() -> None:
    heavy = {"numpy", "datasketches", "redis", "elasticsearch", "cassandra"}
    look = f"import sys, tweet_reach.main; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_fail_fast_stops_with_the_address_that_does_not_answer(command: str, no_broker: str) -> None:
    end = Deadline(10)
    result = CliRunner().invoke(app, [command, "--fail-fast"])
    assert result.exit_code == 1
    assert no_broker in result.output
    assert "Traceback" not in result.output
    assert not end.passed()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_setting_is_reported_in_words_with_exit_code_2(command: str, no_broker: str) -> None:
    result = CliRunner().invoke(app, [command], env={"STREAMTABLE_BOOTSTRAP_SERVERS": "nonsense"})
    assert result.exit_code == 2
    assert "STREAMTABLE_BOOTSTRAP_SERVERS" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["emitter", "view", "query"])
def test_a_service_that_other_machines_reach_refuses_to_start_without_keys(
    command: str, no_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "STREAMTABLE_GRPC_ADDRESS" if command == "view" else "STREAMTABLE_HTTP_ADDRESS"
    monkeypatch.setenv(variable, "0.0.0.0:0")
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2
    assert f"{variable}=0.0.0.0:0: other machines can reach it" in result.output
    assert "SERVICEKIT_API_KEYS" in result.output
    assert "SERVICEKIT_ALLOW_UNAUTHENTICATED=true" in result.output
