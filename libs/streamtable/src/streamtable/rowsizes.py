"""How much memory decoded rows take, estimated well enough for a bound on it to hold."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from sys import getsizeof
from typing import Any

ENTRY_BYTES = 40
"""Counted for each row beside its encoded key and value, so that rows without bytes count too."""
_ENTRY_MEMORY_BYTES = 100  # of a dict entry and its share of the table's growth in CPython
_SAMPLE_EVERY = 64  # measuring a row takes about as long as decoding it
_NEWEST_SHARE = 0.25


class RowSizes:
    """The mean size of the rows in a cache: exact in encoded bytes, with a measured factor for what they become.

    Whoever loads a row adds to `loads` and `loaded_bytes` by itself, which costs less than a call, and calls `sample`
    when `loads` is a multiple of 64. So the estimate follows rows that are only read, which no commit encodes.

    Attributes:
        loads: rows that were loaded since the last `settle`.
        loaded_bytes: encoded, with `ENTRY_BYTES` for each.
    """

    def __init__(self) -> None:
        self.loads = 0
        self.loaded_bytes = 0
        self._mean = 64.0 + ENTRY_BYTES
        self._encoded = 0.0
        self._memory = 0.0

    def sample(self, key: bytes, data_bytes: int, row: object) -> None:
        """Measure one row and its encoded form."""
        share = _NEWEST_SHARE if self._encoded else 1.0
        self._encoded += share * (ENTRY_BYTES + len(key) + data_bytes - self._encoded)
        memory = _ENTRY_MEMORY_BYTES + getsizeof(key) + memory_of(row)
        self._memory += share * (memory - self._memory)

    def due(self) -> bool:
        """The row that is loaded now is to be measured."""
        return self.loads % _SAMPLE_EVERY == 0

    def settle(self, rows: int, changed: int = 0, changed_mean: float = 0.0) -> None:
        """Take what was loaded, and what has changed, into the mean of so many rows in memory."""
        before = max(0, rows - self.loads - changed)
        counted = before + self.loads + changed
        if counted:
            total = before * self._mean + self.loaded_bytes + changed * (changed_mean + ENTRY_BYTES)
            self._mean = total / counted
        self.loads = self.loaded_bytes = 0

    def room(self, memory_bytes: int) -> int:
        """How many rows of the mean size fit."""
        return int(memory_bytes / (self._mean * self._factor))

    def encoded_room(self, memory_bytes: int) -> int:
        """How many encoded bytes become that much in memory."""
        return int(memory_bytes / self._factor)

    @property
    def _factor(self) -> float:
        return self._memory / self._encoded if self._encoded else 3.0


def memory_of(value: object) -> int:
    """Bytes that a decoded value takes, with all that is in it. What several values share is counted for each."""
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
