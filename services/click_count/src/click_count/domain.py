"""What click counting means, without any input or output: user ids, the count, the ranking, the load's keys."""

import heapq
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from random import Random
from typing import Final

USER_ID_CHARACTERS_MAX: Final = 128
_FORBIDDEN: Final = "/\ufffd"
_FORBIDDEN_CATEGORIES: Final = {"Cc", "Cs"}  # control characters; surrogates, which are half a character


def user_id(text: str) -> str:
    """Return the text if it can be a user id.

    An id is part of an address: a slash would split it, and U+FFFD is what undecodable bytes become, so that two
    different ids could become the same one. Ids that look alike but differ in their code points are different.

    Raises:
        ValueError: it cannot; the message states the rule and does not quote the text.
    """
    if not 1 <= len(text) <= USER_ID_CHARACTERS_MAX:
        raise ValueError(f"must have 1 to {USER_ID_CHARACTERS_MAX} characters")
    if text in {".", ".."}:
        raise ValueError("must not be a dot or two")
    _refuse_forbidden(text)
    return text


def user_id_prefix(text: str) -> str:
    """Return the text if an id can begin so; an empty text is one. Raises `ValueError` like `user_id`."""
    if len(text) > USER_ID_CHARACTERS_MAX:
        raise ValueError(f"must have at most {USER_ID_CHARACTERS_MAX} characters")
    _refuse_forbidden(text)
    return text


def _refuse_forbidden(text: str) -> None:
    if any(c in _FORBIDDEN or unicodedata.category(c) in _FORBIDDEN_CATEGORIES for c in text):
        raise ValueError("must not contain control characters, half characters, '/' and U+FFFD")


def add_click(count: int | None) -> int:
    """The count after one more click; None: there was none yet."""
    return (count or 0) + 1


class Ranking:
    """The users with the most clicks, kept up to date from single changes. Equal counts: by user id.

    It holds the users that rank at least as high as a floor, and forgets all others: between `size` and twice as
    many. While counts grow that is exact, because a forgotten user comes back with the change that lifts it over
    the floor. When members fall below it, too few may remain; then `complete` is false until `rebuild`.

    Args:
        size: how long a list can be asked for, at least 1.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._counts: dict[str, int] = {}
        self._floor: tuple[int, str] | None = None  # None: nobody has been forgotten

    @property
    def complete(self) -> bool:
        """Whether `top` can be answered from what is held."""
        return self._floor is None or len(self._counts) >= self.size

    def held(self, user: str) -> int | None:
        """The count of a member; None for a user that is forgotten or unknown."""
        return self._counts.get(user)

    def update(self, user: str, count: int | None) -> None:
        """Take in that a user has so many clicks now; None: it was deleted."""
        if count is None or (self._floor is not None and _rank(user, count) > self._floor):
            self._counts.pop(user, None)
            return
        self._counts[user] = count
        if len(self._counts) > 2 * self.size:
            self._forget()

    def rebuild(self, rows: Iterable[tuple[str, int]]) -> None:
        """Begin again from all users and their counts."""
        self._counts = {}
        self._floor = None
        for user, count in rows:
            self.update(user, count)

    def top(self, limit: int) -> list[tuple[str, int]]:
        """The `limit` highest users with their counts, highest first; fewer if there are fewer.

        Raises:
            ValueError: more than `size`, or not complete.
        """
        if limit > self.size or not self.complete:
            raise ValueError("the ranking does not hold so many")
        return heapq.nsmallest(limit, self._counts.items(), key=lambda row: _rank(*row))

    def _forget(self) -> None:
        kept = heapq.nsmallest(self.size, self._counts.items(), key=lambda row: _rank(*row))
        self._counts = dict(kept)
        self._floor = _rank(*kept[-1])


def _rank(user: str, count: int) -> tuple[int, str]:
    return (-count, user)


def key_choice(keys: int, skew: float, seed: int) -> Callable[[], str]:
    """Make a function that chooses the user of each next click of a load, the same ones for the same arguments.

    Args:
        keys: `user-1` to `user-<keys>`; at least 1.
        skew: exponent of Zipf's law: user n is chosen in proportion to 1 / n**skew. 0: all alike.
        seed: of the random choices.
    """
    random = Random(seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    if skew == 0:
        return lambda: f"user-{random.randint(1, keys)}"
    cumulative = list(accumulate(1 / n**skew for n in range(1, keys + 1)))
    total = cumulative[-1]
    return lambda: f"user-{bisect_left(cumulative, random.random() * total) + 1}"
