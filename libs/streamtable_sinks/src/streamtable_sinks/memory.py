"""A target in this process, for tests: it keeps everything that was applied, and outlives the processes of its sink."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamtable.errors import Migrated
from streamtable_sinks.target import SinkChange, SinkPartition, SinkSource, TakenPartition


@dataclass
class Held:
    """The state of a partition, see `TakenPartition`."""

    epoch: int = 0
    position: int | None = None
    topic_id: str = ""
    owner: str = ""


class MemoryTarget:
    """The changes that were applied.

    Attributes:
        applied: All changes, each with its partition, in the order in which they were applied.
        held: The positions, by sink, topic and partition.
    """

    def __init__(self) -> None:
        self.applied: list[tuple[int, SinkChange]] = []
        self.held: dict[tuple[str, str, int], Held] = {}
        self._lock = threading.Lock()

    def open(self, source: SinkSource) -> None:
        """Do nothing: it is there."""

    def take(self, place: SinkPartition, owner: str) -> TakenPartition:
        with self._lock:
            held = self.held.setdefault((place.sink, place.topic, place.partition), Held())
            held.epoch += 1
            before, held.owner = held.owner, owner
            return TakenPartition(held.epoch, held.position, held.topic_id, before)

    def write(
        self, place: SinkPartition, epoch: int, start: int | None, end: int, changes: Sequence[SinkChange]
    ) -> None:
        with self._lock:
            held = self.held[place.sink, place.topic, place.partition]
            if held.epoch != epoch or (start is not None and held.position != start):
                raise Migrated(
                    f"it has position {held.position} under epoch {held.epoch}, not {start} under {epoch}"
                )
            self.applied += [(place.partition, change) for change in changes]
            held.position = end
            if start is None:
                held.topic_id = place.topic_id

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
        self.held = {place: replace(held) for place, held in backup.held.items()}
