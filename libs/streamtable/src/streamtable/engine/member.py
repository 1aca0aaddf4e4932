"""A member of a group at work: poll, handle, commit; and what to do when one of them fails.

One thread runs everything that touches user code, the consumer and the producer. The loop is a `step`, so that a test
can drive it, and the restorer beside it, in any order.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.engine.assignment import Assignment
from streamtable.engine.checkpoint import Checkpoint
from streamtable.engine.failpoint import Failpoint
from streamtable.engine.position import Guarantee
from streamtable.engine.restore import Restorer
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.task import Task
from streamtable.engine.vitals import Vitals
from streamtable.errors import Migrated, OutcomeUnknown, RetryLater, RewindNeeded, StoreCorrupted, StoreInUse
from streamtable.graph import Group
from streamtable.ports import Cluster, Log, Outbox, Stores, TopicInfo
from streamtable.types import RecordBatch, TopicPartition

log = structlog.get_logger()

_SAVE_SECONDS = 60.0  # how often an idle task notes in its store that it is current, and old state is removed
_OPEN_SECONDS_MAX = 5.0
_SPARE_SECONDS = 15.0  # three heartbeats at the broker's default
_BACKOFF_SECONDS_MAX = 5.0


class Member:
    """Joins the group when built; works as long as `step` is called.

    Args:
        group: the graph.
        log_: Kafka.
        cluster: for questions about topics.
        topics: the group's, as the broker describes them.
        stores: where tables live.
        settings: how it works.
        clock: wall and monotonic time.
        vitals: told what happens.
        failpoint: called between any two steps of a commit and in recovery.

    Raises:
        RetryLater: the broker does not answer.
        Fenced: another process uses this instance id.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        log_: Log,
        cluster: Cluster,
        topics: Mapping[str, TopicInfo],
        stores: Stores,
        settings: ProcessorSettings,
        clock: Clock,
        vitals: Vitals,
        failpoint: Failpoint,
    ) -> None:
        self.group = group
        self.settings = settings
        self._log = log_
        # A batch larger than its topic accepts is refused as a whole, however small its records.
        self._batch_bytes = min(topic.max_message_bytes for topic in topics.values())
        self._stores = stores
        self._clock = clock
        self._vitals = vitals
        self._reached = failpoint
        self._rewound = False  # tasks have gone back to their committed offsets, the consumer has not yet
        self._renew_needed = False  # the producer's last transaction has an unknown outcome
        self._abandoned = False
        self._joined_at: float | None = None
        self._failures = 0  # commits that failed in a row
        self._committed_at = self._saved_at = clock.monotonic()
        self._outbox = self._new_outbox()
        try:
            self._outbox.open(_OPEN_SECONDS_MAX)
        except RetryLater:
            self._outbox.close()
            raise
        self._consumer = log_.group_consumer(group.name, settings.instance_id)
        self.restorer = Restorer(
            group,
            cluster,
            log_.table_reader(f"{group.name}-{settings.instance_id}"),
            stores,
            clock,
            exactly_once=settings.guarantee is Guarantee.EXACTLY_ONCE,
            failpoint=failpoint,
        )
        self._checkpoint = Checkpoint(self._consumer, self._outbox, settings.guarantee, failpoint)
        self.assignment = Assignment(
            group,
            self.restorer,
            self._commit_before_revocation,
            settings.cache_bytes,
            clock,
            vitals.rebalanced,
        )
        self._consumer.subscribe(group.input_topics, self.assignment)

    @property
    def ready(self) -> bool:
        """Has joined, and all assigned partitions are at work, if it was given any."""
        if self._joined_at is None or self.assignment.restores or self._renew_needed:
            return False
        # A first assignment follows the joining by some heartbeats; later than that, it is a spare member.
        return bool(self.assignment.tasks) or self._clock.monotonic() - self._joined_at > _SPARE_SECONDS

    def step(self) -> None:
        """Poll, handle what came, commit if it is time."""
        batches = self._consumer.poll(self.settings.poll_records, self._poll_timeout())
        if self._joined_at is None and self._consumer.membership().member_id:
            self._joined_at = self._clock.monotonic()
        if not self._settled():
            return  # what was polled lies beyond the offsets that we have gone back to
        started = self._start_tasks()
        if not self._settled():
            return
        # What was polled before a task has said where it goes on may lie beyond that: it is read again.
        self._handle(batches, gone_back={task.partition for task in started})
        if self._commit_due():
            self.commit()
        self._settled()
        self._housekeeping()

    def commit(self) -> None:
        """Commit all that was handled. On failure everything since the last commit is undone and read again."""
        self._committed_at = self._clock.monotonic()
        tasks = [task for task in self.assignment.tasks.values() if task.dirty]
        if not tasks or self._renew_needed or self._abandoned:
            return
        try:
            works = self._checkpoint.commit(tasks)
        except (RewindNeeded, Migrated) as error:
            self._undo(error)
        except OutcomeUnknown as error:
            self._renew_later(error)
        else:
            self._failures = 0
            self._vitals.committed(works, self._clock.monotonic() - self._committed_at)
            self._rebuild([task for task in tasks if task.failure is not None])

    def abandon(self) -> None:
        """Commit nothing any more: an error has left the work of this member in an unknown state."""
        self._abandoned = True

    def close(self) -> None:
        """Leave the group, which revokes the partitions: they are committed and their stores closed."""
        with ExitStack() as last:  # each also if one before it fails; the last named first
            last.callback(self._outbox.close)
            last.callback(self.restorer.close)
            last.callback(self.assignment.close)
            self._consumer.close()

    # ---- one turn --------------------------------------------------------------------------------------------------

    def _handle(self, batches: list[RecordBatch], gone_back: set[int]) -> None:
        for records in batches:
            task = self.assignment.tasks.get(records.partition)
            if task is None or records.partition in gone_back:
                # Taken away, not recovered yet, or rewound: it is read again from where its table stands.
                continue
            try:
                task.process(records)
                self._vitals.handled(records)
            except (RewindNeeded, RetryLater) as error:
                gone_back.add(records.partition)
                self._seek(task)
                if isinstance(error, RetryLater):
                    log.warning("handling waits", reason=str(error))
                    self._back_off()
            except StoreCorrupted as error:
                task.failure = error
                self._rebuild([task])
            if self._commit_due():
                self.commit()
                if self._rewound or self._renew_needed:
                    return

    def _start_tasks(self) -> list[Task]:
        started = self.assignment.start_ready()
        if any(task.uncommitted for task in started):
            # A crash in a new partition's first transaction would leave its traces in the changelog but no offset,
            # which looks like expired offsets: so the offsets are committed before the first record.
            self.commit()
            self._reached("new-partition-committed")
        if self._rewound or self._renew_needed:
            self.assignment.recover_again(started)
            return started
        for task in started:
            self._seek(task)
            self._consumer.resume(self.assignment.places(task.partition))
            log.info("partition at work", group=self.group.name, partition=task.partition,
                     changelog=task.changelog_position, inputs=dict(task.next_offsets))  # fmt: skip
        return started

    def _commit_due(self) -> bool:
        tasks = self.assignment.tasks.values()
        if self._clock.monotonic() - self._committed_at >= self.settings.commit_interval:
            return any(task.dirty for task in tasks)
        return sum(task.pending_bytes for task in tasks) >= self.settings.commit_bytes

    def _poll_timeout(self) -> float:
        if any(task.dirty for task in self.assignment.tasks.values()):
            due_in = self._committed_at + self.settings.commit_interval - self._clock.monotonic()
            return min(max(due_in, 0.0), self.settings.poll_timeout)
        return self.settings.poll_timeout

    def _housekeeping(self) -> None:
        now = self._clock.monotonic()
        if now - self._saved_at >= _SAVE_SECONDS:
            self._saved_at = now
            for task in self.assignment.tasks.values():
                if not task.dirty:
                    task.save()
            self._tidy()

    def _tidy(self) -> None:
        """Remove the state of partitions that have been elsewhere for long: it would only be loaded again anyway."""
        for (table, partition), used_at in self._stores.present().items():
            ours = partition in self.assignment.tasks or partition in self.assignment.restores
            age = self._clock.now() - used_at
            if not ours and age > self.settings.state_retention:
                try:
                    self._stores.destroy(table, partition)
                except StoreInUse:
                    continue  # another process on this machine works on it
                log.info(
                    "state of a partition that left is removed",
                    table=table,
                    partition=partition,
                    age_seconds=round(age),
                )

    # ---- when something fails --------------------------------------------------------------------------------------

    def _settled(self) -> bool:
        """Carry out what a failed commit has left to do. False if there was something."""
        if self._renew_needed:
            self._renew()
            return False
        if self._rewound:
            for task in self.assignment.tasks.values():
                self._seek(task)
            self._rewound = False
            return False
        return True

    def _undo(self, error: Exception) -> None:
        """The commit did not happen: abort it, and let every task go back."""
        self._vitals.aborted()
        log.warning("commit undone", group=self.group.name, reason=str(error))
        try:
            self._checkpoint.abort()
        except OutcomeUnknown as unknown:
            self._renew_later(unknown)
            return
        for task in self.assignment.tasks.values():
            task.rewind()
        self._rewound = True
        self._back_off()

    def _renew_later(self, error: Exception) -> None:
        log.warning(
            "outcome of a commit unknown: all tables recover again", group=self.group.name, reason=str(error)
        )
        self._renew_needed = True

    def _renew(self) -> None:
        """A new producer, fencing the old one's transaction; then every task recovers from what Kafka says."""
        for partition in self.assignment.tasks:
            self._consumer.pause(self.assignment.places(partition))
        self._outbox.close()
        self._outbox = self._new_outbox()
        try:
            self._outbox.open(_OPEN_SECONDS_MAX)
        except RetryLater as error:
            log.warning("no new producer yet", reason=str(error))
            self._back_off()
            return
        self._checkpoint = Checkpoint(self._consumer, self._outbox, self.settings.guarantee, self._reached)
        self._renew_needed = self._rewound = False
        self.assignment.recover_again(self.assignment.tasks.values())

    def _rebuild(self, tasks: list[Task]) -> None:
        """The stores of these tasks are damaged: throw them away and load them again."""
        for task in tasks:
            log.error(
                "local table is damaged, loading it from the log",
                partition=task.partition,
                reason=str(task.failure),
            )
            self._consumer.pause(self.assignment.places(task.partition))
            if task.store is not None:
                task.store.close()
                self._stores.destroy(self.group.table.name, task.partition)
                task.store = None
        self.assignment.recover_again(tasks)

    def _commit_before_revocation(self) -> None:
        self.commit()
        self._reached("revoked-committed")

    def _seek(self, task: Task) -> None:
        for topic, offset in task.rewind().items():
            self._consumer.seek(TopicPartition(topic, task.partition), offset)

    def _back_off(self) -> None:
        self._failures = min(self._failures + 1, 10)
        self._clock.sleep(min(0.05 * 2**self._failures, _BACKOFF_SECONDS_MAX))

    def _new_outbox(self) -> Outbox:
        exactly_once = self.settings.guarantee is Guarantee.EXACTLY_ONCE
        transactional_id = f"{self.group.name}-{self.settings.instance_id}" if exactly_once else None
        return self._log.outbox(transactional_id, self._batch_bytes)
