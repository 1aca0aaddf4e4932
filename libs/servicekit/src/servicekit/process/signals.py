"""Signals and resource limits of a process."""

import resource
import signal
import time
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Final, Self

from streamtable.errors import ConfigurationError

OTHER_FILES: Final = 500  # the number of files that a service may have open besides its connections
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_SECONDS: Final = 0.2


class StopSignals:
    """A context for the main thread: the first SIGTERM or SIGINT asks to stop, the second ends the process at once."""

    def __init__(self) -> None:
        # Not an Event: a handler that runs while the main thread holds the Event's lock would deadlock.
        self._reasons: SimpleQueue[str] = SimpleQueue()
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # it is what signal() returned

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

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        for stop_signal in STOP_SIGNALS:
            # The default action ends the process even while it waits inside of a C library.
            signal.signal(stop_signal, signal.SIG_DFL)
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
