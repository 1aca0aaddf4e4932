"""A filter of the keys with rows in a state table: a key that is not in it has no rows, which saves a read of the store.

It is a Bloom filter with one bit for each key, as in [Bloom 1970](https://doi.org/10.1145/362686.362692), in generations: one
takes keys until it is full, and is dropped when all rows of its keys are gone. All times are milliseconds since 1970.
"""

from collections.abc import Sequence

_FIRST_BYTES, _LARGEST_BYTES = 64 << 10, 512 << 10
_KEYS_PER_BYTE = 1  # eight bits for each: of the keys that have no rows, one in eight is looked up in vain
_GENERATIONS_MAX = 8  # the last one takes all further keys, and more is looked up in vain
_TOGETHER = _FIRST_BYTES // 4  # keys are added between two looks at whether a generation is full
_BITS = tuple(1 << bit for bit in range(8))


class _Generation:
    """Keys that were added one after another.

    Args:
        size: The bytes of its bits, a power of two.

    Attributes:
        keys: The number of keys, those that were added again counted again.
        due_ms: When the last of their rows is due.
    """

    def __init__(self, size: int) -> None:
        self.bits = bytearray(size)
        self.mask = size - 1
        self.keys = 0
        self.due_ms = 0

    @property
    def full(self) -> bool:
        return self.keys >= len(self.bits) * _KEYS_PER_BYTE


class KeyFilter:
    """The keys of rows that a step does not remember itself.

    Args:
        due_ms: When the last row is due that the table had before the filter, whose key is not known here; None: it had none.
    """

    def __init__(self, due_ms: int | None) -> None:
        self._unknown_until_ms = due_ms
        self._generations = [_Generation(_FIRST_BYTES)]

    def add(self, hashes: Sequence[int], due_ms: int) -> None:
        """Add keys, each by its hash; their last row is due at this time."""
        for first in range(0, len(hashes), _TOGETHER):
            self._add(hashes[first : first + _TOGETHER], due_ms)

    def _add(self, hashes: Sequence[int], due_ms: int) -> None:
        newest = self._generations[-1]
        if newest.full and len(self._generations) < _GENERATIONS_MAX:
            newest = _Generation(min(2 * len(newest.bits), _LARGEST_BYTES))
            self._generations.append(newest)
        bits, mask = newest.bits, newest.mask
        for number in hashes:
            bits[number >> 3 & mask] |= _BITS[number & 7]
        newest.keys += len(hashes)
        newest.due_ms = max(newest.due_ms, due_ms)

    def may_have(self, hashes: Sequence[int], gone_before_ms: int) -> Sequence[object]:
        """Return for each key a true value if it may have rows.

        Args:
            hashes: The hashes of the keys.
            gone_before_ms: Rows that were due before this time are gone.
        """
        if self._unknown_until_ms is not None:
            if self._unknown_until_ms >= gone_before_ms:
                return [True] * len(hashes)
            self._unknown_until_ms = None
        older = [each for each in self._generations[:-1] if each.due_ms >= gone_before_ms]
        self._generations = [*older, self._generations[-1]]
        found: list[int] = []
        for each in self._generations:
            bits, mask = each.bits, each.mask
            here = [bits[number >> 3 & mask] & _BITS[number & 7] for number in hashes]
            found = [one | other for one, other in zip(found, here, strict=True)] if found else here
        return found
