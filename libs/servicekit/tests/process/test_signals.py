import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from servicekit.process.signals import StopSignals

PROGRAM = """
import sys, time
from servicekit.output import say
from servicekit.process.signals import StopSignals
with StopSignals(float(sys.argv[2])) as signals:
    assert signals.wait(0.01) is None
    say("running")
    say(signals.wait())
    time.sleep(float(sys.argv[1]))
say("stopped")
"""


@contextmanager
def start(seconds: float, most: float = 600, *before: str) -> Iterator["subprocess.Popen[str]"]:
    command = [*before, sys.executable, "-c", PROGRAM, str(seconds), str(most)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


@pytest.fixture
def slow() -> Iterator["subprocess.Popen[str]"]:
    with start(60) as process:
        yield process
        process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_requests_a_graceful_stop(number: signal.Signals) -> None:
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
    assert slow.wait(60) == -signal.SIGTERM


def test_a_process_that_does_not_end_in_time_ends_with_the_stacks_of_its_threads() -> None:
    with start(60, 0.5) as process:
        assert line(process) == "running"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1
        assert process.stderr is not None
        assert "Timeout" in (said := process.stderr.read())
        assert 'File "<string>"' in said


def test_more_than_one_hangup_of_a_closed_terminal_stops_in_order() -> None:
    with start(1) as process:
        assert line(process) == "running"
        process.send_signal(signal.SIGHUP)
        assert line(process) == "SIGHUP"
        process.send_signal(signal.SIGHUP)
        assert line(process) == "stopped"
    assert process.returncode == 0


def test_a_hangup_is_ignored_under_nohup() -> None:
    with start(0, 600, "nohup") as process:
        assert line(process) == "running"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert line(process) == "SIGTERM"


def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    """Like one that arrives just before the main thread blocks, such a signal does not wake it."""

    def receive() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with StopSignals() as signals:
        threading.Timer(0.3, receive).start()
        assert signals.wait(30) == "SIGTERM"


def test_another_thread_can_request_a_stop() -> None:
    with StopSignals() as signals:
        threading.Thread(target=signals.ask, args=("the table is lost",)).start()
        assert signals.wait() == "the table is lost"


def test_the_previous_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait() == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before


CONNECTIONS = """
import resource, sys
from servicekit.process.signals import allow_connections
from streamtable.errors import ConfigurationError
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    allow_connections(connections, "SERVICEKIT_CONNECTIONS=2000")
except ConfigurationError as error:
    print(error)
else:
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def files_allowed(soft: int, hard: int, connections: int) -> str:
    """Return the soft limit of a process with these limits after `allow_connections`, or the error."""
    command = [sys.executable, "-c", CONNECTIONS, str(soft), str(hard), str(connections)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("soft", "hard", "files"), [(1024, 5000, 2500), (4096, 5000, 4096), (1024, 2500, 2500)]
)
def test_the_limit_of_open_files_is_raised_for_the_connections(soft: int, hard: int, files: int) -> None:
    assert files_allowed(soft, hard, 2000) == str(files)


@pytest.mark.parametrize("hard", [2499, 1500, 256])
def test_a_hard_limit_that_is_too_low_is_an_error_with_the_needed_limit(hard: int) -> None:
    error = files_allowed(256, hard, 2000)
    assert error.startswith(
        "SERVICEKIT_CONNECTIONS=2000: 2000 connections and 500 other files need a hard limit of 2500"
    )
    assert f"it is {hard}: raise it" in error
