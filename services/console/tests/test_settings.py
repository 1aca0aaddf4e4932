from pathlib import Path

import pytest

from console.settings import ConsoleSettings
from servicekit.process.edge_settings import EdgeSettings
from servicekit_testing import Process
from streamtable.errors import ConfigurationError
from streamtable_spark.jobs.run_report import RUNS_VARIABLE


def test_actions_are_off_unless_said_otherwise() -> None:
    assert not ConsoleSettings.from_environment({}).actions
    assert ConsoleSettings.from_environment({"CONSOLE_ACTIONS": "true"}).actions


def test_actions_without_keys_are_refused(tmp_path: Path) -> None:
    process = Process("console.main", [], {"CONSOLE_ACTIONS": "true", "STREAMTABLE_STATE_DIR": str(tmp_path)})
    try:
        assert process.ended() == 2
    finally:
        process.close()
    assert "set SERVICEKIT_API_KEYS" in "".join(process.output)


def test_a_token_beside_keys_is_refused(tmp_path: Path) -> None:
    environment = {
        "CONSOLE_TOKEN": "a" * 22,
        "SERVICEKIT_API_KEYS": f"me:read:{'0' * 64}",
        "STREAMTABLE_STATE_DIR": str(tmp_path),
    }
    process = Process("console.main", [], environment)
    try:
        assert process.ended() == 2
    finally:
        process.close()
    assert "CONSOLE_TOKEN: callers already authenticate with SERVICEKIT_API_KEYS" in "".join(process.output)


@pytest.mark.parametrize(
    ("name", "text"),
    [("TOKEN", "short"), ("TOKEN", "a" * 21 + "/"), ("URL", "console.example"), ("URL", "javascript:x")],
)
def test_a_token_that_can_be_guessed_and_an_address_that_is_no_url_are_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"CONSOLE_{name}") as raised:
        ConsoleSettings.from_environment({f"CONSOLE_{name}": text})
    assert name != "TOKEN" or text not in str(raised.value)


def test_where_jobs_tell_of_their_runs_has_one_name_for_them_and_for_the_console() -> None:
    assert EdgeSettings.from_environment({RUNS_VARIABLE: "runs"}).runs_topic == "runs"
