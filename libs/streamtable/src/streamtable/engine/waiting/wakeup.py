"""The poll timeout of a member: a poll ends in time for the next commit, and for the next due row."""

from collections.abc import Collection

from streamtable.base.clock import Clock
from streamtable.engine.basetask import BaseTask
from streamtable.engine.settings import ProcessorSettings


def poll_timeout(
    tasks: Collection[BaseTask], settings: ProcessorSettings, committed_at: float, clock: Clock
) -> float:
    """Return the seconds that a poll may take.

    Args:
        tasks: The running tasks.
        settings: The settings of the processor.
        committed_at: Monotonic time of the last commit.
        clock: The wall clock and the monotonic one.
    """
    timeout = settings.poll_timeout
    wakes = (task.due.wakes_at for task in tasks if task.due is not None)
    wakes_at = min((each for each in wakes if each is not None), default=None)
    if wakes_at is not None:
        timeout = min(timeout, max(wakes_at - clock.now(), 0.0))
    due_at = min((task.commit_due.at for task in tasks if task.dirty), default=None)
    if due_at is not None:
        due_at = max(due_at, committed_at + settings.commit_interval)
        timeout = min(timeout, max(due_at - clock.monotonic(), 0.0))
    return timeout
