"""A table whose rows are in other processes, as services read one: in the place of a view."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from streamtable import Ack, Table
from streamtable.base.closing import Closing
from streamtable.errors import NotReady, RetryLater, StreamtableError
from streamtable.views.rows import OnUnreadable, RowList
from streamtable.views.view import Answer
from streamtable.views.watch import Watch
from streamtable.views.windows import END_MS
from streamtable_query.asking import TableQueries
from streamtable_query.changes import TableChanges

K = TypeVar("K")
V = TypeVar("V")

_STALE_SECONDS: Final = 5.0  # as a view's
_PAUSE_SECONDS: Final = 0.5
_ACCESS_SECONDS: Final = 1.0
_WAITS_MAX: Final = 128  # as a service lets wait at a time
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RemotePosition:
    """The greatest age in seconds of rows of a partition that are read now."""

    age_seconds: float


class RemoteTable(Closing, Generic[K, V]):
    """Reads a table for a service with the methods of a view, and holds no rows. Any thread.

        with RemoteTable(Query(kafka, ORDERS, ORDERS.table)) as orders:
            orders.answer("alice")

    It is ready once each partition has had a process to ask, one of them has accepted a call, and a member of a shared view has had its share. From then on each call
    says by itself what it cannot answer: a service that left its load balancer whenever one partition moves would answer for none of the others.

    Args:
        query: Asks the processes that have the rows, a `Query` or a `SharedView`; closed with this. The greater of its `max_age`
            and its `stale_ok` is the age that is stated of lists.
    """

    def __init__(self, query: TableQueries[K, V]) -> None:
        self._query = query
        self._changes = TableChanges(query.kafka, query.table, query.topic)
        self._reason = "the processes that answer are not known yet"
        self._failure: StreamtableError | None = None
        # Not the loop's own threads, which are few: a wait that has none yet has not begun.
        self._waits = ThreadPoolExecutor(_WAITS_MAX, thread_name_prefix="waits")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="processors", daemon=True)
        self._thread.start()

    @property
    def table(self) -> Table[K, V]:
        """The table."""
        return self._query.table

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._stopping.set()
        self._thread.join()
        self._changes.close()
        self._query.close()
        self._waits.shutdown()

    @property
    def ready(self) -> bool:
        """Whether each partition has had a process to ask. Raises the error that permits no answer, such as a missing permission or key."""
        self._query.check()
        if self._failure is not None:
            raise self._failure
        return not self._reason

    @property
    def not_ready(self) -> str:
        """The reason why it is not ready; empty if it is."""
        return self._reason

    def get(self, key: K) -> V | None:
        """Return the committed row of a key. Raises like `Query.get`."""
        return self._query.get(key).value

    def answer(self, key: K) -> Answer[V]:
        """Return the committed row of a key with its freshness. Raises like `Query.get`."""
        found = self._query.get(key)
        stale = found.age_seconds > _STALE_SECONDS
        return Answer(found.value, found.partition, found.offset, found.age_seconds, stale)

    def iterate(
        self, prefix: K | None = None, after: K | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Iterator[tuple[K, V]]:
        """Iterate over the rows of all processes in the order of encoded keys. See `Query.iterate`."""
        if self._reason:
            raise NotReady(self._reason)
        return self._query.iterate(prefix, after, on_unreadable)

    def position(self) -> Mapping[int, RemotePosition]:
        """Return the age that no row of a partition exceeds."""
        limits = self._query.limits
        age = max(limits.max_age, limits.stale_ok or 0.0)
        return dict.fromkeys(range(self._query.topic.partitions), RemotePosition(age))

    def windows(self, key: object, since_ms: int = 0, until_ms: int = END_MS) -> RowList[K, V]:
        """Return the windows of a key that overlap a range of time. See `Query.windows`."""
        return self._query.windows(key, since_ms, until_ms)

    async def wait_for_async(self, ack: Ack, timeout: float) -> None:  # noqa: ASYNC109 - as `View`
        """Return when the rows show the effect of an event. 128 calls at a time wait. Raises like `Query.wait_for`, and after `close`."""
        loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            raise NotReady("it is closed")
        await loop.run_in_executor(self._waits, self._query.wait_for, ack, timeout)

    def watch(
        self, key: K | None = None, prefix: K | None = None, *, on_unreadable: OnUnreadable | None = None
    ) -> Watch[K, V]:
        """Watch the changes from now on, as `View.watch` does: to miss nothing, begin to watch, then read the rows.

        They come from the table's topic, which is followed from the first watch on. The first call waits for that.

        Raises:
            NotReady: The topic is not followed within the time limit of calls, as when the permission to READ it is missing.
        """
        return self._changes.watch(key, prefix, on_unreadable, self._query.limits.deadline)

    def _missing(self) -> str:
        """Return the reason why it is not ready; empty if it is. Raises the error that permits no answer."""
        if reason := self._query.not_ready:
            return reason
        try:
            self._query.check_access(_ACCESS_SECONDS)
        except RetryLater as error:
            return error.message
        return ""

    def _look(self) -> None:
        try:
            while (reason := self._missing()) and not self._stopping.wait(_PAUSE_SECONDS):
                if reason != self._reason:
                    log.info("processors awaited", table=self.table.name, reason=reason)
                self._reason = reason
            self._reason = reason
        except StreamtableError as error:
            self._failure, self._reason = error, error.message
