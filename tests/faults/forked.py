"""A forked worker with the interface of `localkafka.process.Child`."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from localkafka.waiting import wait_until
from servicekit_testing.prefork import prefork_of


class ForkedChild:
    """A running program. It is killed when this process ends, even by SIGKILL.

    Args:
        module: The module, as for `python -m`.
        arguments: Its arguments.
        log_file: The file to which its output is appended.
        env: Its environment; None: inherited.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], log_file: Path, env: Mapping[str, str] | None = None
    ) -> None:
        with log_file.open("ab") as log:
            self._forked = prefork_of(module).start(arguments, env or os.environ, log.fileno())
        self.pid = self._forked.pid

    @property
    def returncode(self) -> int | None:
        """The exit code: None while it runs, the negative signal number if a signal ended it."""
        return self._forked.poll()

    def signal_stop(self) -> None:
        """Send SIGTERM, also to a frozen process, and return at once."""
        self._forked.terminate()
        self.resume()

    def stop(self, timeout: float = 30) -> int:
        """Stop it with SIGTERM; kill it after `timeout` seconds. Returns its exit code."""
        self.signal_stop()
        try:
            return self._forked.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Kill the process with SIGKILL, and return its exit code."""
        self._forked.kill()
        return self._forked.wait()

    def pause(self) -> None:
        """Freeze it (SIGSTOP). Returns when it is stopped."""
        self._forked.send_signal(signal.SIGSTOP)
        wait_until(self._stands_still, what=f"process {self.pid} frozen", every=0.002)

    def resume(self) -> None:
        """Resume it (SIGCONT)."""
        self._forked.send_signal(signal.SIGCONT)

    def _stands_still(self) -> bool:
        """Return whether all of its threads are stopped, or it has ended."""
        try:
            stats = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        except OSError:  # a thread has ended since
            return self.returncode is not None
        return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)
