"""Keeps the tables of several views current, with one consumer, one thread and one admin client."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import structlog

from streamtable.base.clock import Clock
from streamtable.base.own_process import OwnProcess
from streamtable.base.ports import ClusterClient, Log, Stores
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater
from streamtable.observe import Metrics
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.replica_set import ReplicaSet
from streamtable.views.read_your_writes import CommitWatcher

log = structlog.get_logger()

_STEP_SECONDS = 0.1


class ViewUpdater:
    """Keeps the replicas of some tables current, together. A table that fails does not stop the others.

    Args:
        log_: Kafka.
        stores: The local stores of the replicas. The updater closes them.
        clock: Wall and monotonic time.
        metrics: The metrics of positions and ages.
        name: The name on the metrics and in the log.

    Attributes:
        commits: The committed offsets of groups, for views that wait for the effect of an event.
    """

    def __init__(self, log_: Log, stores: Stores, clock: Clock, metrics: Metrics, name: str) -> None:
        self.log, self.stores, self.clock, self.metrics, self.name = log_, stores, clock, metrics, name
        self.commits = CommitWatcher(self._cluster, clock)
        self._tables: list[ReplicaSet] = []
        self._here = OwnProcess("the App with its views")
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._opened = False
        self._thread: threading.Thread | None = None
        self._client: ClusterClient | None = None
        self._reader: ChangelogReader | None = None

    # ---- any thread ------------------------------------------------------------------------------------------------

    def add(self, replicas: ReplicaSet) -> None:
        """Keep this table current too, now or once started. Raises `UsedAfterFork`."""
        self._here.check()
        with self._lock:
            if self._opened and not self._stop.is_set():
                replicas.open()
            self._tables.append(replicas)
        if self._stop.is_set():
            replicas.stop()

    def remove(self, replicas: ReplicaSet) -> None:
        """Stop following this table and close its stores. May be called twice."""
        replicas.stop()
        thread = self._thread
        while thread is not None and thread.is_alive() and not replicas.closed.wait(_STEP_SECONDS):
            pass  # its thread may be working on them
        self._remove(replicas)

    def start(self) -> None:
        """Open the replicas on disk and follow them in a thread. Does not wait for the broker."""
        self.open()
        self.commits.start()
        self._thread = threading.Thread(target=self._run, name=f"views-{self.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following, wake all callers that wait, close the stores. May be called twice."""
        self._stop.set()
        self.commits.close()
        for replicas in self._all():
            replicas.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for replicas in self._all():
            replicas.close()
        with self._lock:
            client, self._client = self._client, None
        with ExitStack() as closing:  # each, also when another one fails
            closing.callback(self.stores.close)
            if client is not None:
                closing.callback(client.close)
            closing.callback(self._close_reader)

    def check(self) -> None:
        """Raise the error that has stopped one of the tables for good, if there is one."""
        for replicas in self._all():
            replicas.check()

    @property
    def threaded(self) -> bool:
        """Whether it works in a thread, so that waiting for it makes sense."""
        return self._thread is not None

    def end_of(self, place: TopicPartition) -> int:
        """Return the present end of a partition. Raises `RetryLater`."""
        return self._cluster().watermarks([place])[place].high

    # ---- its thread, or a test's -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the replicas on disk. Call before `step` when driving it manually."""
        with self._lock:
            self._opened = True
            for replicas in self._tables:
                replicas.open()

    def step(self, timeout: float) -> int:
        """Run the turn of each table and read once, waiting `timeout` seconds for the first record.

        Returns:
            How many records were applied.

        Raises:
            Exception: The consumer cannot continue; all tables have ended with it.
        """
        for replicas in self._all():
            if replicas.stopped:
                self._remove(replicas)
        tables = [replicas for replicas in self._all() if not replicas.ended]
        if self._idle and not tables:
            return 0
        try:
            if self._reader is None:
                self._reader = ChangelogReader(lambda: self.log.table_reader(f"views-{self.name}"))
            for replicas in tables:
                replicas.turn(self._cluster(), self._reader)
            return self._reader.step(0 if self._reader.idle else timeout)
        except RetryLater as error:  # no client can be made, as there is no token to log in with
            log.warning("views wait for Kafka", name=self.name, reason=str(error))
            self._stop.wait(1.0)
            return 0
        except Exception as error:
            self._close_reader()
            for replicas in tables:
                replicas.fail(error)
            raise

    def turns(self) -> Iterator[float]:
        """Step until closed: a table may be added after the others have ended. Yields the seconds to wait after each step."""
        while not self._stop.is_set():
            try:
                self.step(_STEP_SECONDS)
            except Exception:
                log.exception("views have stopped", name=self.name)  # every view raises it when asked
            yield _STEP_SECONDS if self._idle else 0.0

    @property
    def _idle(self) -> bool:
        return self._reader is None or self._reader.idle

    def _run(self) -> None:
        try:
            for seconds in self.turns():
                self._stop.wait(seconds)
        except Exception as error:
            # Nothing follows the tables from here on, and their readers must not take them for current.
            for replicas in self._all():
                replicas.fail(error)
            raise

    def _remove(self, replicas: ReplicaSet) -> None:
        with self._lock:
            if replicas in self._tables:
                self._tables.remove(replicas)
        replicas.close()

    def _all(self) -> list[ReplicaSet]:
        with self._lock:
            return list(self._tables)

    def _cluster(self) -> ClusterClient:
        with self._lock:
            self._client = self._client or self.log.cluster()
            return self._client

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
