"""A member of a shared view: it holds its share of a table's partitions on disk, and answers for them."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from streamtable import Kafka, PartitionNotAssigned, Table
from streamtable.app import local_stores
from streamtable.base.clock import Clock
from streamtable.base.closing import Closing
from streamtable.base.message import prefix_header
from streamtable.base.ports import TopicInfo
from streamtable.base.types import TopicPartition
from streamtable.errors import GraphError, NotReady, RetryLater
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.replica import PartitionReplica
from streamtable.tables.retention import remove_old_state
from streamtable.tables.standby import Standby
from streamtable_query.answers import MAX_AGE_SECONDS
from streamtable_query.copies import reading
from streamtable_query.shares import share_of
from streamtable_query.sources import FoundRows, Page, page_of
from streamtable_supervisor.system import trim_heap

_STEP_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 1.0
_CLEAN_SECONDS: Final = 30.0

log = structlog.get_logger()


class Shard(Closing):
    """Holds a share of a table, as a member of a consumer group on the table's topic; a `RowSource`. Any thread.

    The group is used for its members alone: nothing is read through it, and nothing is committed.

    Args:
        kafka: The cluster, with the address of this process in the client id.
        table: The table.
        group: The consumer group.
        instance: The name of this process among its members.
        replicas: The members that hold each partition.
        folder: The folder of the replicas.
        memory_bytes: The memory of their caches.
        clock: Wall and monotonic time.
    """

    def __init__(
        self,
        kafka: Kafka,
        table: Table[Any, Any],
        group: str,
        instance: str,
        replicas: int,
        folder: Path,
        memory_bytes: int,
        clock: Clock,
    ) -> None:
        self._kafka, self._table, self._group, self._instance = kafka, table.name, group, instance
        self._replicas, self._prefix_headers = replicas, {table.name: prefix_header(table.value)}
        self._clock = clock
        self._stores = local_stores(folder, memory_bytes)
        self._cluster = kafka.admin()
        self._topic: TopicInfo | None = None
        self._standby: Standby | None = None
        self._share: frozenset[int] | None = None  # None: not joined yet
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"shard-{table.name}", daemon=True)
        self._thread.start()

    # ---- any thread ------------------------------------------------------------------------------------------------

    @property
    def group(self) -> str:
        return self._group

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions of its share; none before it has joined the others."""
        return self._share or frozenset()

    def check(self) -> None:
        """Raise the error that has stopped it, if one has."""
        if self._failure is not None:
            raise self._failure

    @property
    def not_ready(self) -> str:
        """The reason why it cannot answer for all of its share; empty if it can."""
        if self._failure is not None:
            return f"it has stopped: {self._failure}"
        if (share := self._share) is None:
            return "it is joining the other members"
        copies = [self._replica(number) for number in share]
        missing = sum(copy is None or not copy.current for copy in copies)
        return f"{missing} of its {len(copies)} partitions are loading" if missing else ""

    def topic_id(self, table: str) -> str:
        if table != self._table:
            raise GraphError(
                f"the shared view {self._group!r} holds the table {self._table!r}, not {table!r}"
            )
        if (topic := self._topic) is None:
            raise NotReady(f"the shared view {self._group!r} is starting here")
        return topic.topic_id

    def get(self, table: str, partition: int, keys: Sequence[bytes], stale_ok: float | None) -> FoundRows:
        with reading(self._held(table, partition), stale_ok, self._clock) as copied:
            values = copied.rows.get_many(keys)
        return FoundRows(values, copied.offset, copied.age_seconds, "view")

    def page(
        self, table: str, partition: int, start: bytes | None, end: bytes | None, stale_ok: float | None
    ) -> Page:
        with reading(self._held(table, partition), stale_ok, self._clock) as copied:
            return page_of(copied, start, end, "view")

    def close(self) -> None:
        """Leave the other members, and close the replicas. May be called twice."""
        self._stopping.set()
        self._thread.join()
        self._stores.close()
        self._cluster.close()

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _replica(self, partition: int) -> PartitionReplica | None:
        standby = self._standby
        return None if standby is None else standby.replica(self._table, partition)

    def _held(self, table: str, partition: int) -> PartitionReplica:
        if self._failure is not None:
            raise NotReady(f"the shared view {self._group!r} has stopped here: {self._failure}")
        if (replica := self._replica(partition)) is None:
            raise PartitionNotAssigned(self._group, table, partition, tuple(sorted(self.partitions)))
        return replica

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._topic is None:
                    self._look_for_topic()
                else:
                    self._follow(self._topic)
        except BaseException as error:  # noqa: BLE001 - shown to those who ask
            log.critical("shard stopped", group=self._group, reason=f"{type(error).__name__}: {error}")
            self._failure = error

    def _look_for_topic(self) -> None:
        try:
            self._topic = self._cluster.topics([self._table]).get(self._table)
            reason = "there is no such topic yet"
        except RetryLater as error:
            reason = error.message
        if self._topic is None:
            log.warning("shard waits for its topic", table=self._table, reason=reason)
            self._stopping.wait(_PAUSE_SECONDS)

    def _is_gone(self, topic: TopicInfo) -> bool:
        """Return whether the topic was deleted, even if another one has its name now. False while that is not known."""
        try:
            found = self._cluster.topics([topic.name]).get(topic.name)
        except RetryLater as error:
            log.debug("shard cannot describe its topic", table=topic.name, reason=error.message)
            return False
        return found is None or found.topic_id != topic.topic_id

    def _follow(self, topic: TopicInfo) -> None:
        """Hold the share of a table until this ends or the topic is deleted."""
        consumer = self._kafka.group_consumer(self._group, self._instance)
        reader = ChangelogReader(lambda: self._kafka.table_reader(f"{self._group}-{self._instance}"))

        def choose() -> frozenset[int]:
            members, this = self._cluster.group_members(self._group), consumer.membership().member_id
            if this not in members:
                raise RetryLater("it has not joined the other members")
            self._share = share_of(members.index(this), len(members), topic.partitions, self._replicas)
            return self._share

        standby = Standby(
            (),
            [topic],
            self._cluster,
            reader,
            self._stores,
            self._clock,
            lambda _: None,
            choose=choose,
            prefix_headers=self._prefix_headers,
        )
        self._standby = standby
        try:
            consumer.subscribe([topic.name], _Members())
            cleaned_at = asked_at = self._clock.monotonic()
            loading = True
            while not self._stopping.is_set():
                consumer.poll(1, 0 if not reader.idle else _STEP_SECONDS)  # its partitions stay paused
                standby.step(loading=False)
                if not reader.idle:
                    reader.step(_STEP_SECONDS)
                before, loading = loading, bool(self.not_ready)
                if before and not loading:
                    trim_heap()  # the records that a load has read leave several times the size of the rows free
                now = self._clock.monotonic()
                if now - cleaned_at > _CLEAN_SECONDS:
                    cleaned_at = now
                    remove_old_state(self._stores, self._kept, _CLEAN_SECONDS, self._clock.now())
                if now - asked_at > MAX_AGE_SECONDS:
                    asked_at = now
                    if self._is_gone(topic):
                        log.warning("table's topic was deleted: looking for it again", table=topic.name)
                        self._topic = None
                        return
        finally:
            self._standby = self._share = None  # before the replicas are closed: no thread reads them
            consumer.close()
            standby.close()
            reader.close()

    def _kept(self, table: str, partition: int) -> bool:
        """Return whether a replica on the disk stays: any, before it is known which are of this share, and those of other tables."""
        standby = self._standby
        return (
            standby is None
            or self._share is None
            or table != self._table
            or standby.keeps(table, partition)
            or standby.replica(table, partition) is not None
        )


class _Members:
    """Takes no partition: the members of the group count, not what Kafka assigns to them. A `RebalanceListener`."""

    def assigned(self, places: Sequence[TopicPartition]) -> None: ...

    def revoked(self, places: Sequence[TopicPartition]) -> None: ...

    def lost(self, places: Sequence[TopicPartition]) -> None: ...
