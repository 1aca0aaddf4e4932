"""Records of topics: the last ones, or from an offset or a time on. A bounded look, in no group."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, Final

from console.shown import Decoder
from streamtable import Kafka
from streamtable.errors import RetryLater
from streamtable.types import Headers, RecordBatch, TopicPartition

if TYPE_CHECKING:
    from streamtable.kafka.admin import KafkaAdmin

READ_SECONDS: Final = 5.0
BYTES_MAX: Final = 32 << 20
LOOKS_AT_ONCE: Final = 4
_POLL_RECORDS: Final = 1000
_POLL_SECONDS: Final = 0.1
_STALL_SECONDS: Final = 1.0
_WINDOWS: Final = (4, 64, 1024)
"""How many offsets are looked at for each record that is wanted: ends of transactions and compaction leave gaps."""


class NoSuchTopic(Exception):
    """There is no such topic, or it has no such partition."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its place; the time is in milliseconds since 1970."""

    place: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes, about."""
        return len(self.key or b"") + len(self.value or b"") + 200 * (1 + len(self.headers))

    def document(self, decoder: Decoder) -> dict[str, Any]:
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "key": decoder.show(self.key),
            "value": decoder.show(self.value),
            "headers": decoder.headers(self.headers),
        }


class Reader:
    """Reads parts of topics. Any thread; four at a time.

    Args:
        kafka: the cluster.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._looks = BoundedSemaphore(LOOKS_AT_ONCE)

    @contextmanager
    def looking(self) -> Iterator["KafkaAdmin"]:
        """A client for one look. Raises `RetryLater` when too many look."""
        if not self._looks.acquire(timeout=2.0):
            raise RetryLater("too many look at topics; ask again")
        try:
            admin = self._kafka.admin()
            try:
                yield admin
            finally:
                admin.close()
        finally:
            self._looks.release()

    def places(self, admin: "KafkaAdmin", topic: str, partition: int | None = None) -> list[TopicPartition]:
        """All partitions of a topic, or the one. Raises `NoSuchTopic`."""
        count = admin.topic_partitions().get(topic, 0)
        if not count or (partition is not None and partition >= count):
            raise NoSuchTopic
        return [
            TopicPartition(topic, number) for number in (range(count) if partition is None else [partition])
        ]

    def last(self, admin: "KafkaAdmin", places: Sequence[TopicPartition], limit: int) -> list[Record]:
        """The last records over all these places, the latest first."""
        marks = admin.watermarks_known(places)
        found: list[Record] = []
        for window in _WINDOWS:
            starts = {place: max(mark.low, mark.high - limit * window) for place, mark in marks.items()}
            ends = {place: mark.high for place, mark in marks.items()}
            found = [record for part in self.read(starts, ends, keep=limit).values() for record in part]
            if len(found) >= limit or all(starts[place] == mark.low for place, mark in marks.items()):
                break
        found.sort(key=lambda record: (record.timestamp, record.place, record.offset), reverse=True)
        return found[:limit]

    def since(
        self,
        admin: "KafkaAdmin",
        places: Sequence[TopicPartition],
        limit: int,
        *,
        offset: int | None,
        time_ms: int,
    ) -> list[Record]:
        """The first records from an offset on, or from a time on, in the order of time."""
        marks = admin.watermarks_known(places)
        if offset is None:
            at = admin.offsets_at(marks, time_ms)
            starts = {
                place: mark.high if (first := at[place]) is None else first for place, mark in marks.items()
            }
        else:
            starts = {place: min(max(offset, mark.low), mark.high) for place, mark in marks.items()}
        ends = {place: mark.high for place, mark in marks.items()}
        found = [
            record for part in self.read(starts, ends, keep=limit, first=True).values() for record in part
        ]
        return sorted(found, key=lambda record: (record.timestamp, record.place, record.offset))[:limit]

    def read(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        keep: int,
        first: bool = False,
        whole: bool = False,
    ) -> dict[TopicPartition, deque[Record]]:
        """Committed records of each place from its start up to, not including, its end.

        It gives up what does not come in five seconds, as behind a transaction that is still open.

        Args:
            starts: by place.
            ends: by place.
            keep: the last so many of each place; of more than 32 MB in all the oldest are left out.
            first: the first so many instead, and no more is read then.
            whole: nothing may be missing.

        Raises:
            RetryLater: with `whole`, something is.
        """
        kept = _Kept(starts, keep, first=first)
        open_ones = {place for place, start in starts.items() if start < ends[place]}
        reader = self._kafka.table_reader("streamtable-console")
        try:
            if open_ones:
                reader.assign({place: starts[place] for place in open_ones})
            moved_at = time.monotonic()
            end = moved_at + READ_SECONDS
            while open_ones and time.monotonic() < min(end, moved_at + _STALL_SECONDS) and not kept.full:
                for batch in reader.poll(_POLL_RECORDS, _POLL_SECONDS):
                    moved_at = time.monotonic()
                    kept.add(batch.place, _records(batch, ends[batch.place]))
                open_ones = {p for p in open_ones if reader.position(p) < ends[p] and not kept.enough(p)}
        finally:
            reader.close()
        if whole and (open_ones or kept.dropped):
            raise RetryLater(f"{len(open_ones)} partitions could not be read to their ends; ask again")
        return kept.records


class _Kept:
    """Records that a look has found, as many as it may keep."""

    def __init__(self, places: Iterable[TopicPartition], keep: int, *, first: bool) -> None:
        self.records: dict[TopicPartition, deque[Record]] = {place: deque() for place in places}
        self.dropped = False
        self._keep = keep
        self._first = first
        self._bytes = 0

    @property
    def full(self) -> bool:
        """There is no room for more, and what is there is what was wanted."""
        return self._first and self._bytes > BYTES_MAX

    def enough(self, place: TopicPartition) -> bool:
        return self._first and len(self.records[place]) >= self._keep

    def add(self, place: TopicPartition, records: Iterable[Record]) -> None:
        part = self.records[place]
        for record in records:
            if self.enough(place):
                return
            part.append(record)
            self._bytes += record.size
            if len(part) > self._keep:
                self._drop(part)
        while not self._first and self._bytes > BYTES_MAX:
            self._drop(max(self.records.values(), key=len))

    def _drop(self, part: deque[Record]) -> None:
        self._bytes -= part.popleft().size
        self.dropped = True


def _records(batch: RecordBatch, end: int) -> Iterator[Record]:
    for index, offset in enumerate(batch.offsets):
        if offset < end:
            yield Record(
                batch.place,
                offset,
                batch.timestamp(index),
                batch.keys[index],
                batch.values[index],
                batch.headers(index),
            )
