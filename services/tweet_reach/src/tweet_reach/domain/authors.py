"""The first stage, keyed by author: who follows them and what they tweet; told on as facts keyed by URL.

A fact says how things are, not how they have changed, and it is read from the rows when it is made. So each change has
only to see to it that what it may have changed is told some time after it, and repeating that, in whatever
order, does no harm. What is to be told is a **task**: one URL with all followers of an author, or some followers with
all URLs. A task that is larger than what one batch may tell goes on in a later batch, from a cursor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contracts.records import Follow, ReachFact, ReachPiece, ReachWork, Tweet, Tweeted
from tweet_reach.domain.pieces import Maps, Rows, name_of
from tweet_reach.domain.rules import CHUNK_NAMES_MAX

FACT_COST: Final = 8
"""What a fact costs beside the names in it, as many names."""

Task: TypeAlias = tuple[str, ReachWork]
Fact: TypeAlias = tuple[str, ReachFact]


@dataclass(frozen=True)
class AuthorRows:
    """The rows of the stage: tweets by author and id, and maps.

    The map `f...` of an author has the followers, with the time of their last event, doubled, and 1 more while they
    follow; the map `u...` has the URLs, with the number of tweets.
    """

    tweeted: Rows[Tweeted]
    pieces: Rows[ReachPiece]


@dataclass
class Told:
    """What is to be sent: facts by URL, and tasks that are left over, by author."""

    facts: list[Fact] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)


def fold_authors(
    tweets: Sequence[Tweet],
    follows: Sequence[Follow],
    tasks: Sequence[Task],
    rows: AuthorRows,
    *,
    cost_max: int = 400_000,
) -> Told:
    """Take in one batch. Its records have passed `rules`.

    Args:
        tweets: in the order of each author's.
        follows: in any order.
        tasks: that earlier batches have left over.
        rows: of this partition's authors.
        cost_max: of what is told: names of followers, and `FACT_COST` for each fact. One task may exceed it by a row.
    """
    maps, told = Maps(rows.pieces), Told()
    changed_urls = _take_tweets(tweets, rows.tweeted, maps)
    changed_followers = _take_follows(follows, maps)
    maps.save()
    due: list[Task] = []
    for (author, url), before in changed_urls.items():
        now = maps.get(_urls(author), url) or 0
        if (now > 0) != (before > 0):
            due.append((author, ReachWork(url=url, followers=[], cursor="")))
        elif now != before:
            told.facts.append((url, ReachFact(author=author, tweets=now, added=[], removed=[])))
    for author, names in changed_followers.items():
        parts = [names[n : n + CHUNK_NAMES_MAX] for n in range(0, len(names), CHUNK_NAMES_MAX)]
        due += [(author, ReachWork(url=None, followers=part, cursor="")) for part in parts]
    _tell([*due, *tasks], maps, told, cost_max)
    return told


def _followers(author: str) -> str:
    return f"f{name_of(author)}"


def _urls(author: str) -> str:
    return f"u{name_of(author)}"


def _take_tweets(tweets: Sequence[Tweet], rows: Rows[Tweeted], maps: Maps) -> dict[tuple[str, str], int]:
    """Note the tweets. Returns the authors' URLs concerned, with how many tweets each had before."""
    keys = [name_of(tweet["author"], tweet["id"]) for tweet in tweets]
    known: dict[str, Tweeted] = dict(rows.get_many(dict.fromkeys(keys))) if keys else {}
    links = [(tweet["author"], tweet["url"]) for tweet in tweets]
    links += [(row["author"], row["url"]) for row in known.values()]
    maps.load([(_urls(author), url) for author, url in links if url is not None])
    changed: dict[tuple[str, str], int] = {}

    def count(author: str, url: str, by: int) -> None:
        now = maps.get(_urls(author), url) or 0
        changed.setdefault((author, url), now)
        maps.put(_urls(author), url, now + by or None)

    for key, tweet in zip(keys, tweets, strict=True):
        old, url = known.get(key), tweet["url"]
        if old is not None and (url is not None or old["url"] is None):
            continue  # the same again, or deleted before
        known[key] = row = Tweeted(**tweet)
        rows.put(key, row)
        if url is not None:
            count(tweet["author"], url, 1)
        elif old is not None and old["url"] is not None:
            count(tweet["author"], old["url"], -1)
    return changed


def _take_follows(follows: Sequence[Follow], maps: Maps) -> dict[str, list[str]]:
    """Note who follows whom. Returns those who begin or cease to, by author."""
    maps.load([(_followers(follow["author"]), follow["follower"]) for follow in follows])
    changed: dict[str, dict[str, None]] = {}
    for follow in follows:
        author, follower = follow["author"], follow["follower"]
        old = maps.get(_followers(author), follower)
        new = 2 * follow["at"] + follow["follows"]
        if old is not None and old >= new:
            continue  # it came late
        maps.put(_followers(author), follower, new)
        if ((old or 0) ^ new) & 1:
            changed.setdefault(author, {})[follower] = None
    return {author: list(names) for author, names in changed.items()}


def _tell(tasks: Sequence[Task], maps: Maps, told: Told, cost_max: int) -> None:
    """Do what there is to be done, as far as it may cost; small tasks are not kept waiting by large ones."""
    maps.load_first(_urls(author) if task["url"] is None else _followers(author) for author, task in tasks)
    names: list[tuple[str, str]] = []
    for author, task in tasks:
        if len(names) >= cost_max:
            break  # these are not come to in this batch, or have to be read by themselves
        names += [(_followers(author), name) for name in task["followers"]]
    maps.load(names)
    left = cost_max
    for done, (author, task) in enumerate(tasks):
        if left <= 0:
            told.tasks.append((author, task))
            continue
        share = max(CHUNK_NAMES_MAX, left // (len(tasks) - done))
        of_url = task["url"] is not None
        before = len(told.facts)
        cursor = (_tell_url if of_url else _tell_followers)(author, task, maps, told, share)
        left -= sum(FACT_COST + len(fact["added"]) + len(fact["removed"]) for _, fact in told.facts[before:])
        if cursor is not None:
            rest = ReachWork(url=task["url"], followers=task["followers"], cursor=cursor)
            told.tasks.append((author, rest))


def _tell_url(author: str, task: ReachWork, maps: Maps, told: Told, share: int) -> str | None:
    """Tell one URL of followers; those who ceased to follow too, whom an earlier task may not have come to."""
    url = task["url"]
    assert url is not None
    tweets = maps.get(_urls(author), url) or 0
    entries, cursor = maps.scan(_followers(author), task["cursor"], share)
    for n in range(0, max(1, len(entries)), CHUNK_NAMES_MAX):
        chunk = entries[n : n + CHUNK_NAMES_MAX]
        added = [name for name, number in chunk if number & 1 and tweets]
        removed = [name for name, number in chunk if not (number & 1 and tweets)]
        told.facts.append((url, ReachFact(author=author, tweets=tweets, added=added, removed=removed)))
    return cursor


def _tell_followers(author: str, task: ReachWork, maps: Maps, told: Told, share: int) -> str | None:
    """Tell URLs of some followers. URLs that are not tweeted any more are left to the tasks of their own."""
    names = task["followers"]
    maps.load([(_followers(author), name) for name in names])
    follows = {name: (maps.get(_followers(author), name) or 0) & 1 for name in names}
    added = [name for name in names if follows[name]]
    removed = [name for name in names if not follows[name]]
    urls = max(1, share // (FACT_COST + len(names)))
    entries, cursor = maps.scan(_urls(author), task["cursor"], urls)
    for url, tweets in entries:
        told.facts.append((url, ReachFact(author=author, tweets=tweets, added=added, removed=removed)))
    return cursor
