import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from localkafka.waiting import Deadline
from messaging import commands, groups
from messaging.groups import GROUPS
from messaging.main import ROLES, app

COMMANDS = [*ROLES, "web", "load"]


@pytest.mark.parametrize("command", [*COMMANDS, "all", "unblock"])
def test_each_command_explains_itself_and_its_environment(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "MESSAGING_GROUP" in result.output


def test_there_is_a_command_for_each_role_and_a_role_for_each_group() -> None:
    assert tuple(ROLES) == commands.ROLES
    assert {name.partition("-")[0] for name in GROUPS} == ROLES.keys()


def test_the_tutorial_names_commands_that_there_are() -> None:
    page = (Path(__file__).parents[3] / "docs/tutorial/messaging.md").read_text()
    lines = [
        line.partition("#")[0].split()[1:] for line in page.splitlines() if line.startswith("messaging ")
    ]
    assert [line[0] for line in lines] == ["all", "load"]
    assert all(CliRunner().invoke(app, [*line, "--help"]).exit_code == 0 for line in lines)


def test_the_tutorial_shows_lines_of_the_program() -> None:
    page = (Path(__file__).parents[3] / "docs/tutorial/messaging.md").read_text()
    (shown,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    program = {line.strip() for line in Path(groups.__file__).read_text().splitlines()} | {"..."}
    assert [line for line in shown.splitlines() if line.strip() not in program] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["load", "--rate", "nan"],
        ["load", "--spammers", "-1"],
        ["filter", "--workers", "0"],
        ["unblock"],
        ["unblock", "a/b"],
        ["reader"],
    ],
)
def test_wrong_arguments_end_with_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("arguments", [["filter"], ["web"], ["all"], ["load"], ["unblock", "bob"]])
def test_fail_fast_stops_with_the_address_that_does_not_answer(arguments: list[str], no_broker: str) -> None:
    end = Deadline(10)
    result = CliRunner().invoke(app, [*arguments, "--fail-fast"])
    assert result.exit_code == 1
    assert no_broker in result.output
    assert "Traceback" not in result.output
    assert not end.passed()


@pytest.mark.parametrize("command", ["web"])
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
