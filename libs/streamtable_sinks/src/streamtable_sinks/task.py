"""The tasks of a sink: a `CustomTask` for each partition."""

from collections.abc import Mapping

from streamtable.base.types import Committed, NextOffset, RecordBatch, TopicPartition
from streamtable.errors import ConfigurationError
from streamtable.graph.custom_task import CommitDue, Prepared, TaskServices, Written
from streamtable_sinks.lane import Lane, SinkParts, TargetPauses
from streamtable_sinks.mark import document, position_of
from streamtable_sinks.target import TargetOfOneSink


class SinkTask:
    """The work of one partition, see `CustomTask`: a lane for the source, and one for replayed dead letters."""

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        self._lanes = lanes
        self._next_offsets: Mapping[str, NextOffset] = {}

    def feed(self, records: RecordBatch, arrived: float) -> None:
        self._lanes[records.topic].feed(records, arrived)

    def due(self) -> CommitDue | None:
        dues = [due for lane in self._lanes.values() if (due := lane.due()) is not None]
        return min(dues, default=None)

    def prepare(self, services: TaskServices) -> Prepared | None:
        found = {topic: lane.prepare(services) for topic, lane in self._lanes.items()}
        ends = {topic: offset for topic, offset in found.items() if offset is not None}
        return Prepared({**self._next_offsets, **ends}) if ends else None

    def write(self) -> Written:
        """Record where the target stands. It has been written by `prepare`, and what it has counts without the commit."""
        return Written(document({topic: lane.mark for topic, lane in self._lanes.items()}), ahead=False)

    def applied(self, next_offsets: Mapping[str, NextOffset]) -> bool:
        self._next_offsets = next_offsets
        good = [lane.applied(next_offsets[topic]) for topic, lane in self._lanes.items()]
        return all(good)

    def rewind(self, next_offsets: Mapping[str, NextOffset]) -> None:
        self._next_offsets = next_offsets
        for topic, lane in self._lanes.items():
            lane.rewind(next_offsets[topic])


class SinkTasks:
    """Makes the tasks of a process, see `CustomTasks`; the target is opened with the first.

    Args:
        around: The parts that all tasks share. The target is closed with this.
    """

    def __init__(self, around: SinkParts) -> None:
        self._around = around
        self._waiting = TargetPauses()
        self._opened = False

    def recover(self, partition: int, committed: Mapping[str, Committed | None]) -> SinkTask:
        """See `CustomTasks.recover`. Raises `ConfigurationError` if the target does not fit the source."""
        if not self._opened:
            target, owner = self._around.target, self._claim()
            if owner != self._around.source.sink:
                there = f"{target!r} is written by sink {owner!r} in this process already"
                raise ConfigurationError(f"{there}: give each Sink a target of its own")
            target.open(self._around.source)
            self._opened = True
        lanes: dict[str, Lane] = {}
        for topic, each in committed.items():
            place, retries = TopicPartition(topic, partition), topic != self._around.source.topic
            lanes[topic] = Lane(self._around, place, position_of(each, topic), self._waiting, retries=retries)
        return SinkTask(lanes)

    def close(self) -> None:
        target = self._around.target
        if self._claim() == self._around.source.sink:
            target.close()
            if isinstance(target, TargetOfOneSink):
                target.release()

    def _claim(self) -> str:
        """Return the sink that has the target."""
        target, name = self._around.target, self._around.source.sink
        return target.claim(name) if isinstance(target, TargetOfOneSink) else name
