"""Fast starts of Python programs in tests: they are forked from a process that has already imported their modules.

Importing a service takes a second of CPU time, a fork a hundredth. Nearly all of that second is for modules that all
services share, so the preforked processes are themselves forked from one that has imported these. A forked program runs
like under `python -m`, with its own arguments, environment and output, default signal handlers, and `__main__`.
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
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from queue import Queue
from threading import Event, Lock, Thread
from typing import Final

_MESSAGE_BYTES: Final = 1 << 18
_COMMON: Final = (
    "streamtable.flow",
    "servicekit.http.table_api",
    "servicekit.grpc.table_service",
    "servicekit.process.serving",
)
"""The modules that most programs import; also in memory in programs that do not import them."""


class Forked:
    """A running program, with the part of the interface of `subprocess.Popen` that tests use.

    Attributes:
        pid: The id of its process.
        returncode: The exit code; None while it runs, the negative signal number if a signal has ended it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = Event()

    def end(self, code: int) -> None:
        """Record the exit code, reported by the process that started it."""
        self.returncode = code
        self._ended.set()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the program to exit. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, which is not reported yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# Not with `-m`: the package already imports this module, so it would be loaded twice.
_MAIN = "import sys; from servicekit_testing.prefork import main; main(int(sys.argv[1]), *sys.argv[2:])"


class Prefork:
    """A process that has imported a module and forks programs that run it. It ends with the process that created it.

    Args:
        module: The module as for `python -m`; "" for the shared modules, which cannot be run.
        common: The process from which it is forked; None: it imports all modules itself.
        more: Modules that the module imports only when it runs.
    """

    def __init__(self, module: str, common: "Prefork | None" = None, more: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            if common is None:
                self._server = subprocess.Popen(  # noqa: S603 - this interpreter
                    [sys.executable, "-c", _MAIN, str(theirs.fileno()), module, *more],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            else:
                common._send("serve", [module, *more], os.environ, theirs.fileno())  # noqa: SLF001 - another instance of this class
        self._connection = ours
        self._started: Queue[Forked] = Queue()
        self._one = Lock()
        Thread(target=self._listen, name=f"prefork {module}", daemon=True).start()

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], output: int, errors: int | None = None
    ) -> Forked:
        """Start a program in this process's folder.

        Args:
            arguments: The arguments of the program.
            environment: The whole environment of the program.
            output: The descriptor of the file for its standard output.
            errors: The descriptor of the file for its standard error; None: the same file.
        """
        with self._one:
            self._send("run", arguments, environment, output, output if errors is None else errors)
            return self._started.get(timeout=120)

    def _send(
        self, what: str, arguments: Sequence[str], environment: Mapping[str, str], *descriptors: int
    ) -> None:
        request = json.dumps([what, list(arguments), dict(environment), str(Path.cwd())]).encode()
        assert len(request) < _MESSAGE_BYTES, "a program has a smaller environment"
        socket.send_fds(self._connection, [request], descriptors)

    def _listen(self) -> None:
        running: dict[int, Forked] = {}
        while message := self._connection.recv(1024):
            what, pid, code = json.loads(message)
            if what == "started":
                running[pid] = Forked(pid)
                self._started.put(running[pid])
            else:
                running.pop(pid).end(code)


@cache
def prefork_of(module: str, *more: str) -> Prefork:
    """Return the prefork process of this test process for a module; `more`: modules that it imports only when it runs."""
    return Prefork(module, prefork_of("") if module else None, more)


@dataclass(frozen=True)
class _Run:
    """The request to run a forked program."""

    module: str
    arguments: list[str]
    environment: dict[str, str]


def _serve(connection: socket.socket, module: str, *more: str) -> _Run | None:
    """Fork on each request. Returns in each forked program, with its request; None: there are no more requests."""
    for name in (module, *more) if module else _COMMON:
        import_module(name)
    # The module is removed, so that it runs again under its name, with its imports already loaded.
    sys.modules.pop(module, None)
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, (
        f"{module} starts {threads - 1} threads when it is imported, which a fork would not copy"
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
        request, files, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 2)
        if not request:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return None
        what, arguments, environment, folder = json.loads(request)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for own in (waking, wake, connection.detach()):
                os.close(own)
            os.chdir(folder)
            if what == "serve":
                return _branch(files[0], arguments, environment)
            _become(*files)
            return _Run(module, arguments, environment)
        for file in files:
            os.close(file)
        if what == "run":
            running.add(pid)
            connection.send(json.dumps(["started", pid, 0]).encode())


def _collect(connection: socket.socket, running: set[int]) -> None:
    with suppress(ChildProcessError):  # there are no more
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if pid in running:
                running.remove(pid)
                connection.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())


def _branch(descriptor: int, modules: Sequence[str], environment: dict[str, str]) -> _Run | None:
    """Serve the programs of a module, in a process that was forked for them. It ends when its connection closes."""
    os.environ.clear()
    os.environ.update(environment)
    more = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in more if path and path not in sys.path]
    return _serve(socket.socket(fileno=descriptor), *modules)


def _become(output: int, errors: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in ((1, output), (2, errors)):
        os.dup2(file, number)
        os.close(file)


def _run(given: _Run) -> None:
    os.environ.clear()
    os.environ.update(given.environment)
    time.tzset()
    sys.argv = [given.module, *given.arguments]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    runpy.run_module(given.module, run_name="__main__", alter_sys=True)


def main(descriptor: int, *modules: str) -> None:
    """Serve requests from a socket until it is closed; in each forked process, run the first module."""
    given = _serve(socket.socket(fileno=descriptor), *modules)
    if given is not None:
        _run(given)
