"""Finds a micro-batch's rows by their fields, from any process such as a query service."""

import threading
from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from microbatch.committed_state import decode
from microbatch.graph import MicroBatch
from microbatch.rows import Rows
from microbatch.stores.elasticsearch import Query
from microbatch.stores.port import Driver
from microbatch.stores.search import ledgers_from, search
from microbatch.stores.store import RemoteStore
from microbatch.stores.versions import UNOWNED, CommittedState
from streamtable.base.clock import Clock, SystemClock
from streamtable.base.ports import ClusterClient
from streamtable.base.types import TopicPartition
from streamtable.errors import RetryLater

V = TypeVar("V")
_AGAIN_S = 0.02


class Match(NamedTuple, Generic[V]):
    """A row that was found.

    Attributes:
        score: The relevance; higher is better.
    """

    key: str
    value: V
    score: float


class Searcher(Generic[V]):
    """Searches the committed rows of one kind. Any thread; calls are serialized.

    Args:
        group: The group that owns the rows.
        rows: The kind, with `fields`. Other kinds of the group should not have fields of the same names.
        cluster: The cluster client of the group's Kafka; closed with this.
        driver: The Elasticsearch driver of the group's store and tenant; closed with this.
        clock: Monotonic time, and pauses.
    """

    def __init__(
        self,
        group: MicroBatch,
        rows: Rows[V],
        cluster: ClusterClient,
        driver: Driver,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._group = group
        self._rows = rows
        self._cluster = cluster
        self._driver = driver
        self._clock = clock or SystemClock()
        self._one = threading.Lock()

    def search(self, fields: Query, *, limit: int = 20, timeout: float = 2.0) -> list[Match[V]]:
        """Return rows whose committed version has all of these fields, the best first.

        Args:
            fields: The values by field. A text field must contain all the words; other fields must be equal.
            limit: The maximal number of rows, 1 to 100.
            timeout: The seconds for each of three requests: to the index, to Kafka, and for the ledgers.

        Raises:
            RetryLater: The store or Kafka did not answer in time, or other searches have blocked this one for that long.
            ConfigurationError: The store cannot search.
            SerializationError: A text is longer than 1,000 characters.
        """
        if not self._one.acquire(timeout=timeout):
            raise RetryLater(f"other searches have taken longer than {timeout:g} s: retry")
        try:
            store = RemoteStore(self._driver, deadline=timeout, attempt=timeout, clock=self._clock)
            until = self._clock.monotonic() + 2 * timeout
            ledgers = ledgers_from(store, lambda: self._committed_states(until))
            found = search(self._driver, fields, ledgers, limit=limit, timeout=timeout)
        finally:
            self._one.release()
        prefix = self._rows.key("")
        return [
            Match(hit.key.removeprefix(prefix).decode(), self._rows.value.decode(hit.value), hit.score)
            for hit in found
            if hit.key.startswith(prefix)
        ]

    def close(self) -> None:
        self._driver.close()
        self._cluster.close()

    def _committed_states(self, until: float) -> Mapping[int, CommittedState]:
        """Return the committed state of each partition, after waiting for pending commits."""
        while True:
            try:
                topics = self._cluster.topics(self._group.input_topics)
                places = [
                    TopicPartition(name, number)
                    for name, info in topics.items()
                    for number in range(info.partitions)
                ]
                committed = self._cluster.stable_offsets(self._group.name, places)
                break
            except RetryLater:
                if self._clock.monotonic() > until:
                    raise
                self._clock.sleep(_AGAIN_S)
        found = {place.partition: UNOWNED for place in places}
        for place, offset in committed.items():
            ours = decode(offset.metadata) if offset is not None else None
            if ours is not None:
                found[place.partition] = max(found[place.partition], ours[0])
        return found
