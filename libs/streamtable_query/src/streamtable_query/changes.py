"""Live changes of the rows of a table, for a process that holds no rows: they are read from the table's topic."""

import threading
from contextlib import closing
from operator import ge
from typing import Final, Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from streamtable import Kafka, Table
from streamtable.base.closing import Closing
from streamtable.base.message import latest, prefix_header, with_prefixes
from streamtable.base.ports import ClusterClient
from streamtable.base.topics import hash_of_rows
from streamtable.base.types import RecordBatch
from streamtable.errors import NotReady
from streamtable.observe import Metrics
from streamtable.views.rows import OnUnreadable, RowReader
from streamtable.views.topic_follower import TopicFollower
from streamtable.views.watch import Watch, Watches
from streamtable_query.topic import QueriedTopic

K = TypeVar("K")
V = TypeVar("V")

_BEFORE: Final = 2_000  # offsets; behind the last record there are markers of transactions
_RETRY_SECONDS: Final = 1.0
log = structlog.get_logger()


class TableChanges(Closing, Generic[K, V]):
    """Follows the topic of a table from the first watch on, with one consumer and one thread for all watches. Any thread.

    Args:
        kafka: The cluster.
        table: The table.
        answers: The topic as those who answer about the table know it. Answers after a watch was opened hold all that came
            before it. So a caller who begins to watch, and then reads the rows, misses no change.
    """

    def __init__(self, kafka: Kafka, table: Table[K, V], answers: QueriedTopic) -> None:
        self._kafka, self._table, self._answers = kafka, table, answers
        self._watches: Watches[K, V] = Watches()
        self._topic_id = ""
        self._ends: list[int] = []  # the watches were offered all records below them
        hash_key, metrics = hash_of_rows(table), Metrics.register(CollectorRegistry())
        self._reader = RowReader(table, lambda key: hash_key(key) % len(self._ends), metrics, "query")
        self._lock = threading.Lock()  # no watch is opened between one topic and the next one
        self._following, self._stopping, self._reason = threading.Event(), threading.Event(), ""
        self._thread = threading.Thread(target=self._run, name=f"changes-{table.name}", daemon=True)

    def watch(
        self, key: K | None, prefix: K | None, on_unreadable: OnUnreadable | None, timeout: float
    ) -> Watch[K, V]:
        """Watch changes as `View.watch` does. The first call waits until the topic is followed.

        Raises:
            NotReady: It is not followed after `timeout` seconds, or answers are still of an earlier topic of its name.
        """
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()
        self._following.wait(timeout)
        with self._lock:
            if not self._following.is_set():
                raise NotReady(f"the changes of {self._table.name!r} are not followed yet: {self._reason}")
            watch = self._watches.open(self._reader, key, prefix, on_unreadable)
            topic_id, ends = self._topic_id, dict(enumerate(self._ends))
        try:
            self._answers.hold(ends, topic_id)
        except BaseException:
            watch.close()
            raise
        return watch

    def close(self) -> None:
        """End all watches, and follow the topic no more. May be called twice."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    # ---- its thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with closing(self._kafka.admin()) as cluster:
            while not self._stopping.is_set():
                try:
                    self._follow(cluster)
                except Exception as error:  # noqa: BLE001 - a missing topic or permission may come
                    log.warning("changes interrupted", table=self._table.name, reason=str(error))
                    with self._lock:
                        self._following.clear()
                        self._reason = str(error)
                        self._watches.reloaded(None, self._reason)
                    self._stopping.wait(_RETRY_SECONDS)
        self._watches.close()

    def _follow(self, cluster: ClusterClient) -> None:
        follower = TopicFollower(self._kafka, cluster, self._table.name, _BEFORE)
        # Below the start of a topic there are no records, and those who answer may never reach it: see `_offer`.
        spans = zip(follower.starts, follower.ends, strict=True)
        self._ends = [start if end - start == _BEFORE else 0 for start, end in spans]
        self._topic_id = follower.info.topic_id
        header = prefix_header(self._table.value)
        with closing(follower.batches("changes", self._stopping)) as read:
            for batches, positions in read:
                for batch in batches:
                    self._offer(with_prefixes(batch, header))
                if all(map(ge, positions, follower.ends)):
                    self._following.set()

    def _offer(self, batch: RecordBatch) -> None:
        # Before the watches: a watch that is opened now gets these records, or answers hold them.
        self._ends[batch.partition] = batch.last_offset + 1
        rows, offsets = latest(batch), dict(zip(batch.keys, batch.offsets, strict=True))
        for key in filter(self._watches.watched, rows):
            # Each with its own offset, which says whether a row that was read has the change already.
            self._watches.changed(batch.partition, {key: rows[key]}, offsets[key] + 1)
