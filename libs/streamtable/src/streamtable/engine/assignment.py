"""Which partitions are ours, and what each is doing: recovering or at work.

A partition's task needs the partition of *every* input, so that they move together. The callbacks here run inside of
the consumer's poll; they start and stop work but never wait for the broker, except for the one commit on revocation.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.engine.restore import Restore, Restorer, Stage
from streamtable.engine.task import Task
from streamtable.errors import Fatal
from streamtable.graph import Group
from streamtable.types import TopicPartition

log = structlog.get_logger()


class Assignment:
    """The partitions of this member; a `RebalanceListener`.

    Args:
        group: the graph.
        restorer: recovers partitions.
        commit: commits all tasks before some are given away; must not raise for what a rewind can mend.
        cache_bytes: for decoded rows, shared by all tasks.
        clock: handed to the tasks.
        rebalanced: told of each callback by its name.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        restorer: Restorer,
        commit: Callable[[], None],
        cache_bytes: int,
        clock: Clock,
        rebalanced: Callable[[str], None],
    ) -> None:
        self.tasks: dict[int, Task] = {}
        self.restores: dict[int, Restore] = {}
        self._group = group
        self._restorer = restorer
        self._commit = commit
        self._cache_bytes = cache_bytes
        self._clock = clock
        self._rebalanced = rebalanced
        self._owned: defaultdict[int, set[str]] = defaultdict(set)

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

    def start_ready(self) -> list[Task]:
        """Make tasks of the partitions whose recovery is done. Raises what made a recovery fail."""
        started = []
        for partition, restore in list(self.restores.items()):
            if restore.stage is Stage.FAILED:
                raise restore.failure or Fatal("a recovery failed without a reason")
            if restore.stage is Stage.READY and restore.plan is not None:
                del self.restores[partition]
                task = Task(
                    self._group,
                    restore.topics,
                    partition,
                    store=restore.store,
                    changelog_position=restore.changelog_position,
                    next_offsets=restore.plan.next_offsets,
                    uncommitted=restore.plan.uncommitted,
                    cache_bytes=self._cache_bytes,
                    clock=self._clock,
                )
                self.tasks[partition] = task
                started.append(task)
        for task in self.tasks.values():
            if task.table is not None:
                task.table.cache_bytes = self._cache_bytes // len(self.tasks)
        return started

    def recover_again(self, tasks: Iterable[Task]) -> None:
        """Let these tasks recover from what Kafka says; what they have in memory is forgotten."""
        for task in list(tasks):
            del self.tasks[task.partition]
            self.restores[task.partition] = self._restorer.begin(task.partition, task.store)

    def close(self) -> None:
        """Close all stores, without a commit."""
        self._release([TopicPartition(topic, p) for p, topics in self._owned.items() for topic in topics])

    def places(self, partition: int) -> list[TopicPartition]:
        """The inputs of a partition."""
        return [TopicPartition(topic, partition) for topic in self._group.input_topics]

    @property
    def recovering(self) -> Mapping[int, int]:
        """Changelog offsets still to read, by partition."""
        # A list first, made in one go: other threads ask too, while the main thread adds and takes away.
        return {partition: restore.remaining for partition, restore in list(self.restores.items())}

    def _release(self, places: Iterable[TopicPartition], *, current: bool = True) -> None:
        """Close what is there of them. `current`: until now nobody else could have changed their tables."""
        for place in places:
            self._owned[place.partition].discard(place.topic)
            if task := self.tasks.pop(place.partition, None):
                if task.store is not None:
                    if current and not task.dirty and task.failure is None:
                        task.save()
                    task.store.close()
            elif restore := self.restores.pop(place.partition, None):
                self._restorer.cancel(restore)


def _numbers(places: Iterable[TopicPartition]) -> list[int]:
    return sorted({place.partition for place in places})
