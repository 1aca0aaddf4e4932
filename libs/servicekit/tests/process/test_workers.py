import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from localkafka.waiting import Deadline

SUPERVISOR = """
import sys
from servicekit.process.workers import Worker, run_workers
workers = [Worker([sys.executable, "-c", program]) for program in sys.argv[2:]]
sys.exit(run_workers(workers, stop_seconds=float(sys.argv[1])))
"""
GOOD = """
import os, time
from servicekit.output import say
from servicekit.process.signals import StopSignals
from servicekit.process.workers import stop_with_parent
with StopSignals() as signals:
    stop_with_parent(lambda: signals.ask("parent"), os.getppid())
    say(os.getpid())
    say(signals.wait())
"""
# Like a worker that still imports its modules: signals have their default actions.
STARTING = """
import os, time
print(os.getpid(), flush=True)
time.sleep(60)
"""
ENDING = ""
CRASHING = "raise SystemExit(7)"
STUBBORN = """
import signal, os, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(60)
"""


def supervise(*programs: str, stop_seconds: float = 20) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SUPERVISOR, str(stop_seconds), *programs]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return next(text.strip() for text in process.stdout if "workers are stopped" not in text)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_signal_stops_all_workers() -> None:
    with supervise(GOOD, GOOD) as supervisor:
        pids = [int(line(supervisor)), int(line(supervisor))]
        supervisor.send_signal(signal.SIGTERM)
        assert [line(supervisor), line(supervisor)] == ["SIGTERM", "SIGTERM"]
    assert supervisor.returncode == 0
    assert not any(alive(pid) for pid in pids)


def test_when_one_worker_ends_the_others_are_stopped_and_its_exit_code_is_returned() -> None:
    with supervise(GOOD, CRASHING) as supervisor:
        assert supervisor.wait(60) == 7


def test_a_worker_that_is_stopped_before_it_handles_signals_counts_as_stopped_in_order() -> None:
    with supervise(STARTING) as supervisor:
        pid = int(line(supervisor))
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(60) == 0
    assert not alive(pid)


def test_an_unexpected_exit_is_a_failure_even_while_another_worker_starts() -> None:
    with supervise(ENDING, STARTING) as supervisor:
        assert supervisor.wait(60) == 1


def test_a_worker_that_is_killed_from_outside_has_failed() -> None:
    with supervise(STARTING) as supervisor:
        os.kill(int(line(supervisor)), signal.SIGTERM)
        assert supervisor.wait(60) == 128 + signal.SIGTERM


def test_a_worker_that_does_not_stop_is_killed() -> None:
    with supervise(STUBBORN, stop_seconds=0.2) as supervisor:
        pid = int(line(supervisor))
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(60) == 128 + signal.SIGKILL
    assert not alive(pid)


def test_all_workers_have_the_same_time_to_stop() -> None:
    with supervise(STUBBORN, STUBBORN, STUBBORN, stop_seconds=3.0) as supervisor:
        for _ in range(3):
            line(supervisor)
        end = Deadline(6)  # two of them one after the other take as long
        supervisor.send_signal(signal.SIGINT)
        assert supervisor.wait(60) == 128 + signal.SIGKILL
        assert not end.passed()


def test_workers_stop_when_their_supervisor_is_killed() -> None:
    with supervise(GOOD) as supervisor:
        pid = int(line(supervisor))
        supervisor.kill()
        assert line(supervisor) == "parent"
    end = Deadline(20)
    while alive(pid):
        assert not end.passed()
        time.sleep(0.05)


def test_each_worker_has_its_own_environment(tmp_path: Path) -> None:
    child = "import os, time; open(os.environ['PLACE'], 'w').close(); time.sleep(60)"
    program = (
        "import sys; from servicekit.process.workers import Worker, run_workers; "
        "run_workers([Worker([sys.executable, '-c', sys.argv[1]], {'PLACE': p}) for p in sys.argv[2:]], 20)"
    )
    places = [tmp_path / name for name in ("a", "b")]
    with subprocess.Popen([sys.executable, "-c", program, child, *map(str, places)]) as supervisor:
        end = Deadline(20)
        while not all(place.exists() for place in places):
            assert not end.passed()
            time.sleep(0.05)
        supervisor.terminate()
