"""Programs that tests and the demo start, freeze and kill."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from localkafka.errors import SetupError

# Kills the program when its parent has ended, however that happened: the pipe then reads end of file.
# PR_SET_PDEATHSIG needs no second process, but fires when the *thread* that started the program ends.
_GUARD = """
import os, select, signal, sys
program = os.pidfd_open(int(sys.argv[1]))
ended, _, _ = select.select([0, program], [], [])
if program not in ended:
    signal.pidfd_send_signal(program, signal.SIGKILL)
"""

_FREEZES: Final = hasattr(signal, "SIGSTOP")


class Child:
    """A running program in its own session, so that Ctrl-C in the terminal does not reach it.

    Args:
        command: The program and its arguments.
        log_file: The file that its output is appended to.
        env: Its environment; None: inherited.
        detached: True for a program that outlives this process. Otherwise it is killed when this process ends, even by
            SIGKILL (on Linux).
    """

    def __init__(
        self,
        command: Sequence[str],
        log_file: Path,
        *,
        env: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> None:
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the caller's program
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._guard = None if detached or sys.platform != "linux" else _guard(self.pid)

    @property
    def returncode(self) -> int | None:
        """The exit code: None while it runs, the negative signal number if a signal ended it."""
        return self._process.poll()

    def signal_stop(self) -> None:
        """Send SIGTERM, also to a frozen process, and return at once."""
        self._process.send_signal(signal.SIGTERM)
        if _FREEZES:
            self._process.send_signal(signal.SIGCONT)

    def stop(self, timeout: float = 30) -> int:
        """Stop it with SIGTERM; kill it after `timeout` seconds. Returns its exit code."""
        self.signal_stop()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._reap()

    def kill(self) -> int:
        """Kill the process with SIGKILL, and return its exit code."""
        self._process.kill()
        return self._reap()

    def pause(self) -> None:
        """Freeze it (SIGSTOP). Returns when it is stopped. Raises `SetupError` on Windows, which has no such signal."""
        if not _FREEZES:
            raise SetupError(
                "a process cannot be frozen on Windows, which has no SIGSTOP: use Linux or macOS, or WSL"
            )
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continue the process (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def _reap(self) -> int:
        returncode = self._process.wait()
        if self._guard:
            # The guard has seen the program end, and ends itself.
            self._guard.communicate()
            self._guard = None
        return returncode


def reserve_port(port: int = 0) -> socket.socket:
    """Bind a port on 127.0.0.1 without listening, which reserves it for a program that sets SO_REUSEADDR.

    While the socket is open, Linux assigns the port neither to programs that bind port 0 nor to outgoing connections: a
    client that keeps reconnecting to a stopped broker cannot take the broker's port by connecting to itself.

    Args:
        port: The port to bind; 0 for any free one.

    Raises:
        OSError: The port is in use.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        # Set only after port 0 is bound: if set before, the port could be one that another process has reserved in this
        # way.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        held.close()
        raise
    return held


def _guard(pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-I", "-S", "-c", _GUARD, str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
