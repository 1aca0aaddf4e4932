"""Brings the tables of newly assigned partitions up to date, in the background, while others go on working."""

import threading
from collections.abc import Mapping
from enum import Enum
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.engine.failpoint import Failpoint
from streamtable.engine.follower import Follower
from streamtable.engine.position import LocalPosition
from streamtable.engine.recovery import Changelog, InputState, Plan, plan
from streamtable.engine.replica import Replica, discard_store, open_store
from streamtable.errors import RetryLater, StoreCorrupted, StoreInUse, StreamtableError
from streamtable.graph import Group
from streamtable.ports import Cluster, Store, Stores, TableReader, TopicInfo
from streamtable.types import TopicPartition
from streamtable.wanted import check_topics

log = structlog.get_logger()

_RETRY_SECONDS = 0.2
_IN_USE_SECONDS_MAX = 30.0  # a former owner on this machine may still be closing
_REPORT_SECONDS = 10.0


class Stage(Enum):
    """How far a partition's recovery is."""

    ASKING = "asking"  # for offsets and positions
    LOADING = "loading"  # reading its changelog
    READY = "ready"  # its store is complete and belongs to the task from now on
    FAILED = "failed"
    CANCELLED = "cancelled"


class Restore:
    """The recovery of one partition. Its fields are written by the background thread until it is READY."""

    def __init__(self, partition: int, store: Store | None) -> None:
        self.partition = partition
        self.store = store
        self.stage = Stage.ASKING
        self.plan: Plan | None = None
        self.replica: Replica | None = None
        self.topics: Mapping[str, TopicInfo] = {}
        self.failure: Exception | None = None
        self.ask_again_at = 0.0
        self.in_use_since: float | None = None
        self.lock = (
            threading.Lock()
        )  # held while its store is opened: cancelling waits for that, not for the broker

    @property
    def changelog_position(self) -> int:
        return max(self.replica.position, self.plan.read_to) if self.replica and self.plan else 0

    @property
    def remaining(self) -> int:
        """Changelog offsets still to read."""
        if self.stage is not Stage.LOADING or self.plan is None or self.replica is None:
            return 0
        return max(0, self.plan.read_to - self.replica.position)


class Restorer:
    """Runs restores. `step` belongs to one thread (the background's); the rest to the main thread.

    Args:
        group: the graph.
        cluster: asked for topics, offsets and watermarks.
        reader: for the changelogs; not used by anybody else.
        stores: where tables live.
        clock: wall time for the age of copies, monotonic for retries.
        exactly_once: the guarantee of the process.
        failpoint: between the steps.
    """

    def __init__(
        self,
        group: Group[Any, Any],
        cluster: Cluster,
        reader: TableReader,
        stores: Stores,
        clock: Clock,
        *,
        exactly_once: bool,
        failpoint: Failpoint,
    ) -> None:
        self._group = group
        self._cluster = cluster
        self._stores = stores
        self._clock = clock
        self._exactly_once = exactly_once
        self._reached = failpoint
        self._follower = Follower(reader, self._advanced)
        self._restores: dict[int, Restore] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._reported_at = 0.0

    # ---- main thread -----------------------------------------------------------------------------------------------

    def begin(self, partition: int, store: Store | None = None) -> Restore:
        """Start recovering a partition.

        Args:
            partition: its number.
            store: if it is open already (a recovery after an unknown outcome).
        """
        restore = Restore(partition, store)
        with self._lock:
            self._restores[partition] = restore
        self._wake.set()
        return restore

    def cancel(self, restore: Restore) -> None:
        """Stop and close its store; nothing touches the store after this returns."""
        with restore.lock:
            restore.stage = Stage.CANCELLED
        self._forget(restore)
        if restore.replica is not None:
            self._follower.remove(restore.replica)
        if restore.store is not None:
            restore.store.close()

    def close(self) -> None:
        """After the background thread has ended."""
        self._follower.close()

    # ---- background thread -----------------------------------------------------------------------------------------

    def step(self, timeout: float) -> None:
        """Do a slice of the work; wait at most `timeout` seconds if there is none."""
        now = self._clock.monotonic()
        with self._lock:
            asking = [r for r in self._restores.values() if r.stage is Stage.ASKING and r.ask_again_at <= now]
        for restore in asking:
            self._try(restore)
        if self._follower.idle:
            if not asking:
                self._wake.wait(timeout)
                self._wake.clear()
        else:
            self._follower.step(timeout)
            self._report(now)

    def _try(self, restore: Restore) -> None:
        try:
            self._prepare(restore)
        except RetryLater as error:
            log.info("recovery waits", partition=restore.partition, reason=str(error))
            restore.ask_again_at = self._clock.monotonic() + _RETRY_SECONDS
        except StoreInUse as error:
            now = self._clock.monotonic()
            restore.in_use_since = restore.in_use_since or now
            if now - restore.in_use_since > _IN_USE_SECONDS_MAX:
                self._failed(restore, error)
            else:
                log.warning("recovery waits for the folder", partition=restore.partition, reason=str(error))
                restore.ask_again_at = now + 1.0
        except StreamtableError as error:
            self._failed(restore, error)

    def _prepare(self, restore: Restore) -> None:
        partition = restore.partition
        topics = check_topics(self._group, self._cluster)
        places = [TopicPartition(topic, partition) for topic in self._group.input_topics]
        # First the offsets: asking waits for a pending commit of the former owner, and what is asked later is newer.
        committed = self._cluster.stable_offsets(self._group.name, places)
        table = topics[self._group.table.name] if self._group.persist else None
        changelog_place = TopicPartition(table.name, partition) if table else None
        marks = self._cluster.watermarks([*places, *([changelog_place] if changelog_place else [])])
        starts = {edge.stream.name: edge.start for edge in self._group.inputs}
        inputs = {
            place.topic: InputState(committed[place], marks[place], starts.get(place.topic, "earliest"))
            for place in places
        }
        changelog = Changelog(table, marks[changelog_place]) if table and changelog_place else None
        with restore.lock:
            if restore.stage is Stage.CANCELLED:
                return
            restore.topics = topics
            self._open(restore, inputs, changelog)
            self._reached("plan-made")
            self._start(restore)

    def _open(self, restore: Restore, inputs: Mapping[str, InputState], changelog: Changelog | None) -> None:
        local: LocalPosition | None = None
        if changelog is not None:
            if restore.store is None:
                restore.store, local = open_store(self._stores, changelog.topic.name, restore.partition)
            elif (checkpoint := restore.store.checkpoint()) is not None:
                local = LocalPosition.decode(checkpoint)
        restore.plan = plan(
            restore.partition,
            inputs,
            changelog,
            local,
            exactly_once=self._exactly_once,
            now=self._clock.now(),
        )
        if changelog is not None and restore.store is not None:
            if restore.plan.discard:
                restore.store.close()
                restore.store = discard_store(
                    self._stores, changelog.topic.name, restore.partition, restore.plan.discard
                )
            restore.replica = Replica(changelog.topic, restore.partition, restore.store, self._clock)

    def _start(self, restore: Restore) -> None:
        todo, replica = restore.plan, restore.replica
        if todo is None or replica is None or todo.read_from >= todo.read_to:
            if replica is not None:
                replica.mark_whole(self._clock.now())
            self._ready(restore)
            return
        log.info(
            "table is loading", group=self._group.name, partition=restore.partition,
            read_from=todo.read_from, read_to=todo.read_to,
        )  # fmt: skip
        restore.stage = Stage.LOADING
        self._follower.add(replica, todo.read_from)

    def _advanced(self, replica: Replica) -> None:
        self._reached("copy-loading")
        with self._lock:
            restore = self._restores.get(replica.place.partition)
        if restore is None or restore.replica is not replica or restore.plan is None:
            return
        if replica.position >= restore.plan.read_to:
            self._follower.remove(replica)
            try:
                replica.mark_whole(self._clock.now())
            except StreamtableError as error:
                self._failed(restore, error)
                return
            self._reached("copy-loaded")
            self._ready(restore)

    def _ready(self, restore: Restore) -> None:
        self._forget(restore)
        restore.stage = Stage.READY

    def _failed(self, restore: Restore, error: StreamtableError) -> None:
        if isinstance(error, StoreCorrupted) and restore.store is not None:
            log.warning("local copy is damaged", partition=restore.partition, reason=str(error))
            restore.store.close()
            self._stores.destroy(self._group.table.name, restore.partition)
            restore.store = restore.replica = None
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
            if restore.replica is not None and restore.replica.failure is not None:
                error = restore.replica.failure
                self._failed(
                    restore, error if isinstance(error, StreamtableError) else StreamtableError(str(error))
                )
        if loading and now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            log.info("tables are loading", remaining={r.partition: r.remaining for r in loading})
