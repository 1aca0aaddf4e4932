"""A target in this process, for tests: it keeps everything that was applied, and outlives the processes of its sink."""

import threading
from dataclasses import replace

from streamtable_sinks.target import (
    Changes,
    SinkChange,
    SinkPartition,
    SinkSource,
    TakenPartition,
    TargetPosition,
)


class MemoryTarget:
    """The changes that were applied.

    Attributes:
        applied: All changes, each with its partition, in the order in which they were applied.
        held: The positions, by sink, topic and partition.
    """

    def __init__(self) -> None:
        self.applied: list[tuple[int, SinkChange]] = []
        self.held: dict[tuple[str, str, int], TargetPosition] = {}
        self._lock = threading.Lock()

    def open(self, source: SinkSource) -> None:
        """Do nothing: it is there."""

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        with self._lock:
            held = self.held.get((place.sink, place.topic, place.partition), TargetPosition())
            self.held[place.sink, place.topic, place.partition] = replace(
                held, epoch=held.epoch + 1, owner=owner
            )
            return TakenPartition(held.epoch + 1, held.position, held.topic_id, held.owner)

    def write(self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Changes) -> None:
        with self._lock:
            held = self.held[place.sink, place.topic, place.partition]
            held.check(epoch, start)
            self.applied += [(place.partition, change) for change in changes]
            topic_id = place.topic_id if start is None else held.topic_id
            self.held[place.sink, place.topic, place.partition] = replace(
                held, position=end, topic_id=topic_id
            )

    def close(self) -> None:
        """Do nothing: the next process finds the changes."""

    def backup(self) -> "MemoryTarget":
        """Return a copy of it as it is now."""
        made = MemoryTarget()
        made.restore(self)
        return made

    def restore(self, backup: "MemoryTarget") -> None:
        """Make it what the backup was."""
        self.applied = list(backup.applied)
        self.held = dict(backup.held)
