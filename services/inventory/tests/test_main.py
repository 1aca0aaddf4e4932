import pytest
from typer.testing import CliRunner

from inventory.main import app


@pytest.mark.parametrize("command", ["emitter", "load", "processor", "view", "query"])
def test_each_command_explains_itself_and_its_environment(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "INVENTORY_GROUP" in result.output


@pytest.mark.parametrize("arguments", [["processor", "--workers", "0"], ["query", "--limit", "1"]])
def test_wrong_arguments_end_with_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["emitter", "load", "processor", "view", "query"])
def test_a_wrong_setting_is_refused_by_each_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMTABLE_BOOTSTRAP_SERVERS", "nonsense")
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2, result.output
    assert "STREAMTABLE_BOOTSTRAP_SERVERS" in result.output
