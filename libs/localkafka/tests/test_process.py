import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localkafka.process import Child, reserve_port
from localkafka.waiting import wait_until

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def state(pid: int) -> str:
    """The kernel's state letter of a process; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


def started(command: list[str], log_file: Path) -> Child:
    child = Child(command, log_file)
    wait_until(lambda: "up" in log_file.read_text())
    return child


def test_a_stopped_child_ends_by_sigterm(log_file: Path) -> None:
    child = started(SLEEPER, log_file)
    assert child.returncode is None
    assert child.stop() == -signal.SIGTERM
    assert child.returncode == -signal.SIGTERM


def test_a_child_that_does_not_stop_in_time_is_killed(log_file: Path) -> None:
    assert started(STUBBORN, log_file).stop(timeout=0.1) == -signal.SIGKILL


def test_a_paused_child_stands_still_until_resumed_and_can_be_stopped(log_file: Path) -> None:
    child = started(SLEEPER, log_file)
    child.pause()
    assert state(child.pid) == "T"
    child.resume()
    wait_until(lambda: state(child.pid) == "S")
    child.pause()
    assert child.stop() == -signal.SIGTERM


def test_a_child_has_its_own_session_so_that_ctrl_c_does_not_reach_it(log_file: Path) -> None:
    child = started(SLEEPER, log_file)
    session = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[3]
    assert int(session) == child.pid
    child.kill()


@pytest.mark.parametrize(("detached", "outlives"), [(False, False), (True, True)])
def test_only_a_detached_child_outlives_a_killed_parent(
    log_file: Path, *, detached: bool, outlives: bool
) -> None:
    program = (
        "import time; from pathlib import Path; from localkafka.process import Child\n"
        f"child = Child({SLEEPER!r}, Path({str(log_file)!r}), detached={detached})\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pid = int(parent.stdout.readline())
    wait_until(lambda: log_file.exists() and "up" in log_file.read_text())
    parent.kill()
    parent.communicate()
    if outlives:
        wait_until(lambda: state(pid) == "S")  # it may still be on its way from its output to its sleep
        subprocess.run(["/bin/kill", "-9", str(pid)], check=True)
    wait_until(lambda: state(pid) in {"", "Z"})


def test_a_child_started_by_a_thread_outlives_that_thread(log_file: Path) -> None:
    threaded = (
        "import sys, threading, time; from pathlib import Path; from localkafka.process import Child\n"
        "children = []\n"
        f"start = lambda: children.append(Child({SLEEPER!r}, Path({str(log_file)!r})))\n"
        "thread = threading.Thread(target=start); thread.start(); thread.join()\n"
        f"while 'up' not in Path({str(log_file)!r}).read_text(): time.sleep(0.01)\n"
        "sys.exit(children[0].kill() + 9)"
    )
    assert subprocess.run([sys.executable, "-c", threaded], check=False, timeout=120).returncode == 0


def test_a_reserved_port_can_be_bound_by_its_program_and_is_not_assigned_to_others() -> None:
    with reserve_port() as held:
        address = held.getsockname()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        with socket.create_server(address), socket.create_connection(address):
            pass
        with socket.create_server(address):
            pass


def test_a_named_port_that_is_in_use_cannot_be_reserved() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="in use"):
        reserve_port(other.getsockname()[1])
