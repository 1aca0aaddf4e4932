"""A member of a consumer group: polls, handles, commits, and recovers when one of these fails.

One thread runs everything that touches user code, the consumer and the producer. The loop is a `step`, so that a test
can drive it, and the restorer beside it, in any order.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import structlog

from streamtable.base.clock import Clock
from streamtable.base.deadletter import OutputRecord
from streamtable.base.failpoint import Failpoint
from streamtable.base.message import with_prefixes
from streamtable.base.ports import ClusterClient, Log, Stores, TopicInfo, TransactionalProducer
from streamtable.base.range_assignor import range_after_losses
from streamtable.base.types import Guarantee, Headers, RecordBatch, TopicPartition
from streamtable.engine.assignment import Assignment, FollowedTable
from streamtable.engine.basetask import BaseTask, CommitServices
from streamtable.engine.commit.budget import STEP_SECONDS, TRANSACTION_STEPS, CommitBudget
from streamtable.engine.commit.checkpoint import Checkpoint, OutputRefused
from streamtable.engine.inputs import Inputs
from streamtable.engine.named.tables import expansions
from streamtable.engine.recovery.declared import standby_tables
from streamtable.engine.recovery.restore import Restorer
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.waiting.event_loop import event_loop_of
from streamtable.engine.waiting.holding import Holding
from streamtable.engine.waiting.pending_work import finish_work
from streamtable.engine.waiting.wakeup import poll_timeout
from streamtable.engine.watch.metrics import EngineMetrics
from streamtable.engine.watch.watchdog import Heartbeat
from streamtable.errors import (
    HandlerFailed,
    InputLost,
    Migrated,
    OutcomeUnknown,
    RetryLater,
    RewindNeeded,
    StoreCorrupted,
    StreamtableError,
    TransactionTimeoutRefused,
)
from streamtable.graph.custom_task import CustomTasks
from streamtable.graph.group import Group, prefix_headers
from streamtable.graph.topic_settings import purged_topics
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.retention import remove_old_state
from streamtable.tables.standby import Standby

log = structlog.get_logger()

_SAVE_SECONDS = 60.0  # how often idle stores are marked current, and old state is removed
_OPEN_SECONDS = 40.0  # some ten requests one after another, where each takes seconds
_SPARE_SECONDS = 15.0  # three heartbeats at the broker's default
_BACKOFF_SECONDS_MAX = 5.0
_POLLED_SECONDS = 5.0


@dataclass(eq=False)
class Member:
    """Joins the group when built; works as long as `step` is called.

    Args:
        group: The graph.
        log_: Kafka.
        cluster: The cluster, asked about topics.
        topics: The group's, as the broker describes them.
        stores: The stores of its tables.
        settings: The settings of the processor.
        clock: Wall and monotonic time.
        meters: Records what happens.
        failpoint: Called between any two steps of a commit and in recovery.
        lookups: Whole tables, by name.
        tasks: Makes the tasks; over local tables unless given.

    Raises:
        RetryLater: The broker does not answer.
        Fenced: Another process uses this instance id.
    """

    group: Group[Any, Any]
    _log: Log
    _cluster: ClusterClient
    _topics: Mapping[str, TopicInfo]
    _stores: Stores
    settings: ProcessorSettings
    _clock: Clock
    _meters: EngineMetrics
    _reached: Failpoint
    _lookups: Mapping[str, FollowedTable] = field(default_factory=dict)
    _tasks: CustomTasks | None = None

    def __post_init__(self) -> None:
        group, topics, settings, clock = self.group, self._topics, self.settings, self._clock
        # A batch larger than its topic accepts is rejected as a whole, however small its records.
        self._batch_bytes = min(topic.max_message_bytes for topic in topics.values())
        self._partitions = topics[group.input_topics[0]].partitions
        self._budget = CommitBudget(group.name, settings)
        self._rewound = False  # tasks are back at their committed offsets, the consumer is not yet
        self._renew_needed = False  # the producer's last transaction has an unknown outcome
        self._abandoned = False
        self._joined_at: float | None = None
        # For the background thread: asked by it, the client could wait for a callback of `poll`.
        self._member_id = ""
        self._unknown_id = ""  # the coordinator did not know this member when it was asked last
        self._joins_again = False
        self.undone = 0  # the number of rewinds of all tasks
        self._failures = 0  # commits that failed in a row
        # One event loop for the member's lifetime: clients that handlers share keep their connections in it.
        self._loop = event_loop_of(self)
        self._committed_at = self._saved_at = clock.monotonic()
        self.heartbeat = Heartbeat(self._committed_at, settings.in_hand)
        self._given = STEP_SECONDS  # the seconds of a step that the producer's transaction timeout allows for
        self._producer = self._first_producer()
        self._consumer = self._log.group_consumer(group.name, settings.instance_id)
        self._holding = Holding(self._consumer, clock)
        reader = ChangelogReader(lambda: self._log.table_reader(f"{group.name}-{settings.instance_id}"))
        copied = [topics[name] for name in standby_tables(group)] if settings.standby else []
        choose = None if settings.standby is True else self._near_partitions
        standby = Standby(
            group.tables,
            copied,
            self._cluster,
            reader,
            self._stores,
            clock,
            self._meters.standby,
            expansions(group),
            prefix_headers(group),
            choose,
        )
        self.restorer = Restorer(
            group,
            self._cluster,
            reader,
            standby,
            self._stores,
            clock,
            exactly_once=settings.guarantee is Guarantee.EXACTLY_ONCE,
            failpoint=self._reached,
            tasks=self._tasks,
        )
        self._checkpoint = self._new_checkpoint()
        self.assignment = Assignment(
            group,
            self.restorer,
            self._commit_before_revocation,
            settings,
            clock,
            self._rebalanced,
            self._lookups,
        )
        ids = {name: topics[name].topic_id for name in group.input_topics}
        self.inputs = Inputs(group.name, ids, self._consumer, self._cluster, clock, self.assignment.tasks)
        self._consumer.subscribe(group.input_topics, self.assignment)

    @property
    def ready(self) -> bool:
        return not self.not_ready

    @property
    def not_ready(self) -> str:
        """Return the reason why it is not ready; empty if it has joined and all assigned partitions have started tasks."""
        if restores := self.assignment.restores:
            return f"{len(restores)} of its partitions load their tables"
        if self._renew_needed:
            return "the outcome of its last commit is not known yet"
        # The first assignment follows some heartbeats after joining; without one by then, it is a spare member.
        if self._joined_at is None or not (
            self.assignment.tasks or self._clock.monotonic() - self._joined_at > _SPARE_SECONDS
        ):
            return "it is joining its group"
        return ""

    def step(self) -> None:
        """Poll, handle the records, and commit if it is time."""
        try:
            self._step()
        except InputLost as error:
            if not self._overtaken(error):
                raise
            log.warning("partition overtaken by another member", group=self.group.name, reason=str(error))
            self._go_back()
            self._back_off()

    def _step(self) -> None:
        since = self.heartbeat.polled_at  # the records of this poll may have arrived since the last one
        if self._joins_again:
            # Its id of now: a member without partitions gets no callback when it joins with another one.
            joined, unknown = self._consumer.membership().member_id, self._unknown_id
            self._joins_again, self._unknown_id, self._member_id = False, "", ""
            if joined == unknown:
                self._consumer.join_again()
        timeout = poll_timeout(self.assignment.tasks.values(), self.settings, self._committed_at, self._clock)
        batches = self._consumer.poll(self.settings.poll_records, timeout)
        self.heartbeat.polled(self._clock.monotonic(), self.assignment.tasks, self.assignment.restores)
        if not self._member_id and (joined := self._consumer.membership().member_id):
            self._member_id, self._joined_at = joined, self._joined_at or self._clock.monotonic()
        if not self._settled():
            return  # the polled records are beyond the offsets of the rewind
        started = self._start_tasks()
        if not self._settled():
            return
        self._holding.resume(self.assignment.tasks)
        # Records that were polled before a task's start offset was known may be beyond it: they are read again.
        gone_back = {task.partition for task in started}
        self._handle(batches, since, gone_back)
        self._run_due(gone_back)
        self.inputs.note_passed(again=self._rewound or self._renew_needed)
        self._commit_what_is_due()
        self._commit_one_alone()
        self._settled()
        self._housekeeping()

    def commit(self) -> None:
        """Commit everything that was handled. On failure all work since the last commit is undone and read again."""
        self._commit([task for task in self.assignment.tasks.values() if task.dirty])

    def _commit(self, tasks: Sequence[BaseTask]) -> None:
        began = self._clock.monotonic()
        held = sum(task.changed.bytes for task in tasks)
        if tasks and not self._renew_needed and not self._abandoned:
            self.heartbeat.commit_due((task.partition for task in tasks), began)
            self.inputs.refuse_recreated()
            self.inputs.note_ends(tasks)
            try:
                ready = self._finish_work(tasks)
                works = self._checkpoint.commit(tasks) if ready else None
            except (RewindNeeded, Migrated, RetryLater) as error:
                self._budget.failed(held, self._clock.monotonic() - began)
                self._undo(error)
            except OutputRefused as error:
                self._find_refused(tasks, error)
            except OutcomeUnknown as error:
                self._budget.failed(held, self._clock.monotonic() - began)
                self._renew_later(error)
            except StoreCorrupted as error:  # a task has read its store to prepare the commit
                self._undo(error)
                self._rebuild([task for task in tasks if task.failure is not None])
            else:
                if works is not None:
                    self._failures = 0
                    self.heartbeat.committed(work.task.partition for work in works)
                    self._budget.committed(self._clock.monotonic() - began)
                    self._meters.committed(works, self._clock.monotonic() - began)
                    self._rebuild([task for task in tasks if task.failure is not None])
                    self._rewound |= any(task.must_recover for task in tasks)
                    if self._needs_longer_transactions():
                        self._replace_producer()
        # From the end of one commit to the next, as in Kafka Streams: a commit may take half the interval under load.
        self._committed_at = self._clock.monotonic()

    def finish(self) -> None:
        """Commit everything that was handled, with positions behind the transaction markers after it. Call `close` next."""
        self.commit()
        if not (self._rewound or self._renew_needed or self._abandoned):
            self.inputs.pass_markers(self.settings.poll_records, self.settings.poll_timeout)
            self.commit()

    def abandon(self) -> None:
        """Commit nothing from now on: an error has left this member's work in an unknown state."""
        self._abandoned = True

    def close(self) -> None:
        """Leave the group, which revokes the partitions: they are committed and their stores closed."""
        with ExitStack() as last:  # each is closed even if another fails, in reverse order
            last.callback(self._producer.close)
            last.callback(self.restorer.close)
            last.callback(self.assignment.close)
            last.callback(self._loop.close)
            self._consumer.close()

    # ---- one turn --------------------------------------------------------------------------------------------------

    def _handle(self, batches: list[RecordBatch], since: float, gone_back: set[int]) -> None:
        tasks = self.assignment.tasks
        for polled in self._budget.parts(batches, lambda: sum(task.changed.bytes for task in tasks.values())):
            task = tasks.get(polled.partition)
            if task is None or polled.partition in gone_back:
                # Revoked, not recovered yet, or rewound: it is read again from the position of its table.
                continue
            records = with_prefixes(polled, self.restorer.prefix_headers.get(polled.topic, ""))
            records = self._holding.hold_back(task, records)
            while records:
                left = self._process(task, records, since, gone_back)
                self._commit_what_is_due()
                if self._rewound or self._renew_needed:
                    return
                # To pause and read again costs a request: first the task fires due timers, then it takes other records.
                if len(left) == len(records):
                    left = self._holding.hold_back_for_timers(task, left)
                records = left

    def _process(
        self, task: BaseTask, records: RecordBatch, since: float, gone_back: set[int]
    ) -> RecordBatch:
        """Let a task handle records. Returns those that must come after a commit; none if the task rewinds."""
        self.heartbeat.handles(records)
        try:
            taken = task.process(records, since)
        except (RewindNeeded, RetryLater, StoreCorrupted, HandlerFailed) as error:
            self._failed(task, error, gone_back)
            return records.part(0, 0)
        self._meters.handled(records if taken == len(records) else records.part(0, taken))
        return records.part(taken, len(records))

    def _run_due(self, gone_back: set[int]) -> None:
        """Let tasks do a slice of the work that falls due without a record."""
        for task in list(self.assignment.tasks.values()):
            if self._rewound or self._renew_needed:
                return
            if task.partition in gone_back:
                continue
            try:
                worked = task.due is not None and task.due.run()
            except (RewindNeeded, RetryLater, StoreCorrupted, HandlerFailed) as error:
                self._failed(task, error, gone_back)
                continue
            if worked:
                self._commit_what_is_due()

    def _failed(self, task: BaseTask, error: StreamtableError, gone_back: set[int]) -> None:
        """Let a task whose handlers have failed rewind or recover; one that must stop commits all records before."""
        if isinstance(error, HandlerFailed):
            self.commit()
            raise error
        gone_back.add(task.partition)
        if isinstance(error, StoreCorrupted):
            task.failure = error
            self._rebuild([task])
            return
        self.heartbeat.commit_due([task.partition], self._clock.monotonic())
        self._seek(task)
        if isinstance(error, RetryLater):
            log.warning("processing paused, will retry", reason=str(error))
            self._back_off()

    def _finish_work(self, tasks: Sequence[BaseTask]) -> bool:
        """Let tasks do their remaining work. Returns False if all tasks were rewound and records are read again."""
        services = CommitServices(self._send_ahead, self._cluster.watermarks, self._budget.records_bound)
        error = finish_work(tasks, services, self._loop)
        if error is None:
            return True
        self._checkpoint.abort()  # some records may have been sent ahead
        if not isinstance(error, RewindNeeded):
            raise error
        self._rebuild([task for task in tasks if task.failure is not None])
        self._go_back()
        return False

    def _send_ahead(self, records: Sequence[OutputRecord], context: Headers) -> None:
        self._checkpoint.send_ahead(records, context)
        self._meters.sent_ahead(records)

    def _start_tasks(self) -> list[BaseTask]:
        started = self.assignment.start_ready()
        while any(task.preparing for task in started):
            # A crash in a new partition's first transaction would leave its traces in the changelog but no offset,
            # which looks like expired offsets: so the offsets are committed before the first record. What a task has
            # to write after that, before its first record, goes in slices.
            self.commit()
            self._reached("new-partition-committed")
            if self._rewound or self._renew_needed or self._abandoned or any(t.failure for t in started):
                break
        at_work = [task for task in started if self.assignment.tasks.get(task.partition) is task]
        if self._rewound or self._renew_needed:
            self.assignment.recover_again(at_work)
            return started
        for task in at_work:
            self._seek(task)
        self._consumer.resume(place for task in at_work for place in self.assignment.places(task.partition))
        for task in at_work:
            log.info(
                "task started",
                group=self.group.name,
                partition=task.partition,
                changelog=task.changelog_position,
                inputs=dict(task.next_offsets),
            )
        return started

    def _commit_what_is_due(self) -> None:
        while self._is_time() and (tasks := self._due()) and not self._abandoned:
            self._commit(tasks)
            if self._rewound or self._renew_needed:
                return

    def _due(self, *, alone: bool = False) -> list[BaseTask]:
        """Return the tasks whose time has come, together or alone."""
        now, tasks = self._clock.monotonic(), self.assignment.tasks.values()
        due = ((task, task.commit_due) for task in tasks if task.dirty)
        return [task for task, when in due if when.alone == alone and when.at <= now]

    def _is_time(self) -> bool:
        """Whether tasks whose time has come are committed now."""
        if self._clock.monotonic() - self._committed_at >= self.settings.commit_interval:
            return True
        changed = [task.changed for task in self.assignment.tasks.values()]
        return (
            sum(each.bytes for each in changed) >= self._budget.bytes
            # Changed rows cannot be evicted from the cache, and a commit takes as much memory again.
            or sum(each.memory for each in changed) >= self.settings.cache_bytes // 4
            or any(task.must_commit for task in self.assignment.tasks.values())
        )

    def _commit_one_alone(self) -> None:
        due = self._due(alone=True)
        if due and not self._abandoned and not (self._rewound or self._renew_needed):
            self._commit([min(due, key=lambda task: task.commit_due.at)])

    def _housekeeping(self) -> None:
        now = self._clock.monotonic()
        if now - self._saved_at >= _SAVE_SECONDS:
            self._saved_at = now
            idle = [task for task in self.assignment.tasks.values() if not task.dirty]
            for task in idle:
                task.save()
            self._rebuild([task for task in idle if task.failure is not None])
            remove_old_state(self._stores, self._keeps, self.settings.state_retention, self._clock.now())

    def _keeps(self, table: str, partition: int) -> bool:
        ours = partition in self.assignment.tasks or partition in self.assignment.restores
        return ours or self.restorer.standby.keeps(table, partition)

    # ---- when something fails --------------------------------------------------------------------------------------

    def _overtaken(self, error: InputLost) -> bool:
        """Return whether another member has committed, and purged, what this one was to read.

        A process that was frozen for long finds that before it learns that the partition is not its own any more.
        """
        if error.topic not in purged_topics(self.group) or error.partition is None:
            return False
        place, task = TopicPartition(error.topic, error.partition), self.assignment.tasks.get(error.partition)
        if task is None:
            return error.partition not in self.assignment.restores
        try:
            committed = self._cluster.stable_offsets(self.group.name, [place])[place]
        except RetryLater:
            return True  # the same error comes again
        return committed is not None and committed.next_offset > task.committed_offsets[place.topic]

    def _settled(self) -> bool:
        """Finish the recovery from a failed commit. Returns False if there was something to do."""
        if self._renew_needed:
            self._renew()
            return False
        if self._rewound:
            behind = [task for task in self.assignment.tasks.values() if task.must_recover]
            for task in behind:
                self._consumer.pause(self.assignment.places(task.partition))
            self.assignment.recover_again(behind)
            for task in self.assignment.tasks.values():
                self._seek(task)
            self._rewound = False
            return False
        return True

    def _undo(self, error: StreamtableError) -> None:
        """Abort the commit, which did not happen, and rewind every task."""
        self._meters.aborted(error)
        log.warning("commit aborted", group=self.group.name, reason=str(error))
        try:
            self._checkpoint.abort()
        except OutcomeUnknown as unknown:
            self._renew_later(unknown)
            return
        self._renew_needed = self._needs_longer_transactions()
        self._go_back()
        self._back_off()

    def _find_refused(self, tasks: Sequence[BaseTask], error: OutputRefused) -> None:
        """Let the tasks find the records that made the outputs that Kafka refuses. Raises the refusal if none can."""
        found = [task.refused(error.outputs.get(task.partition, ()), error.reason) for task in tasks]
        if not any(found):
            raise error.reason
        self._undo(error)

    def _go_back(self) -> None:
        for task in self.assignment.tasks.values():
            task.rewind()
        self._rewound = True
        self.undone += 1

    def _renew_later(self, error: Exception) -> None:
        log.warning(
            "outcome of a commit unknown: all tables recover again", group=self.group.name, reason=str(error)
        )
        self._renew_needed = True

    def _renew(self) -> None:
        """Replace the producer, which fences the old transaction; then every task recovers from Kafka."""
        for partition in self.assignment.tasks:
            self._consumer.pause(self.assignment.places(partition))
        self._replace_producer()
        if not self._renew_needed:
            self._rewound = False
            self.assignment.recover_again(self.assignment.tasks.values())

    def _replace_producer(self) -> None:
        """Open a new producer, with the transaction timeout that commits need now. Sets `_renew_needed` if that fails.

        No transaction is open, or the one that is gets fenced.
        """
        self._renew_needed = True
        asked = self._budget.step_seconds
        try:
            old, self._producer = self._producer, self._new_producer()
            old.close()
            self._producer.open(max(_OPEN_SECONDS, asked))
        except RetryLater as error:
            log.warning("cannot open a new producer, will retry", reason=str(error))
            self._back_off()
        except TransactionTimeoutRefused as error:
            if asked <= STEP_SECONDS:
                raise
            log.warning("transaction timeout refused, a shorter one is used", reason=str(error))
            self._budget.step_seconds_max = asked / 2
        else:
            self._given, self._renew_needed = asked, False
            self._checkpoint = self._new_checkpoint()

    def _needs_longer_transactions(self) -> bool:
        """Let the next commit take as long as it needs. Returns whether that takes a new producer.

        The transaction timeout is fixed when a producer is created, and one that is longer than necessary does no harm
        while the process lives.
        """
        asked = self._budget.step_seconds
        self._checkpoint.step_seconds = min(asked, self._given)
        return asked > self._given

    def _rebuild(self, tasks: list[BaseTask]) -> None:
        """Discard the damaged stores of these tasks and load them again."""
        for task in tasks:
            log.error(
                "local table is damaged, loading it from the changelog",
                partition=task.partition,
                reason=str(task.failure),
            )
            self._consumer.pause(self.assignment.places(task.partition))
        self.assignment.recover_again(tasks)

    def _commit_before_revocation(self) -> None:
        self.commit()
        self._reached("revoked-committed")

    def _rebalanced(self, kind: str) -> None:
        self._meters.rebalanced(kind)
        self._member_id = ""  # a client that replaces another has a new one

    def check_membership(self) -> None:
        """Let the main thread join the group again if its coordinator did not know this member twice in a row.

        After a lost connection at the wrong moment, the client has stopped its heartbeats for ever without noticing
        (librdkafka 2.16): it polls nothing, and keeps the partitions that are at work elsewhere. Called by the background thread.

        Raises:
            RetryLater: Kafka does not answer.
        """
        if self._clock.monotonic() - self.heartbeat.polled_at > _POLLED_SECONDS:
            self._unknown_id = ""  # it may have left for that reason, and joins again by itself
            return
        this = self._member_id
        unknown = bool(this) and this not in self._cluster.group_members(self.group.name)
        if unknown and this == self._unknown_id:
            log.warning("member is unknown to its group, joining again", group=self.group.name, member=this)
            self._joins_again = True
        self._unknown_id = this if unknown else ""

    def _near_partitions(self) -> frozenset[int]:
        """Return the partitions that are this member's, or would be if as many others left as the settings say."""
        members, this = self._cluster.group_members(self.group.name), self._member_id
        if this not in members:
            raise RetryLater("it has not joined its group")
        return range_after_losses(members.index(this), len(members), self._partitions, self.settings.standby)

    def _seek(self, task: BaseTask) -> None:
        for topic, offset in task.rewind().items():
            place = TopicPartition(topic, task.partition)
            self._consumer.seek(place, offset)
            self._holding.gone_back(place)

    def _back_off(self) -> None:
        self._failures = min(self._failures + 1, 10)
        self._clock.sleep(min(0.05 * 2**self._failures, _BACKOFF_SECONDS_MAX))

    def _new_checkpoint(self) -> Checkpoint:
        s, seconds = self.settings, self._budget.step_seconds
        return Checkpoint(self._consumer, self._producer, s.guarantee, self._reached, s.tracer, seconds)

    def _first_producer(self) -> TransactionalProducer:
        producer = self._new_producer()
        try:
            producer.open(_OPEN_SECONDS)
        except RetryLater:
            producer.close()
            raise
        return producer

    def _new_producer(self) -> TransactionalProducer:
        exactly_once = self.settings.guarantee is Guarantee.EXACTLY_ONCE
        transactional_id = f"{self.group.name}-{self.settings.instance_id}" if exactly_once else None
        return self._log.transactional_producer(
            transactional_id, self._batch_bytes, self._budget.step_seconds * TRANSACTION_STEPS
        )
