"""The replicas of all partitions of a table: opened from disk, kept current, compared with the broker once a second."""

import math
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack

import structlog

from streamtable.base.clock import Clock
from streamtable.base.own_process import OwnProcess
from streamtable.base.ports import ClusterClient, Stores, TopicInfo
from streamtable.base.types import TopicPartition, Watermarks
from streamtable.errors import (
    InputLost,
    NotReady,
    RetryLater,
    StoreCorrupted,
    StreamtableError,
    TopicMismatch,
)
from streamtable.observe import Metrics
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.offset_barrier import OffsetBarrier
from streamtable.tables.recovery import Changelog, plan_replica
from streamtable.tables.replica import PartitionReplica

log = structlog.get_logger()

_WAKE_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_CHECK_SECONDS = 30.0  # between two checks of the number of partitions
_WAIT_SECONDS_MAX = 5.0

Marks = Mapping[TopicPartition, Watermarks]


class ReplicaSet:
    """All partitions of a table in this process. A `ViewUpdater` runs its turns.

    Args:
        table: The name of the topic.
        stores: The local stores of the replicas.
        clock: Wall and monotonic time.
        open_: Opens the replica of a partition, whose listener is called in the updater's thread.
        metrics: Those of positions and ages are updated once a second.
        view: The name of the view on the metrics.
        on_end: Called when the set is closed, or an error has stopped it for good.
        on_discard: Called with partition and reason after a replica that may have answered was discarded: the listener
            is not called with changes until it is loaded again.

    Attributes:
        closed: Set once its stores are closed.
        here: The process that it was made in.
        arrivals: Lets callers wait until a partition has reached a changelog offset.
        loads: Changes when a replica is loaded again: rows that were read before may not exist any more.
    """

    def __init__(
        self,
        table: str,
        stores: Stores,
        clock: Clock,
        open_: Callable[[int], PartitionReplica],
        metrics: Metrics,
        view: str,
        on_end: Callable[[], None],
        on_discard: Callable[[int, str], None],
    ) -> None:
        self.arrivals: OffsetBarrier[int, None] = OffsetBarrier()
        self.loads = 0
        self.closed = threading.Event()
        self.here = OwnProcess(f"the view of {table!r}")
        self._table = table
        self._stores = stores
        self._clock = clock
        self._metrics, self._view = metrics, view
        self._on_end = on_end
        self._on_discard = on_discard
        self._open = open_
        self._replicas: list[PartitionReplica] = []
        self._ready, self._stop = threading.Event(), threading.Event()
        self._turns: Generator[None, None, None] | None = None
        self._failure: Exception | None = None
        self._opened = False
        self._silence = ""  # why Kafka has not answered the last question
        self._asked_at = 0.0  # wall time
        self._checked_at = clock.monotonic()

    # ---- any thread ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Wake all waiting callers, as the set is about to be closed."""
        self._stop.set()
        self._end(NotReady(f"view of {self._table!r} is closed"))

    def close(self) -> None:
        """Close the stores, after its last turn. A store that cannot be closed in order is loaded again at the next start."""
        self.stop()
        if self._turns is not None:
            self._turns.close()
        self._ready.clear()
        for replica in self._replicas:
            try:
                replica.close()
            except (StreamtableError, OSError) as error:
                log.warning("copy not closed in order", **replica.place._asdict(), reason=str(error))
        self.closed.set()

    @property
    def ready(self) -> bool:
        """Whether every partition has reached the end that Kafka named after the start. Raises like `check`."""
        self.check()
        return self._ready.is_set()

    @property
    def complete(self) -> bool:
        """Whether the replicas hold the whole table as of some time, maybe of an earlier life. Raises like `check`."""
        self.check()
        return bool(self._replicas) and all(replica.complete for replica in self._replicas)

    def check(self) -> None:
        """Raise the error that has stopped the set for good, if there is one; `UsedAfterFork` in a forked process."""
        self.here.check()
        if self._failure is not None:
            raise self._failure

    def wait_ready(self, timeout: float | None) -> bool:
        """Wait until it is ready, `timeout` seconds at most. Returns whether it is."""
        left = math.inf if timeout is None else timeout
        while not self.ready and not self._stop.is_set() and left > 0:
            # Never long: the main thread handles signals between, and an error or the end of the set does not wake it.
            self._ready.wait(min(left, _WAKE_SECONDS))
            left -= _WAKE_SECONDS
        return self.ready

    def all(self) -> list[PartitionReplica]:
        """Return the replicas by partition; empty while the number of partitions is not known."""
        return self._replicas

    def position(self, partition: int) -> int:
        """Return the next changelog offset to apply; 0 while the partition is not known."""
        return self._replicas[partition].position if partition < len(self._replicas) else 0

    @property
    def stopped(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._stop.is_set()

    @property
    def ended(self) -> bool:
        """Whether it is closed or stopped by an error."""
        return self.stopped or self._failure is not None

    def damaged(self, error: StoreCorrupted) -> NotReady:
        """Reload a replica that a reader has found damaged. Returns the error for that reader."""
        for replica in self._replicas:
            if replica.partition == error.partition:
                replica.fail(error)
        damaged = NotReady(f"a part of the local copy is damaged, and is loaded again: {error.message}")
        return damaged.at(self._table, error.partition)

    def missing(self) -> str:
        """Return the reason why it is not ready yet, with the error of the last question to Kafka."""
        return f"{self.not_ready} ({self._silence})" if self._silence else self.not_ready

    @property
    def not_ready(self) -> str:
        """The reason why it is not ready yet, without names of hosts; empty if it is. Raises like `check`."""
        if self.ready:
            return ""
        if self._stop.is_set():
            return "it is closed"
        if not self._opened:
            return "it was not started"
        if self._silence:
            return "Kafka does not answer"
        if not self._replicas:
            return "Kafka has not answered yet"
        loading = [replica.lag for replica in self._replicas if not replica.current]
        left = f"{sum(loading):,} records to go"
        return f"{len(loading)} of {len(self._replicas)} partitions are loading, {left}"

    def fail(self, error: Exception) -> None:
        """Stop for good: every query raises this error."""
        if not self.ended:
            log.error("view has stopped", table=self._table, exc_info=error)
            self._failure = error
            self._end(error)

    # ---- the updater's thread --------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the replicas on disk."""
        self._opened = True
        present = sorted(partition for table, partition in self._stores.present() if table == self._table)
        opened = self._open_all(present)
        if present and present == list(range(len(present))) and _partitions(opened) == {len(present)}:
            self._replicas = opened
        else:
            for replica in opened:
                replica.close()

    def turn(self, cluster: ClusterClient, reader: ChangelogReader) -> None:
        """Do all work that is due except reading. An error stops this set alone."""
        if self.ended:
            return
        try:
            self._turns = self._turns or self._life(cluster, reader)
            next(self._turns)
        except Exception as error:  # noqa: BLE001 - raised in the caller that reads a row
            self.fail(error)

    def _life(self, cluster: ClusterClient, reader: ChangelogReader) -> Generator[None, None, None]:
        while True:
            topic = yield from self._find_topic(cluster)
            yield from self._follow(topic, cluster, reader)

    def _find_topic(self, cluster: ClusterClient) -> Generator[None, None, TopicInfo]:
        """Wait for the broker, and return the table's topic."""
        wait = 0.1
        while True:
            try:
                topic = cluster.topics([self._table]).get(self._table)
            except RetryLater as error:
                self._silence = str(error)
                log.warning("view waits for Kafka", table=self._table, reason=self._silence)
                again_at = self._clock.monotonic() + wait
                while self._clock.monotonic() < again_at:
                    yield
                wait = min(2 * wait, _WAIT_SECONDS_MAX)
                continue
            if topic is None:
                raise TopicMismatch(
                    f"there is no topic {self._table!r} to view: declare it in topics.yaml and run "
                    "'streamtable topics apply'",
                    topic=self._table,
                )
            if not topic.compacted:
                log.warning(
                    "table's topic is not compacted: its rows will be deleted by age; set cleanup.policy=compact",
                    table=self._table,
                )
            return topic

    def _follow(
        self, topic: TopicInfo, cluster: ClusterClient, reader: ChangelogReader
    ) -> Generator[None, None, None]:
        """Keep the replicas current until the topic is deleted and created again."""
        places = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        following, asked_at = False, -_LOOK_SECONDS
        try:
            while True:
                if self._clock.monotonic() - asked_at >= _LOOK_SECONDS:
                    asked_at = self._clock.monotonic()
                    if (marks := self._ask(cluster, places)) is not None:
                        if not following:
                            following = True
                            self._begin(topic, marks, reader)
                        # After the ends, which are of this topic only if it is still there.
                        if recreated := self._recreated(topic, cluster):
                            return
                        self._compare(marks, known=recreated is False)
                    self._show()
                if following and self._mend(topic, cluster, reader):
                    return
                yield
        finally:
            for replica in self._replicas:
                reader.remove(replica)

    def _show(self) -> None:
        """Set the gauges of each partition."""
        for replica in self._replicas:
            labels = self._view, self._table, str(replica.partition)
            age = self._clock.now() - replica.current_at
            self._metrics.view_position.labels(*labels).set(replica.position)
            self._metrics.view_age_seconds.labels(*labels).set(max(0.0, age))
            self._metrics.recovery_remaining.labels(*labels).set(0 if replica.current else replica.lag)

    def _ask(self, cluster: ClusterClient, places: list[TopicPartition]) -> Marks | None:
        self._asked_at = self._clock.now()
        try:
            marks = cluster.watermarks(places)
        except RetryLater as error:
            self._silence = str(error)
            log.warning("view cannot get the end of the changelog", table=self._table, reason=self._silence)
            return None
        self._silence = ""
        return marks

    def _compare(self, marks: Marks, *, known: bool) -> None:
        """Compare the replicas with the offsets of the log. `known`: they are of the topic that the rows are of."""
        known = known and all(marks[each.place].high >= each.position for each in self._replicas)
        for replica in self._replicas:
            low, high = marks[replica.place]
            replica.low = low
            # The process or Kafka may have stalled: deletions meanwhile may have left no tombstones in the log.
            if reason := replica.outlived(self._asked_at) or replica.behind_start(low):
                replica.fail(StoreCorrupted(reason))
            elif known:
                replica.observe_end(self._asked_at, low, high)
        self._judge()

    def _recreated(self, topic: TopicInfo, cluster: ClusterClient) -> bool | None:
        """Return whether the topic was deleted and created again; None if that is not known now.

        Raises `TopicMismatch` if it has more partitions now.
        """
        now, found = self._clock.monotonic(), topic
        try:
            topic_id = cluster.topic_ids([self._table]).get(self._table)
            if topic_id == topic.topic_id and now - self._checked_at >= _CHECK_SECONDS:
                self._checked_at, found = now, cluster.topics([self._table]).get(self._table, topic)
        except RetryLater as error:
            log.warning("view cannot describe its topic", table=self._table, reason=str(error))
            return None
        if topic_id is None:
            return None  # deleted, possibly to be recreated
        if topic_id == found.topic_id:
            if found.partitions != topic.partitions:
                raise self._more_partitions(topic.partitions, found.partitions)
            return False
        log.warning("table's topic was deleted and created again: loading it again", table=self._table)
        return True

    def _more_partitions(self, before: int, now: int) -> TopicMismatch:
        return TopicMismatch(
            f"the table {self._table!r} had {before} partitions and has {now} now: rows have stayed where they were, "
            "but new ones go elsewhere, so neither can be found by its key. Make a new topic of the right size and "
            "rebuild the table there",
            topic=self._table,
        )

    def _open_all(self, partitions: Iterable[int]) -> list[PartitionReplica]:
        # A view that is refused, as another process holds one of them, leaves none open.
        with ExitStack() as opened:
            found = []
            for partition in partitions:
                found.append(self._open(partition))
                opened.callback(found[-1].close)
            opened.pop_all()
            return found

    def _begin(self, topic: TopicInfo, marks: Marks, reader: ChangelogReader) -> None:
        """Decide for each replica whether its rows can be used, and follow all."""
        if len(self._replicas) not in {0, topic.partitions}:
            former, self._replicas = self._replicas, []
            self._ready.clear()
            for replica in former:
                replica.close()
                self._on_discard(replica.partition, "the topic has another number of partitions now")
        if not self._replicas:
            self._replicas = self._open_all(range(topic.partitions))
        for replica in self._replicas:
            replica.low = marks[replica.place].low
            if reason := self._why_discard(replica, Changelog(topic, marks[replica.place])):
                self._discard(replica, reason)
            self._start(replica, topic, reader)
        for table, partition in self._stores.present():
            if table == self._table and partition >= topic.partitions:
                # From an earlier topic with more partitions: at the next start it would look like part of this copy.
                self._stores.destroy(table, partition)

    def _why_discard(self, replica: PartitionReplica, changelog: Changelog) -> str | None:
        if isinstance(replica.failure, StoreCorrupted):
            return replica.failure.message
        try:
            local = replica.stop()
        except StoreCorrupted as error:
            return error.message
        if local is None:
            return None
        if local.topic_id == changelog.topic.topic_id and local.partitions != changelog.topic.partitions:
            raise self._more_partitions(local.partitions, changelog.topic.partitions)
        return plan_replica(changelog, local, self._clock.now()).discard

    def _start(self, replica: PartitionReplica, topic: TopicInfo, reader: ChangelogReader) -> None:
        self.loads += 1
        replica.follow(topic, replica.low)
        reader.add(replica, self._advanced)

    def _discard(self, replica: PartitionReplica, reason: str) -> None:
        answered = replica.complete
        self._ready.clear()  # from here on nothing is answered from it
        self.loads += 1  # before the store is replaced: an answer that was read meanwhile is not given
        replica.discard(reason)
        if answered:
            self._on_discard(replica.partition, reason)

    def _mend(self, topic: TopicInfo, cluster: ClusterClient, reader: ChangelogReader) -> bool:
        """Load failed replicas again. Returns whether all must be, as the topic is another; raises any other failure."""
        for replica in self._replicas:
            if (failure := replica.failure) is None:
                continue
            if not isinstance(failure, StoreCorrupted | InputLost):
                raise failure
            if isinstance(failure, InputLost):
                # Records are also missing if the topic was recreated; while that is unknown, it is checked again.
                if (recreated := self._recreated(topic, cluster)) is None:
                    continue
                if recreated:
                    return True
                if (marks := self._ask(cluster, [replica.place])) is None:
                    continue
                replica.low = marks[replica.place].low
            reader.remove(replica)
            self._discard(replica, failure.message)
            self._start(replica, topic, reader)
        return False

    def _advanced(self, replica: PartitionReplica) -> None:
        self.arrivals.arrived(replica.partition, replica.position, None)
        if replica.current:
            self._judge()

    def _judge(self) -> None:
        if self._ready.is_set() or not self._replicas:
            return
        if all(replica.current for replica in self._replicas):
            log.info("view is ready", table=self._table, partitions=len(self._replicas))
            self._ready.set()

    def _end(self, error: Exception) -> None:
        self.arrivals.end(error)
        self._on_end()


def _partitions(replicas: list[PartitionReplica]) -> set[int]:
    """Return the number of partitions that the table had when these replicas were written."""
    return {local.partitions for replica in replicas if (local := replica.local()) is not None}
