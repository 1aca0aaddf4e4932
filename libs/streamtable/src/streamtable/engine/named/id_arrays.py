"""Arrays of ids: a Bloom filter that recognizes new ids without the store, and the rows of a chunk.

The only module of the engine that uses numpy; it is loaded with the first large batch of ids.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from streamtable.graph.once import ID_BYTES, IdChunk

_ODD = np.uint64(0x9E3779B97F4A7C15)
_WORD_BYTES = 8
_SIX_BITS = np.uint64(63)
_ONE = np.uint64(1)
_BITS_AN_ID = 10
_TIME = np.dtype(">i8")

Words = NDArray[np.uint64]


class IdFilter:
    """A Bloom filter of ids of 16 bytes. One in forty new ids is taken for a known one at 10 bits an id.

    All bits of an id are in one word, so that memory is looked at once for an id.

    Args:
        bytes_max: The maximum size of its bits; rounded down to a power of two.
    """

    def __init__(self, bytes_max: int) -> None:
        bits = 1 << max(13, (8 * bytes_max).bit_length() - 1)
        self._words = np.zeros(bits >> 6, np.uint64)
        self._mask = np.uint64(len(self._words) - 1)
        self.room = bits // _BITS_AN_ID
        self.added = 0

    def add(self, ids: bytes) -> list[int]:
        """Add ids, given one after the other.

        Returns:
            The indexes of those that may have been added before this call; the others certainly were not.
        """
        places, bits = self._places_and_bits(ids)
        perhaps: list[int] = np.flatnonzero(self._words[places] & bits == bits).tolist()
        np.bitwise_or.at(self._words, places, bits)
        self.added += len(places)
        return perhaps

    def _places_and_bits(self, ids: bytes) -> tuple[NDArray[np.intp], Words]:
        """Return for each id its word and three bits in it."""
        words = np.frombuffer(ids, np.uint64)
        # Mixed well: ids that begin with a time, or that a person has chosen, differ in a few bits only.
        mixed = _mixed(words[::2] ^ (words[1::2] * _ODD))
        bits = _ONE << (mixed & _SIX_BITS)
        bits |= _ONE << ((mixed >> np.uint64(6)) & _SIX_BITS)
        bits |= _ONE << ((mixed >> np.uint64(12)) & _SIX_BITS)
        return ((mixed >> np.uint64(18)) & self._mask).astype(np.intp), bits


def rows_in_order(prefix: bytes, chunks: Sequence[IdChunk]) -> Iterator[tuple[bytes, bytes]]:
    """Return the rows of ids with the times when they were accepted, in about the order of their keys.

    Rows of the same id stay in the order of the chunks.

    Args:
        prefix: The prefix of each key.
        chunks: The ids, with their times.
    """
    runs = [run for chunk in chunks for run in chunk.runs]
    packed = np.frombuffer(b"".join(chunk.ids for chunk in chunks), np.uint8).reshape(-1, ID_BYTES)
    # Their first half is enough: the order saves work, nothing depends on it. Stable, for rows of the same id.
    order = np.argsort(packed[:, :_WORD_BYTES].copy().view(">u8").ravel(), kind="stable")
    keys = np.empty((len(packed), len(prefix) + ID_BYTES), np.uint8)
    keys[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    keys[:, len(prefix) :] = packed.take(order, 0)
    times, sizes = zip(*runs, strict=True)
    values = np.repeat(np.array(times, _TIME), sizes)[order]
    return zip(_each_bytes(keys), _each_bytes(values[:, np.newaxis]), strict=True)


def _each_bytes(rows: NDArray[np.generic]) -> list[bytes]:
    """Return each row of an array as bytes."""
    whole = np.dtype((np.void, rows.shape[1] * rows.itemsize))
    return cast("list[bytes]", rows.view(whole).ravel().tolist())


def _mixed(words: Words) -> Words:
    """Mix each bit of a word into all of its bits (the finalizer of SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
