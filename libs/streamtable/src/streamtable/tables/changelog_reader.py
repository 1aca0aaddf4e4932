"""Follows changelog partitions into replicas, with one consumer, one slice at a time."""

import threading
from collections.abc import Callable

import structlog

from streamtable.errors import InputLost, StreamtableError
from streamtable.ports import TableReader
from streamtable.tables.replica import Replica
from streamtable.types import TopicPartition

log = structlog.get_logger()

_POLL_RECORDS = 10_000
Advanced = Callable[[Replica], object]


class Follower:
    """Reads changelogs and applies them. `step` belongs to one thread; `add` and `remove` may come from any.

    Args:
        reader: not used by anybody else.
        advanced: called after each step for every replica that is followed, in the follower's thread, unless `add` has
            named another for it.
    """

    def __init__(self, reader: TableReader, advanced: Advanced | None = None) -> None:
        self._reader = reader
        self._advanced = advanced
        self._replicas: dict[TopicPartition, Replica] = {}
        self._callbacks: dict[TopicPartition, Advanced | None] = {}
        self._to_assign: dict[TopicPartition, int] = {}
        self._to_unassign: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()
        # Held while replicas are worked on: when `remove` returns, nothing touches the replica's store any more.
        self._lock = threading.RLock()

    def add(self, replica: Replica, start: int, advanced: Advanced | None = None) -> None:
        """Follow it from this offset on."""
        with self._lock:
            self._replicas[replica.place] = replica
            self._callbacks[replica.place] = advanced or self._advanced
            self._to_assign[replica.place] = start

    def remove(self, replica: Replica) -> None:
        """Follow it no more; its store is not touched after this returns."""
        with self._lock:
            if self._replicas.get(replica.place) is replica:
                del self._replicas[replica.place], self._callbacks[replica.place]
                self._to_assign.pop(replica.place, None)
                self._to_unassign.add(replica.place)

    @property
    def idle(self) -> bool:
        with self._lock:
            return not self._replicas and not self._to_unassign & self._assigned

    def step(self, timeout: float) -> int:
        """Read and apply what there is; at most `timeout` seconds if there is nothing. Returns the records applied."""
        self._change_assignment()
        try:
            batches = self._reader.poll(_POLL_RECORDS, timeout)
        except InputLost as error:
            self._lost(TopicPartition(error.topic or "", error.partition or 0), error)
            return 0
        applied = 0
        for records in batches:
            with self._lock:
                replica = self._replicas.get(records.place)
                if replica is None or records.place in self._to_assign:
                    continue
                try:
                    replica.apply(records)
                    applied += len(records)
                except StreamtableError as error:
                    self._fail(records.place, error)
        with self._lock:
            for place, replica in list(self._replicas.items()):
                # A callback may have removed the replicas behind its own: a partition has several tables.
                if self._replicas.get(place) is replica and place not in self._to_assign:
                    replica.advance(self._reader.position(place))
                    if (advanced := self._callbacks[place]) is not None:
                        advanced(replica)
        return applied

    def close(self) -> None:
        self._reader.close()

    def _change_assignment(self) -> None:
        with self._lock:
            gone, self._to_unassign = self._to_unassign & self._assigned, set()
            new, self._to_assign = self._to_assign, {}
            self._assigned = (self._assigned - gone) | new.keys()
            # A place that was removed and added again: the old position must go first.
            if gone:
                self._reader.unassign(gone)
            if new:
                self._reader.assign(new)

    def _lost(self, place: TopicPartition, error: InputLost) -> None:
        with self._lock:
            replica = self._replicas.get(place)
            if replica is not None and place in self._assigned and error.offset is not None:
                at = self._reader.position(place)
                if error.offset != at:
                    # A late answer to a former replica of this place, of an earlier topic of the same name. The client
                    # has stopped reading there all the same.
                    log.warning(
                        "table is read again from where it stands",
                        topic=place.topic,
                        partition=place.partition,
                    )
                    self._to_unassign.add(place)
                    self._to_assign.setdefault(place, at)
                    return
            self._fail(place, error)

    def _fail(self, place: TopicPartition, error: StreamtableError) -> None:
        with self._lock:
            replica = self._replicas.get(place)
            if replica is not None:
                log.error(
                    "table is followed no more",
                    topic=place.topic,
                    partition=place.partition,
                    error=str(error),
                )
                self.remove(replica)
                replica.failed(error)
