"""The virtual Kafka's implementations of `ports.ClusterClient` and `ports.Producer`."""

from collections.abc import Callable, Collection, Iterable, Mapping

from streamtable.base.clock import Clock
from streamtable.base.partitioner import Partitioner
from streamtable.base.ports import TopicInfo
from streamtable.base.types import Ack, Committed, Headers, TopicPartition, Watermarks
from streamtable.errors import RetryLater, SerializationError, StreamtableError
from streamtable_testing.faults import Wire
from streamtable_testing.group import GroupCoordinator
from streamtable_testing.topic import Partition, Topic


class VirtualCluster:
    """Answers at once."""

    def __init__(
        self,
        topics: Mapping[str, Topic],
        partition: Callable[[TopicPartition], Partition | None],
        group: Callable[[str], GroupCoordinator],
        groups: Collection[str],
        wire: Wire,
    ) -> None:
        self._topics = topics
        self._partition = partition
        self._group = group
        self._groups = groups
        self._wire = wire

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        def find() -> dict[str, TopicInfo]:
            return {name: self._topics[name].info for name in names if name in self._topics}

        return self._wire.ask("topics", find, silent=RetryLater)

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        return {name: topic.topic_id for name, topic in self.topics(names).items()}

    def watermarks(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        def look() -> dict[TopicPartition, Watermarks]:
            found = {}
            for place in places:
                if (partition := self._partition(place)) is None:
                    raise RetryLater("there is no such partition, or the broker does not know it yet").at(
                        *place
                    )
                found[place] = Watermarks(partition.low, partition.high)
            return found

        return self._wire.ask("watermarks", look, silent=RetryLater)

    def stable_ends(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        def look() -> dict[TopicPartition, int]:
            found = {}
            for place in places:
                if (partition := self._partition(place)) is None:
                    raise RetryLater("there is no such partition").at(*place)
                found[place] = partition.stable_end
            return found

        return self._wire.ask("stable-ends", look, silent=RetryLater)

    def group_names(self) -> frozenset[str]:
        return frozenset(self._groups)

    def group_members(self, group: str) -> list[str]:
        return self._wire.ask("topics", lambda: list(self._group(group).members), silent=RetryLater)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        def delete() -> None:
            for place, offset in before.items():
                if (partition := self._partition(place)) is None:
                    raise RetryLater("there is no such partition").at(*place)
                partition.delete_before(offset)

        self._wire.ask("delete-records", delete, silent=RetryLater)

    def offsets_partition(self, group: str) -> TopicPartition | None:
        """Return None: committed offsets are not in a topic here."""
        del group
        return None

    @property
    def servers(self) -> str:
        return "the virtual Kafka"

    def stable_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | None]:
        return self._wire.ask(
            "stable-offsets", lambda: self._group(group).offsets.stable(places), silent=RetryLater
        )

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


class VirtualProducer:
    """Sends each record at once; it is acknowledged before `produce` returns."""

    def __init__(
        self, topic: Callable[[str], Topic | None], wire: Wire, clock: Clock, partitioner: Partitioner
    ) -> None:
        self._topic = topic
        self._wire = wire
        self._clock = clock
        self._partitioner = partitioner

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        done: Callable[[Ack | StreamtableError], None],
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> None:
        at = timestamp_ms or round(self._clock.now() * 1000)

        def append() -> Ack:
            found = self._topic(topic)
            if found is None:
                raise RetryLater("the record was not delivered: there is no such topic", topic=topic)
            if not found.fits(key, value, headers):
                raise SerializationError("the record is larger than the topic accepts", topic=topic)
            home = (
                found.partitions[partition] if partition >= 0 else found.partition_of(key, self._partitioner)
            )
            return Ack(*home.place, home.append(key, value, headers, at))

        try:
            answer: Ack | StreamtableError = self._wire.ask("produce", append, silent=RetryLater)
        except StreamtableError as error:
            answer = error
        done(answer)

    def flush(self, timeout: float) -> int:
        del timeout
        return 0

    def close(self, timeout: float) -> None:
        """Do nothing: there are no pending records."""
