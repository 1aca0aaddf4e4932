"""A top-N ranking, maintained incrementally."""

import heapq
from collections.abc import Iterable


class Ranking:
    """The keys with the highest numbers, updated with each change. Equal numbers: by key.

    It keeps the keys that rank at least as high as a floor, between `size` and twice as many, and drops all others. While numbers grow that is exact, because a dropped key returns with the change that lifts it over the
    floor. When members fall below it, too few may remain; then `complete` is false until `rebuild`.

    Args:
        size: The maximum length of the list, at least 1.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._numbers: dict[str, int] = {}
        self._floor: tuple[int, str] | None = None  # None: no key was dropped

    @property
    def complete(self) -> bool:
        """Whether `top` can be answered from the kept members."""
        return self._floor is None or len(self._numbers) >= self.size

    def held(self, key: str) -> int | None:
        """Return the number of a member; None for a key that is not kept."""
        return self._numbers.get(key)

    def update(self, key: str, number: int | None) -> None:
        """Apply a key's new number; None: the key was deleted."""
        if number is None or (self._floor is not None and _rank(key, number) > self._floor):
            self._numbers.pop(key, None)
            return
        self._numbers[key] = number
        if len(self._numbers) > 2 * self.size:
            self._forget()

    def rebuild(self, rows: Iterable[tuple[str, int]]) -> None:
        """Rebuild the ranking from all keys and their numbers."""
        self._numbers = {}
        self._floor = None
        for key, number in rows:
            self.update(key, number)

    def top(self, limit: int) -> list[tuple[str, int]]:
        """Return the `limit` highest keys with their numbers, highest first; fewer if there are fewer.

        Raises:
            ValueError: `limit` is more than `size`, or the ranking is not complete.
        """
        if limit > self.size or not self.complete:
            raise ValueError("the ranking does not hold this many keys")
        return heapq.nsmallest(limit, self._numbers.items(), key=lambda row: _rank(*row))

    def _forget(self) -> None:
        kept = heapq.nsmallest(self.size, self._numbers.items(), key=lambda row: _rank(*row))
        self._numbers = dict(kept)
        self._floor = _rank(*kept[-1])


def _rank(key: str, number: int) -> tuple[int, str]:
    return (-number, key)
