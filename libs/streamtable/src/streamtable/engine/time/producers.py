"""The watermarks of the producers of a stream, as a task that reads the stream knows them."""

from collections.abc import Iterable, Sequence

from streamtable.base.event_time import NO_TIME
from streamtable.base.watermarks import Mark


class ProducerTimes:
    """The watermarks of the tasks that write an input, in one partition of it.

    Until each of them has written a watermark, the minimum is `NO_TIME`. The number of producers can only grow: a partition
    that no longer exists means another topic, and the group must be reset.

    Args:
        watermarks_ms: The committed watermarks, by number of the producer; empty before the first mark.
        idle: The numbers of the producers that are idle.
    """

    def __init__(self, watermarks_ms: Sequence[int] = (), idle: Iterable[int] = ()) -> None:
        self.watermarks_ms = list(watermarks_ms)
        self.idle_ones = set(idle)

    @property
    def known(self) -> bool:
        """Whether there has been a mark."""
        return bool(self.watermarks_ms)

    @property
    def idle(self) -> bool:
        """Whether all producers are idle."""
        return self.known and len(self.idle_ones) == len(self.watermarks_ms)

    @property
    def least_ms(self) -> int:
        """The least watermark of the producers that are not idle; if all are, the greatest."""
        found, idle = self.watermarks_ms, self.idle_ones
        if not idle:
            return min(found, default=NO_TIME)
        return max(found) if self.idle else min(at for number, at in enumerate(found) if number not in idle)

    def marked(self, mark: Mark) -> None:
        """Note the watermark of a producer."""
        found = self.watermarks_ms
        if len(found) < mark.producers:
            found.extend([NO_TIME] * (mark.producers - len(found)))
        found[mark.producer] = max(found[mark.producer], mark.watermark_ms)
        (self.idle_ones.add if mark.idle else self.idle_ones.discard)(mark.producer)

    def before_each(self, records: int, marks: Sequence[tuple[int, Mark]]) -> list[int]:
        """Return the least watermark before each of the next records, without recording anything.

        Args:
            records: The number of records.
            marks: The marks between them, each with the number of records before it.
        """
        later, least = ProducerTimes(self.watermarks_ms, self.idle_ones), list[int]()
        reached = later.least_ms
        for before, mark in marks:
            least += [reached] * (before - len(least))
            later.marked(mark)
            reached = max(reached, later.least_ms)
        return least + [reached] * (records - len(least))
