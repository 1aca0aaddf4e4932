"""The event loop of a member, closed no later than the member."""

import asyncio
import weakref
from contextlib import suppress


def event_loop_of(owner: object) -> asyncio.Runner:
    """Return an event loop that does not outlive its owner."""
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    weakref.finalize(owner, _close_loop, runner)
    return runner


def _close_loop(runner: asyncio.Runner) -> None:
    """Close the loop of a member that was not closed and is collected as garbage, perhaps while another loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        runner.close()
    else:
        with suppress(RuntimeError):  # it was closed
            runner.get_loop().close()  # nothing of it can run here any more
