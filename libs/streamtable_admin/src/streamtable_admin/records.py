"""Records of topics, collected in memory with a bound: the first or the last of each partition."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamtable.base.types import Headers, RecordBatch, TopicPartition, Watermarks
from streamtable.errors import RetryLater
from streamtable_admin.cluster import Cluster
from streamtable_admin.reading import PATIENT, ReadLimits, read_to

_WIDER = 8
_OVERHEAD_BYTES = 200


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record with its partition and offset; the timestamp is in milliseconds since 1970."""

    place: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """The bytes that it takes in memory, roughly."""
        return len(self.key or b"") + len(self.value or b"") + _OVERHEAD_BYTES * (1 + len(self.headers))


def record_at(batch: RecordBatch, index: int) -> TopicRecord:
    return TopicRecord(
        batch.place,
        batch.offsets[index],
        batch.timestamp(index),
        batch.keys[index],
        batch.values[index],
        batch.headers(index),
    )


def records_of(batch: RecordBatch) -> Iterator[TopicRecord]:
    return (record_at(batch, index) for index in range(len(batch)))


def collect(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    keep: int,
    complete: bool = False,
    limits: ReadLimits = PATIENT,
    selected: Callable[[TopicRecord], bool] = lambda _: True,
    reached: dict[TopicPartition, int] | None = None,
) -> dict[TopicPartition, deque[TopicRecord]]:
    """Read committed records into memory, as many as the limits allow.

    Args:
        cluster: The cluster to read from.
        starts: The first offset of each partition.
        ends: The offset behind the last record of each partition.
        keep: The number of records to keep of each partition: the last ones.
        complete: Fail rather than leave a record out.
        limits: The limits of the read, and of the records kept in memory.
        selected: Whether a record is kept.
        reached: Filled with the offset that the read has reached in each partition.

    Raises:
        RetryLater: The broker has stopped answering, or the read is incomplete although it has to be complete.
    """
    kept = Kept(starts, keep, limits.bytes_max, first=False)
    for batch in read_to(cluster, starts, ends, complete=complete, limits=limits, reached=reached):
        kept.add(batch.place, filter(selected, records_of(batch)))
    if complete and kept.dropped:
        raise RetryLater("there are more records than are kept in memory; ask for fewer")
    return kept.records


def last_records(
    cluster: Cluster, marks: Mapping[TopicPartition, Watermarks], count: int, *, limits: ReadLimits = PATIENT
) -> list[TopicRecord]:
    """Return the last records of these partitions together, in the order of time; fewer if they reach the limit of bytes.

    Where transaction markers and compaction leave too few records, it looks further back, unless the records found have
    reached the limit of bytes already.
    """
    found: dict[TopicPartition, deque[TopicRecord]] = {}
    cuts: Mapping[TopicPartition, int] = {}
    pending, window = dict(marks), count
    deadline = time.monotonic() + limits.total
    while pending and count and time.monotonic() < deadline:
        starts = {place: max(mark.low, mark.high - window) for place, mark in pending.items()}
        ends = {place: mark.high for place, mark in pending.items()}
        kept = Kept(starts, count, limits.bytes_max, first=False)
        for batch in read_to(cluster, starts, ends, limits=limits):
            kept.add(batch.place, records_of(batch))
        found |= kept.records
        if cuts := kept.cuts:
            break
        pending = {
            place: mark
            for place, mark in pending.items()
            if len(found[place]) < count and starts[place] > mark.low
        }
        window *= _WIDER
    return _by_time(found, cuts, first=False)[-count:] if count else []


def first_records(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    count: int,
    *,
    limits: ReadLimits = PATIENT,
) -> list[TopicRecord]:
    """Return the first records from the given offsets on, of these partitions together, in the order of time.

    There are fewer if they reach the limit of bytes.
    """
    kept = Kept(starts, count, limits.bytes_max, first=True)
    for batch in read_to(cluster, starts, ends, limits=limits, enough=kept.enough):
        kept.add(batch.place, records_of(batch))
    return _by_time(kept.records, kept.cuts, first=True)[:count]


def starts_at(
    cluster: Cluster,
    marks: Mapping[TopicPartition, Watermarks],
    *,
    offset: int | None = None,
    time_ms: int = 0,
) -> dict[TopicPartition, int]:
    """Return the start offset of each partition: the given offset, or the offset of the first record from a time on."""
    if offset is not None:
        return {place: min(max(offset, mark.low), mark.high) for place, mark in marks.items()}
    found = cluster.admin.offsets_at(marks, time_ms)
    return {place: mark.high if (at := found[place]) is None else at for place, mark in marks.items()}


def _by_time(
    found: Mapping[TopicPartition, Iterable[TopicRecord]], cuts: Mapping[TopicPartition, int], *, first: bool
) -> list[TopicRecord]:
    """Return records in the order of time, without those beyond an omitted one: none lies between those that are shown."""
    records = [record for part in found.values() for record in part]
    records.sort(key=lambda record: (record.timestamp, record.place, record.offset))
    if not cuts or len(found) == 1:
        return records
    if first:
        end = min(cuts.values())
        return [record for record in records if record.timestamp <= end] or records[:1]
    begin = max(cuts.values())
    return [record for record in records if record.timestamp >= begin] or records[-1:]


class Kept:
    """The records that a read has found, as many of them as it may keep; one at least, however large it is.

    Attributes:
        dropped: Whether some records were omitted.
        cuts: The partitions with records that were omitted because of their size, and the time of the last such record.
    """

    def __init__(self, places: Iterable[TopicPartition], keep: int, bytes_max: float, *, first: bool) -> None:
        self.records: dict[TopicPartition, deque[TopicRecord]] = {place: deque() for place in places}
        self.dropped = False
        self.cuts: dict[TopicPartition, int] = {}
        self._keep = keep
        self._bytes_max = bytes_max
        self._first = first
        self._bytes = 0

    def enough(self, place: TopicPartition) -> bool:
        """Return whether no more records of this partition are needed."""
        return self._first and (place in self.cuts or len(self.records[place]) >= self._keep)

    def add(self, place: TopicPartition, records: Iterable[TopicRecord]) -> None:
        part = self.records[place]
        for record in records:
            if self.enough(place):
                return
            part.append(record)
            self._bytes += record.size
            if len(part) > self._keep:
                self._drop(place)
            while self._bytes > self._bytes_max and sum(map(len, self.records.values())) > 1:
                furthest = self._furthest()
                self.cuts[furthest] = self._drop(furthest)

    def _furthest(self) -> TopicPartition:
        """Return the partition with the latest of the first records, or the earliest of the last ones."""
        there = {place: part for place, part in self.records.items() if part}
        if self._first:
            return max(there, key=lambda place: there[place][-1].timestamp)
        return min(there, key=lambda place: there[place][0].timestamp)

    def _drop(self, place: TopicPartition) -> int:
        """Omit a record of a partition. Returns its time."""
        record = self.records[place].pop() if self._first else self.records[place].popleft()
        self._bytes -= record.size
        self.dropped = True
        return record.timestamp
