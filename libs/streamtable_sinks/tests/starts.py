"""Members of a sink that start at the same moment, each with a partition of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from streamtable import Long, String
from streamtable.errors import RetryLater
from streamtable_sinks import SinkChange, SinkPartition, SinkSource, SinkTarget

MEMBERS = 4
_TRIES = 100
R = TypeVar("R")


def start_at_once(make: Callable[[], SinkTarget]) -> None:
    """Start members that write their own number into their partition.

    A member that is told to retry does so, as the engine does; every other error is raised.
    """
    barrier = Barrier(MEMBERS)

    def work(partition: int) -> None:
        place = SinkPartition("out", "events", "id", partition)
        source = SinkSource("out", "events", False, String(), Long())
        barrier.wait(60)
        target = make()
        retried(lambda: target.open(source))
        epoch = retried(lambda: target.take(place, f"member {partition}").epoch)
        retried(lambda: target.write(place, epoch, None, 1, [SinkChange("a", partition, 0, 0)]))
        target.close()

    with ThreadPoolExecutor(MEMBERS) as pool:
        for each in [pool.submit(work, partition) for partition in range(MEMBERS)]:
            each.result()


def retried(call: Callable[[], R]) -> R:
    """Call until the target answers."""
    for _ in range(_TRIES):
        try:
            return call()
        except RetryLater:
            continue
    raise AssertionError(f"the target has not answered {_TRIES} times")
