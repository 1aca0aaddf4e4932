"""For tests: rows in memory, and the reach of URLs counted directly."""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Generic, TypeGuard, TypeVar

from contracts.records import Follow, Tweet

R = TypeVar("R")


class MemoryRows(Generic[R]):
    """Rows of a central store, in a dictionary. Changes to a row that was read have no effect until it is put."""

    def __init__(self) -> None:
        self.rows: dict[str, R] = {}
        self.reads = 0

    def get_many(self, keys: Iterable[str]) -> Mapping[str, R]:
        self.reads += 1
        return {key: copy(self.rows[key]) for key in keys if key in self.rows}

    def put(self, key: str, value: R) -> None:
        self.rows[key] = copy(value)

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.rows.pop(key, None)


def counted(tweets: Iterable[Tweet], follows: Iterable[Follow]) -> dict[str, dict[str, set[str]]]:
    """Return the authors of each tweeted URL, each with the followers that they add."""
    latest: dict[tuple[str, str], tuple[int, bool]] = {}
    for follow in follows:
        pair, word = (follow["author"], follow["follower"]), (follow["at"], follow["follows"])
        latest[pair] = max(word, latest.get(pair, word))
    links: dict[tuple[str, str], str | None] = {}
    for tweet in tweets:
        key = (tweet["author"], tweet["id"])
        if tweet["url"] is None or key not in links:
            links[key] = tweet["url"] if key in links or tweet["url"] is not None else None
    found: dict[str, dict[str, set[str]]] = {}
    for (author, _), url in links.items():
        if url is not None:
            followers = {name for (who, name), (_, yes) in latest.items() if who == author and yes}
            found.setdefault(url, {})[author] = followers
    return found


def is_follow(event: Tweet | Follow) -> TypeGuard[Follow]:
    return "follower" in event


def is_tweet(event: Tweet | Follow) -> TypeGuard[Tweet]:
    return "follower" not in event
