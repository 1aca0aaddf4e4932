"""The topic of a queried table as it is now, and the offsets that all answers must have reached."""

from collections.abc import Mapping
from typing import Final

from streamtable.base.clock import Clock
from streamtable.base.ports import ClusterClient, TopicInfo
from streamtable.errors import NotReady

_NEVER: Final = float("-inf")


class QueriedTopic:
    """Asks the cluster for the topic of a table again when what it knows is too old. Any thread.

    Args:
        name: The name of the topic.
        cluster: The cluster.
        clock: Monotonic time.
        max_age: The seconds that an answer of the cluster is relied on.

    Attributes:
        id: The id of the topic; empty if it was not asked for yet.
    """

    def __init__(self, name: str, cluster: ClusterClient, clock: Clock, max_age: float) -> None:
        self.id = ""
        self._name, self._cluster, self._clock, self._max_age = name, cluster, clock, max_age
        self._info: TopicInfo | None = None
        self._asked_at = _NEVER
        self._held: dict[int, int] = {}  # by partition

    @property
    def info(self) -> TopicInfo:
        """The topic; one that was created again may have other partitions. Raises `NotReady` if there is none."""
        now = self._clock.monotonic()
        if self._info is None or now - self._asked_at > self._max_age:
            topic = self._cluster.topics([self._name]).get(self._name)
            if topic is None:
                raise NotReady(f"Kafka has no topic {self._name!r}: has its group been started?")
            before, self.id = self.id, topic.topic_id
            if topic.topic_id != before:
                self._held = {}  # after the id: see `hold`
            self._info, self._asked_at = topic, now
        return self._info

    @property
    def partitions(self) -> int:
        """The number of its partitions. Raises like `info`."""
        return self.info.partitions

    def held(self, partition: int) -> int:
        """Return the offset below which every answer about a partition must hold all."""
        return self._held.get(partition, 0)

    def hold(self, ends: Mapping[int, int], topic_id: str) -> None:
        """Have all later answers hold all below these offsets of partitions.

        Raises:
            NotReady: They are of another topic of this name; its offsets may never be reached.
        """
        if topic_id != self.id:
            self._asked_at = _NEVER
            self.info  # noqa: B018 - asks again
        held = self._held  # before the comparison: of another topic it would be another dictionary
        if topic_id != self.id:
            raise NotReady(f"the topic {self._name!r} was deleted and created again")
        for partition, end in ends.items():
            held[partition] = max(end, held.get(partition, 0))
