"""Tells most ids that were never accepted without a look at the store: a Bloom filter over arrays.

The only module of the engine that uses numpy; it is loaded when there is something to filter.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_HASHES = 3
_ODD = np.uint64(0x9E3779B97F4A7C15)


class IdFilter:
    """Ids of 16 bytes that were added. Of others it takes a few for added: one in a hundred at 10 bits an id.

    Args:
        bytes_max: The maximum size of its bits; rounded down to a power of two.
    """

    def __init__(self, bytes_max: int) -> None:
        bits = 1 << max(13, (8 * bytes_max).bit_length() - 1)
        self._mask = np.uint64(bits - 1)
        self._bytes = np.zeros(bits >> 3, np.uint8)
        self.room = bits // 10
        self.added = 0

    def add(self, ids: Sequence[bytes]) -> None:
        for at in self._places(ids):
            place, bit = at >> 3, at & 7
            for number in range(8):  # of one bit, the same place twice does no harm
                here = place[bit == number]
                self._bytes[here] |= np.uint8(1 << number)
        self.added += len(ids)

    def perhaps(self, ids: Sequence[bytes]) -> list[int]:
        """The indexes of ids that may have been added; the others certainly were not."""
        found = np.ones(len(ids), np.bool_)
        for at in self._places(ids):
            found &= (self._bytes[at >> 3] >> (at & 7).astype(np.uint8)) & 1 != 0
        indexes: list[int] = np.flatnonzero(found).tolist()
        return indexes

    def _places(self, ids: Sequence[bytes]) -> Iterator[NDArray[np.int64]]:
        """For each hash the bit of each id."""
        words = np.frombuffer(b"".join(ids), np.uint64)
        # Mixed well: ids that begin with a time, or that a person has chosen, differ in a few bits only.
        first = _mixed(words[::2] ^ (words[1::2] * _ODD))
        second = _mixed(first + _ODD) | np.uint64(1)
        for number in range(_HASHES):
            yield ((first + second * np.uint64(number)) & self._mask).astype(np.int64)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each bit of a word in all of its bits (the finalizer of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
