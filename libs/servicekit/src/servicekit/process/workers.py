"""Several processes of one service, run as one: they stop together, also when one of them ends unexpectedly."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from servicekit.process.signals import StopSignals

log = structlog.get_logger()
_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Worker:
    """A process to start.

    Attributes:
        command: The program and its arguments.
        environment: Variables in addition to those of this process.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def run_workers(workers: Sequence[Worker], stop_seconds: float) -> int:
    """Start all and wait until they have ended, after a signal to this process or because one ended by itself.

    Args:
        workers: The workers, which must end on SIGTERM.
        stop_seconds: The time from SIGTERM to SIGKILL.

    Returns:
        0 if all ended in order after a signal. Otherwise a nonzero exit code of a worker, as a shell shows it,
        preferably of the one that ended by itself; 1 if all codes were 0.
    """
    with StopSignals() as signals:
        running = [_start(worker) for worker in workers]
        reason = None
        while reason is None and all(process.poll() is None for process in running):
            reason = signals.wait(_LOOK_SECONDS)
        log.info("workers are stopped", reason=reason or "one has ended")
        codes = [_exit_code(process.returncode) for process in running if process.returncode is not None]
        asked = [process for process in running if process.returncode is None]
        for process in asked:
            process.terminate()
        end = time.monotonic() + stop_seconds
        codes += [_end(process, end) for process in asked]
    return next((code for code in codes if code), 0 if reason else 1)


def stop_with_parent(stop: Callable[[], None], parent: int) -> None:
    """Call `stop` when the process `parent` has ended: a worker must not outlive a killed supervisor."""

    def watch() -> None:
        done = threading.Event()
        while os.getppid() == parent:
            done.wait(1.0)
        stop()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _start(worker: Worker) -> "subprocess.Popen[bytes]":
    # A process group of its own: Ctrl-C in a terminal goes to a whole group, and a worker would count that signal and
    # our SIGTERM as two requests to stop.
    return subprocess.Popen(  # noqa: S603 the command is this program's own
        worker.command, env={**os.environ, **worker.environment}, process_group=0
    )


def _end(process: "subprocess.Popen[bytes]", end: float) -> int:
    """Wait for a worker after SIGTERM. Returns its exit code."""
    try:
        process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        log.warning("worker does not stop and is killed", pid=process.pid)
        process.kill()
    code = process.wait()
    # The signal ended it: it arrived before the starting worker could handle it.
    return 0 if code == -signal.SIGTERM else _exit_code(code)


def _exit_code(code: int) -> int:
    """Return the code as a shell shows it: 128 plus the number of the signal that ended the process."""
    return code if code >= 0 else 128 - code
