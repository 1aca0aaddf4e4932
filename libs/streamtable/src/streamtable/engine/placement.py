"""Notices records that are not in the partition of their key: another partitioner wrote them, or partitions were added.

Their handlers are called all the same. But a view, a lookup and a join look for a key in one partition only: without a word,
they would not find what is there. Answers to a join by a foreign key are in the partition that has asked: they are left out
(`Input(any_partition=True)`), as are other inputs whose writers choose partitions.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from streamtable.graph import Group
from streamtable.partitioner import Partitioner, hash_of
from streamtable.ports import TopicInfo
from streamtable.topics import Stream, Table, hash_of_rows
from streamtable.types import RecordBatch

log = structlog.get_logger()

_KNOWN: tuple[Partitioner, ...] = ("murmur2", "fnv1a", "crc32")


class Placement:
    """Looks at one record of each batch of a partition, and warns once of each topic.

    Args:
        group: The graph.
        partition: The partition that is read.
        topics: All topics of the group as the broker describes them.
    """

    def __init__(self, group: Group[Any, Any], partition: int, topics: Mapping[str, TopicInfo]) -> None:
        read: list[Stream[Any, Any] | Table[Any, Any]] = [
            edge.stream for edge in group.inputs if not edge.any_partition and not edge.stream.keyless
        ]
        read += [edge.table for edge in group.joins]
        self._group = group.name
        self._partition = partition
        self._hashes: dict[str, tuple[Callable[[bytes], int], int, Partitioner]] = {
            topic.name: (hash_of_rows(topic), topics[topic.name].partitions, topic.partitioner)
            for topic in read
        }

    def look(self, records: RecordBatch) -> None:
        """Look at the first record of a batch."""
        expected = self._hashes.get(records.topic)
        if expected is None or not records:
            return
        key: bytes | None = records.messages[0].key()
        if not key:  # librdkafka may spread records whose key is empty
            return
        hash_key, count, partitioner = expected
        home = hash_key(key) % count
        if home == self._partition:
            return
        del self._hashes[records.topic]
        log.warning(
            "records are not in the partitions of their keys",
            group=self._group,
            place=f"{records.topic}[{self._partition}]@{records.first_offset}",
            key=repr(key[:100]),
            partition_of_key=home,
            partitioner=partitioner,
            reason=(
                "the topic's producers choose partitions otherwise, or partitions were added to it: views, lookups and joins "
                f"will not find such keys. {self._advice(key, count)}"
            ),
        )

    def _advice(self, key: bytes, count: int) -> str:
        fits = [each for each in _KNOWN if hash_of(each)(key) % count == self._partition]
        likely = " or ".join(f"partitioner={each!r}" for each in fits)
        declare = (
            f"Declare the topic with {likely} (fits this key)" if fits else "None that is known fits this key"
        )
        return f"{declare}, or set partitioner=murmur2_random in the producer and write the records to a new topic"
