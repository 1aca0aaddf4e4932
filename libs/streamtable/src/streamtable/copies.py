"""The partitions of a view's copy: opened from disk, followed in a thread, compared with the broker once a second."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.engine.follower import Follower
from streamtable.engine.position import LocalPosition
from streamtable.engine.recovery import Changelog, why_discard
from streamtable.engine.replica import Listener, Replica, discard_store, open_store
from streamtable.errors import InputLost, NotReady, RetryLater, StoreCorrupted, TopicMismatch
from streamtable.observe import Metrics
from streamtable.ports import Cluster, Log, Store, Stores, TopicInfo
from streamtable.types import TopicPartition

log = structlog.get_logger()

_STEP_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_LOOKS_KEPT = 120
_CHECK_SECONDS = 30.0  # how often the topic itself is looked at
_SAVE_SECONDS = 60.0
_WAIT_SECONDS_MAX = 5.0


class Copy:
    """One partition of a copy. Its fields are written by the thread, and may be read by all.

    Attributes:
        whole: it has reached the end that the log had when it was started, now or in an earlier life.
        current_at: wall time when it last held everything that the broker had.
    """

    def __init__(self, partition: int, store: Store, local: LocalPosition | None) -> None:
        self.partition = partition
        self.store = store
        self.whole = local.whole if local else False
        self.current_at = local.current_at if local else 0.0
        self.end: int | None = None  # of the log, at the last look
        self.replica: Replica | None = None
        self.damage: StoreCorrupted | None = None  # found by whoever read in it
        self._loaded = local.changelog if local else 0
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS_KEPT)  # when, and the end then

    @property
    def position(self) -> int:
        return self.replica.position if self.replica else self._loaded

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position) if self.end is not None else 0

    def restart(self, store: Store) -> None:
        """Begin anew with this empty store."""
        self.whole, self.store, self.replica, self._loaded = False, store, None, 0
        self.damage = None
        self._looks.clear()  # they were of what was there before

    def looked(self, now: float, end: int) -> bool:
        """The broker says that the log ends here. Returns whether the copy has become whole by it."""
        self.end = end
        self._looks.append((now, end))
        return self.advanced()

    def advanced(self) -> bool:
        """Draw the conclusions from a new position. Returns whether it has become whole by it."""
        became_whole = False
        while self._looks and self._looks[0][1] <= self.position:
            self.current_at = self._looks.popleft()[0]
            if self.replica is not None:
                self.replica.current_at = self.current_at
            if not self.whole:
                self.whole = became_whole = True
        return became_whole


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
        self.metrics.recovery_remaining.labels(*labels).set(0 if copy.whole else copy.lag)


class Copies:
    """All partitions of a table, in this process.

    Args:
        table: name of the topic.
        log_: Kafka.
        stores: where they live.
        clock: wall and monotonic time.
        listener: told of changed rows, in the thread.
        gauges: shown once a second.
        failed: called when an error has stopped the copies for good, in the thread.
    """

    def __init__(
        self,
        table: str,
        log_: Log,
        stores: Stores,
        clock: Clock,
        listener: Listener,
        gauges: Gauges,
        failed: Callable[[], None],
    ) -> None:
        self._table = table
        self._log = log_
        self._stores = stores
        self._clock = clock
        self._listener = listener
        self._gauges = gauges
        self._failed = failed
        self._copies: list[Copy] = []
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._whole = False
        self._saved_at = clock.monotonic()

    # ---- any thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._open_what_is_there()
        self._thread = threading.Thread(target=self._run, name=f"view-{self._table}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._whole = False
        self._stores.close()

    @property
    def whole(self) -> bool:
        """Every partition is. Raises what stopped the view, if something did."""
        if self._failure is not None:
            raise self._failure
        return self._whole

    def wait_whole(self, timeout: float | None) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._whole or self._failure or self._stop.is_set(), timeout)
        return self.whole

    def all(self) -> list[Copy]:
        return self._copies

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
        if not self._copies:
            return "the broker has not answered yet"
        loading = {copy.partition: copy.lag for copy in self._copies if not copy.whole}
        return f"{len(loading)} of {len(self._copies)} partitions are loading, {sum(loading.values()):,} records to go"

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _open_what_is_there(self) -> None:
        """Answer from disk at once, if it holds a copy that was whole: the broker may be away."""
        present = sorted(partition for table, partition in self._stores.present() if table == self._table)
        opened = [(p, *open_store(self._stores, self._table, p)) for p in present]
        partitions = {local.partitions for _, _, local in opened if local is not None}
        if present and partitions == {len(present)} and present == list(range(len(present))):
            self._copies = [Copy(partition, store, local) for partition, store, local in opened]
            self._judge()
        else:
            for _, store, _ in opened:
                store.close()

    def _run(self) -> None:
        cluster = self._log.cluster()
        try:
            while (topic := self._topic(cluster)) is not None:
                follower = Follower(self._log.table_reader(f"view-{self._table}"), self._advanced)
                try:
                    self._follow(topic, cluster, follower)
                finally:
                    follower.close()
        except BaseException as error:
            log.exception("view has stopped", table=self._table)
            self._failure = error
            with self._changed:
                self._changed.notify_all()
            self._failed()
        finally:
            cluster.close()

    def _topic(self, cluster: Cluster) -> TopicInfo | None:
        """The table's topic; waits for the broker. None if told to stop."""
        wait = 0.1
        while not self._stop.is_set():
            try:
                topic = cluster.topics([self._table]).get(self._table)
            except RetryLater as error:
                log.warning("view waits for Kafka", table=self._table, reason=str(error))
                self._stop.wait(wait)
                wait = min(2 * wait, _WAIT_SECONDS_MAX)
                continue
            if topic is None:
                raise TopicMismatch(
                    f"there is no topic {self._table!r} to view: declare it in topics.yaml and run "
                    "'streamtable topics apply'",
                    topic=self._table,
                )
            return topic
        return None

    def _follow(self, topic: TopicInfo, cluster: Cluster, follower: Follower) -> None:
        """Keep the copies current until told to stop, or until the topic is deleted and created again."""
        places = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
        looked_at, following = -_LOOK_SECONDS, False
        checked_at = self._clock.monotonic()
        while not self._stop.is_set():
            if self._clock.monotonic() - looked_at >= _LOOK_SECONDS:
                looked_at = self._clock.monotonic()
                now = self._clock.now()
                try:
                    marks = cluster.watermarks(places)
                except RetryLater as error:
                    log.warning("view cannot look at the log's end", table=self._table, reason=str(error))
                else:
                    if not following:
                        self._begin(
                            topic, {p.partition: Changelog(topic, marks[p]) for p in places}, follower
                        )
                        following = True
                    shorter = any(marks[places[copy.partition]].high < copy.position for copy in self._copies)
                    if shorter or looked_at - checked_at >= _CHECK_SECONDS:
                        checked_at = looked_at
                        if self._replaced(topic, cluster):
                            return
                    for copy in self._copies:
                        if not shorter and copy.looked(now, marks[places[copy.partition]].high):
                            self._note_whole(copy)
                    self._judge()
                    self._save_current()
                for copy in self._copies:
                    self._gauges.show(copy, now)
            if following:
                follower.step(_STEP_SECONDS)
                if self._mend(topic, cluster, follower):
                    return
            else:
                self._stop.wait(_STEP_SECONDS)

    def _replaced(self, topic: TopicInfo, cluster: Cluster) -> bool:
        """Whether the topic was deleted and created again. Raises `TopicMismatch` if it has more partitions now."""
        try:
            found = cluster.topics([self._table]).get(self._table)
        except RetryLater as error:
            log.warning("view cannot look at its topic", table=self._table, reason=str(error))
            return False
        if found is None or found.topic_id == topic.topic_id:
            if found is not None and found.partitions != topic.partitions:
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

    def _begin(self, topic: TopicInfo, changelogs: dict[int, Changelog], follower: Follower) -> None:
        """Decide of each local copy whether it is good, and follow all."""
        if len(self._copies) not in {0, topic.partitions}:
            former, self._copies, self._whole = self._copies, [], False
            for copy in former:
                copy.store.close()
        if not self._copies:
            self._copies = [
                Copy(partition, *open_store(self._stores, self._table, partition))
                for partition in range(topic.partitions)
            ]
        for copy in self._copies:
            changelog = changelogs[copy.partition]
            checkpoint = copy.store.checkpoint()
            local = LocalPosition.decode(checkpoint) if checkpoint is not None else None
            if (
                local is not None
                and local.topic_id == topic.topic_id
                and local.partitions != topic.partitions
            ):
                raise self._more_partitions(local.partitions, topic.partitions)
            if local is not None and (reason := why_discard(changelog, local, self._clock.now())):
                self._discard(copy, reason)
            self._add(copy, topic, follower, changelog.marks.low)
        for table, partition in self._stores.present():
            if table == self._table and partition >= topic.partitions:
                # Of an earlier topic with more partitions: it would look like part of a copy at the next start.
                self._stores.destroy(table, partition)

    def _add(self, copy: Copy, topic: TopicInfo, follower: Follower, low: int = 0) -> None:
        copy.replica = Replica(topic, copy.partition, copy.store, self._clock, self._listener)
        follower.add(copy.replica, max(copy.replica.position, low))

    def _discard(self, copy: Copy, reason: str) -> None:
        copy.whole = self._whole = False  # from here on nobody is given an answer from it
        copy.store.close()
        copy.restart(discard_store(self._stores, self._table, copy.partition, reason))

    def _mend(self, topic: TopicInfo, cluster: Cluster, follower: Follower) -> bool:
        """A replica that failed: a damaged one is loaded again; true: all must be; anything else ends the view."""
        for copy in self._copies:
            failure: Any = copy.damage or (copy.replica.failure if copy.replica else None)
            if isinstance(failure, StoreCorrupted):
                if copy.replica is not None:
                    follower.remove(copy.replica)
                self._discard(copy, failure.message)
                self._add(copy, topic, follower)
            elif failure is not None:
                if isinstance(failure, InputLost) and self._replaced(topic, cluster):
                    return True
                raise failure
        return False

    def _advanced(self, replica: Replica) -> None:
        copy = self._copies[replica.place.partition]
        if copy.advanced():
            self._note_whole(copy)
            self._judge()

    def _note_whole(self, copy: Copy) -> None:
        if copy.replica is not None:
            copy.replica.mark_whole(copy.current_at)

    def _save_current(self) -> None:
        """Note in the stores that they are current, though nothing has changed: a copy's age decides if it is good."""
        if self._clock.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self._saved_at = self._clock.monotonic()
            for copy in self._copies:
                if copy.replica is not None and copy.whole and copy.lag == 0:
                    copy.replica.save(copy.current_at)

    def _judge(self) -> None:
        whole = bool(self._copies) and all(copy.whole for copy in self._copies)
        if whole and not self._whole:
            log.info("view is whole", table=self._table, partitions=len(self._copies))
            self._whole = True
            with self._changed:
                self._changed.notify_all()
