"""Waiting records in arrays: each takes its bytes and 14 more, where an entry of a dict takes 200 more.

The only module of the flows that uses numpy; it is loaded with the first records that are frozen.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import add
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from streamtable.flow.joins.waiting_records import MATCHED_AT

_TIME = np.dtype(">u8")
_TIME_BYTES = np.arange(8)

Numbers = NDArray[np.int64]


class KeySpans:
    """Keys, each with the span of time to search for its records. In the order of the hashes of the keys.

    Args:
        keys: The keys, each once.
        since: The first time of each, in milliseconds since 1970.
        until: The last time of each.
    """

    def __init__(self, keys: Collection[bytes], since: Iterable[int], until: Iterable[int]) -> None:
        count = len(keys)
        hashes = np.fromiter(map(hash, keys), np.int64, count)
        order = np.argsort(hashes)
        self.hashes: Numbers = hashes[order]
        self.keys = list(map(list(keys).__getitem__, order.tolist()))
        self.since = np.fromiter(since, np.int64, count)[order]
        self.until = np.fromiter(until, np.int64, count)[order]


class FrozenRecords:
    """Records of one side of a join, in the order of the hashes of their keys. They can only be marked as matched.

    Args:
        keys: The key of each record.
        records: The records.

    Attributes:
        memory: The bytes that they take.
    """

    def __init__(self, keys: Sequence[bytes], records: Sequence[bytes]) -> None:
        count = len(keys)
        hashes = np.fromiter(map(hash, keys), np.int64, count)
        order = np.argsort(hashes, kind="stable")
        entries = list(map(add, keys, records))
        self._hashes: Numbers = hashes[order]
        self._data = bytearray().join(map(entries.__getitem__, order.tolist()))
        self._ends = _small(np.cumsum(np.fromiter(map(len, entries), np.int64, count)[order]))
        self._record_bytes = _small(np.fromiter(map(len, records), np.int64, count)[order])
        self.memory = len(self._data) + self._hashes.nbytes + self._ends.nbytes + self._record_bytes.nbytes

    @property
    def hashes(self) -> list[int]:
        """The hashes of the keys, in order."""
        return cast("list[int]", self._hashes.tolist())

    def of(self, spans: KeySpans) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield the records of these keys in their spans of time, each with its key and its index here, in no order."""
        if not len(self._hashes):
            return
        first = np.searchsorted(self._hashes, spans.hashes)
        np.minimum(first, len(self._hashes) - 1, out=first)
        asked = np.flatnonzero(self._hashes[first] == spans.hashes)
        first = first[asked]
        counts = np.searchsorted(self._hashes, spans.hashes[asked], "right") - first
        asked = np.repeat(asked, counts)
        # The indexes from `first` on, as many as there are of each.
        places = np.arange(len(asked)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        begins = self._begins(places)
        data = np.frombuffer(self._data, np.uint8)
        times = data[begins[:, np.newaxis] + _TIME_BYTES].view(_TIME)[:, 0].astype(np.int64)
        matching = (times >= spans.since[asked]) & (times <= spans.until[asked])
        yield from self._found(spans.keys, asked[matching], places[matching], begins[matching])

    def _found(
        self, keys: Sequence[bytes], asked: Numbers, places: Numbers, begins: Numbers
    ) -> Iterator[tuple[bytes, bytes, int]]:
        data = self._data
        before = np.where(places > 0, self._ends[places - 1], 0)
        columns = (each.tolist() for each in (asked, places, before, begins, self._ends[places]))
        for index, place, start, begin, end in zip(*columns, strict=True):
            key = keys[index]
            if data[start:begin] == key:  # two keys can have the same hash
                yield key, bytes(data[begin:end]), place

    def _begins(self, places: Numbers) -> Numbers:
        """Return the places in the data where these records begin, behind their keys."""
        begins: Numbers = self._ends[places].astype(np.int64) - self._record_bytes[places]
        return begins

    def mark_matched(self, at: int) -> None:
        """Mark the record with this index as one that has matched."""
        (begin,) = self._begins(np.array([at]))
        self._data[begin + MATCHED_AT] = 1


def _small(numbers: Numbers) -> NDArray[Any]:
    """Return numbers of 0 and more in the smallest type that has them all."""
    small: NDArray[Any] = numbers.astype(np.min_scalar_type(numbers.max(initial=0)))
    return small
