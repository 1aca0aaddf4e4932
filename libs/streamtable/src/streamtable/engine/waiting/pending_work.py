"""The work that tasks must finish before a commit: deferred calls of handlers, and the completion of batches."""

import asyncio
from collections.abc import Awaitable, Sequence

from streamtable.engine.basetask import BaseTask, CommitServices
from streamtable.engine.calls.deferral import results, together
from streamtable.errors import Migrated, RetryLater, RewindNeeded, StoreCorrupted, StreamtableError


class PendingWork:
    """Finishes the work of tasks. The awaitables of several tasks run concurrently.

    Args:
        loop: The event loop that awaits deferred calls.
        defer_timeout: The seconds that a deferred call may take.
    """

    def __init__(self, loop: asyncio.Runner, defer_timeout: float) -> None:
        self._loop = loop
        self._defer_timeout = defer_timeout

    def finish_deferred(self, tasks: Sequence[BaseTask]) -> bool | None:
        """Await all deferred calls and call their functions with the results, in the order of the records.

        Returns:
            True if all calls succeeded; None if nothing was deferred; False if a handler or a store has failed: all tasks
            must rewind, and those with a `failure` must be rebuilt.
        """
        waiting = [(task, each) for task in tasks if task.deferrals for each in task.deferrals.take()]
        if not waiting:
            return None
        found = self._loop.run(results([deferral for _, deferral in waiting], self._defer_timeout))
        done = [(task, deferral, result) for (task, deferral), result in zip(waiting, found, strict=True)]
        # All that fails is found at once, not one by one after as many replays: failures come first.
        done.sort(key=lambda each: not isinstance(each[2], BaseException))
        good = True
        for task, deferral, result in done:
            try:
                task.finish(deferral, result)
            except RewindNeeded:
                good = False
            except StoreCorrupted as error:
                task.failure, good = error, False
                break
        return good

    def finish_work(self, tasks: Sequence[BaseTask], reach: CommitServices) -> BaseException | None:
        """Let tasks finish their work. Returns the most severe error; None if there was none."""
        works: list[Awaitable[None]] = []
        errors: list[BaseException] = []
        for task in tasks:
            try:
                work = task.last_work(reach)
            except StreamtableError as failed:
                errors.append(failed)
            else:
                works += [work] if work is not None else []
        if works:
            errors += [failed for failed in self._loop.run(together(works)) if failed is not None]
        return min(errors, key=_mildness, default=None)


def _mildness(error: BaseException) -> int:
    """Order errors: those that need a person come before those that a rewind repairs."""
    return int(isinstance(error, RewindNeeded | Migrated | RetryLater)) + isinstance(error, RewindNeeded)
