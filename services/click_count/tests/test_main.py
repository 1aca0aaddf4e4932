import subprocess
import sys

import pytest
from typer.testing import CliRunner

from click_count.main import app
from localkafka.waiting import Deadline

COMMANDS = ["emitter", "load", "processor", "view", "query"]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_and_its_environment(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "STREAMTABLE_BOOTSTRAP_SERVERS" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["load", "--rate", "nan"],
        ["load", "--rate", "-1"],
        ["load", "--seconds", "inf"],
        ["load", "--keys", "0"],
        ["load", "--keys", "1e3"],
        ["load", "--count", "0"],
        ["load", "--skew", "11"],
        ["processor", "--workers", "0"],
        ["processor", "--handler", "other"],
        ["query", "--limit", "1"],
        ["nothing"],
    ],
)
def test_wrong_arguments_end_with_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_fail_fast_stops_with_the_address_that_does_not_answer(command: str, no_broker: str) -> None:
    end = Deadline(10)
    result = CliRunner().invoke(app, [command, "--fail-fast"])
    assert result.exit_code == 1
    assert no_broker in result.output
    assert "Traceback" not in result.output
    assert not end.passed()


def test_otherwise_it_names_the_address_and_goes_on_trying_until_it_is_stopped(no_broker: str) -> None:
    command = [sys.executable, "-m", "click_count.main", "processor"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        waits = []
        for line in process.stderr:
            if "waiting for Kafka" in line:
                waits.append(line)
            if len(waits) == 2:
                process.terminate()
                break
        assert no_broker in waits[0]
        process.stderr.read()
        assert process.wait(60) == 0


def test_workers_that_would_answer_queries_at_one_address_are_refused(
    no_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICK_COUNT_QUERY_ADDRESS", "127.0.0.1:50099")
    result = CliRunner().invoke(app, ["processor", "--workers", "2"])
    assert result.exit_code == 2
    assert "start several processors instead" in result.output


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
    for name, value in (
        ("SERVICEKIT_ALLOW_UNAUTHENTICATED", "true"),
        ("SERVICEKIT_API_KEYS", f"me:read:{'0' * 64}"),
    ):
        with monkeypatch.context() as settings:
            settings.setenv(name, value)
            allowed = CliRunner().invoke(app, [command, "--fail-fast"])
        assert allowed.exit_code == 1, "it looks for the broker"
        assert no_broker in allowed.output
