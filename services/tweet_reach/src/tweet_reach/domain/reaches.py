"""The second stage, keyed by URL: the followers that each author adds, and the number of distinct ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contracts.records import Reach, ReachAuthor, ReachFact, ReachRebuild, ReachState
from tweet_reach.domain.pieces import Map, Maps, Piece, Rows, name_of
from tweet_reach.domain.sketch import Sketch

LISTED_MAX: Final = 100
TOP_MAX: Final = 10
FORGOTTEN_SHARE: Final = 100
"""A sketch is rebuilt when one in this many of its users is no longer reached: its own error is as large."""

Rebuild: TypeAlias = tuple[str, ReachRebuild]


@dataclass(frozen=True)
class ReachRows:
    """The rows of the stage: the state of each URL, and maps.

    The map `t...` of a URL has the authors with their number of tweets, `b...` the authors with the number of followers
    that they add, `c...` the followers with the number of authors that add them; `p...` of a URL and an author has the
    followers that this author adds.
    """

    states: Rows[ReachState]
    pieces: Rows[Piece]


@dataclass
class Reached:
    """The records to send: new rows of the table, None for a URL that is no longer tweeted; and sketch rebuilds to continue."""

    rows: dict[str, Reach | None] = field(default_factory=dict)
    rebuilds: list[Rebuild] = field(default_factory=list)


@dataclass
class _Said:
    """The latest facts of a batch about one author and one URL, by follower."""

    tweets: int = 0
    brings: dict[str, bool] = field(default_factory=dict)


def fold_reaches(
    facts: Iterable[tuple[str, ReachFact]],
    rebuilds: Sequence[Rebuild],
    rows: ReachRows,
    *,
    names_max: int = 100_000,
) -> Reached:
    """Process one batch. Its records have passed `rules`.

    Args:
        facts: The facts by URL, in order for each URL.
        rebuilds: The remaining sketch rebuilds of earlier batches.
        rows: The rows of this partition's URLs.
        names_max: The maximum number of users added to rebuilt sketches; one rebuild may exceed it by a row.
    """
    said: dict[str, dict[str, _Said]] = {}
    for url, fact in facts:
        one = said.setdefault(url, {}).setdefault(fact["author"], _Said())
        one.tweets = fact["tweets"]
        one.brings.update(dict.fromkeys(fact["added"], True))
        one.brings.update(dict.fromkeys(fact["removed"], False))
    urls = list(dict.fromkeys([*said, *(url for url, _ in rebuilds)]))
    names = {url: name_of(url) for url in urls}
    known = rows.states.get_many(list(names.values())) if names else {}
    maps, done = Maps(rows.pieces), Reached()
    states = {url: _Url(url, names[url], known.get(names[url]), maps) for url in urls}
    maps.load(requested for url, authors in said.items() for requested in states[url].requested(authors))
    for url, authors in said.items():
        states[url].take(authors)
    maps.save()
    begun = [(url, ReachRebuild(cursor="")) for url in said if states[url].begin_rebuild()]
    for url, rebuild in [*begun, *rebuilds]:
        if names_max <= 0:
            done.rebuilds.append((url, rebuild))
            continue
        cursor, used = states[url].rebuild(rebuild["cursor"], names_max)
        names_max -= used
        if cursor is not None:
            done.rebuilds.append((url, ReachRebuild(cursor=cursor)))
    for url, state in states.items():
        if state.changed:
            state.save(rows.states)
            done.rows[url] = state.row()
    return done


class _Url:
    """One URL within a batch."""

    def __init__(self, url: str, name: str, known: ReachState | None, maps: Maps) -> None:
        self._name = name
        self._maps = maps
        self._tweets, self._brought, self._counts = (maps.of(f"{kind}{name}") for kind in "tbc")
        self._before = known
        state: ReachState = known or ReachState(
            url=url,
            reach=0,
            tweets=0,
            authors=0,
            bringing=0,
            listed=[],
            floor=0,
            sketch=b"",
            forgotten=0,
            next_sketch=None,
            next_cursor="",
        )
        self.state = ReachState(**state)
        self._sketch = Sketch(state["sketch"])
        self._next = None if state["next_sketch"] is None else Sketch(state["next_sketch"])

    def requested(self, authors: Mapping[str, _Said]) -> Iterator[tuple[Map, Iterable[str]]]:
        """Yield the maps with the names that `take` reads."""
        yield self._tweets, authors
        yield self._brought, authors
        for author, one in authors.items():
            yield self._pairs(author), one.brings
            yield self._counts, one.brings

    def take(self, authors: Mapping[str, _Said]) -> None:
        brought: dict[str, int] = {}
        for author, one in authors.items():
            self._count_tweets(author, one.tweets)
            changed = self._count_followers(self._pairs(author), one.brings)
            if changed:
                before = self._brought.get(author) or 0
                brought[author] = now = before + changed
                self._brought.put(author, now or None)
                self.state["bringing"] += (now > 0) - (before > 0)
        if brought:
            self._rank(brought)

    def _pairs(self, author: str) -> Map:
        """Return the map of the followers that the author adds."""
        return self._maps.of(f"p{name_of(self.state['url'], author)}")

    def _count_tweets(self, author: str, now: int) -> None:
        before = self._tweets.get(author) or 0
        if now != before:
            self._tweets.put(author, now or None)
            self.state["tweets"] += now - before
            self.state["authors"] += (now > 0) - (before > 0)

    def _count_followers(self, pairs: Map, brings: Mapping[str, bool]) -> int:
        """Apply the followers of an author. Returns the change of their number."""
        changed = 0
        for follower, yes in brings.items():
            if (pairs.get(follower) is not None) == yes:
                continue
            pairs.put(follower, 1 if yes else None)
            by = 1 if yes else -1
            changed += by
            self._count(follower, by)
        return changed

    def _count(self, follower: str, by: int) -> None:
        """Count one author more or less for the follower."""
        before = self._counts.get(follower) or 0
        now = before + by
        self._counts.put(follower, now or None)
        if now == 0:
            self.state["reach"] -= 1
            self.state["forgotten"] += 1
        elif before == 0:
            self.state["reach"] += 1
            self._sketch.add(follower)
            if self._next is not None:
                self._next.add(follower)

    def _rank(self, brought: Mapping[str, int]) -> None:
        numbers = {one["author"]: one["followers"] for one in self.state["listed"]}
        numbers.update(brought)
        ranked = sorted((-number, author) for author, number in numbers.items() if number)
        for number, _ in ranked[LISTED_MAX : LISTED_MAX + 1]:
            self.state["floor"] = max(self.state["floor"], -number)
        kept = ranked[:LISTED_MAX]
        self.state["listed"] = [ReachAuthor(author=author, followers=-number) for number, author in kept]
        if len(kept) == self.state["bringing"]:
            self.state["floor"] = 0

    def begin_rebuild(self) -> bool:
        """Begin to rebuild the sketch if its error has become too large; return whether it has begun."""
        if self._next is not None or self.state["forgotten"] * FORGOTTEN_SHARE <= self.state["reach"]:
            return False
        self._next, self.state["next_cursor"] = Sketch(), ""
        self.state["forgotten"] = 0  # users that are removed from now on may be in the new sketch already
        return True

    def rebuild(self, cursor: str, names: int) -> tuple[str | None, int]:
        """Add users to the new sketch. Returns the cursor to continue from, None at the end, and the number of users added."""
        if self._next is None or cursor != self.state["next_cursor"]:
            return None, 0  # a repeated record of a finished rebuild
        entries, rest = self._counts.scan(cursor, names)
        for follower, _ in entries:
            self._next.add(follower)
        if rest is not None:
            self.state["next_cursor"] = rest
        else:
            self._sketch, self._next = self._next, None
            rest = "" if self.begin_rebuild() else None  # many may have been removed meanwhile
        return rest, len(entries) + 1

    @property
    def changed(self) -> bool:
        self.state["sketch"] = self._sketch.to_bytes()
        self.state["next_sketch"] = None if self._next is None else self._next.to_bytes()
        return self.state != self._before and not (self._gone and self._before is None)

    @property
    def _gone(self) -> bool:
        return not (self.state["tweets"] or self.state["reach"] or self._next)

    def save(self, rows: Rows[ReachState]) -> None:
        if self._gone:
            rows.delete_many([self._name])
        else:
            rows.put(self._name, self.state)

    def row(self) -> Reach | None:
        """Return the row of the table; None: the URL is no longer tweeted."""
        if not (self.state["tweets"] or self.state["reach"]):
            return None
        certain = [one for one in self.state["listed"] if one["followers"] >= self.state["floor"]]
        return Reach(
            reach=self.state["reach"],
            estimate=self._sketch.estimate,
            sketch=self.state["sketch"],
            tweets=self.state["tweets"],
            authors=self.state["authors"],
            top=certain[:TOP_MAX],
        )
