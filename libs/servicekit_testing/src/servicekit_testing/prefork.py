"""Python programs that tests start again and again: forked from a process that has imported their modules already.

Importing a service takes a second of processor time, a fork takes a hundredth. A program that was forked sees what
`python -m` would give it: its arguments, environment, output, signals at their defaults, and `__main__`.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from queue import Queue
from threading import Event, Lock, Thread
from typing import Any, Final

_MESSAGE_BYTES: Final = 1 << 18


class Forked:
    """A program that runs: what tests use of `subprocess.Popen`.

    Attributes:
        pid: of its process.
        returncode: None while it runs; minus the signal's number if a signal has ended it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = Event()

    def end(self, code: int) -> None:
        """It has ended, says who had started it."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and that is not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# Not by `-m`: the package imports this module before it would be run a second time.
_MAIN = "import sys; from servicekit_testing.prefork import main; main(int(sys.argv[1]), sys.argv[2])"


class Prefork:
    """A process that has imported a module and forks programs that run it. It ends with the one that made it.

    Args:
        module: as `python -m` takes it.
    """

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-c", _MAIN, str(theirs.fileno()), module],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._connection = ours
        self._started: Queue[Forked] = Queue()
        self._one = Lock()
        Thread(target=self._listen, name=f"prefork {module}", daemon=True).start()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], output: int) -> Forked:
        """Start a program in this process's folder.

        Args:
            arguments: of the program.
            environment: all of it.
            output: descriptor of the file to which it writes output and errors.
        """
        request = json.dumps([list(arguments), dict(environment), str(Path.cwd())]).encode()
        assert len(request) < _MESSAGE_BYTES, "a program has a smaller environment"
        with self._one:
            socket.send_fds(self._connection, [request], [output])
            return self._started.get(timeout=120)

    def _listen(self) -> None:
        running: dict[int, Forked] = {}
        while told := self._connection.recv(1024):
            what, pid, code = json.loads(told)
            if what == "started":
                running[pid] = Forked(pid)
                self._started.put(running[pid])
            else:
                running.pop(pid).end(code)


@cache
def prefork_of(module: str) -> Prefork:
    """The one of this process for a module."""
    return Prefork(module)


def _serve(connection: socket.socket, module: str) -> tuple[list[str], dict[str, str]] | None:
    """Fork whenever asked. Returns in each program that is to run, with what it is given; None: no more requests come."""
    import_module(module)
    # It is run by its name again, from the beginning, with all that it has imported.
    del sys.modules[module]
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, (
        f"{module} starts {threads - 1} threads when it is imported, and these would not be forked"
    )
    gc.collect()
    gc.freeze()
    waking, wake = os.pipe()
    os.set_blocking(waking, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([connection.fileno(), waking], [], [])
        if waking in ready:
            os.read(waking, 1024)
            _collect(connection, running)
        if connection.fileno() not in ready:
            continue
        request, files, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1)
        if not request:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return None
        (output,) = files
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for descriptor in (waking, wake, connection.detach()):
                os.close(descriptor)
            arguments, environment, folder = json.loads(request)
            _become(output, folder)
            return arguments, environment
        os.close(output)
        running.add(pid)
        connection.send(json.dumps(["started", pid, 0]).encode())


def _collect(connection: socket.socket, running: set[int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        running.remove(pid)
        connection.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def _become(output: int, folder: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(folder)


def _run(module: str, arguments: list[str], environment: dict[str, str]) -> Any:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = [module, *arguments]
    sys.orig_argv = [sys.executable, "-m", module, *arguments]
    return runpy.run_module(module, run_name="__main__", alter_sys=True)


def main(descriptor: int, module: str) -> None:
    """Serve the requests that come over a socket until it is closed; in each forked process, run the module."""
    given = _serve(socket.socket(fileno=descriptor), module)
    if given is not None:
        _run(module, *given)
