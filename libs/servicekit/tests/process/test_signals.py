import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from servicekit.process.signals import StopSignals

PROGRAM = """
import sys, time
from servicekit.output import say
from servicekit.process.signals import StopSignals
with StopSignals() as signals:
    assert signals.wait(0.01) is None
    say("running")
    say(signals.wait())
    time.sleep(float(sys.argv[1]))
say("stopped")
"""


def start(seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def slow() -> Iterator["subprocess.Popen[str]"]:
    with start(60) as process:
        yield process
        process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_to_stop(number: signal.Signals) -> None:
    with start(0) as process:
        assert line(process) == "running"
        process.send_signal(number)
        assert [line(process), line(process)] == [number.name, "stopped"]
    assert process.returncode == 0


def test_the_second_signal_ends_the_process_at_once(slow: "subprocess.Popen[str]") -> None:
    assert line(slow) == "running"
    slow.send_signal(signal.SIGTERM)
    assert line(slow) == "SIGTERM"
    slow.send_signal(signal.SIGTERM)
    assert slow.wait(10) == -signal.SIGTERM


def test_another_thread_can_ask_to_stop() -> None:
    with StopSignals() as signals:
        threading.Thread(target=signals.ask, args=("the table is lost",)).start()
        assert signals.wait() == "the table is lost"


def test_the_former_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait() == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before


CONNECTIONS = """
import resource, sys
from servicekit.process.signals import allow_connections
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(allow_connections(connections), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "allowed", "files"),
    [
        (1024, 5000, 2000, 2000, 2500),
        (4096, 5000, 2000, 2000, 4096),
        (1024, 1500, 2000, 1000, 1500),
        (256, 256, 2000, 1, 256),
    ],
)
def test_as_many_connections_are_allowed_as_the_system_lets_files_be_open(
    soft: int, hard: int, connections: int, allowed: int, files: int
) -> None:
    command = [sys.executable, "-c", CONNECTIONS, str(soft), str(hard), str(connections)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(allowed), str(files)]
