"""The decoded rows of a table in memory, limited by their measured size."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from itertools import islice
from typing import Generic, TypeVar

from streamtable.tables.row_sizes import MEASURED_EVERY, RowSizes

V = TypeVar("V")

_LOOKED_AT = 8  # times while the memory fills up


class RowCache(ABC, Generic[V]):
    """Decoded rows by encoded key; None is known not to exist. One thread.

    Args:
        cache_bytes: About how much memory decoded rows may take.
    """

    _changed: Collection[bytes] = ()
    """The keys of rows that have to stay in memory."""

    def __init__(self, cache_bytes: int) -> None:
        self._sizes = RowSizes()
        self.cache_bytes = cache_bytes
        self._crowded = False  # so much was loaded that the cached rows must be measured
        self._until_measured = 1
        self._rows: dict[bytes, V | None] = {}

    @property
    def cache_bytes(self) -> int:
        """About how much memory decoded rows may take."""
        return self._cache_bytes

    @cache_bytes.setter
    def cache_bytes(self, memory_bytes: int) -> None:
        self._cache_bytes = memory_bytes
        self._look_at_bytes = self._sizes.encoded_room(memory_bytes) // _LOOKED_AT

    def get(self, key: bytes) -> V | None:
        """Return the row; None if there is none."""
        try:
            return self._rows[key]
        except KeyError:
            if self._crowded:
                self._make_room()
            return self._load(key)

    @abstractmethod
    def _load(self, key: bytes) -> V | None:
        """Read and decode a row that is not in the cache, and keep it."""

    def _count(self, key: bytes, data: bytes | None, row: V | None) -> None:
        """Measure a loaded row if it is its turn."""
        self._until_measured -= 1
        if not self._until_measured:
            self._until_measured = MEASURED_EVERY
            self._sizes.loaded(key, data, row)
            self._crowded = self._sizes.loaded_bytes > self._look_at_bytes

    def _make_room(self) -> None:
        """Drop the oldest rows that exceed the memory limit, except the changed ones."""
        sizes, rows, changed = self._sizes, self._rows, self._changed
        sizes.settle(len(rows))
        self._crowded = False
        self.cache_bytes = self._cache_bytes  # by the sizes measured meanwhile
        room = sizes.room(self._cache_bytes)
        if len(rows) > room:
            # A quarter at once: a dict that loses a few of its first entries again and again is scanned each time.
            for key in list(islice(rows, len(rows) - room * 3 // 4)):
                if key not in changed:
                    del rows[key]
