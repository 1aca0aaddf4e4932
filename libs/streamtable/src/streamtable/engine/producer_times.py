"""The watermarks of the producers of a stream, as a task that reads the stream knows them."""

from collections.abc import Sequence
from itertools import pairwise

from streamtable.event_time import NO_TIME
from streamtable.watermarks import Mark


class ProducerTimes:
    """The watermarks of the tasks that write an input, in one partition of it.

    Until each of them has written a watermark, the minimum is `NO_TIME`. The number of producers can only grow: a partition
    that no longer exists means another topic, for which the group must be reset.

    Args:
        watermarks_ms: The committed watermarks, by number of the producer; empty before the first mark.
    """

    def __init__(self, watermarks_ms: Sequence[int] = ()) -> None:
        self.watermarks_ms = list(watermarks_ms)

    @property
    def known(self) -> bool:
        """Whether there has been a mark."""
        return bool(self.watermarks_ms)

    @property
    def least_ms(self) -> int:
        """The least watermark."""
        return min(self.watermarks_ms, default=NO_TIME)

    def marked(self, mark: Mark) -> None:
        """Note the watermark of a producer."""
        found = self.watermarks_ms
        if len(found) < mark.producers:
            found.extend([NO_TIME] * (mark.producers - len(found)))
        found[mark.producer] = max(found[mark.producer], mark.watermark_ms)

    def before_each(self, records: int, marks: Sequence[tuple[int, Mark]]) -> list[int]:
        """Return the least watermark before each of the next records, without recording anything.

        Args:
            records: The number of records.
            marks: The marks between them, each with the number of records before it.
        """
        later = ProducerTimes(self.watermarks_ms)
        least: list[int] = []
        for (before, mark), (after, _) in pairwise([*marks, (records, None)]):
            least += [later.least_ms] * (before - len(least))
            assert mark is not None, "only the last pair ends with none"
            later.marked(mark)
            least += [later.least_ms] * (after - len(least))
        return least + [later.least_ms] * (records - len(least))
