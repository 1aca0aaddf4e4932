"""Reads changelog partitions into replicas, with one consumer, one slice at a time."""

import threading
from collections.abc import Callable, Iterable

import structlog

from streamtable.base.ports import TableReader
from streamtable.base.types import TopicPartition
from streamtable.errors import Fatal, InputLost, StreamtableError
from streamtable.tables.replica import PartitionReplica

log = structlog.get_logger()

_POLL_RECORDS = 10_000
Advanced = Callable[[PartitionReplica], object]


class ChangelogReader:
    """Reads changelogs and applies them. `step` belongs to one thread; `add` and `remove` may come from any.

    Args:
        connect: Makes the consumer; called again when a topic was deleted and created again.
    """

    def __init__(self, connect: Callable[[], TableReader]) -> None:
        self._connect = connect
        self._reader = connect()
        self._topic_ids: dict[str, str] = {}  # of all topics that this consumer has read
        self._replicas: dict[TopicPartition, PartitionReplica] = {}
        self._callbacks: dict[TopicPartition, Advanced] = {}
        self._to_assign: dict[TopicPartition, int] = {}
        self._to_unassign: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()
        # Held while replicas are worked on: when `remove` returns, nothing touches the replica's store any more.
        self._lock = threading.RLock()

    def add(self, replica: PartitionReplica, advanced: Advanced = bool) -> None:
        """Follow this replica from its position on.

        Args:
            replica: Not in OPENING.
            advanced: Called with it after each step, in the reader's thread.
        """
        with self._lock:
            self._replicas[replica.place] = replica
            self._callbacks[replica.place] = advanced
            self._to_assign[replica.place] = replica.position

    def remove(self, replica: PartitionReplica) -> None:
        """Stop following this replica; its store is not touched after this returns."""
        with self._lock:
            if self._replicas.get(replica.place) is replica:
                del self._replicas[replica.place], self._callbacks[replica.place]
                self._to_assign.pop(replica.place, None)
                self._to_unassign.add(replica.place)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to read and nothing to unassign."""
        with self._lock:
            return not self._replicas and not self._to_unassign & self._assigned

    def step(self, timeout: float) -> int:
        """Read and apply available records; wait at most `timeout` seconds. Returns the number of applied records."""
        self._change_assignment()
        try:
            batches = self._reader.poll(_POLL_RECORDS, timeout)
        except InputLost as error:
            self._lost(TopicPartition(error.topic or "", error.partition or 0), error)
            return 0
        except Fatal as error:  # such as a right that is missing on one topic: the others are followed on
            denied = [place for place in self._replicas if place.topic == error.topic]
            if not denied:
                raise
            for place in denied:
                self._fail(place, error)
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
                    try:
                        replica.advance(self._reader.position(place))
                    except StreamtableError as error:  # a full disk takes no checkpoint either
                        self._fail(place, error)
                    else:
                        self._callbacks[place](replica)
        return applied

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _change_assignment(self) -> None:
        with self._lock:
            gone, self._to_unassign = self._to_unassign & self._assigned, set()
            new, self._to_assign = self._to_assign, {}
            if self._recreated(new):
                # Kafka's client keeps the leader epochs of the former topic. The new topic's begin at 0, and while
                # they are lower the client takes all that brokers say of the topic's leaders for outdated.
                kept = {place: self._reader.position(place) for place in self._assigned - gone}
                self._reader.close()
                self._reader = self._connect()
                new, gone = kept | new, set()
                self._assigned = set()
            self._assigned = (self._assigned - gone) | new.keys()
            # A place that was removed and added again: the old position must go first.
            if gone:
                self._reader.unassign(gone)
            if new:
                self._reader.assign(new)

    def _recreated(self, places: Iterable[TopicPartition]) -> bool:
        """Note the ids of the topics of these places. Returns whether one of them had another id before."""
        ids = {place.topic: self._replicas[place].topic_id for place in places}
        before = self._topic_ids.copy()
        self._topic_ids |= ids
        return any(before.get(topic, topic_id) != topic_id for topic, topic_id in ids.items())

    def _lost(self, place: TopicPartition, error: InputLost) -> None:
        with self._lock:
            replica = self._replicas.get(place)
            if replica is not None and place in self._assigned and error.offset is not None:
                at = self._reader.position(place)
                if error.offset != at:
                    # A late answer to a former replica of this place, of an earlier topic of the same name. The client
                    # has stopped reading there nevertheless.
                    log.warning("changelog is read again from its position", **place._asdict())
                    self._to_unassign.add(place)
                    self._to_assign.setdefault(place, at)
                    return
            self._fail(place, error)

    def _fail(self, place: TopicPartition, error: StreamtableError) -> None:
        with self._lock:
            replica = self._replicas.get(place)
            if replica is not None:
                log.error("stopped following changelog", **place._asdict(), error=str(error))
                self.remove(replica)
                replica.fail(error)
