import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localkafka.__main__ import running
from localkafka.process import reserve_port

PROGRAM = [sys.executable, "-m", "localkafka"]


def run(*arguments: str, data: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments, "--data", str(data)], capture_output=True, text=True, check=False, timeout=90
    )


@pytest.fixture
def port() -> str:
    with reserve_port() as held:
        return str(held.getsockname()[1])


@pytest.mark.broker
def test_a_broker_runs_until_the_down_command(tmp_path: Path, port: str) -> None:
    data = tmp_path / "kafka"
    started = run("up", "--port", port, data=data)
    try:
        assert started.returncode == 0, started.stderr
        assert f"127.0.0.1:{port}" in started.stdout
        assert run("status", data=data).returncode == 0
        again = run("up", "--port", port, data=data)
        assert (again.returncode, "already running" in again.stderr) == (1, True)
        another = run("up", "--port", port, data=tmp_path / "other")
        assert (another.returncode, "choose another" in another.stderr) == (1, True)
    finally:
        stopped = run("down", data=data)
    assert "stopped 1" in stopped.stdout
    assert run("status", data=data).returncode == 1
    assert "it first" in run("up", "--brokers", "3", data=data).stderr
    (tmp_path / "kafka" / "mine.txt").write_text("not Kafka's")
    assert run("wipe", data=data).returncode == 0
    assert [path.name for path in data.iterdir()] == ["mine.txt"]


@pytest.mark.broker
def test_a_broker_in_the_foreground_stops_on_ctrl_c(tmp_path: Path, port: str) -> None:
    command = [*PROGRAM, "up", "--foreground", "--port", port, "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        assert "Kafka answers" in program.stdout.readline()
        os.kill(program.pid, signal.SIGINT)
        assert program.wait(timeout=60) == 0
    assert run("status", data=tmp_path).returncode == 1


def test_a_process_id_of_another_program_is_not_mistaken_for_a_broker(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "pid").write_text(str(os.getpid()))
    assert "no broker is running" in run("down", data=tmp_path).stdout


@pytest.mark.parametrize("text", ["", "none\n"])
def test_a_file_without_a_process_id_is_ignored(text: str, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "pid").write_text(text)
    assert running(tmp_path) == {}
