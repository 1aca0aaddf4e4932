"""Both stages together, against a direct count: whatever the order of the records and the sizes of the batches."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar
from unittest.mock import patch
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.records import Follow, Reach, ReachFact, ReachRebuild, ReachWork, Tweet
from tweet_reach.domain import pieces, reaches
from tweet_reach.domain.authors import AuthorRows, fold_authors
from tweet_reach.domain.reaches import LISTED_MAX, TOP_MAX, ReachRows, fold_reaches
from tweet_reach.testing import MemoryRows, counted, is_follow, is_tweet

AUTHORS = st.sampled_from(["ann", "bob", "cy"])
FOLLOWERS = st.sampled_from([f"follower-{n}" for n in range(12)])
URLS = st.sampled_from(["foo.com", "bar.org", "baz.net"])
IDS = st.sampled_from([f"id-{n}" for n in range(6)])
TIMES = st.integers(0, 5)
TWEETS = st.builds(
    lambda author, identity, url, at: Tweet(id=identity, author=author, url=url, text="", at=at),
    AUTHORS,
    IDS,
    st.none() | URLS,
    TIMES,
)
FOLLOWS = st.builds(
    lambda author, follower, yes, at: Follow(id="", author=author, follower=follower, follows=yes, at=at),
    AUTHORS,
    FOLLOWERS,
    st.booleans(),
    TIMES,
)
Event = Tweet | Follow
T = TypeVar("T")


@dataclass
class World:
    """Two partitions of each stage, the logs between them, and the table."""

    random: Random
    partitions: int = 2
    table: dict[str, Reach] = field(default_factory=dict)
    events: list[deque[Event]] = field(default_factory=list)
    work: list[deque[tuple[str, ReachWork]]] = field(default_factory=list)
    facts: list[deque[tuple[str, ReachFact]]] = field(default_factory=list)
    rebuilds: list[deque[tuple[str, ReachRebuild]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for _ in range(self.partitions):
            self.events.append(deque())
            self.work.append(deque())
            self.facts.append(deque())
            self.rebuilds.append(deque())
        self.authors = [AuthorRows(MemoryRows(), MemoryRows()) for _ in range(self.partitions)]
        self.reaches = [ReachRows(MemoryRows(), MemoryRows()) for _ in range(self.partitions)]

    def of(self, key: str) -> int:
        return crc32(key.encode()) % self.partitions

    def emit(self, event: Event) -> None:
        self.events[self.of(event["author"])].append(event)

    def some(self, log: deque[T]) -> list[T]:
        return [log.popleft() for _ in range(self.random.randint(0, len(log)))]

    def step(self, n: int) -> None:
        """One batch of each stage in a partition."""
        events = self.some(self.events[n])
        output = fold_authors(
            [event for event in events if is_tweet(event)],
            [event for event in events if is_follow(event)],
            self.some(self.work[n]),
            self.authors[n],
            cost_max=self.random.choice([10, 40, 400]),
        )
        for author, work in output.tasks:
            self.work[self.of(author)].append((author, work))
        for url, fact in output.facts:
            self.facts[self.of(url)].append((url, fact))
        reached = fold_reaches(
            self.some(self.facts[n]),
            self.some(self.rebuilds[n]),
            self.reaches[n],
            names_max=self.random.choice([1, 5, 1000]),
        )
        for url, rebuild in reached.rebuilds:
            self.rebuilds[self.of(url)].append((url, rebuild))
        for url, row in reached.rows.items():
            if row is None:
                self.table.pop(url, None)
            else:
                self.table[url] = row

    def run(self) -> None:
        for _ in range(5000):
            self.step(self.random.randrange(self.partitions))
            if not any([*self.events, *self.work, *self.facts, *self.rebuilds]):
                return
        raise AssertionError("work without end")


@contextmanager
def small_rows() -> Iterator[None]:
    with (
        patch.object(pieces, "ENTRIES_MAX", 2),
        patch("tweet_reach.domain.authors.CHUNK_NAMES_MAX", 3),
        patch.object(reaches, "LISTED_MAX", 2),
    ):
        yield


@settings(max_examples=300, deadline=None)
@given(
    rounds=st.lists(st.lists(TWEETS | FOLLOWS, max_size=25), max_size=4),
    again=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_each_url_has_the_reach_that_a_direct_count_has(
    rounds: list[list[Event]], again: float, seed: int
) -> None:
    random = Random(seed)
    world = World(random)
    everything: list[Event] = []
    with small_rows():
        for events in rounds:
            for event in events:
                # At times also something that was there before: a duplicate.
                for each in [event, *random.choices(everything or [event], k=random.random() < again)]:
                    everything.append(each)
                    world.emit(each)
                if random.random() < 0.2:
                    world.step(random.randrange(world.partitions))
        world.run()
    expected = counted(
        [event for event in everything if is_tweet(event)],
        [event for event in everything if is_follow(event)],
    )
    assert world.table.keys() == expected.keys()
    for url, authors in expected.items():
        row = world.table[url]
        assert row["reach"] == len(set().union(*authors.values()))
        assert row["authors"] == len(authors)
        ranked = sorted(map(len, authors.values()), reverse=True)
        assert [one["followers"] for one in row["top"]] == [n for n in ranked if n][: len(row["top"])]
        assert all(one["followers"] == len(authors[one["author"]]) for one in row["top"])
        assert abs(row["estimate"] - row["reach"]) <= 0.1  # none is forgotten: the sketch was rebuilt


def test_replayed_facts_change_nothing() -> None:
    rows = ReachRows(MemoryRows(), MemoryRows())
    fact = ReachFact(author="ann", tweets=1, added=[f"follower-{n}" for n in range(40)], removed=["zoe"])
    assert fold_reaches([("foo.com", fact)], [], rows).rows["foo.com"] is not None
    assert fold_reaches([("foo.com", fact)] * 2, [], rows).rows == {}


def test_a_url_that_is_not_tweeted_leaves_no_rows() -> None:
    rows = ReachRows(MemoryRows(), MemoryRows())
    names = [f"follower-{n}" for n in range(600)]
    for fact in (
        ReachFact(author="ann", tweets=1, added=names, removed=[]),
        ReachFact(author="ann", tweets=0, added=[], removed=names),
    ):
        found = fold_reaches([("foo.com", fact)], [], rows)
    assert found.rows == {"foo.com": None}
    assert rows.states.rows == {}  # type: ignore[attr-defined] # rows in memory
    kept = rows.pieces.rows.values()  # type: ignore[attr-defined] # rows in memory
    assert not any(kept)  # those that say that they were split


def test_the_top_of_a_url_with_more_authors_than_are_listed_is_right_though_it_may_be_short() -> None:
    rows = ReachRows(MemoryRows(), MemoryRows())
    brings = {f"author-{n}": [f"f-{k}" for k in range(n + 1)] for n in range(LISTED_MAX + 20)}
    facts = [
        ("foo.com", ReachFact(author=a, tweets=1, added=names, removed=[])) for a, names in brings.items()
    ]
    row = fold_reaches(facts, [], rows).rows["foo.com"]
    assert row is not None
    assert [one["followers"] for one in row["top"]] == list(range(120, 120 - TOP_MAX, -1))
    leaving = [
        ("foo.com", ReachFact(author=f"author-{n}", tweets=1, added=[], removed=brings[f"author-{n}"][1:]))
        for n in range(25, LISTED_MAX + 20)
    ]
    row = fold_reaches(leaving, [], rows).rows["foo.com"]
    assert row is not None
    assert [one["followers"] for one in row["top"]] == [25, 24, 23, 22, 21]  # who brings 20 is not listed
    assert row["reach"] == 25


def test_a_sketch_is_made_again_when_it_holds_too_many_who_have_gone_also_in_steps() -> None:
    rows = ReachRows(MemoryRows(), MemoryRows())
    names = [f"follower-{n}" for n in range(30_000)]
    for n in range(0, len(names), 1000):
        fold_reaches(
            [("foo.com", ReachFact(author="ann", tweets=1, added=names[n : n + 1000], removed=[]))], [], rows
        )
    rebuilds: list[tuple[str, ReachRebuild]] = []
    for n in range(0, 20_000, 1000):
        found = fold_reaches(
            [("foo.com", ReachFact(author="ann", tweets=1, added=[], removed=names[n : n + 1000]))],
            rebuilds,
            rows,
            names_max=500,
        )
        rebuilds = found.rebuilds
    while found.rebuilds:
        late = [f"late-{len(found.rebuilds)}-{n}" for n in range(10)]
        fact = ReachFact(author="ann", tweets=1, added=late, removed=[])
        found = fold_reaches([("foo.com", fact)], found.rebuilds, rows, names_max=500)
    row = found.rows["foo.com"]
    assert row is not None
    assert abs(row["estimate"] / row["reach"] - 1) < 0.06
