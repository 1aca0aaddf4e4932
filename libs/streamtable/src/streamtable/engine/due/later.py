"""Changed rows of a state table that wait to be indexed: most are committed before their time has come."""

from bisect import bisect_right
from collections.abc import Sequence


class Later:
    """Rows to be indexed when the first of them is due.

    Args:
        keys: Their keys, at least one.
        times: When each is due.

    Attributes:
        first_ms: When the first is due.
        empty: All were taken.
    """

    __slots__ = ("_keys", "_ordered", "_taken", "_times", "empty", "first_ms")

    def __init__(self, keys: Sequence[bytes], times: Sequence[int]) -> None:
        self._keys = keys
        self._times = times
        self._ordered = False
        self._taken = 0
        self.first_ms = min(times)
        self.empty = False

    def __lt__(self, other: "Later") -> bool:
        return self.first_ms < other.first_ms

    def take(self, until_ms: int) -> tuple[Sequence[bytes], Sequence[int]]:
        """Remove the rows that are due at this time or before. Returns their keys and times."""
        if not self._ordered:  # most wait for a commit that comes first, and are never ordered
            order = sorted(range(len(self._times)), key=self._times.__getitem__)
            self._keys = [self._keys[at] for at in order]
            self._times = [self._times[at] for at in order]
            self._ordered = True
        begin = self._taken
        self._taken = end = bisect_right(self._times, until_ms, begin)
        self.empty = end == len(self._times)
        if not self.empty:
            self.first_ms = self._times[end]
        return self._keys[begin:end], self._times[begin:end]
