"""Ranges of rows over all partitions: in the order of keys, with what each partition was read from."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from streamtable.base.types import TopicPartition
from streamtable_query.answers import SOURCES, PartitionMoved, Source
from streamtable_query.sources import Page

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class RangePart:
    """The offset and the age of the rows of one partition of a range, as of its last page; see `QueryAnswer`.

    Attributes:
        offset: The rows of that page hold everything below this offset.
        age_seconds: The age of that page when it was read.
        source: What it was read from.
        address: The address of the process; "" for this one.
        moved: Whether its pages came from different processes.
    """

    offset: int
    age_seconds: float
    source: Source
    address: str
    moved: bool = False


class QueryRange(Iterator[tuple[K, V]]):
    """The rows of a range, in the order of encoded keys.

    Attributes:
        parts: What the rows of each partition were read from, once a page of it was read.
    """

    def __init__(self, rows: Iterator[tuple[K, V]], parts: Mapping[int, RangePart]) -> None:
        self._rows = rows
        self.parts = parts

    def __next__(self) -> tuple[K, V]:
        return next(self._rows)


def read_on(
    before: RangePart | None, page: Page, address: str, place: TopicPartition, *, strict: bool
) -> RangePart:
    """Return what a partition was read from after a further page.

    Args:
        before: The same before that page; None: it is the first.
        page: The page.
        address: The address of the process that has answered.
        place: The partition of the table, for the error.
        strict: Refuse a page of another process than before.

    Raises:
        PartitionMoved: See `strict`.
    """
    moved = before is not None and before.address != address
    if before is not None and moved and strict:
        raise PartitionMoved(
            f"partition {place.partition} of {place.topic!r} moved from {before.address or 'this process'} to {address or 'this process'} "
            "while it was read: read the range again"
        )
    moved = moved or (before is not None and before.moved)
    return RangePart(page.offset, page.age_seconds, SOURCES[page.kind], address, moved)


def merged(read: Iterable[Iterator[tuple[int, bytes, bytes]]]) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the partition, the encoded key and the encoded row of each row of some partitions, in the order of keys."""
    return heapq.merge(*read, key=lambda each: each[1])
