"""Buffers the records of a partition and cuts them into batches."""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from microbatch.limits import Limits
from streamtable.base.types import NextOffset, RecordBatch
from streamtable.errors import HandlerFailed


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that arrived together. `arrived` is monotonic time, in seconds."""

    records: RecordBatch
    arrived: float
    bytes: int


class Buffer:
    """Chunks in order of arrival, to be cut into batches.

    Args:
        limits: The limits of a batch.
        next_offsets: The next offset of each topic; records below it are skipped as known.

    Attributes:
        next_offsets: The next offset of each topic after the buffered records.
    """

    def __init__(self, limits: Limits, next_offsets: Mapping[str, NextOffset]) -> None:
        self.next_offsets = dict(next_offsets)
        self._limits = limits
        self._chunks: deque[Chunk] = deque()
        self._records = self._bytes = 0

    def __len__(self) -> int:
        return self._records

    def add(self, records: RecordBatch, now: float) -> None:
        """Add records of one topic; those that are buffered already are dropped."""
        expected = self.next_offsets[records.topic]
        if records.first_offset < expected:
            records = records.part(bisect_left(records.offsets, expected), len(records))
        if records:
            size = sum(sizes(records))
            self._chunks.append(Chunk(records, now, size))
            self._records += len(records)
            self._bytes += size
            self.next_offsets[records.topic] = NextOffset(records.last_offset + 1)

    @property
    def full(self) -> bool:
        return self._records >= self._limits.records or self._bytes >= self._limits.bytes

    @property
    def first_arrival(self) -> float:
        """The arrival time of the oldest buffered record; there must be one."""
        return self._chunks[0].arrived

    def cut(self, records_max: int | None = None) -> list[Chunk]:
        """Take out the next batch: at least one record, and no more than the limits, or `records_max`, allow."""
        records_left = min(self._limits.records, records_max or self._limits.records)
        bytes_left = self._limits.bytes
        taken: list[Chunk] = []
        while self._chunks and records_left > 0:
            chunk = self._chunks.popleft()
            part = self._part(chunk, records_left, bytes_left, at_least=0 if taken else 1)
            if part is None:
                self._chunks.appendleft(chunk)
                break
            taken.append(part)
            records_left -= len(part.records)
            bytes_left -= part.bytes
            if len(part.records) < len(chunk.records):
                rest = chunk.records.part(len(part.records), len(chunk.records))
                self._chunks.appendleft(Chunk(rest, chunk.arrived, chunk.bytes - part.bytes))
                break
        self._records -= sum(len(chunk.records) for chunk in taken)
        self._bytes -= sum(chunk.bytes for chunk in taken)
        return taken

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """Put back the batch that `cut` returned last."""
        self._chunks.extendleft(reversed(chunks))
        self._records += sum(len(chunk.records) for chunk in chunks)
        self._bytes += sum(chunk.bytes for chunk in chunks)

    def clear(self, next_offsets: Mapping[str, NextOffset]) -> None:
        """Drop all records and continue at these offsets."""
        self._chunks.clear()
        self._records = self._bytes = 0
        self.next_offsets = dict(next_offsets)

    @staticmethod
    def _part(chunk: Chunk, records_left: int, bytes_left: int, *, at_least: int) -> Chunk | None:
        """Return the part of a chunk that fits; None if nothing fits."""
        if len(chunk.records) <= records_left and chunk.bytes <= bytes_left:
            return chunk
        count = 0
        for ends in accumulate(sizes(chunk.records)):
            if count == records_left or ends > bytes_left:
                break
            count += 1
        count = max(count, at_least)
        if not count:
            return None
        part = chunk.records.part(0, count)
        return Chunk(part, chunk.arrived, sum(sizes(part)))


def sizes(records: RecordBatch) -> list[int]:
    """Return the bytes of key and value of each record."""
    pairs = zip(records.keys, records.values, strict=True)
    return [len(key or b"") + len(value or b"") for key, value in pairs]


@dataclass
class PoisonBisector:
    """Finds the record of a partition that makes `process` fail, by halving the batch until one record is left.

    The good records before it are committed, and the batches after it grow again, so each bad record costs a few calls.
    The bisector outlives the task, which may have to recover in between.

    Attributes:
        records_max: The size limit of the next batch; None: only the usual limits.
        until: The end offsets of the failed batch by topic; records beyond them are not suspected.
        found: The errors of the records to skip, by topic and offset.
    """

    records_max: int | None = None
    until: dict[str, int] = field(default_factory=dict)
    found: dict[tuple[str, int], HandlerFailed] = field(default_factory=dict)

    def halve(self, records: int, next_offsets: Mapping[str, int]) -> None:
        """Halve the next batch, because a batch of this many records (more than one) failed."""
        self.records_max = max(1, records // 2)
        for topic, offset in next_offsets.items():
            self.until[topic] = max(offset, self.until.get(topic, 0))

    def isolated(self, topic: str, offset: int, error: HandlerFailed) -> None:
        """Note the record that a failed batch of one has isolated: it is skipped from now on."""
        self.found[topic, offset] = error
        self.records_max = 1

    def passed(self, next_offsets: Mapping[str, int]) -> None:
        """Let the batches grow again, because everything up to these offsets is committed."""
        if all(next_offsets[topic] >= offset for topic, offset in self.until.items()):
            self.records_max = None
            self.until.clear()
        elif self.records_max is not None:
            self.records_max *= 2
        self.found = {at: error for at, error in self.found.items() if at[1] >= next_offsets.get(at[0], 0)}
