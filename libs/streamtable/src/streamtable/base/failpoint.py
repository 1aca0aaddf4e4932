"""Named points where a test can kill or freeze the process: between any two steps of a commit, and in recovery.

In production every call is one comparison with None.
"""

import os
import signal
from collections.abc import Callable

Failpoint = Callable[[str], None]
"""Called with the name of the place that was reached."""

COMMIT_STEPS = (
    "begun",
    "outputs-produced",
    "changelog-produced",
    "flushed",
    "offsets-sent",
    "committed",
    "store-written",
)
BATCH_STEPS = ("ledger-read", "ledger-written", "batch-processed", "rows-written")
"""The failpoints of micro-batches over a central store, besides the commit's failpoints that write no local store."""
RECOVERY_STEPS = ("new-partition-committed", "plan-made", "copy-loading", "copy-loaded")
OTHER_STEPS = ("revoked-committed", "closing", "store-closed")
ALL_STEPS = COMMIT_STEPS + BATCH_STEPS + RECOVERY_STEPS + OTHER_STEPS


def no_failpoint(name: str) -> None:
    """Do nothing."""


def failpoint_at(spec: str) -> Failpoint:
    """Return a failpoint that kills the process with SIGKILL, as a power cut would, or freezes it.

    Args:
        spec: `name` or `name:N`: at the N-th time that the place is reached (1 is the first). With `stop@` before it
            the process freezes itself (SIGSTOP) until it receives SIGCONT: a zombie in the middle of a step.
    """
    action, at, place = spec.rpartition("@")
    name, _, times = place.partition(":")
    if action not in {"", "stop"} or (at and not action):
        raise ValueError(f"a failpoint is name:N or stop@name:N, not {spec!r}")
    if name not in ALL_STEPS:
        raise ValueError(f"no failpoint is named {name!r}; there are {', '.join(ALL_STEPS)}")
    number = getattr(signal, "SIGSTOP" if action else "SIGKILL", None)
    if number is None:
        raise ValueError(f"the failpoint {spec!r} needs a signal that this system lacks")
    left = int(times) if times.isdecimal() else 0 if times else 1
    if left < 1:
        raise ValueError(f"a failpoint is reached for the 1st, 2nd, ... time, not the {times!r}th")

    def hit(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)

    return hit
