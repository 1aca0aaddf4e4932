"""What the views of a process share: one consumer, one thread, one client for questions."""

import threading
from collections.abc import Iterator

import structlog

from streamtable.clock import Clock
from streamtable.observe import Metrics
from streamtable.ports import Cluster, Log, Stores
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.replica_set import ReplicaSet
from streamtable.types import TopicPartition
from streamtable.views.read_your_writes import CommitWatcher

log = structlog.get_logger()

_STEP_SECONDS = 0.1


class Host:
    """Keeps the copies of some tables current, together. A table that fails does not stop the others.

    Args:
        log_: Kafka.
        stores: where the copies live; of this host alone, which closes them.
        clock: wall and monotonic time.
        metrics: where positions and ages go.
        name: on the metrics and in the log.

    Attributes:
        commits: what groups have committed, for views that wait for an event's effect.
    """

    def __init__(self, log_: Log, stores: Stores, clock: Clock, metrics: Metrics, name: str) -> None:
        self.log, self.stores, self.clock, self.metrics, self.name = log_, stores, clock, metrics, name
        self.commits = CommitWatcher(self._cluster, clock)
        self._tables: list[ReplicaSet] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._started = False
        self._thread: threading.Thread | None = None
        self._client: Cluster | None = None
        self._reader: ChangelogReader | None = None

    def add(self, copies: ReplicaSet) -> None:
        """Keep this table current too, from the start on, or from now on if that was before."""
        with self._lock:
            if self._started and not self._stop.is_set():
                copies.open()
            self._tables.append(copies)
        if self._stop.is_set():
            copies.stop()

    def start(self) -> None:
        """Open what is on disk and begin to follow, in a thread. Does not wait for the broker."""
        self.open()
        self.commits.start()
        self._thread = threading.Thread(target=self._run, name=f"views-{self.name}", daemon=True)
        self._thread.start()

    def open(self) -> None:
        """Open what is on disk. Whoever calls `step` by himself begins with it."""
        with self._lock:
            self._started = True
            for copies in self._tables:
                copies.open()

    def step(self, timeout: float) -> int:
        """A turn for each table and for the consumer. Returns how many records came; `timeout` seconds for the first.

        Raises:
            Exception: the consumer cannot go on; all tables have ended with it.
        """
        tables = self._all()
        try:
            if self._reader is None:
                self._reader = ChangelogReader(self.log.table_reader(f"views-{self.name}"))
            for copies in tables:
                copies.turn(self._cluster(), self._reader)
            return self._reader.step(0 if self._reader.idle else timeout)
        except Exception as error:
            self._let_go()
            for copies in tables:
                copies.fail(error)
            raise

    def turns(self) -> Iterator[float]:
        """What the thread does, turn by turn, with the seconds to wait after each, until nothing is left to follow."""
        while not self._stop.is_set() and not all(copies.ended for copies in self._all()):
            try:
                self.step(_STEP_SECONDS)
            except Exception:
                log.exception("views have stopped", name=self.name)  # every table raises it when asked
                return
            yield _STEP_SECONDS if self._reader is None or self._reader.idle else 0.0

    def close(self) -> None:
        """Stop following, wake all who wait, close the copies. May be called twice."""
        self._stop.set()
        self.commits.close()
        for copies in self._all():
            copies.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for copies in self._all():
            copies.close()
        self._let_go()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        self.stores.close()

    def check(self) -> None:
        """Raises what has stopped one of the tables for good, if something has."""
        for copies in self._all():
            copies.check()

    @property
    def threaded(self) -> bool:
        """It was started, so whoever waits does not wait in vain."""
        return self._thread is not None

    def end_of(self, place: TopicPartition) -> int:
        """Where the log ends now. Raises `RetryLater`."""
        return self._cluster().watermarks([place])[place].high

    def _run(self) -> None:
        while not self._stop.is_set():  # a table may be added after the others have ended
            for seconds in self.turns():
                self._stop.wait(seconds)
            self._stop.wait(_STEP_SECONDS)

    def _all(self) -> list[ReplicaSet]:
        with self._lock:
            return list(self._tables)

    def _cluster(self) -> Cluster:
        with self._lock:
            self._client = self._client or self.log.cluster()
            return self._client

    def _let_go(self) -> None:
        follower, self._reader = self._reader, None
        if follower is not None:
            follower.close()
