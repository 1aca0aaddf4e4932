"""The work that tasks must finish before a commit: the completion of batches."""

import asyncio
from collections.abc import Awaitable, Sequence

from streamtable.engine.basetask import BaseTask, CommitServices
from streamtable.errors import Migrated, RetryLater, RewindNeeded, StreamtableError


class PendingWork:
    """Finishes the work of tasks. The awaitables of several tasks run concurrently.

    Args:
        loop: The event loop that awaits it.
    """

    def __init__(self, loop: asyncio.Runner) -> None:
        self._loop = loop

    def finish_work(self, tasks: Sequence[BaseTask], services: CommitServices) -> BaseException | None:
        """Let tasks finish their work. Returns the most severe error; None if there was none."""
        works: list[Awaitable[None]] = []
        errors: list[BaseException] = []
        for task in tasks:
            try:
                work = task.last_work(services)
            except StreamtableError as failed:
                errors.append(failed)
            else:
                works += [work] if work is not None else []
        if works:
            errors += [failed for failed in self._loop.run(_together(works)) if failed is not None]
        return min(errors, key=_mildness, default=None)


async def _together(works: Sequence[Awaitable[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*works, return_exceptions=True)


def _mildness(error: BaseException) -> int:
    """Order errors: those that need a person come before those that a rewind repairs."""
    return int(isinstance(error, RewindNeeded | Migrated | RetryLater)) + isinstance(error, RewindNeeded)
