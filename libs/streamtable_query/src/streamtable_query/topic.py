"""The topic of a queried table as it is now, and the offsets that all answers must have reached."""

from collections.abc import Mapping

from streamtable.base.clock import Clock
from streamtable.base.ports import ClusterClient, TopicInfo
from streamtable.errors import NotReady, RetryLater
from streamtable_query.answers import TIMEOUT_SECONDS
from streamtable_query.question import Question


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
        self._question: Question[TopicInfo | None] = Question(self._describe, None, clock)
        self._held: dict[int, int] = {}  # by partition

    def known(self, deadline: float | None = None) -> TopicInfo:
        """Return the topic. While Kafka does not answer, it is the one that is known.

        Args:
            deadline: The monotonic time until which to wait for Kafka; None: as long as calls wait that say nothing else.

        Raises:
            NotReady: There is no such topic, or none is known.
        """
        now = self._clock.monotonic()
        last = self._question.last
        since = now if last is None else now - self._max_age
        try:
            # Not for each call: a read of this process takes microseconds.
            if self._question.asked_at < since:
                until = now + TIMEOUT_SECONDS if deadline is None else deadline
                last = self._question.answer(since, until, needed=last is None)
        except RetryLater as error:
            if last is None:
                raise NotReady(f"the topic {self._name!r} is not known yet: {error.message}") from error
        if last is None:
            raise NotReady(f"Kafka has no topic {self._name!r}: has its group been started?")
        return last

    @property
    def partitions(self) -> int:
        """The number of its partitions. Raises like `known`."""
        return self.known().partitions

    def held(self, partition: int) -> int:
        """Return the offset below which every answer about a partition must hold all."""
        return self._held.get(partition, 0)

    def hold(self, ends: Mapping[int, int], topic_id: str) -> None:
        """Have all later answers hold all below these offsets of partitions.

        Raises:
            NotReady: They are of another topic of this name; its offsets may never be reached.
        """
        if topic_id != self.id:
            now = self._clock.monotonic()
            self._question.answer(now, now + TIMEOUT_SECONDS)
        held = self._held  # before the comparison: of another topic it would be another dictionary
        if topic_id != self.id:
            raise NotReady(f"the topic {self._name!r} was deleted and created again")
        for partition, end in ends.items():
            held[partition] = max(end, held.get(partition, 0))

    def _describe(self) -> TopicInfo | None:
        topic = self._cluster.topics([self._name]).get(self._name)
        if topic is not None and topic.topic_id != self.id:
            self.id = topic.topic_id
            self._held = {}  # after the id: see `hold`
        return topic
