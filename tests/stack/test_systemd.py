"""The units agree with what the services do, and systemd can read them."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from servicekit.process.runtime import EXIT_CONFIGURATION
from streamtable import Settings

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "infra/systemd"
UNIT = FOLDER / "streamtable@.service"


def service() -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of the section Service, and the variables that it sets."""
    variables = {}
    lines = []
    for line in UNIT.read_text().splitlines():
        if line.startswith("Environment="):
            name, _, value = line.removeprefix("Environment=").partition("=")
            variables[name] = value
        elif not line.startswith("EnvironmentFile="):
            lines.append(line)
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # the documented way to keep capitals
    parser.read_string("\n".join(lines))
    return dict(parser["Service"]), variables


def test_a_service_has_more_time_to_stop_than_it_takes_at_most() -> None:
    unit, _ = service()
    assert int(unit["TimeoutStopSec"]) > Settings().shutdown_timeout


def test_a_wrong_setting_is_not_tried_again() -> None:
    unit, _ = service()
    assert unit["Restart"] == "on-failure"
    assert int(unit["RestartPreventExitStatus"]) == EXIT_CONFIGURATION


def test_state_is_where_it_may_be_written_and_the_instance_has_its_own_name() -> None:
    unit, variables = service()
    assert unit["ProtectSystem"] == "strict"
    assert variables["STREAMTABLE_STATE_DIR"] == f"%S/{unit['StateDirectory']}"
    assert "%i" in variables["STREAMTABLE_INSTANCE_ID"]
    assert unit["CapabilityBoundingSet"] == ""


def test_the_example_settings_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for file in FOLDER.glob("*.env"):
        for line in file.read_text().splitlines():
            name, _, value = line.partition("=")
            if name.startswith("STREAMTABLE_"):
                monkeypatch.setenv(name, value)
    assert Settings.from_environment().bootstrap_servers


def test_systemd_can_read_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    units = [tmp_path / "streamtable@click-count-processor.service", tmp_path / "streamtable.target"]
    units[0].write_text(UNIT.read_text())
    units[1].write_text((FOLDER / "streamtable.target").read_text())
    if analyze is not None:  # elsewhere the other tests are all there is
        done = subprocess.run(
            [analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
