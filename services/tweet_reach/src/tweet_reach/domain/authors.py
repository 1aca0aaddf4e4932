"""The first stage, keyed by author: followers and tweets of authors, sent as facts keyed by URL to the second stage.

A fact states present values, not changes, and is read from the rows when it is sent. So each change only has to ensure
that the affected values are sent some time after it, and sending them again, in whatever order, is harmless. A **task** is
a set of facts to send: one URL with all followers of an author, or some followers with all URLs. A task that is larger
than the limit of one batch continues in a later batch, from a cursor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contracts.records import Follow, ReachFact, ReachWork, Tweet, Tweeted
from tweet_reach.domain.pieces import Map, Maps, Piece, Rows, name_of
from tweet_reach.domain.rules import CHUNK_NAMES_MAX

FACT_COST: Final = 8
"""The cost of a fact without its names, in the unit of one name."""

Task: TypeAlias = tuple[str, ReachWork]
Fact: TypeAlias = tuple[str, ReachFact]


@dataclass(frozen=True)
class AuthorRows:
    """The rows of the stage: tweets by author and id, and maps.

    The map `f...` of an author has the followers, each with twice the time of its last event, plus 1 if it follows; the
    map `u...` has the URLs, each with its number of tweets.
    """

    tweeted: Rows[Tweeted]
    pieces: Rows[Piece]


@dataclass
class StageOutput:
    """The records to send: facts by URL, and remaining tasks by author."""

    facts: list[Fact] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)


def fold_authors(
    tweets: Sequence[Tweet],
    follows: Sequence[Follow],
    tasks: Sequence[Task],
    rows: AuthorRows,
    *,
    cost_max: int = 400_000,
) -> StageOutput:
    """Process one batch. Its records have passed `rules`.

    Args:
        tweets: The tweets, in order for each author.
        follows: The follow events, in any order.
        tasks: The remaining tasks of earlier batches.
        rows: The rows of this partition's authors.
        cost_max: The maximum cost of the facts: 1 for each follower, and `FACT_COST` for each fact. One task may exceed it by
            a row.
    """
    authors, output = _Authors(rows.pieces), StageOutput()
    keys = [name_of(tweet["author"], tweet["id"]) for tweet in tweets]
    known = dict(rows.tweeted.get_many(dict.fromkeys(keys))) if keys else {}
    latest = _latest(follows)
    authors.load([*tweets, *known.values()], latest, tasks, cost_max)
    changed_urls = _take_tweets(zip(keys, tweets, strict=True), known, rows.tweeted, authors)
    changed_followers = _take_follows(latest, authors)
    authors.maps.save()
    due: list[Task] = []
    for (author, url), before in changed_urls.items():
        now = authors.urls(author).get(url) or 0
        if (now > 0) != (before > 0):
            due.append((author, ReachWork(url=url, followers=[], cursor="")))
        elif now != before:
            output.facts.append((url, ReachFact(author=author, tweets=now, added=[], removed=[])))
    for author, names in changed_followers.items():
        if authors.urls(author).empty:
            continue  # there are no followers to send
        parts = [names[n : n + CHUNK_NAMES_MAX] for n in range(0, len(names), CHUNK_NAMES_MAX)]
        due += [(author, ReachWork(url=None, followers=part, cursor="")) for part in parts]
    _report([*due, *tasks], authors, output, cost_max)
    return output


class _Authors:
    """The maps of the authors of one batch."""

    def __init__(self, rows: Rows[Piece]) -> None:
        self.maps = Maps(rows)
        self._known: dict[str, tuple[Map, Map]] = {}

    def followers(self, author: str) -> Map:
        return self._of(author)[0]

    def urls(self, author: str) -> Map:
        return self._of(author)[1]

    def load(
        self,
        tweets: Iterable[Tweet | Tweeted],
        latest: Mapping[str, Mapping[str, int]],
        tasks: Iterable[Task],
        names_max: int,
    ) -> None:
        """Read the rows that the batch will need together, as far as they are known in advance."""
        requested: list[tuple[Map, Iterable[str]]] = []
        for tweet in tweets:
            if tweet["url"] is not None:
                requested.append((self.urls(tweet["author"]), (tweet["url"],)))
                requested.append((self.followers(tweet["author"]), ()))
        for author, numbers in latest.items():
            followers, urls = self._of(author)
            requested += ((followers, numbers), (urls, ()))
        for author, task in tasks:
            requested.append((self.urls(author), () if task["url"] is None else (task["url"],)))
            # Tasks beyond the limit of this batch are not reached, or read their rows themselves.
            requested.append((self.followers(author), task["followers"] if names_max > 0 else ()))
            names_max -= len(task["followers"])
        self.maps.load(requested)

    def _of(self, author: str) -> tuple[Map, Map]:
        found = self._known.get(author)
        if found is None:
            name = name_of(author)
            found = self._known[author] = (self.maps.of(f"f{name}"), self.maps.of(f"u{name}"))
        return found


def _take_tweets(
    tweets: Iterable[tuple[str, Tweet]], known: dict[str, Tweeted], rows: Rows[Tweeted], authors: _Authors
) -> dict[tuple[str, str], int]:
    """Apply the tweets. Returns the affected URLs of the authors, with the number of tweets that each had before."""
    changed: dict[tuple[str, str], int] = {}

    def count(author: str, url: str, by: int) -> None:
        urls = authors.urls(author)
        now = urls.get(url) or 0
        changed.setdefault((author, url), now)
        urls.put(url, now + by or None)

    for key, tweet in tweets:
        old, url = known.get(key), tweet["url"]
        if old is not None and (url is not None or old["url"] is None):
            continue  # a repeated tweet, or one deleted before
        known[key] = row = Tweeted(**tweet)
        rows.put(key, row)
        if url is not None:
            count(tweet["author"], url, 1)
        elif old is not None and old["url"] is not None:
            count(tweet["author"], old["url"], -1)
    return changed


def _latest(follows: Iterable[Follow]) -> dict[str, dict[str, int]]:
    """Return for each author and follower the number of the last event, as stored in the map of followers."""
    found: dict[str, dict[str, int]] = {}
    for follow in follows:
        numbers = found.setdefault(follow["author"], {})
        name, number = follow["follower"], 2 * follow["at"] + follow["follows"]
        if number >= numbers.get(name, 0):
            numbers[name] = number
    return found


def _take_follows(latest: Mapping[str, Mapping[str, int]], authors: _Authors) -> dict[str, list[str]]:
    """Apply the follow events. Returns the followers that were added or removed, by author."""
    changed: dict[str, list[str]] = {}
    for author, numbers in latest.items():
        followers = authors.followers(author)
        for name, number in numbers.items():
            old = followers.get(name) or 0
            if number > old:  # else it arrived out of order
                followers.put(name, number)
                if (old ^ number) & 1:
                    changed.setdefault(author, []).append(name)
    return changed


def _report(tasks: Sequence[Task], authors: _Authors, output: StageOutput, cost_max: int) -> None:
    """Process the tasks up to the cost limit; small tasks do not wait for large ones."""
    left = cost_max
    for done, (author, task) in enumerate(tasks):
        if left <= 0:
            output.tasks.append((author, task))
            continue
        share = max(CHUNK_NAMES_MAX, left // (len(tasks) - done))
        before = len(output.facts)
        cursor = (_report_followers if task["url"] is None else _report_url)(
            author, task, authors, output, share
        )
        left -= sum(
            FACT_COST + len(fact["added"]) + len(fact["removed"]) for _, fact in output.facts[before:]
        )
        if cursor is not None:
            rest = ReachWork(url=task["url"], followers=task["followers"], cursor=cursor)
            output.tasks.append((author, rest))


def _report_url(
    author: str, task: ReachWork, authors: _Authors, output: StageOutput, share: int
) -> str | None:
    """Send the followers for one URL, including removed ones that an earlier task may not have reached."""
    url = task["url"]
    assert url is not None
    tweets = authors.urls(author).get(url) or 0
    entries, cursor = authors.followers(author).scan(task["cursor"], share)
    for n in range(0, max(1, len(entries)), CHUNK_NAMES_MAX):
        chunk = entries[n : n + CHUNK_NAMES_MAX]
        added = [name for name, number in chunk if number & 1 and tweets]
        removed = [name for name, number in chunk if not (number & 1 and tweets)]
        output.facts.append((url, ReachFact(author=author, tweets=tweets, added=added, removed=removed)))
    return cursor


def _report_followers(
    author: str, task: ReachWork, authors: _Authors, output: StageOutput, share: int
) -> str | None:
    """Send some followers for all URLs. URLs that are no longer tweeted have tasks of their own."""
    names = task["followers"]
    urls = max(1, share // (FACT_COST + len(names)))
    entries, cursor = authors.urls(author).scan(task["cursor"], urls)
    if entries:
        followers = authors.followers(author)
        authors.maps.load([(followers, names)])
        now = [(name, (followers.get(name) or 0) & 1) for name in names]
        added = [name for name, yes in now if yes]
        removed = [name for name, yes in now if not yes]
        for url, tweets in entries:
            fact = ReachFact(author=author, tweets=tweets, added=added, removed=removed)
            output.facts.append((url, fact))
    return cursor
