"""The inputs of a member: their true positions, and whether the topics still have the ids they had at the start.

The consumer's position after a record is the next offset, even if that is a transaction marker. Only the end of the
partition, or the next record, shows that it was one. If a group committed nothing beyond its last record, retention
would some day delete the marker, and with it seem to delete a record that the group has not read.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog

from streamtable.base.clock import Clock
from streamtable.base.ports import ClusterClient, GroupConsumer
from streamtable.base.types import TopicPartition
from streamtable.engine.basetask import BaseTask
from streamtable.engine.time.silence import ObservedEnds
from streamtable.errors import InputLost, RetryLater

log = structlog.get_logger()

_MARKERS_SECONDS_MAX = 0.5
_TOPIC_IDS_SECONDS = 0.2  # the default time between two commits


@dataclass(eq=False)
class Inputs:
    """The input topics of a member: their ids and the positions of its consumer in them.

    Args:
        group: The name of the group, for the log.
        topic_ids: The topic ids of the inputs when the member started, by topic name.
        consumer: The consumer of the member.
        cluster: Used to request the present topic ids.
        clock: The monotonic clock.
        tasks: The running tasks by partition; the caller adds and removes them.
    """

    _group: str
    _topic_ids: Mapping[str, str]
    _consumer: GroupConsumer
    _cluster: ClusterClient
    _clock: Clock
    _tasks: Mapping[int, BaseTask]
    _observed: ObservedEnds | None = None  # written by the background thread
    _noted: ObservedEnds | None = None

    def __post_init__(self) -> None:
        self._asked_at = self._clock.monotonic()

    def observed(self, ends: ObservedEnds) -> None:
        """Note the ends of the inputs from the broker. Background thread; tasks get them with the next `note_passed`."""
        self._observed = ends

    def note_passed(self, skipped: Collection[TopicPartition] = (), *, again: bool = False) -> None:
        """Report inputs that were read to their ends to their tasks, positions behind transaction markers included.

        Then pass them the ends that the broker has reported since the last call, if there are any.

        All records of such an input have been handled: the consumer was rewound to those that were not, and a seek withdraws
        the report.

        Args:
            skipped: The partitions whose records were polled but not handled.
            again: Whether all inputs are read again, so that the reports are void.
        """
        for place, offset in self._consumer.passed().items():
            if not again and place not in skipped and (task := self._tasks.get(place.partition)):
                task.passed(place.topic, offset, self._clock.monotonic())
        observed = self._observed
        if observed is not None and observed is not self._noted and not again:
            self._noted = observed
            for task in self._tasks.values():
                if task.event_clock is not None:
                    task.event_clock.observe(observed, task.next_offsets)

    def pass_markers(self, max_records: int, timeout: float) -> None:
        """Wait briefly for the markers after the last records: they come a little later than these.

        Records that come meanwhile are dropped, and the consumer must not be used for others afterwards.

        Args:
            max_records: As in `GroupConsumer.poll`.
            timeout: As in `GroupConsumer.poll`.
        """
        skipped: set[TopicPartition] = set()
        deadline = self._clock.monotonic() + _MARKERS_SECONDS_MAX
        while self._unread() - skipped and self._clock.monotonic() < deadline:
            skipped.update(batch.place for batch in self._consumer.poll(max_records, timeout))
            self.note_passed(skipped)

    def note_ends(self, tasks: Collection[BaseTask]) -> None:
        """Report the ends of the inputs to their tasks, for the metadata of a commit."""
        for task in tasks:
            task.ends = {
                topic: self._consumer.end(TopicPartition(topic, task.partition))
                for topic in task.next_offsets
            }

    def refuse_recreated(self) -> None:
        """Check that the input topics were not created again: the client silently continues with the new ones.

        Asked before a commit, so that nothing of another topic is committed at the old one's offset. Without an answer
        the commit continues: should it succeed, its metadata name the topics, and the next recovery compares them.

        Raises:
            InputLost: One was deleted and created again.
        """
        now = self._clock.monotonic()
        if now - self._asked_at < _TOPIC_IDS_SECONDS:
            return
        self._asked_at = now
        try:
            found = self._cluster.topic_ids(self._topic_ids)
        except RetryLater as error:
            log.info("topic ids are not known", group=self._group, reason=str(error))
            return
        for topic, topic_id in self._topic_ids.items():
            if found.get(topic, topic_id) != topic_id:
                raise InputLost(
                    "the topic was deleted and created again while the group was running: its offsets say nothing "
                    "about the new one, where nothing was committed yet",
                    topic=topic,
                )

    def _unread(self) -> set[TopicPartition]:
        """Return the inputs that have markers, or records not yet fetched, behind the records that were handled."""
        return {
            place
            for task in self._tasks.values()
            for topic, offset in task.next_offsets.items()
            if self._consumer.end(place := TopicPartition(topic, task.partition)) > offset
        }
