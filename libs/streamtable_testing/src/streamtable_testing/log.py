"""The virtual Kafka: a broker in memory behind the port `streamtable.base.ports.Log`, for tests and simulations.

It implements what the engine relies on in Kafka 4: partitions with offsets, markers, compaction and DeleteRecords;
transactions with fencing, time-outs, pending offsets and a last stable offset; groups that move partitions one after
the other and refuse offsets of members that have left. It has one thread, no randomness, and a clock that only moves when
the test moves it, or when a client waits: the same calls give the same results. Not done: replication, classic groups, static
membership.

    clock = VirtualClock()
    kafka = VirtualKafka(clock, faults)
    kafka.create_topics_of(GROUP, partitions=4)
    log = kafka.process("first")       # a Log for one process; the faults get its name
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamtable.base.clock import Clock
from streamtable.base.partitioner import Partitioner
from streamtable.base.ports import TopicInfo
from streamtable.base.tracing import UNTRACED, Tracer
from streamtable.base.types import Ack, Committed, Headers, TopicPartition
from streamtable.graph.group import Group
from streamtable.graph.topic_check import required_topics
from streamtable_testing.cluster import VirtualCluster, VirtualProducer
from streamtable_testing.consumer import VirtualGroupConsumer
from streamtable_testing.faults import Faults, LateEffects, Wire
from streamtable_testing.group import GroupCoordinator
from streamtable_testing.reader import VirtualTableReader
from streamtable_testing.topic import InMemoryMessage, Partition, Topic
from streamtable_testing.transactional import VirtualTransactionalProducer
from streamtable_testing.transactions import Transactions

DAY_MS = 24 * 3600 * 1000


class _Clients:
    """Makes the clients of a process; a `ports.Log`."""

    kafka: "VirtualKafka"
    name: str

    @property
    def tracer(self) -> Tracer:
        """The tracer that all processes share."""
        return self.kafka.shared_tracer

    def cluster(self) -> VirtualCluster:
        kafka = self.kafka
        return VirtualCluster(kafka.topics, kafka.partition, kafka.group, kafka.groups, self._wire())

    def group_consumer(self, group: str, instance_id: str) -> VirtualGroupConsumer:
        member_id = f"{instance_id}-{self.kafka.unique()}"
        kafka = self.kafka
        return VirtualGroupConsumer(member_id, kafka.group(group), kafka.partition, self._wire(), kafka.clock)

    def transactional_producer(
        self, transactional_id: str | None, batch_bytes: int = 1_000_000, transaction_seconds: float = 10.0
    ) -> VirtualTransactionalProducer:
        del batch_bytes, transaction_seconds  # records are never batched; the broker has its own timeout
        kafka = self.kafka
        return VirtualTransactionalProducer(
            transactional_id, kafka.transactions, kafka.topic, kafka.group, self._wire(), kafka.clock
        )

    def producer(
        self, partitioner: Partitioner = "murmur2", delivery_timeout: float = 120.0
    ) -> VirtualProducer:
        del delivery_timeout  # acknowledgements come at once, or never
        return VirtualProducer(self.kafka.topic, self._wire(), self.kafka.clock, partitioner)

    def table_reader(self, name: str) -> VirtualTableReader:
        del name
        return VirtualTableReader(self.kafka.partition, self._wire())

    def _wire(self) -> Wire:
        return Wire(self.name, self.kafka.faults, self.kafka.late, self.kafka.tick)


class VirtualKafka(_Clients):
    """The broker, which is itself a `Log` for a process without a name.

    Args:
        clock: The clock of the broker and of all clients: a poll without records sleeps on it.
        faults: The faults to inject; none by default.
        session_timeout: Seconds without a poll after which a member is removed.
        transaction_timeout: Seconds after which an open transaction is aborted.
        late_seconds: Seconds after which a delayed request arrives by itself.
        shared_tracer: The tracer of all processes; none by default.
    """

    def __init__(
        self,
        clock: Clock,
        faults: Faults | None = None,
        *,
        session_timeout: float = 45.0,
        transaction_timeout: float = 10.0,
        late_seconds: float = 5.0,
        shared_tracer: Tracer = UNTRACED,
    ) -> None:
        self.kafka, self.name = self, ""
        self.shared_tracer = shared_tracer
        self.clock = clock
        self.faults = faults or Faults()
        self.late = LateEffects(clock, late_seconds)
        self.transactions = Transactions(clock, transaction_timeout, self.faults, self.late)
        self._session_timeout = session_timeout
        self._topics: dict[str, Topic] = {}
        self._groups: dict[str, GroupCoordinator] = {}
        self._made = 0  # the number of topics and members ever created, which makes their ids unique

    def process(self, name: str) -> "VirtualProcess":
        """Return the log of one process; faults can be injected into it."""
        return VirtualProcess(self, name)

    # ---- topics ----------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        delete_retention_ms: int = DAY_MS,
        max_message_bytes: int = 1_048_588,
    ) -> None:
        """Create a topic. Raises `ValueError` if it exists."""
        if name in self._topics:
            raise ValueError(f"there is a topic {name!r} already: delete_topic first")
        topic_id = f"topic-{self.unique()}"
        info = TopicInfo(name, partitions, topic_id, compacted, delete_retention_ms, max_message_bytes)
        self._topics[name] = Topic(info)

    def create_topics_of(self, group: Group[Any, Any], partitions: int | Mapping[str, int] = 1) -> None:
        """Create the missing topics of a group, with these numbers of partitions, or all with one."""
        tables = {edge.table.name for edge in group.joins} | {edge.table.name for edge in group.lookups}
        tables |= set(group.tables)
        for name in required_topics(group):
            if name not in self._topics:
                number = partitions if isinstance(partitions, int) else partitions[name]
                self.create_topic(name, number, compacted=name in tables)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and the committed offsets of groups in it."""
        del self._topics[name]
        for group in self._groups.values():
            group.offsets.forget(name)

    def delete_records(self, place: TopicPartition, before: int) -> None:
        """Delete the records below offset `before`, as DeleteRecords or retention does."""
        self._topics[place.topic].partitions[place.partition].delete_before(before)

    def compact(self, name: str) -> None:
        """Compact a topic now: only the last record of each key stays, at its offset."""
        topic = self._topics[name]
        for partition in topic.partitions:
            partition.compact(self.clock.now(), topic.info.delete_retention_ms)

    # ---- reads and writes from outside, without faults -------------------------------------------------------------

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> Ack:
        """Write a record. `partition` -1: by murmur2 of the key; `timestamp_ms` 0: now."""
        found = self._topics[topic]
        to = found.partitions[partition] if partition >= 0 else found.partition_of(key)
        at = timestamp_ms or round(self.clock.now() * 1000)
        return Ack(*to.place, to.append(key, value, headers, at))

    def records(self, topic: str) -> list[tuple[TopicPartition, InMemoryMessage]]:
        """Return all committed records of a topic, partition by partition."""
        self.tick()
        partitions = self._topics[topic].partitions
        return [(partition.place, record) for partition in partitions for record in partition.committed()]

    def committed(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return the committed offsets of the group."""
        return dict(self.group(group).offsets.committed)

    # ---- the interface of the clients ------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._topics

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def partition(self, place: TopicPartition) -> Partition | None:
        topic = self._topics.get(place.topic)
        return (
            topic.partitions[place.partition] if topic and place.partition < len(topic.partitions) else None
        )

    @property
    def groups(self) -> Mapping[str, GroupCoordinator]:
        return self._groups

    def group(self, name: str) -> GroupCoordinator:
        def partitions(topic: str) -> int:
            return self._topics[topic].info.partitions if topic in self._topics else 0

        if name not in self._groups:
            self._groups[name] = GroupCoordinator(name, self.clock, self._session_timeout, partitions)
        return self._groups[name]

    def unique(self) -> int:
        self._made += 1
        return self._made

    def tick(self) -> None:
        """Do the due work; called before each request."""
        self.late.deliver(due_only=True)
        self.transactions.expire()
        for group in self._groups.values():
            group.expire()

    def deliver_late(self) -> None:
        """Deliver all delayed requests now."""
        self.late.deliver()


@dataclass(frozen=True)
class VirtualProcess(_Clients):
    """The log of one process."""

    kafka: VirtualKafka
    name: str
