"""Brings the tables of newly assigned partitions up to date in the background, while other partitions continue.

A partition has its part of the group's own table, if it keeps one, and of each table that the group joins.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import structlog

from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint
from streamtable.base.ports import ClusterClient, Store, Stores, TopicInfo
from streamtable.base.types import Committed, TopicPartition, Watermarks
from streamtable.engine.basetask import Recovered
from streamtable.engine.named.handled import unread
from streamtable.engine.named.tables import expansions
from streamtable.engine.recovery.declared import kept_tables
from streamtable.engine.recovery.hanging import ReadProgress
from streamtable.errors import (
    InputLost,
    RetryLater,
    StoreCorrupted,
    StoreInUse,
    StreamtableError,
    TransactionPending,
)
from streamtable.graph.custom_task import CustomTask, CustomTasks
from streamtable.graph.group import HANDLED, Group, prefix_headers
from streamtable.graph.topic_check import check_topics
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.kept import InputRecord, KeptRecord, TopicState, unsettled
from streamtable.tables.position import LocalPosition, TablePosition
from streamtable.tables.recovery import (
    Changelog,
    InputState,
    Load,
    RecoveryPlan,
    plan,
    plan_join,
    refuse_recreated,
)
from streamtable.tables.replica import PartitionReplica
from streamtable.tables.standby import Standby

log = structlog.get_logger()

_RETRY_SECONDS = 0.2
_IN_USE_SECONDS_MAX = 30.0  # a former owner on this machine may still be closing
_REPORT_SECONDS = 10.0


class Stage(Enum):
    """The stages of the recovery of a partition."""

    ASKING = "asking"  # for offsets and positions
    LOADING = "loading"  # reading its changelog
    READY = "ready"  # its store is complete and belongs to the task from now on
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(eq=False)
class Restore:
    """The recovery of one partition. The background thread writes its fields until it is READY.

    Attributes:
        replicas: The open replicas, by table.
        loads: The recovery of each table, once it is known.
        asked_at: The wall time when the ends of the topics were asked for.
        reloaded: The end of each joined table whose changes are handled and whose copy is loaded from the beginning.
        unread: The keys of the handled rows that such a copy lacked, and its end, by table; see `_compare`.
        custom: Handles the records of the partition; None: handlers over local tables do.
        offsets_pending_since: Monotonic time since when a transaction holds the committed offsets; None if none does.
    """

    partition: int
    replicas: dict[str, PartitionReplica] = field(default_factory=dict)
    loads: dict[str, Load] = field(default_factory=dict)
    stage: Stage = Stage.ASKING
    plan: RecoveryPlan | None = None
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    asked_at: float = 0.0
    reloaded: dict[str, int] = field(default_factory=dict)
    unread: dict[str, tuple[Iterable[bytes], int]] = field(default_factory=dict)
    custom: CustomTask | None = None
    failure: Exception | None = None
    ask_again_at: float = 0.0
    waits_for: str = ""  # the reason that was logged last
    offsets_pending_since: float | None = None
    in_use_since: float | None = None
    # Held while its stores are opened: cancelling waits for that, not for the broker.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stores(self) -> dict[str, Store]:
        """The open stores, by table."""
        return {table: replica.store for table, replica in self.replicas.items()}

    @property
    def recovered(self) -> Recovered:
        """The partition, for its task. Asked for once it is ready."""
        assert self.plan is not None, "asked for before it is ready"
        positions = {
            table: max(self.replicas[table].position, load.read_to) for table, load in self.loads.items()
        }
        return Recovered(
            self.partition,
            self.topics,
            self.stores,
            positions,
            self.plan,
            self.asked_at,
            self.unread,
            self.custom,
        )

    @property
    def readings(self) -> list[ReadProgress]:
        """Return the read progress of the tables that are being loaded. Any thread."""
        if self.stage is not Stage.LOADING:
            return []
        replicas = [(self.replicas[table], load) for table, load in list(self.loads.items())]
        return [
            ReadProgress(replica.place, replica.position, load.read_to)
            for replica, load in replicas
            if replica.position < load.read_to
        ]

    @property
    def remaining(self) -> int:
        """The number of offsets still to read."""
        return sum(max(0, each.end - each.position) for each in self.readings)


class _Answers(NamedTuple):
    """The offsets of some partitions.

    Attributes:
        topics: The topics of the group.
        committed: What is committed for each input, by partition.
        marks: The watermarks of the inputs and of the group's tables, by partition.
        asked_at: The wall time when the watermarks were asked for.
    """

    topics: Mapping[str, TopicInfo]
    committed: Mapping[int, Mapping[str, Committed | None]]
    marks: Mapping[int, Mapping[str, Watermarks]]
    asked_at: float


@dataclass(eq=False)
class Restorer:
    """Runs recoveries. `step` belongs to the background thread, the rest to the main thread.

    Args:
        group: The graph.
        cluster: Used to request topics, offsets and watermarks.
        reader: The process's reader of changelogs.
        standby: The standby replicas of partitions that other members work on.
        stores: The stores of the tables.
        clock: Wall time for the age of copies, monotonic for retries.
        exactly_once: The guarantee of the process.
        failpoint: Called between the steps.
        tasks: Makes and recovers tasks whose rows are not in local tables; None if all are.

    Attributes:
        prefix_headers: See `graph.group.prefix_headers`.
    """

    _group: Group[Any, Any]
    _cluster: ClusterClient
    _reader: ChangelogReader
    standby: Standby
    _stores: Stores
    _clock: Clock
    _: KW_ONLY
    exactly_once: bool
    failpoint: Failpoint
    tasks: CustomTasks | None = None

    def __post_init__(self) -> None:
        self._expand, self.prefix_headers = expansions(self._group), prefix_headers(self._group)
        self._kept = kept_tables(self._group)
        self._restores: dict[int, Restore] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._reported_at = 0.0

    # ---- main thread -----------------------------------------------------------------------------------------------

    def begin(
        self, partition: int, stores: Mapping[str, Store] | None = None, damage: StoreCorrupted | None = None
    ) -> Restore:
        """Start recovering a partition.

        Args:
            partition: Its number.
            stores: The open stores of a task that recovers again, after an unknown outcome or because of damage.
            damage: The damage of one store, or of all if it names none. Damaged stores are discarded.
        """
        replicas = {table: self._replica(table, partition, store) for table, store in (stores or {}).items()}
        restore = Restore(partition, replicas)
        if damage is not None:
            for table in _damaged(restore.replicas, damage):
                restore.replicas[table].discard(damage.message)
        self.standby.taken(partition)
        with self._lock:
            self._restores[partition] = restore
        self._wake.set()
        return restore

    def cancel(self, restore: Restore) -> None:
        """Stop, and close its stores; nothing touches them after this returns."""
        with restore.lock:
            restore.stage = Stage.CANCELLED
        self._forget(restore)
        for replica in restore.replicas.values():
            self._reader.remove(replica)
            replica.close()
        self.standby.left(restore.partition)

    def close(self) -> None:
        """Close everything, after the background thread has ended."""
        self.standby.close()
        self._reader.close()

    # ---- background thread -----------------------------------------------------------------------------------------

    def step(self, timeout: float) -> None:
        """Do a slice of the work; wait at most `timeout` seconds if there is none."""
        now = self._clock.monotonic()
        with self._lock:
            asking = [r for r in self._restores.values() if r.stage is Stage.ASKING and r.ask_again_at <= now]
        self._ask(asking)
        self.standby.step(loading=bool(self._restores))
        if self._reader.idle:
            if not asking:
                self._wake.wait(timeout)
                self._wake.clear()
        else:
            self._reader.step(timeout)
            self._report(now)

    def _ask(self, asking: Sequence[Restore]) -> None:
        """Ask for the offsets of these partitions, in one question about all of them, and begin to load their tables.

        If that fails, each is asked about alone: what one of them waits for does not delay the others.
        """
        together = None
        if len(asking) > 1:
            with suppress(StreamtableError):
                together = self._answers(asking)
        for restore in asking:
            self._try(restore, together)

    def _try(self, restore: Restore, together: _Answers | None) -> None:
        try:
            self._prepare(restore, together or self._answers([restore]))
            restore.offsets_pending_since = None
        except RetryLater as error:
            self._wait(restore, error)
        except StoreInUse as error:
            now = self._clock.monotonic()
            restore.in_use_since = restore.in_use_since or now
            if now - restore.in_use_since > _IN_USE_SECONDS_MAX:
                self._failed(restore, error)
            else:
                log.warning(
                    "recovery waits for the state folder", partition=restore.partition, reason=str(error)
                )
                restore.ask_again_at = now + 1.0
        except StreamtableError as error:
            self._failed(restore, error)

    def _wait(self, restore: Restore, error: RetryLater) -> None:
        now, reason = self._clock.monotonic(), str(error)
        pending_since = restore.offsets_pending_since or now
        restore.offsets_pending_since = pending_since if isinstance(error, TransactionPending) else None
        if reason != restore.waits_for:  # it is asked again five times a second
            log.info("recovery waits", partition=restore.partition, reason=reason)
            restore.waits_for = reason
        restore.ask_again_at = now + _RETRY_SECONDS

    def _answers(self, asking: Sequence[Restore]) -> _Answers:
        group, partitions = self._group, [restore.partition for restore in asking]
        topics = check_topics(group, self._cluster)
        places = [TopicPartition(topic, each) for each in partitions for topic in group.input_topics]
        # First the offsets: asking waits for a pending commit of the former owner, and later answers are newer.
        found = self._cluster.stable_offsets(group.name, places)
        committed = {
            each: {topic: found[TopicPartition(topic, each)] for topic in group.input_topics}
            for each in partitions
        }
        for restore in asking:
            if self.tasks is not None:
                restore.custom = self.tasks.recover(restore.partition, committed[restore.partition])
        own = [TopicPartition(table, each) for each in partitions for table in group.tables]
        asked_at = self._clock.now()
        marks: dict[int, dict[str, Watermarks]] = {each: {} for each in partitions}
        for place, mark in self._cluster.watermarks([*places, *own]).items():
            marks[place.partition][place.topic] = mark
        return _Answers(topics, committed, marks, asked_at)

    def _prepare(self, restore: Restore, answers: _Answers) -> None:
        with restore.lock:
            if restore.stage is Stage.CANCELLED:
                return
            restore.topics, restore.asked_at = answers.topics, answers.asked_at
            self._plan(restore, answers.committed[restore.partition], answers.marks[restore.partition])
            self.failpoint("plan-made")
            self._start(restore)

    def _plan(
        self, restore: Restore, committed: Mapping[str, Committed | None], marks: Mapping[str, Watermarks]
    ) -> None:
        """Decide how each table is recovered, and open its store."""
        restore.reloaded, restore.unread = {}, {}
        group, now = self._group, self._clock.now()
        joined = [join.table.name for join in group.joins]
        starts = {edge.stream.name: edge.start for edge in group.inputs}
        purged = {edge.stream.name for edge in group.inputs if edge.purge}
        ids = {topic: info.topic_id for topic, info in restore.topics.items()}
        inputs = {
            topic: InputState(at, marks[topic], starts.get(topic, "earliest"), ids[topic], topic in purged)
            for topic, at in committed.items()
        }
        handled = {edge.table.name: edge.start for edge in group.changes}
        # A table that is only joined is loaded again, whatever topic it is now.
        compared = {topic: each for topic, each in inputs.items() if topic not in group.only_joined}
        refuse_recreated(restore.partition, compared)
        inputs = {topic: each for topic, each in inputs.items() if topic not in joined}
        tables = {
            topic.removeprefix(f"{group.name}-"): (
                Changelog(restore.topics[topic], marks[topic]),
                self._open(restore, topic),
            )
            for topic in group.tables
        }
        todo = plan(restore.partition, inputs, tables, exactly_once=self.exactly_once, now=now)
        records, settled = self._records(restore, committed, marks, {**starts, **handled})
        uncommitted = todo.uncommitted or not settled
        for name, (changelog, _) in tables.items():
            self._take(restore, changelog.topic, todo.loads[name])
        for table in joined:
            log_ = Changelog(restore.topics[table], marks[table])
            before, local = committed[table], self._open(restore, table)
            load = plan_join(restore.partition, log_, local, before, handled.get(table), now)
            self._take(restore, log_.topic, load)
            # In a topic whose beginning was deleted, a row that is missing may have expired: that is not a deletion.
            if table in handled and not restore.replicas[table].complete and not marks[table].low:
                restore.reloaded[table] = marks[table].high
            # It stands elsewhere than the group has committed: else it would count as not read until a record comes.
            uncommitted |= before is None or before.next_offset != load.read_to
        restore.plan = replace(todo, uncommitted=uncommitted, records=records)

    def _records(
        self,
        restore: Restore,
        committed: Mapping[str, Committed | None],
        marks: Mapping[str, Watermarks],
        starts: Mapping[str, str],
    ) -> tuple[Mapping[str, KeptRecord], bool]:
        """Return the record of each input, and whether all are committed. Raises `StateLost`, `StateMeaningChanged`."""
        before = {}
        for topic, offset in committed.items():
            position = None if offset is None else TablePosition.decode(offset.metadata)
            begin = marks[topic].high if starts.get(topic, "earliest") == "latest" else marks[topic].low
            record, seen = (None, None) if position is None else (position.record, position.seen)
            at = begin if offset is None else offset.next_offset
            before[topic] = InputRecord(at, offset is not None, record, seen is not None)
        topics = {
            topic: TopicState(info.topic_id, marks[topic].high if topic in marks else 0)
            for topic, info in restore.topics.items()
        }
        records = self._kept.continued(restore.partition, before, topics)
        return records, not unsettled((before[topic], now) for topic, now in records.items())

    def _replica(self, table: str, partition: int, store: Store | None = None) -> PartitionReplica:
        expand, header = self._expand.get(table), self.prefix_headers.get(table, "")
        return PartitionReplica(
            self._stores, table, partition, self._clock, store=store, expand=expand, prefix_header=header
        )

    def _open(self, restore: Restore, table: str) -> LocalPosition | None:
        """Open the replica of a table unless it is open. Returns the metadata of its store."""
        if table not in restore.replicas:
            warm = self.standby.hand_over(table, restore.partition)
            restore.replicas[table] = warm or self._replica(table, restore.partition)
        return restore.replicas[table].stop()

    def _take(self, restore: Restore, topic: TopicInfo, load: Load) -> None:
        replica = restore.replicas[topic.name]
        if load.discard:
            replica.discard(load.discard)
        replica.follow(topic, load.read_from, limit=load.read_to if load.exactly else None)
        restore.loads[topic.name] = load

    def _start(self, restore: Restore) -> None:
        waiting: list[PartitionReplica] = []
        for table, load in restore.loads.items():
            replica = restore.replicas[table]
            if load.read_from >= load.read_to:
                self._complete(restore, replica)
                continue
            waiting.append(replica)
            log.info(
                "table is loading",
                group=self._group.name,
                table=table,
                partition=restore.partition,
                offsets=load.read_to - load.read_from,
            )
        restore.stage = Stage.LOADING
        for replica in waiting:
            self._reader.add(replica, self._advanced)
        if not waiting:
            self._ready(restore)

    def _advanced(self, replica: PartitionReplica) -> None:
        self.failpoint("copy-loading")
        with self._lock:
            restore = self._restores.get(replica.partition)
        table = replica.place.topic
        if restore is None or restore.replicas.get(table) is not replica or table not in restore.loads:
            return
        if replica.position >= restore.loads[table].read_to:
            self._reader.remove(replica)
            try:
                if reason := replica.outlived(self._clock.now()):
                    raise StoreCorrupted(reason).at(table, replica.partition)
                self._complete(restore, replica)
                self.failpoint("copy-loaded")
                with restore.lock:
                    loaded = all(restore.replicas[each].current for each in restore.loads)
                    if loaded and restore.stage is not Stage.CANCELLED:
                        self._ready(restore)
            except StreamtableError as error:
                self._failed(restore, error)

    def _complete(self, restore: Restore, replica: PartitionReplica) -> None:
        # Until a copy is compared with the handled rows it counts as outdated: a crash must not leave them uncompared.
        replica.mark_current(0.0 if replica.place.topic in restore.reloaded else self._clock.now())
        if replica.failure is not None:
            raise replica.failure

    def _ready(self, restore: Restore) -> None:
        for table in restore.reloaded:
            self._compare(restore, table)
        self._forget(restore)
        restore.stage = Stage.READY

    def _compare(self, restore: Restore, table: str) -> None:
        """Put the rows that were handled and that a copy lacks into it: their records are still to be read, or were missed.

        It counts as outdated until the task has read these records, and has handled those that were missed as deletions.
        """
        replica, handled = restore.replicas[table], restore.replicas[self._group.named_topic(HANDLED)]
        rows = unread(handled.store, replica.store, table)
        restore.unread[table] = list(rows), restore.reloaded[table]
        replica.save(0.0 if rows else self._clock.now(), rows.items())
        if replica.failure is not None:
            raise replica.failure

    def _failed(self, restore: Restore, error: StreamtableError) -> None:
        # Records of a joined table that were deleted while they were loaded: the remaining ones are loaded again.
        lost = isinstance(error, InputLost) and restore.stage is Stage.LOADING
        joined = lost and error.topic in {join.table.name for join in self._group.joins}
        if (joined or isinstance(error, StoreCorrupted)) and restore.replicas:
            for replica in restore.replicas.values():
                self._reader.remove(replica)
            with restore.lock:
                if restore.stage is Stage.CANCELLED:
                    return
                restore.loads = {}
                for table in _damaged(restore.replicas, error):
                    try:
                        restore.replicas[table].discard(error.message)
                    except StoreInUse:  # another process was quicker: opening it again waits for that one
                        del restore.replicas[table]
                restore.stage = Stage.ASKING
            restore.ask_again_at = self._clock.monotonic() + _RETRY_SECONDS
            return
        self._forget(restore)
        restore.failure = error
        restore.stage = Stage.FAILED

    def _forget(self, restore: Restore) -> None:
        with self._lock:
            if self._restores.get(restore.partition) is restore:
                del self._restores[restore.partition]

    def _report(self, now: float) -> None:
        with self._lock:
            loading = [r for r in self._restores.values() if r.stage is Stage.LOADING]
        for restore in loading:
            failures = [each.failure for each in restore.replicas.values() if each.failure is not None]
            for error in failures[:1]:
                self._failed(
                    restore, error if isinstance(error, StreamtableError) else StreamtableError(str(error))
                )
        if loading and now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            log.info("tables are loading", remaining={r.partition: r.remaining for r in loading})


def _damaged(replicas: Mapping[str, PartitionReplica], error: StreamtableError) -> list[str]:
    """Return the table that the error names, or all tables if it names none of them."""
    return [table for table in replicas if table == error.topic] or list(replicas)
