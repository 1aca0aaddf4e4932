"""The environment of a forked program, and the ways it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localkafka.waiting import wait_until
from servicekit_testing.prefork import Forked, Prefork, prefork_of

PROGRAM = """
import os, signal, sys, time
if __name__ == "__main__":
    print(sys.argv[1:], os.environ["COLOUR"], "HOME" in os.environ, os.getcwd(), __name__, flush=True)
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, file=sys.stderr, flush=True)
    if "fails" in sys.argv:
        raise SystemExit(7)
    if "waits" in sys.argv:
        time.sleep(600)
"""


@pytest.fixture(params=["by itself", "forked from what services have in common"])
def prefork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Prefork:
    (tmp_path / "colours.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Prefork("colours", None if request.param == "by itself" else prefork_of(""))


def start(prefork: Prefork, output: Path, *arguments: str) -> Forked:
    with output.open("wb") as file:
        return prefork.start(arguments, {"COLOUR": "blue"}, file.fileno())


def test_a_program_has_its_arguments_environment_folder_output_and_signals(
    prefork: Prefork, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        assert start(prefork, tmp_path / name, name, "ü").wait(60) == 0
        said = (tmp_path / name).read_text().splitlines()
        assert said == [f"['{name}', 'ü'] blue False {tmp_path} __main__", "True"]


def test_errors_can_go_to_a_file_of_their_own(prefork: Prefork, tmp_path: Path) -> None:
    output, errors = tmp_path / "output", tmp_path / "errors"
    with output.open("wb") as first, errors.open("wb") as second:
        started = prefork.start([], {"COLOUR": "blue"}, first.fileno(), second.fileno())
    assert started.wait(60) == 0
    assert output.read_text() == f"[] blue False {tmp_path} __main__\n"
    assert errors.read_text() == "True\n"


def test_what_a_program_imports_when_it_runs_can_be_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("brushes", ""), ("paints", "import sys\nprint('brushes' in sys.modules)")):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    output = tmp_path / "output"
    assert start(Prefork("paints", prefork_of(""), ["brushes"]), output).wait(60) == 0
    assert output.read_text() == "True\n"


def test_how_a_program_ended_is_reported(prefork: Prefork, tmp_path: Path) -> None:
    assert start(prefork, tmp_path / "out", "fails").wait(60) == 7
    waiting = start(prefork, tmp_path / "out", "waits")
    assert waiting.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0.01)
    waiting.send_signal(signal.SIGKILL)
    assert waiting.wait(60) == -signal.SIGKILL == waiting.poll()
    waiting.kill()  # its process id is no longer in use


def test_programs_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "colours.py").write_text(PROGRAM)
    starter = (
        "import os; from servicekit_testing.prefork import prefork_of; "
        "print(prefork_of('colours').start(['waits'], {'COLOUR': 'red'}, 2).pid); os._exit(0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", starter], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    child = Path(f"/proc/{int(done.stdout)}/cmdline")
    wait_until(lambda: not child.exists() or not child.read_bytes())
