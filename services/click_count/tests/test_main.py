import pytest
from typer.testing import CliRunner

from click_count.main import app


@pytest.mark.parametrize("command", ["emitter", "load", "processor", "view", "query"])
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
