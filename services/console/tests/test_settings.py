from pathlib import Path

from console.settings import ConsoleSettings
from servicekit.process.edge_settings import EdgeSettings
from servicekit_testing import Process
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


def test_where_jobs_tell_of_their_runs_has_one_name_for_them_and_for_the_console() -> None:
    assert EdgeSettings.from_environment({RUNS_VARIABLE: "runs"}).runs_topic == "runs"
