"""The command runs a job by its name, once or repeatedly."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from localkafka.process import reserve_port
from localkafka.waiting import Deadline
from streamtable_spark import main
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.job_args import job_parser

JOBS = Path(main.__file__).parent / "jobs"
WRITES = "import pathlib, sys; file = pathlib.Path(sys.argv[1]); file.write_text(file.read_text() + 'x')"


def command(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streamtable_spark.main", *arguments],
        env={**os.environ, **(environ or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_every_job_has_its_name() -> None:
    runnable = {path.stem for path in JOBS.glob("*.py") if '__name__ == "__main__"' in path.read_text()}
    assert set(main.JOBS) == runnable


def test_a_job_gets_its_arguments_and_gives_its_status() -> None:
    with command("reconcile", "--bootstrap-servers", "nowhere", "--group", "click-count") as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "STREAMTABLE_BOOTSTRAP_SERVERS='nowhere': expected host:port" in said


def test_a_name_that_is_no_job_is_answered_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["streamtable-spark", "count"])
    with pytest.raises(SystemExit, match="2"):
        main.main()
    assert "JOB is one of etl, maintain" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "ten", "", "²"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="whole seconds"):
        main.seconds_of(text)


def test_a_command_is_run_again_however_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "runs"
    file.write_text("")
    stopping = threading.Event()
    code = f"{WRITES}; sys.exit(3)"
    work = [[sys.executable, "-c", code, str(file)], 0.05, stopping.is_set]
    thread = threading.Thread(target=main.repeat, args=work)
    thread.start()
    deadline = Deadline(30)
    while len(file.read_text()) < 3:
        assert not deadline.passed()
        time.sleep(0.02)
    stopping.set()
    thread.join(60)
    assert not thread.is_alive()


def test_a_run_under_way_is_interrupted_when_it_is_to_end(tmp_path: Path) -> None:
    file = tmp_path / "end"
    code = (
        "import pathlib, sys, time\nfile = pathlib.Path(sys.argv[1])\n"
        "try:\n    file.write_text('working'); time.sleep(60)\nexcept KeyboardInterrupt:\n    file.write_text('interrupted')\n"
    )
    stopping = threading.Event()
    work = [[sys.executable, "-c", code, str(file)], 60, stopping.is_set]
    thread = threading.Thread(target=main.repeat, args=work)
    thread.start()
    deadline = Deadline(30)
    while not file.exists() or not file.read_text():
        assert not deadline.passed()
        time.sleep(0.02)
    stopping.set()
    thread.join(60)
    assert file.read_text() == "interrupted"


def test_the_schedule_serves_the_metrics_of_its_jobs_and_ends_when_it_is_stopped(tmp_path: Path) -> None:
    with reserve_port() as held:
        port = held.getsockname()[1]
        (tmp_path / "rebuild.prom").write_text(
            "# TYPE streamtable_job_failed gauge\nstreamtable_job_failed 1\n"
        )
        environ = {"STREAMTABLE_METRICS_ADDRESS": f"127.0.0.1:{port}", "SPARK_JOB_METRICS_DIR": str(tmp_path)}
        with command("every", "600", "reconcile", "--help", environ=environ) as run:
            deadline = Deadline(60)
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
                        text = answer.read().decode()
                    break
                except OSError:
                    assert not deadline.passed()
                    assert run.poll() is None, run.communicate()
                    time.sleep(0.1)
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=60)
    assert re.search(r"^streamtable_job_failed 1\.0$", text, re.MULTILINE)
    assert run.returncode == 0


def test_the_metrics_of_jobs_are_served_under_the_names_of_the_server_only(tmp_path: Path) -> None:
    with reserve_port() as held:
        port = held.getsockname()[1]
        environ = {
            "STREAMTABLE_METRICS_ADDRESS": f"127.0.0.1:{port}",
            "SPARK_JOB_METRICS_DIR": str(tmp_path),
            "SERVICEKIT_HOSTS": "spark, *.example.org",
        }
        with main.served(environ):

            def status(host: str) -> int:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": host})
                try:
                    with urllib.request.urlopen(request, timeout=30) as answer:
                        return int(answer.status)
                except urllib.error.HTTPError as error:
                    return error.code

            own = (f"127.0.0.1:{port}", "localhost", "spark:8080", "jobs.example.org")
            assert [status(host) for host in own] == [200] * len(own)
            foreign = ("attacker.example", "10.1.2.3", "localhost.attacker.example", "[", "example.org.evil")
            assert [status(host) for host in foreign] == [421] * len(foreign)


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({}, "SPARK_JOB_METRICS_DIR"),
        ({"SPARK_JOB_METRICS_DIR": "."}, "'127.0.0.1:99999': expected host:port"),
    ],
)
def test_a_schedule_that_cannot_serve_says_why(environ: dict[str, str], problem: str) -> None:
    address = {"STREAMTABLE_METRICS_ADDRESS": "127.0.0.1:99999"}
    with pytest.raises(ConfigurationError, match=problem), main.served({**environ, **address}):
        raise AssertionError("it serves")


def test_the_help_of_a_job_shows_the_command_that_runs_it() -> None:
    assert job_parser("etl", "").format_usage().startswith("usage: streamtable-spark etl ")
