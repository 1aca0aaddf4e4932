"""The partitions of a view's copy: opened from disk, followed turn by turn, compared with the broker once a second."""

import math
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.errors import InputLost, NotReady, RetryLater, StoreCorrupted, TopicMismatch
from streamtable.observe import Metrics
from streamtable.ports import Cluster, Stores, TopicInfo
from streamtable.tables.changelog_reader import Follower
from streamtable.tables.localcopy import Copy
from streamtable.tables.position import LocalPosition
from streamtable.tables.recovery import Changelog, behind_start, why_discard
from streamtable.tables.replica import Applying, Listener, Replica, discard_store, open_store
from streamtable.types import TopicPartition, Watermarks
from streamtable.views.read_your_writes import Gates

log = structlog.get_logger()

_WAKE_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_CHECK_SECONDS = 30.0  # how often the topic itself is looked at
_SAVE_SECONDS = 60.0
_WAIT_SECONDS_MAX = 5.0
_AWAY_SECONDS = 2.0  # Kafka that has not answered for so long after the start is away


@dataclass(frozen=True)
class Gauges:
    """Where a view's positions are shown."""

    metrics: Metrics
    view: str
    table: str

    def show(self, copy: Copy, now: float) -> None:
        labels = (self.view, self.table, str(copy.partition))
        self.metrics.view_position.labels(*labels).set(copy.position)
        self.metrics.view_age_seconds.labels(*labels).set(max(0.0, now - copy.current_at))
        self.metrics.recovery_remaining.labels(*labels).set(0 if copy.caught_up else copy.lag)


class Copies:
    """All partitions of a table, in this process; a `Host` gives them their turns.

    Args:
        table: name of the topic.
        stores: where they live.
        clock: wall and monotonic time.
        listener: told of changed rows, in the host's thread.
        gauges: shown once a second.
        on_end: called when the copies are closed, or an error has stopped them for good.
        on_discard: called with the reason after a copy that may have answered was discarded: changes until it is loaded
            again are not delivered to the listener.
        applying: told of every batch of changes, once they are whole.

    Attributes:
        arrivals: of the partitions at changelog positions, for those who wait for them.
    """

    def __init__(
        self,
        table: str,
        stores: Stores,
        clock: Clock,
        listener: Listener,
        gauges: Gauges,
        on_end: Callable[[], None],
        on_discard: Callable[[int, str], None],
        applying: Applying | None = None,
    ) -> None:
        self.arrivals: Gates[int, None] = Gates()
        self._table = table
        self._stores = stores
        self._clock = clock
        self._listener = listener
        self._gauges = gauges
        self._on_end = on_end
        self._on_discard = on_discard
        self._applying = applying
        self._copies: list[Copy] = []
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._turns: Generator[None, None, None] | None = None
        self._failure: Exception | None = None
        self._whole = False
        self._opened = False
        self._answered = False  # Kafka, in this life
        self._opened_at = clock.monotonic()
        self._saved_at = clock.monotonic()
        self._looked_at = 0.0  # wall time
        self.loads = 0
        """Changes when a copy is begun anew: what was read before may be of rows that are gone."""

    # ---- any thread ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Wake all who wait: it is going to be closed."""
        self._stop.set()
        self._end(NotReady(f"view of {self._table!r} is closed"))

    def close(self) -> None:
        """Close what is open; nobody gives turns any more."""
        self.stop()
        if self._turns is not None:
            self._turns.close()
        self._whole = False
        for copy in self._copies:
            copy.store.close()

    @property
    def whole(self) -> bool:
        """Every partition is. Raises as `check`."""
        self.check()
        return self._whole or self._whole_on_disk()

    def check(self) -> None:
        """Raises what has stopped the copies for good, if something has."""
        if self._failure is not None:
            raise self._failure

    def wait_whole(self, timeout: float | None) -> bool:
        left = math.inf if timeout is None else timeout
        while not self.whole and not self._stop.is_set() and left > 0:
            with self._changed:
                self._changed.wait(min(left, _WAKE_SECONDS))  # nobody tells that Kafka stays away
            left -= _WAKE_SECONDS
        return self.whole

    def _whole_on_disk(self) -> bool:
        """What was whole in an earlier life will do while Kafka is away, but not otherwise: it would tell of the past."""
        away = not self._answered and self._clock.monotonic() - self._opened_at > _AWAY_SECONDS
        return away and bool(self._copies) and all(copy.whole for copy in self._copies)

    def all(self) -> list[Copy]:
        return self._copies

    def position(self, partition: int) -> int:
        """The next changelog offset to apply; 0 while the partition is not known."""
        return self._copies[partition].position if partition < len(self._copies) else 0

    @property
    def ended(self) -> bool:
        """Closed, or stopped by an error."""
        return self._stop.is_set() or self._failure is not None

    def damaged(self, error: StoreCorrupted) -> NotReady:
        """Somebody who read in a copy has found it damaged: it is loaded anew. Returns what to tell him."""
        for copy in self._copies:
            if copy.partition == error.partition:
                copy.damage = error
        return NotReady(
            f"a part of the local copy is damaged, and is loaded anew: {error.message}",
            topic=self._table,
            partition=error.partition,
        )

    def missing(self) -> str:
        """What is not there yet, for people."""
        if self._stop.is_set():
            return "it is closed"
        if not self._opened:
            return "it was not started: use it in a 'with' block, or call start()"
        if not self._copies:
            return "the broker has not answered yet"
        loading = {copy.partition: copy.lag for copy in self._copies if not copy.caught_up}
        return f"{len(loading)} of {len(self._copies)} partitions are loading, {sum(loading.values()):,} records to go"

    def fail(self, error: Exception) -> None:
        """It cannot go on; whoever asks is told why."""
        if not self.ended:
            log.error("view has stopped", table=self._table, exc_info=error)
            self._failure = error
            self._end(error)

    # ---- the host's thread ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open what is on disk. Should Kafka be away, a copy that was whole answers as it is."""
        self._opened, self._opened_at = True, self._clock.monotonic()
        present = sorted(partition for table, partition in self._stores.present() if table == self._table)
        opened = [(p, *open_store(self._stores, self._table, p)) for p in present]
        partitions = {local.partitions for _, _, local in opened if local is not None}
        if present and partitions == {len(present)} and present == list(range(len(present))):
            self._copies = [Copy(partition, store, local) for partition, store, local in opened]
        else:
            for _, store, _ in opened:
                store.close()

    def turn(self, cluster: Cluster, follower: Follower) -> None:
        """All that is to be done now, but for reading; an error ends these copies alone."""
        if self.ended:
            return
        try:
            self._turns = self._turns or self._life(cluster, follower)
            next(self._turns)
        except Exception as error:  # noqa: BLE001 - raised in whoever asks for a row
            self.fail(error)

    def _life(self, cluster: Cluster, follower: Follower) -> Generator[None, None, None]:
        while True:
            topic = yield from self._topic(cluster)
            yield from self._follow(topic, cluster, follower)

    def _topic(self, cluster: Cluster) -> Generator[None, None, TopicInfo]:
        """The table's topic; waits for the broker."""
        wait = 0.1
        while True:
            try:
                topic = cluster.topics([self._table]).get(self._table)
            except RetryLater as error:
                log.warning("view waits for Kafka", table=self._table, reason=str(error))
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
            return topic

    def _follow(self, topic: TopicInfo, cluster: Cluster, follower: Follower) -> Generator[None, None, None]:
        """Keep the copies current until the topic is deleted and created again."""
        places = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        looked_at, following = -_LOOK_SECONDS, False
        checked_at = self._clock.monotonic()
        try:
            while True:
                if self._clock.monotonic() - looked_at >= _LOOK_SECONDS:
                    looked_at = self._clock.monotonic()
                    marks = self._look(cluster, places)
                    if marks is not None and not following:
                        self._whole = self.whole  # who was given answers goes on getting them
                        self._answered = True
                        self._begin(topic, marks, follower)
                        following = True
                    if marks is not None:
                        ends = {place.partition: mark.high for place, mark in marks.items()}
                        shorter = any(ends[copy.partition] < copy.position for copy in self._copies)
                        if shorter or looked_at - checked_at >= _CHECK_SECONDS:
                            checked_at = looked_at
                            if self._replaced(topic, cluster):
                                return
                        self._compare(topic, {} if shorter else ends, marks)
                    for copy in self._copies:
                        self._gauges.show(copy, self._clock.now())
                if following and self._mend(topic, cluster, follower):
                    return
                yield
        finally:
            for copy in self._copies:
                if copy.replica is not None:
                    follower.remove(copy.replica)

    def _look(
        self, cluster: Cluster, places: list[TopicPartition]
    ) -> Mapping[TopicPartition, Watermarks] | None:
        self._looked_at = self._clock.now()
        try:
            return cluster.watermarks(places)
        except RetryLater as error:
            log.warning("view cannot look at the log's end", table=self._table, reason=str(error))
            return None

    def _compare(
        self, topic: TopicInfo, ends: Mapping[int, int], marks: Mapping[TopicPartition, Watermarks]
    ) -> None:
        """The log ends there, as of the last look."""
        for copy in self._copies:
            copy.low = marks[TopicPartition(topic.name, copy.partition)].low
            age = self._looked_at - copy.current_at
            if copy.caught_up and age * 1000 > topic.delete_retention_ms:
                # The process, or Kafka, stood still: what was deleted meanwhile may have left no trace in the log.
                copy.damage = StoreCorrupted(
                    f"it was last complete {age:.0f} s ago, and the topic keeps tombstones for "
                    f"{topic.delete_retention_ms / 1000:.0f} s: deleted keys could stay for ever"
                )
            elif copy.replica is not None and (reason := copy.replica.behind_start(copy.low)):
                copy.damage = StoreCorrupted(reason)
            elif ends and copy.looked(self._looked_at, ends[copy.partition]):
                self._note_whole(copy)
        self._judge()
        self._save_current()

    def _replaced(self, topic: TopicInfo, cluster: Cluster) -> bool | None:
        """Whether the topic was deleted and created again; None: nobody can tell now.

        Raises `TopicMismatch` if it has more partitions now.
        """
        try:
            found = cluster.topics([self._table]).get(self._table)
        except RetryLater as error:
            log.warning("view cannot look at its topic", table=self._table, reason=str(error))
            return None
        if found is None:
            return None  # deleted; perhaps it is going to be created again
        if found.topic_id == topic.topic_id:
            if found.partitions != topic.partitions:
                raise self._more_partitions(topic.partitions, found.partitions)
            return False
        log.warning("table's topic was deleted and created again: loading it anew", table=self._table)
        return True

    def _more_partitions(self, before: int, now: int) -> TopicMismatch:
        return TopicMismatch(
            f"the table {self._table!r} had {before} partitions and has {now} now: rows have stayed where they were, "
            "but new ones go elsewhere, so neither can be found by its key. Make a new topic of the right size and "
            "rebuild the table there",
            topic=self._table,
        )

    def _begin(
        self, topic: TopicInfo, marks: Mapping[TopicPartition, Watermarks], follower: Follower
    ) -> None:
        """Decide of each local copy whether it is good, and follow all."""
        if len(self._copies) not in {0, topic.partitions}:
            former, self._copies, self._whole = self._copies, [], False
            for copy in former:
                copy.store.close()
                self._on_discard(copy.partition, "the topic has another number of partitions now")
        if not self._copies:
            self._copies = [
                Copy(partition, *open_store(self._stores, self._table, partition))
                for partition in range(topic.partitions)
            ]
        for copy in self._copies:
            changelog = Changelog(topic, marks[TopicPartition(topic.name, copy.partition)])
            copy.low = changelog.marks.low
            try:
                checkpoint = copy.store.checkpoint()
                local = LocalPosition.decode(checkpoint) if checkpoint is not None else None
            except StoreCorrupted as error:
                self._discard(copy, error.message)
                local = None
            if (
                local is not None
                and local.topic_id == topic.topic_id
                and local.partitions != topic.partitions
            ):
                raise self._more_partitions(local.partitions, topic.partitions)
            if local is not None:
                reason = why_discard(changelog, local, self._clock.now())
                if reason := reason or behind_start(changelog.marks.low, local):
                    self._discard(copy, reason)
            self._add(copy, topic, follower)
        for table, partition in self._stores.present():
            if table == self._table and partition >= topic.partitions:
                # Of an earlier topic with more partitions: it would look like part of a copy at the next start.
                self._stores.destroy(table, partition)

    def _add(self, copy: Copy, topic: TopicInfo, follower: Follower) -> None:
        self.loads += 1
        copy.replica = Replica(
            topic,
            copy.partition,
            copy.store,
            self._clock,
            self._listener,
            applying=self._applying,
            begins=copy.low,
        )
        copy.replica.advance(copy.low)  # of an empty copy; any other is at least there
        follower.add(copy.replica, copy.replica.position, self._advanced)

    def _discard(self, copy: Copy, reason: str) -> None:
        answered = copy.whole
        copy.whole = copy.caught_up = self._whole = False  # from here on nobody is given an answer from it
        self.loads += 1  # before the store is replaced: an answer that was read meanwhile is not given
        copy.store.close()
        copy.restart(discard_store(self._stores, self._table, copy.partition, reason))
        if answered:
            self._on_discard(copy.partition, reason)

    def _mend(self, topic: TopicInfo, cluster: Cluster, follower: Follower) -> bool:
        """A replica that failed: a damaged one is loaded again; true: all must be; anything else ends the view."""
        for copy in self._copies:
            failure: Any = copy.damage or copy.failure
            if isinstance(failure, StoreCorrupted):
                self._reload(copy, failure.message, topic, follower)
            elif isinstance(failure, InputLost):
                # Of a topic that is made anew the records are gone, too; while nobody can tell, it is asked again.
                if (replaced := self._replaced(topic, cluster)) is not None:
                    if replaced:
                        return True
                    place = TopicPartition(topic.name, copy.partition)
                    if (marks := self._look(cluster, [place])) is not None:
                        copy.low = marks[place].low
                        self._reload(copy, failure.message, topic, follower)
            elif failure is not None:
                raise failure
        return False

    def _reload(self, copy: Copy, reason: str, topic: TopicInfo, follower: Follower) -> None:
        if copy.replica is not None:
            follower.remove(copy.replica)
        self._discard(copy, reason)
        self._add(copy, topic, follower)

    def _advanced(self, replica: Replica) -> None:
        copy = self._copies[replica.place.partition]
        self.arrivals.arrived(copy.partition, replica.position, None)
        if copy.advanced():
            self._note_whole(copy)
            self._judge()

    def _note_whole(self, copy: Copy) -> None:
        if copy.replica is not None:
            self._note(copy, copy.replica.mark_whole)

    def _save_current(self) -> None:
        """Note in the stores that they are current, though nothing has changed: a copy's age decides if it is good."""
        if self._clock.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self._saved_at = self._clock.monotonic()
            for copy in self._copies:
                if copy.replica is not None and copy.caught_up and copy.lag == 0:
                    self._note(copy, copy.replica.save)

    @staticmethod
    def _note(copy: Copy, write: Callable[[float], None]) -> None:
        try:
            write(copy.current_at)
        except StoreCorrupted as error:
            copy.damage = error  # mended in the same turn

    def _judge(self) -> None:
        whole = bool(self._copies) and all(copy.caught_up for copy in self._copies)
        if whole and not self._whole:
            log.info("view is whole", table=self._table, partitions=len(self._copies))
            self._whole = True
            with self._changed:
                self._changed.notify_all()

    def _end(self, error: Exception) -> None:
        self.arrivals.end(error)
        with self._changed:
            self._changed.notify_all()
        self._on_end()
