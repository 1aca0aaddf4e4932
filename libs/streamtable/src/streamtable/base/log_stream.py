"""The stream that log lines are written to: its failures never reach the code that logs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(frozen=True)
class LogStream:
    """A text stream that loses what it cannot write: the disk is full, the reader of the pipe is gone, the terminal is closed.

    An error of a log line would end the thread that logs, and with it a view or a processor, for want of room for the
    report that it works.

    Args:
        stream: The stream to write to.
        lost: Called for each write that has failed. Any thread.
    """

    stream: TextIO
    lost: Callable[[], object] = bool

    def write(self, text: str) -> int:
        """Write a text, or lose it. Returns the number of its characters."""
        self._try(lambda: self.stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream if that is possible."""
        self._try(self.stream.flush)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (OSError, ValueError):  # the latter: the stream is closed, or its encoding lacks a character
            self.lost()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
