"""The partitions that are assigned to this member, and whether each is recovering or has a started task.

A partition's task needs the partition of *every* input, so that they move together. The callbacks here run inside of
the consumer's poll; they start and stop work but never wait for the broker, except for the one commit on revocation.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from streamtable.base.clock import Clock
from streamtable.base.topics import Table
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.engine.adapted import AdaptedTask
from streamtable.engine.basetask import BaseTask, Recovered
from streamtable.engine.calls.careful import CarefulMode
from streamtable.engine.recovery.hanging import ReadProgress
from streamtable.engine.recovery.restore import Restore, Restorer, Stage
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.task import Task
from streamtable.errors import Fatal
from streamtable.graph.group import Group
from streamtable.handlers.services import WholeTable
from streamtable.tables.kept import left_names

log = structlog.get_logger()


class FollowedTable(WholeTable, Protocol):
    """A full copy of a table by decoded key, which may have to be loaded first. See `views.lookup.LookupTable`."""

    @property
    def ready(self) -> bool:
        """Whether the table is loaded. Raises the error that has stopped it."""

    def position(self) -> Mapping[int, Any]:
        """Return the position of each partition."""


class TableFollower(Protocol):
    """Keeps the tables that a group looks up current. Implemented by `views.lookup.LookupTables`."""

    def follow(self, tables: Iterable[Table[Any, Any]]) -> Mapping[str, FollowedTable]:
        """Follow these tables, unless they are followed already. Returns them by name."""

    def step(self, timeout: float) -> int:
        """Do a slice of the work. Return the number of records that were applied."""

    def check(self) -> None:
        """Raise the error that has stopped one of the tables for good, if there is one."""

    def close(self) -> None:
        """Stop following and close the stores."""


@dataclass(eq=False)
class Assignment:
    """The partitions of this member; a `RebalanceListener`.

    Args:
        group: The graph.
        restorer: Recovers partitions.
        commit: Commits all tasks before some are revoked; must not raise for errors that a rewind can mend.
        settings: The settings of the processor.
        clock: The clock of the tasks.
        rebalanced: Called with the name of each callback.
        lookups: Whole tables, by name; no partition goes to work before all of them are ready.

    Attributes:
        companions: What works beside the records; None: nothing.
    """

    _group: Group[Any, Any]
    _restorer: Restorer
    _commit: Callable[[], None]
    _settings: ProcessorSettings
    _clock: Clock
    _rebalanced: Callable[[str], None]
    _lookups: Mapping[str, FollowedTable]

    def __post_init__(self) -> None:
        self.tasks: dict[int, BaseTask] = {}
        self.restores: dict[int, Restore] = {}
        self.companions = self._group.companions(self._clock, by_hand=self._settings.by_hand)
        # By partition; outlive the tasks.
        self._modes: defaultdict[int, CarefulMode] = defaultdict(CarefulMode)
        self._owned: defaultdict[int, set[str]] = defaultdict(set)
        self._left: set[str] = set()

    # ---- called by the consumer ------------------------------------------------------------------------------------

    def assigned(self, places: Sequence[TopicPartition]) -> None:
        self._rebalanced("assigned")
        for place in places:
            self._owned[place.partition].add(place.topic)
        for partition in sorted({place.partition for place in places}):
            complete = self._owned[partition] == set(self._group.input_topics)
            if complete and partition not in self.tasks and partition not in self.restores:
                self.restores[partition] = self._restorer.begin(partition)
        log.info("partitions assigned", group=self._group.name, partitions=_numbers(places))

    def revoked(self, places: Sequence[TopicPartition]) -> None:
        self._rebalanced("revoked")
        if any(place.partition in self.tasks for place in places):
            self._commit()
        self._release(places)
        log.info("partitions revoked", group=self._group.name, partitions=_numbers(places))

    def lost(self, places: Sequence[TopicPartition]) -> None:
        self._rebalanced("lost")
        self._release(places, current=False)
        log.warning("partitions lost, their uncommitted work is dropped", partitions=_numbers(places))

    # ---- called by the processor -----------------------------------------------------------------------------------

    def start_ready(self) -> list[BaseTask]:
        """Start the tasks of the partitions whose recovery is done. Raises the error of a recovery or a lookup."""
        started: list[BaseTask] = []
        if not all(lookup.ready for lookup in self._lookups.values()):
            return started
        for partition, restore in list(self.restores.items()):
            if restore.stage is Stage.FAILED:
                raise restore.failure or Fatal("a recovery failed without a reason")
            if restore.stage is Stage.READY:
                del self.restores[partition]
                task = self._task_of(restore.recovered)
                if self.companions is not None and task.due is not None:
                    task.due.accompany(self.companions)
                self._warn_of_left(task)
                self.tasks[partition] = task
                started.append(task)
        for task in self.tasks.values():
            task.cache(self._settings.cache_bytes // len(self.tasks))
        return started

    def _warn_of_left(self, task: BaseTask) -> None:
        if new := set(left_names(task.kept_records.values())) - {*self._group.named_tables, *self._left}:
            self._left |= new
            log.warning(
                "tables are left that the program does not keep any more",
                group=self._group.name,
                topics=[self._group.named_topic(name) for name in sorted(new)],
                reason="their rows stay as they are, and windows, timers and records in them wait for ever. A program that keeps "
                "them again is refused; 'streamtable group drop' and 'group reset --empty-table' remove them",
            )

    def recover_again(self, tasks: Iterable[BaseTask]) -> None:
        """Recover these tables from Kafka again, and drop what they have in memory."""
        for task in list(tasks):
            del self.tasks[task.partition]
            task.leave()
            self.restores[task.partition] = self._restorer.begin(task.partition, task.stores, task.failure)

    def close(self) -> None:
        """Close all stores, without a commit."""
        self._release([TopicPartition(topic, p) for p, topics in self._owned.items() for topic in topics])
        if self.companions is not None:
            self.companions.close()

    def places(self, partition: int) -> list[TopicPartition]:
        """Return the input partitions of a task."""
        return [TopicPartition(topic, partition) for topic in self._group.input_topics]

    @property
    def recovering(self) -> Mapping[int, int]:
        """The number of changelog offsets still to read, by partition."""
        # A list first, made in one go: other threads ask too, while the main thread adds and takes away.
        return {partition: restore.remaining for partition, restore in list(self.restores.items())}

    def readings(self, marks: Mapping[TopicPartition, Watermarks]) -> list[ReadProgress]:
        """Return the read progress of the inputs and of the tables that are being loaded. Called by the background thread.

        Args:
            marks: The watermarks of the inputs. Inputs without watermarks are skipped.
        """
        inputs = (
            (TopicPartition(topic, task.partition), offset)
            for task in list(self.tasks.values())
            for topic, offset in task.next_offsets.items()
        )
        found = [ReadProgress(place, offset, marks[place].high) for place, offset in inputs if place in marks]
        return [*found, *(each for restore in list(self.restores.values()) for each in restore.readings)]

    @property
    def offsets_pending_since(self) -> float | None:
        """The monotonic time since when a recovery waits for a transaction that holds the group's offsets, or None."""
        since = [restore.offsets_pending_since for restore in list(self.restores.values())]
        return min((each for each in since if each is not None), default=None)

    def _task_of(self, recovered: Recovered) -> BaseTask:
        if recovered.custom is not None:
            return AdaptedTask(self._group, recovered, recovered.custom, self._clock)
        mode = self._modes[recovered.partition]
        return Task(self._group, recovered, self._settings, self._clock, self._lookups, mode)

    def _release(self, places: Iterable[TopicPartition], *, current: bool = True) -> None:
        """Close the tasks of these partitions. `current`: no other process can have changed their tables."""
        for place in places:
            self._owned[place.partition].discard(place.topic)
            if task := self.tasks.pop(place.partition, None):
                if current and not task.dirty and task.failure is None:
                    task.save()
                task.close()
                self._restorer.standby.left(place.partition)
            elif restore := self.restores.pop(place.partition, None):
                self._restorer.cancel(restore)


def _numbers(places: Iterable[TopicPartition]) -> list[int]:
    return sorted({place.partition for place in places})
