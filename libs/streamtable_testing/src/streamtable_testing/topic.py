"""Topics of the virtual Kafka: partitions as lists of records, and their state on a broker.

A transaction's end takes an offset in each of its partitions, as control markers do; nothing else of a marker can be
seen, so it is kept as the gap that it leaves.
"""

from bisect import bisect_left
from dataclasses import dataclass

from streamtable.base.partitioner import Partitioner, partition_for
from streamtable.base.ports import TopicInfo
from streamtable.base.types import Headers, TopicPartition
from streamtable.errors import InputLost
from streamtable_testing.transactions import Transaction

BATCH_OVERHEAD_BYTES = 70
"""The approximate overhead of a single record in Kafka: the header of its batch, and lengths."""


@dataclass(slots=True, eq=False)
class InMemoryMessage:
    """A record as the Kafka client returns it; see `types.Message`.

    Attributes:
        transaction: The transaction that it was written in.
        cleaned_at: seconds: when compaction first passed it, if it is a tombstone.
    """

    _offset: int
    _key: bytes | None
    _value: bytes | None
    _headers: Headers
    _timestamp_ms: int
    transaction: Transaction | None
    cleaned_at: float | None = None

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return self._offset

    def headers(self) -> Headers | None:
        return list(self._headers) or None

    def timestamp(self) -> tuple[int, int]:
        return (1, self._timestamp_ms)  # 1: the time that its sender gave it


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return about how many bytes a record takes in its own batch."""
    content = len(key or b"") + len(value or b"")
    return BATCH_OVERHEAD_BYTES + content + sum(len(name) + len(data or b"") + 2 for name, data in headers)


class Partition:
    """A partition: its records, its ends, and the open transactions in it."""

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.low = self.high = 0
        self.records: list[InMemoryMessage] = []
        self._open: dict[Transaction, int] = {}  # with its first offset

    @property
    def stable_end(self) -> int:
        """The last stable offset: readers of committed records stop there."""
        return min(self._open.values(), default=self.high)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        transaction: Transaction | None = None,
    ) -> int:
        """Append a record. Returns its offset."""
        offset = self.high
        self.records.append(InMemoryMessage(offset, key, value, headers, timestamp_ms, transaction))
        self.high += 1
        if transaction is not None:
            self._open.setdefault(transaction, offset)
            transaction.partitions[self.place] = self
        return offset

    def mark(self, transaction: Transaction) -> None:
        """Write the marker that ends a transaction."""
        del self._open[transaction]
        self.high += 1

    def read(self, start: int, limit: int) -> tuple[list[InMemoryMessage], int]:
        """Return committed records from offset `start` on, at most `limit`, and the offset to continue from.

        Raises:
            InputLost: `start` is outside of the offsets of the partition.
        """
        if not self.low <= start <= self.high:
            raise InputLost(
                f"the reading position is outside of what the partition holds, {self.low} to {self.high}; find out "
                "what was lost, then reset the offsets"
            ).at(*self.place, start)
        found: list[InMemoryMessage] = []
        for record in self.records[self._index(start) : self._index(self.stable_end)]:
            if record.transaction is None or record.transaction.committed:
                found.append(record)
                if len(found) == limit:
                    return found, record.offset() + 1
        return found, max(start, self.stable_end)

    def first_unread(self, offset: int) -> int:
        """Return the first record from `offset` on that a reader may still get; the stable end if there is none.

        Between the two are only markers and aborted records, so retention up to there takes nothing from the reader.
        """
        for record in self.records[self._index(offset) : self._index(self.stable_end)]:
            if record.transaction is None or record.transaction.committed:
                return record.offset()
        return max(offset, self.stable_end)

    def committed(self) -> list[InMemoryMessage]:
        """Return all committed records that are there."""
        return self.read(self.low, self.high + 1)[0]

    def delete_before(self, offset: int) -> None:
        """Delete records, as DeleteRecords or retention does."""
        self.low = max(self.low, min(offset, self.high))
        del self.records[: self._index(self.low)]

    def compact(self, now: float, delete_retention_ms: int) -> None:
        """Keep the last committed record of each key; a tombstone goes when it was passed long ago."""
        end = self._index(self.stable_end)
        newest = {
            record.key(): record
            for record in self.records[:end]
            if record.transaction is None or record.transaction.committed
        }
        kept = []
        for record in newest.values():
            if record.value() is None:
                record.cleaned_at = now if record.cleaned_at is None else record.cleaned_at
                if (now - record.cleaned_at) * 1000 > delete_retention_ms:
                    continue
            kept.append(record)
        self.records[:end] = sorted(kept, key=InMemoryMessage.offset)

    def _index(self, offset: int) -> int:
        return bisect_left(self.records, offset, key=InMemoryMessage.offset)


class Topic:
    """A topic and its partitions.

    Attributes:
        untold_bytes_max: The largest record that it accepts, if that is less than its description says: as when the
            limit was lowered a moment ago.
    """

    def __init__(self, info: TopicInfo) -> None:
        self.info = info
        self.untold_bytes_max = info.max_message_bytes
        self.partitions = [Partition(TopicPartition(info.name, number)) for number in range(info.partitions)]
        self._next = 0

    def partition_of(self, key: bytes | None, partitioner: Partitioner = "murmur2") -> Partition:
        """Return the partition of the key; records without a key are distributed round-robin."""
        if key is not None:
            return self.partitions[partition_for(key, len(self.partitions), partitioner)]
        self._next += 1
        return self.partitions[(self._next - 1) % len(self.partitions)]

    def fits(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        return size_of(key, value, headers) <= min(self.info.max_message_bytes, self.untold_bytes_max)
