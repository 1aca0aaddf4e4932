"""The metrics of a processor: updated with each batch and commit, gauges every few seconds."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from streamtable.base.deadletter import OutputRecord
from streamtable.base.event_time import NO_TIME
from streamtable.base.ports import ClusterClient
from streamtable.base.types import RecordBatch, TopicPartition, Watermarks
from streamtable.engine.assignment import Assignment
from streamtable.engine.basetask import BaseTask, Work
from streamtable.engine.watch.late_records import LateRecords
from streamtable.errors import RetryLater, StoreCorrupted, StreamtableError
from streamtable.graph.group import Group
from streamtable.observe import GroupGauge, Metrics, Progress

_ROWS_COUNTED_MAX: Final = 2000
"""The maximum number of rows to count at a time in each state table and partition: this takes a few milliseconds."""

_REASONS_MAX: Final = 20  # each is a series of its own, and their texts come from the client and the broker


class EngineMetrics:
    """The instruments of one member.

    Args:
        group: The group whose name is on every label.
        metrics: The metrics to update.
        progress: Shows the progress of recovery on a terminal.

    Attributes:
        late: The counts of the records of windows and joins.
    """

    def __init__(self, group: Group[Any, Any], metrics: Metrics, progress: Progress) -> None:
        self._group = group
        self._metrics = metrics
        self._progress = progress
        self._gauged: set[tuple[str, int]] = set()
        self._reasons: set[str] = set()
        self._watermarks = GroupGauge(metrics.watermark_timestamp, group.name)
        self._behind = GroupGauge(metrics.due_behind, group.name)
        self._standby_lag = GroupGauge(metrics.standby_lag, group.name)
        self.late = LateRecords(group, metrics)
        # Of all tables of a partition together: they are loaded at the same time.
        joined = [join.table.name for join in group.joins]
        self._tables = group.table.name if group.persist else ",".join(joined)
        self._loading: dict[int, int] = {}  # the most that was still to read, by partition

    # ---- main thread -----------------------------------------------------------------------------------------------

    def handled(self, records: RecordBatch) -> None:
        place = records.topic, str(records.partition)
        self._metrics.records_in.labels(self._group.name, *place).inc(len(records))
        self._metrics.batch_records.labels(self._group.name).observe(len(records))

    def committed(self, works: Iterable[Work], seconds: float) -> None:
        """Record a commit of this work and how long it took."""
        name, out = self._group.name, Counter[str]()
        for work in works:
            partition = str(work.task.partition)
            out.update([record.topic for record in work.outputs])
            if work.changes:
                out[self._group.table.name] += len(work.changes)
            for table, changes in work.named.items():
                out[self._group.named_topic(table)] += len(changes)
            self.late.committed(work)
            for topic, count in work.repeats.items():
                self._metrics.repeats.labels(name, topic, partition).inc(count)
            for topic, count in work.tombstones.items():
                self._metrics.tombstones_skipped.labels(name, topic, partition).inc(count)
            for topic, count in Counter(work.dead_letters).items():
                self._metrics.dead_letters.labels(name, topic, partition).inc(count)
        for topic, count in out.items():
            self._metrics.records_out.labels(name, topic).inc(count)
        self._metrics.commit_seconds.labels(name).observe(seconds)

    def sent_ahead(self, records: Iterable[OutputRecord]) -> None:
        """Count records that were sent in a transaction before its commit, which may still fail."""
        for topic, count in Counter(record.topic for record in records).items():
            self._metrics.records_out.labels(self._group.name, topic).inc(count)

    def aborted(self, error: StreamtableError) -> None:
        """Count an aborted commit by its reason, one of twenty."""
        if len(self._reasons) < _REASONS_MAX:
            self._reasons.add(error.message)
        reason = error.message if error.message in self._reasons else "another reason"
        self._metrics.aborts.labels(self._group.name, reason).inc()

    def without_progress(self, seconds: float) -> None:
        """Record for how long the processor has made no progress. Called by a thread of its own."""
        self._metrics.stall_seconds.labels(self._group.name).set(seconds)

    def rebalanced(self, event: str) -> None:
        """Count a rebalance; `event` is assigned, revoked or lost."""
        self._metrics.rebalances.labels(self._group.name, event).inc()

    # ---- background thread -----------------------------------------------------------------------------------------

    def sample(self, assignment: Assignment, cluster: ClusterClient) -> Mapping[TopicPartition, Watermarks]:
        """Set the gauges of the assigned partitions, and drop the gauges of partitions that left.

        Returns:
            What the inputs hold, which was asked for that.

        Raises:
            RetryLater: Kafka does not answer.
        """
        tasks = list(assignment.tasks.values())
        applied = {
            TopicPartition(topic, task.partition): offset
            for task in tasks
            for topic, offset in task.next_offsets.items()
        }
        gauged: set[tuple[str, int]] = set()
        # Without partitions of its own it asks for any: whether Kafka answers matters to a spare member too.
        marks = cluster.watermarks(applied or [TopicPartition(self._group.input_topics[0], 0)])
        for place, offset in applied.items():
            lag = max(0, marks[place].high - offset)
            self._metrics.lag.labels(self._group.name, place.topic, str(place.partition)).set(lag)
            gauged.add(place)
        for task in tasks:
            for name, store in task.stores.items():
                try:
                    size = store.size_bytes()
                except StoreCorrupted:
                    continue  # the next task that uses the store finds the damage too, and can repair it
                self._metrics.store_bytes.labels(self._group.name, name, str(task.partition)).set(size)
                gauged.add((name, task.partition))
            gauged.update(self._count_due_rows(task))
        for topic, partition in self._gauged - gauged:
            self._metrics.forget(self._group.name, topic, partition)
        self._gauged = gauged
        self._times(tasks)
        if assignment.companions is not None:
            assignment.companions.measure(self._metrics)
        return marks

    def _count_due_rows(self, task: BaseTask) -> Iterator[tuple[str, int]]:
        try:
            counts = {} if task.due is None else task.due.count_rows(_ROWS_COUNTED_MAX)
        except (StoreCorrupted, RetryLater):
            return  # as above, or it was closed meanwhile
        for topic, rows in counts.items():
            self._metrics.due_rows.labels(self._group.name, topic, str(task.partition)).set(rows)
            yield topic, task.partition

    def _times(self, tasks: Sequence[BaseTask]) -> None:
        """Set the event-time gauges of these partitions where they have one, and drop all others."""
        times_ms = {task.partition: task.event_clock.watermark_ms for task in tasks if task.event_clock}
        self._watermarks.show({(each,): at / 1000 for each, at in times_ms.items() if at != NO_TIME})
        self._behind.show({(task.partition,): task.due.behind_ms / 1000 for task in tasks if task.due})

    def loading(self, assignment: Assignment) -> None:
        """Set the progress of recoveries."""
        remaining = {p: left for p, left in assignment.recovering.items() if left or p in self._loading}
        for partition, left in remaining.items():
            most = self._loading[partition] = max(left, self._loading.get(partition, 0))
            self._recovery(partition, left, most)
        for partition in self._loading.keys() - remaining.keys():
            self._recovery(partition, 0, self._loading.pop(partition))
            self._progress.end(self._task_name(partition))

    def standby(self, behind: Mapping[TopicPartition, int]) -> None:
        """Set how many offsets each standby replica still has to read; these are all replicas."""
        self._standby_lag.show(behind)

    def close(self) -> None:
        """Drop all gauges and progress bars."""
        self.standby({})
        self.late.close()
        self._times(())
        for topic, partition in self._gauged:
            self._metrics.forget(self._group.name, topic, partition)
        self._progress.close()

    def _recovery(self, partition: int, left: int, most: int) -> None:
        gauge = self._metrics.recovery_remaining
        gauge.labels(self._group.name, self._tables, str(partition)).set(left)
        self._progress.update(self._task_name(partition), most - left, most)

    def _task_name(self, partition: int) -> str:
        return f"loading {self._tables}[{partition}]"
