"""Notices records that are not in the partition of their key: another partitioner wrote them, or partitions were added.

Also notices equal keys with different bytes: JSON whose names are in another order, Avro written with another schema.

Their handlers are called all the same. But a view, a lookup and a join look for a key in one partition only: without a word,
they would not find rows that exist. Answers to a foreign-key join are in the asking partition: they are not checked
(`Input(any_partition=True)`), as are other inputs whose writers choose partitions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from streamtable.base.partitioner import Partitioner
from streamtable.base.ports import CanonicalKeys, TopicInfo, VersionedKeys
from streamtable.base.topics import Stream, Table, hash_of_rows
from streamtable.base.types import RecordBatch
from streamtable.errors import StreamtableError
from streamtable.graph.group import Group

log = structlog.get_logger()

_KNOWN: tuple[Partitioner, ...] = ("murmur2", "fnv1a", "crc32")


class Placement:
    """Looks at records of each batch of a partition, and warns once of each topic.

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
        self._keys = {
            topic.name: topic.key for topic in read if isinstance(topic.key, CanonicalKeys | VersionedKeys)
        }
        self._versions: dict[str, bytes] = {}
        self._hashes: dict[str, tuple[Callable[[bytes], int], int, Stream[Any, Any] | Table[Any, Any]]] = {
            topic.name: (hash_of_rows(topic), topics[topic.name].partitions, topic) for topic in read
        }

    def look(self, records: RecordBatch) -> None:
        """Look at the partition of a batch's first record, and at the form of the keys of all its records."""
        if records.topic in self._keys and records:
            self._look_at_forms(records)
        expected = self._hashes.get(records.topic)
        if expected is None or not records:
            return
        key: bytes | None = records.messages[0].key()
        if not key:  # librdkafka may spread records whose key is empty
            return
        hash_key, count, topic = expected
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
            partitioner=topic.partitioner,
            reason=(
                "the topic's producers choose partitions otherwise, or partitions were added to it: views, lookups and joins "
                f"will not find such keys. {self._advice(key, topic, count)}"
            ),
        )

    def _look_at_forms(self, records: RecordBatch) -> None:
        codec, offset, reason = self._keys[records.topic], records.first_offset, ""
        if isinstance(codec, VersionedKeys):
            versions = {codec.version(key) for key in records.keys if key}
            first = self._versions.setdefault(records.topic, min(versions, default=b""))
            odd = sorted(versions - {first})
            if odd and first:
                reason = f"they were written with several schemas, {first.hex()} and {odd[0].hex()}"
        else:
            odd_one = _first_odd(codec, records.keys)
            if odd_one is not None:
                offset = records.offsets[odd_one]
                reason = "the names of an object are not sorted, or spaces are between values"
        if not reason:
            return
        del self._keys[records.topic]
        log.warning(
            "equal keys have different bytes",
            group=self._group,
            place=f"{records.topic}[{self._partition}]@{offset}",
            reason=(
                f"{reason}: each form of a key is a key of its own, in its own partition, with rows of its own. Write the topic "
                "with one schema for keys and sorted names without spaces, or re-key it by a text or number with key_by()"
            ),
        )

    def _advice(self, key: bytes, topic: Stream[Any, Any] | Table[Any, Any], count: int) -> str:
        fits = [each for each in _KNOWN if hash_of_rows(topic, each)(key) % count == self._partition]
        likely = " or ".join(f"partitioner={each!r}" for each in fits)
        declare = (
            f"Declare the topic with {likely} (fits this key)" if fits else "None that is known fits this key"
        )
        return f"{declare}, or set partitioner=murmur2_random in the producer and write the records to a new topic"


def _first_odd(codec: Any, keys: Sequence[bytes | None]) -> int | None:
    """Return the index of the first key in another form. Behind the first key, texts and numbers are passed over.

    They have no names in an order, and encoding each key again takes a microsecond.
    """
    for index, key in enumerate(keys):
        if key and (not index or key.lstrip().startswith((b"{", b"["))) and not _is_canonical(codec, key):
            return index
    return None


def _is_canonical(codec: Any, key: bytes) -> bool:
    try:
        return bool(codec.encode(codec.decode(key)) == key)
    except StreamtableError:
        return True  # it cannot be decoded, which is reported elsewhere
