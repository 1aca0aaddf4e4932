"""Waits for tests, with deadlines that extend on a busy machine: a shared one can be many times slower for a while."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")
SLOWEST: Final = 10.0
"""The largest factor that a busy machine may extend a deadline by."""
LONGER: Final = 5.0
"""The largest factor that a long wait extends its pauses by."""
PAUSE_SECONDS_MAX: Final = 0.1
"""The longest pause that a wait comes to by itself."""
_PROC: Final = Path("/proc")
_STEAL: Final = 8  # the index of the field `steal` in a cpu line of /proc/stat


def stalled_seconds(proc: Path = _PROC) -> float:
    """Return for how many seconds since boot work was stalled.

    The sum of CPU pressure, I/O pressure and steal time (CPU time that the host gave to other virtual machines); it may
    grow faster than the clock. 0.0 where the kernel does not count it.
    """
    try:
        firsts = [(proc / "pressure" / name).read_text().partition("\n")[0] for name in ("cpu", "io")]
        processors = [line.split() for line in (proc / "stat").read_text().splitlines() if line[:3] == "cpu"]
    except OSError:  # not Linux, or a kernel without pressure stall information
        return 0.0
    waited = sum(int(first.rpartition("total=")[2]) for first in firsts) / 1e6
    return waited + int(processors[0][_STEAL]) / os.sysconf("SC_CLK_TCK") / (len(processors) - 1)


def slowdown() -> float:
    """Return how many times slower a program runs now than on an idle machine, by the load average; at least 1."""
    try:
        load = os.getloadavg()[0]
    except OSError:  # not available on this platform
        return 1.0
    return min(max(load / (os.cpu_count() or 1), 1.0), SLOWEST)


class Deadline:
    """The end of a wait. Time while the machine is overloaded counts for a tenth.

    Args:
        seconds: The seconds that the wait may take on an idle machine.
        clock: The time in seconds, from any origin.
        stalled: For how many seconds work was stalled, from any origin; see `stalled_seconds`.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        stalled: Callable[[], float] = stalled_seconds,
    ) -> None:
        self.seconds = seconds
        self._clock, self._stalled = clock, stalled
        self._began, self._stalled_before = clock(), stalled()

    def elapsed(self) -> float:
        """The seconds of the clock since it began."""
        return self._clock() - self._began

    def passed(self) -> bool:
        """Whether the deadline has passed."""
        elapsed = self.elapsed()
        if elapsed <= self.seconds:
            return False
        stalled = min(self._stalled() - self._stalled_before, elapsed)
        return elapsed - stalled * (1 - 1 / SLOWEST) > self.seconds


def wait_until(
    condition: Callable[[], T], seconds: float = 30.0, what: str = "the condition", every: float = 0.02
) -> T:
    """Return the result of the condition soon after it is true.

    Args:
        condition: Called repeatedly.
        seconds: The time limit on an idle machine; see `Deadline`.
        what: The description of the condition for the error message.
        every: The seconds between the first calls; see `pause_after`.

    Raises:
        AssertionError: It did not become true in time.
    """
    deadline = Deadline(seconds)
    while not (found := condition()):
        if deadline.passed():
            raise AssertionError(f"{what} did not become true within {seconds:g} s")
        time.sleep(pause_after(deadline.elapsed(), every))
    return found


def pause_after(elapsed: float, every: float) -> float:
    """Return the seconds until a condition is asked again that was not true after `elapsed` seconds.

    To ask a server takes CPU time here and there, which the awaited work then lacks. So a pause is a twentieth of the wait so far, at
    least `every`, and at most five times as long, or `PAUSE_SECONDS_MAX`: a wait is that much longer at most.
    """
    return max(every, min(elapsed / 20, LONGER * every, PAUSE_SECONDS_MAX))
