"""The work that tasks must finish before a commit: the completion of batches."""

import asyncio
from collections.abc import Awaitable, Sequence

from streamtable.engine.basetask import BaseTask, CommitServices
from streamtable.errors import Migrated, RetryLater, RewindNeeded, StreamtableError


def finish_work(
    tasks: Sequence[BaseTask], services: CommitServices, loop: asyncio.Runner
) -> BaseException | None:
    """Let tasks finish their work. The awaitables of several tasks run concurrently.

    Args:
        tasks: The tasks.
        services: The services that they may use.
        loop: The event loop that awaits their work.

    Returns:
        The most severe error; None if there was none.
    """
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
        errors += [failed for failed in loop.run(_together(works)) if failed is not None]
    return min(errors, key=_mildness, default=None)


async def _together(works: Sequence[Awaitable[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*works, return_exceptions=True)


def _mildness(error: BaseException) -> int:
    """Order errors: those that need a person come before those that a rewind repairs."""
    return int(isinstance(error, RewindNeeded | Migrated | RetryLater)) + isinstance(error, RewindNeeded)
