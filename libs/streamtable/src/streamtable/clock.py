"""The clock as an argument: code that reads the time is given a clock, so that tests can move it by hand."""

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Wall time: seconds since 1970. It can jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment of the past. It never goes back: for durations and deadlines."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
