"""The watermarks that a task passes on to the readers of its outputs; see `streamtable.base.watermarks`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from streamtable.base.deadletter import OutputRecord
from streamtable.base.event_time import NO_TIME
from streamtable.base.ports import TopicInfo
from streamtable.base.watermarks import Mark
from streamtable.graph.group import Group

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
        producers = topics[group.event_time_inputs[0]].partitions
        names = dict.fromkeys(edge.stream.name for edge in group.outputs if edge.watermarks)
        self._stage_of = {name: group.stages.outputs.get(name, 0) for name in names}
        self._partitions = {name: topics[name].partitions for name in names}
        self._rarely = producers * sum(self._partitions.values()) > _MARKS_MAX
        idle_after = group.event_time and group.event_time.idle_after
        self._idle_after_ms = idle_after / timedelta(milliseconds=1) if idle_after else 0
        nothing = Mark(partition, producers, NO_TIME)
        self._told = dict.fromkeys(self._stage_of.values(), nothing)  # the committed mark of each stage
        self._told_at: float | None = None
        self._waits = False

    def marks(
        self, reached: Callable[[int], int], idle: Callable[[int], bool], now: float
    ) -> Sequence[OutputRecord]:
        """Return the marks to be written with the next commit: of the stages that have advanced, or begin or end to be idle.

        Args:
            reached: Returns the watermark that a stage passes on: all that is written later is made of events that had
                no earlier window open.
            idle: Returns whether the inputs up to a stage are idle.
            now: Monotonic time.
        """
        self._waits = False
        new: dict[int, Mark] = {}
        for stage, told in self._told.items():
            mark = told._replace(watermark_ms=max(reached(stage), told.watermark_ms), idle=idle(stage))
            # Readers do not wait for it while it is idle: it need not tell each step.
            least = max(self._idle_after_ms, 1) if mark.idle and told.idle else 1
            if mark.idle != told.idle or mark.watermark_ms >= told.watermark_ms + least:
                new[stage] = mark
        new = {stage: mark for stage, mark in new.items() if mark.idle or mark.watermark_ms != NO_TIME}
        if not new:
            return ()
        if self._rarely and self._told_at is not None and now < self._told_at + _SECONDS:
            self._waits = True
            return ()
        return [
            OutputRecord(name, None, None, (new[stage].header,), 0, number)
            for name, stage in self._stage_of.items()
            if stage in new
            for number in range(self._partitions[name])
        ]

    def must_commit(self, idle: Callable[[int], bool], now: float) -> bool:
        """Whether marks must be written now: some were skipped, or a stage has become idle."""
        if self._waits:
            return now >= (self._told_at or 0.0) + _SECONDS
        return any(not told.idle and idle(stage) for stage, told in self._told.items())

    def committed(self, marks: Sequence[OutputRecord], now: float) -> None:
        """Note that these marks have been committed."""
        for record in marks:
            if record.partition == 0:  # it is the same in each
                mark = Mark.read(record.headers)
                assert mark is not None, "made above"
                self._told[self._stage_of[record.topic]] = mark
                self._told_at = now
