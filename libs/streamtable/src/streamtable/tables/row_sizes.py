"""Estimates how much memory decoded rows take, well enough to hold a limit."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from sys import getsizeof
from typing import Any

MEASURED_EVERY = 16
"""One of this many loads is measured; measuring each would slow loads down by a sixth."""
_ENTRY_BYTES = 40  # counted beside the encoded key and value, so that rows without bytes count too
_ENTRY_MEMORY_BYTES = 100  # of a dict entry and its share of the table's growth in CPython
_SAMPLE_EVERY = 4  # measured loads; to look into a row takes about as long as decoding it
_NEWEST_SHARE = 0.25


class RowSizes:
    """The mean size of the rows in a cache, in encoded bytes, with a measured factor for their size in memory.

    It follows the rows that are loaded, not only those that a commit encodes: most may be read and never change.

    Attributes:
        loaded_bytes: Encoded bytes of the rows that were loaded since the last `settle`, as estimated.
    """

    def __init__(self) -> None:
        self.loaded_bytes = 0
        self._loads = 0
        self._measured = 0
        self._mean = 64.0 + _ENTRY_BYTES
        self._encoded = 0.0
        self._memory = 0.0

    def loaded(self, key: bytes, data: bytes | None, row: object) -> None:
        """Note a loaded row that stands for as many others as are not measured; None: there is none."""
        stands_for = MEASURED_EVERY if self._measured else 1
        size = 0 if data is None else len(data)
        self._loads += stands_for
        self.loaded_bytes += stands_for * (_ENTRY_BYTES + len(key) + size)
        if data is not None and (self._measured % _SAMPLE_EVERY == 0 or not self._encoded):
            self.sample(key, size, row)
        self._measured += 1

    def sample(self, key: bytes, data_bytes: int, row: object) -> None:
        """Measure one row of this many encoded bytes."""
        share = _NEWEST_SHARE if self._encoded else 1.0
        self._encoded += share * (_ENTRY_BYTES + len(key) + data_bytes - self._encoded)
        memory = _ENTRY_MEMORY_BYTES + getsizeof(key) + memory_of(row)
        self._memory += share * (memory - self._memory)

    def settle(self, rows: int, changed: int = 0, changed_mean: float = 0.0) -> None:
        """Update the mean from the rows that were loaded and those that were changed."""
        before = max(0, rows - self._loads - changed)
        counted = before + self._loads + changed
        if counted:
            total = before * self._mean + self.loaded_bytes + changed * (changed_mean + _ENTRY_BYTES)
            self._mean = total / counted
        self._loads = self.loaded_bytes = 0

    def room(self, memory_bytes: int) -> int:
        """Return the number of rows of the mean size that fit."""
        return int(memory_bytes / (self._mean * self._factor))

    def memory_of_rows(self, rows: int) -> int:
        """Return the bytes of memory that this number of rows of the mean size takes."""
        return int(rows * self._mean * self._factor)

    def encoded_room(self, memory_bytes: int) -> int:
        """Return the number of encoded bytes that take this memory when decoded."""
        return int(memory_bytes / self._factor)

    @property
    def _factor(self) -> float:
        return self._memory / self._encoded if self._encoded else 3.0


def memory_of(value: object) -> int:
    """Return the bytes that a decoded value takes with everything in it. Shared parts are counted each time."""
    size, todo = 0, [value]
    while todo:
        each: Any = todo.pop()
        size += getsizeof(each)
        if isinstance(each, Mapping):
            todo += each.keys()
            todo += each.values()
        elif isinstance(each, list | tuple | AbstractSet):
            todo += each
    return size
