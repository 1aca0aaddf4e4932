"""The common part of the serving programs: they print their address and serve until they are stopped."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from bench.job import Job
from bench.programs.marks import tell

from streamtable.observe import configure_logging

READY_SECONDS = 60.0


def serve(start: Callable[[Job, ExitStack], Mapping[str, str]]) -> None:
    """Start servers, report their addresses, and wait for SIGTERM.

    Args:
        start: Starts the servers of the job and returns their addresses.
    """
    configure_logging("json", "warning", sys.stderr)
    # Not an Event: a handler that runs while the main thread holds the Event's lock would deadlock.
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    with ExitStack() as opened:
        tell(start(Job.from_environment(os.environ), opened))
        while not received:
            time.sleep(0.2)
