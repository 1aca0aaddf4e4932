"""The clock as an argument, so that tests control the time."""

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return the wall-clock time in seconds since 1970. It can jump."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment. It never decreases: for durations and deadlines."""

    def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
