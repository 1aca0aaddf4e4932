"""The life of a processor: wait for the broker, join the group, work until stopped, leave cleanly."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import structlog

from streamtable.base.clock import Clock
from streamtable.base.failpoint import Failpoint, no_failpoint
from streamtable.base.own_process import OwnProcess
from streamtable.base.ports import ClusterClient, Log, Stores, TopicInfo
from streamtable.base.process import running
from streamtable.base.topics import Table
from streamtable.engine.assignment import FollowedTable, TableFollower
from streamtable.engine.local_queries import Freshness, LocalAnswer, LocalQueries
from streamtable.engine.member import Member
from streamtable.engine.purge import PURGE_SECONDS, Purger
from streamtable.engine.recovery.hanging import HangingTransactions
from streamtable.engine.settings import ProcessorSettings
from streamtable.engine.time.silence import ObservedEnds, observe_seconds
from streamtable.engine.watch.metrics import EngineMetrics
from streamtable.engine.watch.watchdog import StallDetector, Wait, Watchdog
from streamtable.errors import ConfigurationError, GraphError, NotReady, RetryLater, TopicMissing
from streamtable.graph.custom_task import CustomTasks
from streamtable.graph.group import Group, prepare_codecs
from streamtable.graph.topic_check import check_topics, check_unchanged
from streamtable.graph.topic_owners import refuse_topics_of_others
from streamtable.graph.topic_settings import topic_warnings
from streamtable.observe import Metrics, Progress
from streamtable.tables.replica import PartitionReplica

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
log = structlog.get_logger()

_BACKGROUND_SLICE_SECONDS = 0.05
_CHECK_TOPICS_SECONDS = 30.0
_SAMPLE_SECONDS = 5.0
_SILENCE_SECONDS_MAX = 15.0  # without an answer from Kafka for longer, a processor is not ready
_WAIT_SECONDS = 0.25
_NEW_TOPIC_SECONDS = 5.0  # as long as a topic may be missing at the start
_WAIT_SECONDS_MAX = 2.0


class GroupProcessor:
    """One process of a group.

    Args:
        group: The graph.
        log_: Kafka.
        stores: The stores of its tables.
        settings: The settings of the processor.
        clock: Wall and monotonic time.
        metrics: The metrics to update.
        progress: Shows the progress of recovery.
        failpoint: Called between any two steps of a commit and in recovery.
        lookups: Follows the tables that the group looks up, and is closed in the end; needed if there are any.
        tasks: Makes tasks of another kind than over local tables; closed in the end.

    Raises:
        ConfigurationError: The group looks up tables, and there is no place for them.
        GraphError: The group brings its own kind of task, and `tasks` is not given.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        log_: Log,
        stores: Stores,
        settings: ProcessorSettings,
        clock: Clock,
        metrics: Metrics,
        progress: Progress,
        failpoint: Failpoint = no_failpoint,
        lookups: TableFollower | None = None,
        tasks: CustomTasks | None = None,
    ) -> None:
        if group.lookups and lookups is None:
            raise ConfigurationError(
                f"group {group.name!r} looks up {group.lookups[0].table.name!r}: give what follows its tables, by lookups=LookupTables"
            )
        if tasks is None and any(edge.custom is not None for edge in group.inputs):
            raise GraphError(
                f"{group!r} has its own kind of task: run it with a processor of this kind, such as BatchProcessor, or give tasks="
            )
        self.group = group
        self._here = OwnProcess(f"the processor of group {group.name!r}")
        self._tasks = tasks
        self.settings = settings
        self._log = log_
        self._stores = stores
        self._clock = clock
        self._meters = EngineMetrics(group, metrics, progress)
        self._metrics = metrics
        self._hanging: HangingTransactions | None = None
        self._reached = failpoint
        # Not an Event: `stop` may be called by a signal handler while this thread holds an Event's lock.
        self._stopping = False
        self._cluster: ClusterClient | None = None
        self.topics: Mapping[str, TopicInfo] = {}
        self._checked_at = self._sampled_at = self._purged_at = clock.monotonic()
        self._purger: Purger | None = None
        self._owners_checked = False
        self._sample_every = min(
            _SAMPLE_SECONDS, settings.hanging_transaction_timeout, observe_seconds(group.event_time)
        )
        self._background_failure: BaseException | None = None
        self._answered_at = 0.0  # when Kafka last answered a question
        self._answering_since: float | None = None  # without a gap; None: it does not answer
        self._stalls = StallDetector(settings.stall_timeout, clock)
        self.member: Member | None = None
        self._queries: LocalQueries | None = None
        self._lookups = lookups
        self.lookups: Mapping[str, FollowedTable] = {}

    def run(self) -> None:
        """Work until `stop` is called. Everything that was handled by then is committed.

        In the main thread, SIGTERM, SIGINT and SIGHUP stop it in order, a second one ends the process at once.

        Raises:
            ConfigurationError: Topics are missing or do not fit; nothing was started.
            StreamtableError: Continuing would lose or duplicate records; committed work stays committed.
        """
        self._here.check()
        instance = self.settings.instance_id
        log.info("processor starts", group=self.group.name, instance=instance, kafka=str(self._log))
        if (left := self.settings.in_hand.left) is not None:
            log.error(
                "the previous process died while it handled these records",
                group=self.group.name,
                topic=left.topic,
                partition=left.partition,
                first_offset=left.first_offset,
                last_offset=left.last_offset,
            )
        self._warm_up()
        try:
            with running(self.stop):
                self._patiently(self.start)
                if self.member is not None:
                    self._work()
        finally:
            self.close()
            log.info("processor has stopped", group=self.group.name, instance=instance)

    def stop(self) -> None:
        """Let `run` return after the current step. May be called by any thread or a signal handler."""
        self._stopping = True

    @property
    def ready(self) -> bool:
        """Whether it has joined, all assigned partitions have tasks that make progress, and Kafka answers."""
        return not self.not_ready

    @property
    def not_ready(self) -> str:
        """Return the reason why the processor is not ready; empty if it is."""
        member = self.member  # once: another thread may ask while it is closed
        if member is None:
            return "it has not joined its group"
        if stalled := self._stalls.reason(self._wait(member)):
            return stalled
        if (silent := self._clock.monotonic() - self._answered_at) > _SILENCE_SECONDS_MAX:
            return f"Kafka has not answered for {silent:.0f} s"
        if self._hanging is not None and (hanging := self._hanging.reason):
            return hanging
        return member.not_ready

    @property
    def recovering(self) -> Mapping[int, int]:
        """The number of changelog offsets still to read before a partition has a task, by partition."""
        member = self.member
        return member.assignment.recovering if member is not None else {}

    @property
    def working(self) -> tuple[int, ...]:
        """The partitions of the group that have a task here."""
        member = self.member
        return tuple(member.assignment.tasks) if member is not None else ()

    def get(self, table: Table[K, V], key: K, *, partition: int | None = None) -> LocalAnswer[V]:
        """Return the committed row of a key. As `streamtable.Processor.get`."""
        return self._local.get(table, key, partition)

    def range(
        self,
        table: Table[K, V],
        start: K | None = None,
        end: K | None = None,
        *,
        partition: int | None = None,
    ) -> Iterator[tuple[K, V]]:
        """Iterate over committed rows. As `streamtable.Processor.range`."""
        return self._local.range(table, start, end, partition)

    def freshness(self, table: Table[Any, Any]) -> Mapping[int, Freshness]:
        """Return the freshness of the rows of each partition. As `streamtable.Processor.freshness`."""
        return self._local.freshness(table)

    def replica(self, table: str, partition: int) -> PartitionReplica | None:
        """Return the replica of a partition whose task does not run here: a standby's, or one that is being restored.

        `streamtable_query` reads it. It may be loading, or closed while it is read; None if there is none.
        """
        if (member := self.member) is None:
            return None
        restore = member.assignment.restores.get(partition)
        warm = member.restorer.standby.replica(table, partition)
        return warm if restore is None else restore.replicas.get(table, warm)

    # ---- what `run` does, one after the other; a test does it without threads --------------------------------------

    def start(self) -> None:
        """Check the topics and join the group. Raises like `run`, and `RetryLater` if it may be started again."""
        group, settings, clock = self.group, self.settings, self._clock
        cluster = self._cluster = self._cluster or self._log.cluster()
        refuse_topics_of_others(group, cluster)
        self.topics = check_topics(group, cluster)
        prepare_codecs(group)
        for each in topic_warnings(group, self.topics):
            log.warning("topic loses results", group=group.name, **asdict(each))
        if self._lookups is not None:
            self.lookups = self._lookups.follow(edge.table for edge in group.lookups)
        timeout = settings.hanging_transaction_timeout
        self._hanging = HangingTransactions(group.name, cluster, clock, timeout, self._metrics)
        self._purger = Purger(group, cluster, enabled=settings.purge)
        self.member = Member(
            group,
            self._log,
            cluster,
            self.topics,
            self._stores,
            settings,
            clock,
            self._meters,
            self._reached,
            self.lookups,
            self._tasks,
        )
        self._queries = LocalQueries(group, self.topics, self.member.assignment, clock)
        self._answered_at = self._answering_since = self._clock.monotonic()

    def step(self) -> None:
        """Do one turn of the main thread: poll, handle, commit if it is time. Nothing is committed after an error."""
        self._guarded(self._started.step)

    def commit(self) -> None:
        """Commit everything that was handled."""
        self._guarded(self._started.commit)

    def step_background(self, timeout: float) -> None:
        """Do one turn of the background thread: load tables, follow lookups, from time to time check the membership, and check and purge topics.

        Args:
            timeout: Seconds to wait at most if there is nothing to do.
        """
        member, cluster = self._started, self._cluster
        assert cluster is not None
        if self._lookups is not None:
            if self._lookups.step(0):
                timeout = 0  # there may be more
            self._lookups.check()
        member.restorer.step(timeout)
        self._meters.loading(member.assignment)
        now = self._clock.monotonic()
        if now - self._sampled_at >= self._sample_every:
            self._sampled_at = now
            self._now_and_then(lambda: self._sample(member, cluster))
        if now - self._checked_at >= _CHECK_TOPICS_SECONDS:
            self._checked_at = now
            self._now_and_then(lambda: self._check_topics(cluster))
        if self._purger is not None and now - self._purged_at >= PURGE_SECONDS:
            self._purged_at = now
            self._purger.purge(self.working)

    def close(self) -> None:
        """Leave the group and close everything. Handled work is committed unless an error has ended the group."""
        member, self.member, self._queries = self.member, None, None
        try:
            if member is not None:
                self._reached("closing")
                member.close()
                self._meters.close()
            if self._hanging is not None:
                self._hanging.close()
        finally:
            if self._lookups is not None:
                self._lookups.close()
            if self._cluster is not None:
                self._cluster.close()
            self._stores.close()
            if self._tasks is not None:
                self._tasks.close()
            self.settings.in_hand.release()
            self.settings.release()
            self._reached("store-closed")

    # ---- inside ----------------------------------------------------------------------------------------------------

    @property
    def _local(self) -> LocalQueries:
        self._here.check()
        queries = self._queries  # once: another thread may ask while it is closed
        if queries is None:
            raise NotReady(
                f"the processor of group {self.group.name!r} has not joined its group, or has left it"
            )
        return queries

    def _warm_up(self) -> None:
        """Load the modules that the codecs of the inputs need later, while the group is joined."""
        codecs = {getattr(edge.stream.value, "warm_up", None) for edge in self.group.inputs}
        for load in codecs - {None}:
            threading.Thread(target=load, name="warm-up", daemon=True).start()

    @property
    def _started(self) -> Member:
        assert self.member is not None, "not started"
        return self.member

    def _guarded(self, turn: Callable[[], None]) -> None:
        try:
            turn()
        except BaseException as error:
            # Logged here, because closing broken parts may raise another error in its place.
            reason = f"{type(error).__name__}: {error}"
            log.critical("processor stops", group=self.group.name, reason=reason)
            self._started.abandon()
            raise

    def _work(self) -> None:
        background = threading.Thread(target=self._run_background, name="restorer", daemon=True)
        background.start()
        watchdog = Watchdog(
            self.group.name, self._stalls, self._look, self._meters.without_progress, self.settings.stall_exit
        )
        watchdog.start()
        try:
            while not self._stopping:
                self.step()
                self._guarded(self._raise_background_failure)
            self._guarded(self._started.finish)
        finally:
            self._stopping = True
            background.join()
            watchdog.stop()

    def _look(self) -> Wait | None:
        member = self.member
        return self._wait(member) if member is not None else None

    def _wait(self, member: Member) -> Wait:
        return self._stalls.wait(member.heartbeat, self._answering_since)

    def _run_background(self) -> None:
        try:
            while not self._stopping:
                self.step_background(_BACKGROUND_SLICE_SECONDS)
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            self._background_failure = error

    def _raise_background_failure(self) -> None:
        if self._background_failure is not None:
            raise self._background_failure

    def _sample(self, member: Member, cluster: ClusterClient) -> None:
        asked_at = self._clock.monotonic()
        self._meters.late.judge(asked_at)
        marks = self._meters.sample(member.assignment, cluster)
        if self.group.event_time is not None:
            member.inputs.observed(ObservedEnds(asked_at, self._clock.monotonic(), marks))
        if self._hanging is not None:
            pending_since = member.assignment.offsets_pending_since
            self._hanging.look(member.assignment.readings(marks), pending_since)

    def _check_topics(self, cluster: ClusterClient) -> None:
        check_unchanged(self.group, cluster, self.topics)
        # Once more: two groups that start together have not committed anything yet.
        if not self._owners_checked:
            refuse_topics_of_others(self.group, cluster)
            self._owners_checked = True
        self._started.check_membership()

    def _now_and_then(self, ask: Callable[[], object]) -> None:
        """Do a check that is repeated soon anyway; it also shows whether Kafka answers."""
        try:
            ask()
        except RetryLater as error:
            if self._answering_since is not None:
                log.warning("Kafka does not answer; processing continues when it does", reason=str(error))
            self._answering_since = None
            return
        now = self._clock.monotonic()
        if self._answering_since is None:
            log.info("Kafka answers again", seconds=round(now - self._answered_at, 1))
            self._answering_since = now
        self._answered_at = now

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """Retry until the broker answers or `start_timeout` has passed; None if it was stopped meanwhile."""
        began = self._clock.monotonic()
        pause = _WAIT_SECONDS
        while not self._stopping:
            try:
                return ask()
            except (RetryLater, TopicMissing) as error:
                waited = self._clock.monotonic() - began
                # A topic that was just made is not known to each broker at once.
                patience = (
                    _NEW_TOPIC_SECONDS if isinstance(error, TopicMissing) else self.settings.start_timeout
                )
                if patience is not None and waited >= patience:
                    raise
                log.warning("waiting for Kafka", seconds=round(waited, 1), reason=str(error))
                self._pause(pause)
                pause = min(pause * 2, _WAIT_SECONDS_MAX)
        return None

    def _pause(self, seconds: float) -> None:
        """Sleep, but return soon after `stop` was called."""
        end = self._clock.monotonic() + seconds
        while not self._stopping and (left := end - self._clock.monotonic()) > 0:
            self._clock.sleep(min(left, _WAIT_SECONDS))
