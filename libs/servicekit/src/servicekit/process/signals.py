"""Signals and resource limits of a process."""

import faulthandler
import resource
import signal
import time
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Final, Self

from streamtable.errors import ConfigurationError
from streamtable_supervisor.signals import stop_signals_to

OTHER_FILES: Final = 500  # the number of files that a service may have open besides its connections
_STDERR: Final = 2
_LOOK_SECONDS: Final = 0.2


class StopSignals:
    """A context for the main thread: the first SIGTERM, SIGINT or SIGHUP asks to stop, the second ends the process at once.

    Args:
        seconds: The time from the first signal, or from `end_in_time`, to the end of the block. After it the stacks of all
            threads are written to standard error, and the process ends with exit code 1. None: without limit.
    """

    def __init__(self, seconds: float | None = None) -> None:
        # Not an Event: a handler that runs while the main thread holds the Event's lock would deadlock.
        self._reasons: SimpleQueue[str] = SimpleQueue()
        self._seconds = seconds
        self._handled = ExitStack()

    def __enter__(self) -> Self:
        self._handled.enter_context(stop_signals_to(self._on_signal))
        return self

    def __exit__(self, *_: object) -> None:
        self._handled.close()

    def wait(self, timeout: float | None = None) -> str | None:
        """Wait for a signal or for `ask`.

        Args:
            timeout: The timeout in seconds; None waits without limit.

        Returns:
            The reason; None at the timeout.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_SECONDS if end is None else min(end - time.monotonic(), _LOOK_SECONDS)
            try:
                # Never without a timeout: Python runs handlers between two instructions of the main thread, so a signal
                # just before the thread blocks does not wake it.
                return self._reasons.get(timeout=max(left, 0.0))
            except Empty:
                if end is not None and time.monotonic() >= end:
                    return None

    def ask(self, reason: str) -> None:
        """Request a stop as if by a signal. Any thread."""
        self._reasons.put(reason)

    def end_in_time(self) -> None:
        """Begin to count the seconds to the end of the block, if there is a limit."""
        if self._seconds is not None:
            # A thread of C: it also ends a process in which no Python code runs any more.
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=_STDERR)
            self._handled.callback(faulthandler.cancel_dump_traceback_later)

    def _on_signal(self, number: int) -> None:
        self.end_in_time()
        self.ask(signal.Signals(number).name)


def allow_connections(connections: int, settings: str) -> None:
    """Raise the limit of open files for this many connections: the usual limit is 1024.

    A server that reaches that limit accepts no connections for a second at a time.

    Args:
        connections: The number of connections of all servers of the process.
        settings: The names of the settings that define the number, for the error.

    Raises:
        ConfigurationError: The hard limit of the system is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigurationError(
            f"{settings}: {connections} connections and {OTHER_FILES} other files need a hard limit of {needed} open files, "
            f"and it is {hard}: raise it (ulimit -Hn, LimitNOFILE of systemd, --ulimit nofile of Docker), or set fewer "
            "connections; nothing was started"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
