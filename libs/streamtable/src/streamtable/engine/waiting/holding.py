"""Holds back records that wait for a joined table or for timers: their partition is paused and read again in time."""

from collections.abc import Mapping

from streamtable.base.clock import Clock
from streamtable.base.ports import GroupConsumer
from streamtable.base.types import RecordBatch, TopicPartition
from streamtable.engine.basetask import BaseTask


class Holding:
    """The partitions that a member has paused because their next record has to wait.

    Args:
        consumer: The member's.
        clock: Wall time.
    """

    def __init__(self, consumer: GroupConsumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        # Paused until the joined tables have come to this time; up to this offset, nothing waits again then.
        self._held: dict[TopicPartition, tuple[int, int]] = {}
        self._waited_to: dict[TopicPartition, int] = {}
        self._for_timers: set[TopicPartition] = set()

    def hold_back(self, task: BaseTask, records: RecordBatch) -> RecordBatch:
        """Return the records that need not wait; the others are read again later."""
        if records.place in self._held or records.place in self._for_timers:
            return records.part(0, 0)  # polled before it was paused
        waited_to = self._waited_to.get(records.place, -1)
        index = task.join_wait.first_held(records, waited_to) if task.join_wait else None
        if index is None:
            return records
        # A time that is still to come counts as now, for all that are here now: the wait has an end.
        until_ms, now_ms = records.timestamp(index), int(self._clock.now() * 1000)
        self._held[records.place] = min(until_ms, now_ms), records.last_offset if until_ms > now_ms else -1
        self._consumer.pause([records.place])
        self._consumer.seek(records.place, records.offsets[index])
        return records.part(0, index)

    def hold_back_for_timers(self, task: BaseTask, records: RecordBatch) -> RecordBatch:
        """Hold back records after timers if more timers are due than one call handles. Returns the others."""
        if not records or task.due is None or not task.due.holds(records.topic):
            return records
        self._for_timers.add(records.place)
        self._consumer.pause([records.place])
        self._consumer.seek(records.place, records.first_offset)
        return records.part(0, 0)

    def resume(self, tasks: Mapping[int, BaseTask]) -> None:
        """Resume partitions that have waited long enough, and forget those that are no longer assigned."""
        ended: list[TopicPartition] = []
        for place in list(self._for_timers):
            task = tasks.get(place.partition)
            if task is None or task.due is None or not task.due.holds(place.topic):
                self._for_timers.discard(place)
                ended += [] if task is None else [place]
        for place, (until_ms, waited_to) in list(self._held.items()):
            task = tasks.get(place.partition)
            if task is None:
                del self._held[place]  # when it is at work again, it is read from where its tables stand
            elif task.join_wait is None or task.join_wait.joined_until_ms() >= until_ms:
                del self._held[place]
                self._waited_to[place] = waited_to
                ended.append(place)
        # Records of a partition that still waits for the other reason would be dropped, as polled before it was paused.
        if ready := [place for place in ended if place not in self._held and place not in self._for_timers]:
            self._consumer.resume(ready)

    def gone_back(self, place: TopicPartition) -> None:
        """Forget a partition that is read from its committed offset again: its records wait again when they come."""
        self._waited_to.pop(place, None)
        held = self._held.pop(place, None) is not None
        if held or place in self._for_timers:
            self._for_timers.discard(place)
            self._consumer.resume([place])
