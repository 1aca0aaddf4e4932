"""The watermark that a task passes on to the readers of its outputs; see `streamtable.watermarks`."""

from collections.abc import Mapping, Sequence
from typing import Any

from streamtable.deadletter import OutputRecord
from streamtable.event_time import NO_TIME
from streamtable.graph import Group
from streamtable.ports import TopicInfo
from streamtable.watermarks import Mark

_MARKS_MAX = 256
"""More marks than these are not written with each commit, but at most once a second."""
_SECONDS = 1.0


class PassedOn:
    """Makes the marks of one task.

    Args:
        group: The graph.
        topics: All topics of the group as the broker describes them.
        partition: The number of the task.
    """

    def __init__(self, group: Group[Any, Any], topics: Mapping[str, TopicInfo], partition: int) -> None:
        self._partition = partition
        self._producers = topics[group.event_time_inputs[0]].partitions
        self._places = [
            (name, number)
            for name in dict.fromkeys(edge.stream.name for edge in group.outputs if edge.watermarks)
            for number in range(topics[name].partitions)
        ]
        self._rarely = self._producers * len(self._places) > _MARKS_MAX
        self._passed_on_ms = NO_TIME
        self._passed_on_at: float | None = None
        self._waits = False

    def marks(self, watermark_ms: int, now: float) -> Sequence[OutputRecord]:
        """Return the marks to be written with the next commit, if the watermark has advanced.

        Args:
            watermark_ms: All that is written later is made of events for which no earlier window was open.
            now: Monotonic time.
        """
        self._waits = False
        if watermark_ms <= self._passed_on_ms:
            return ()
        if self._rarely and self._passed_on_at is not None and now < self._passed_on_at + _SECONDS:
            self._waits = True
            return ()
        header = Mark(self._partition, self._producers, watermark_ms).header
        return [OutputRecord(topic, None, None, (header,), 0, number) for topic, number in self._places]

    def must_commit(self, now: float) -> bool:
        """Whether marks that were left out must be written now."""
        return self._waits and now >= (self._passed_on_at or 0.0) + _SECONDS

    def committed(self, marks: Sequence[OutputRecord], now: float) -> None:
        """Note that these marks have been committed."""
        if marks:
            mark = Mark.read(marks[0].headers)
            assert mark is not None, "made above"
            self._passed_on_ms, self._passed_on_at = mark.watermark_ms, now
