"""Both stages on the Tester: the engine's own code, without a broker."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.records import Follow, Reach, Tweet
from streamtable_testing import Tester
from tweet_reach.example_data import FOLLOWED_BY, REACHES, TWEETED_BY
from tweet_reach.stages import authors_stage, urls_stage
from tweet_reach.testing import counted
from tweet_reach.topics import FOLLOWS, TWEETS, changes, facts

AUTHORS, URLS = authors_stage("tweet-reach", max_wait=0.1), urls_stage("tweet-reach", max_wait=0.1)
WAIT_SECONDS = 0.2


def tweet(identity: str, author: str, url: str | None) -> Tweet:
    return Tweet(id=identity, author=author, url=url, text="read this", at=0)


def follow(author: str, follower: str, *, yes: bool = True, at: int = 0) -> Follow:
    return Follow(id="", author=author, follower=follower, follows=yes, at=at)


def start(tester: Tester, members: int = 1) -> None:
    tester.create(TWEETS, FOLLOWS, facts("tweet-reach"), partitions=3)
    tester.run(AUTHORS, URLS, members=members, partitions=3)


def table(tester: Tester) -> dict[str, Reach]:
    rows = {str(record.key): record.value for record in tester.records(changes("tweet-reach"))}
    return {url: row for url, row in rows.items() if row is not None}


def settle(tester: Tester) -> None:
    for _ in range(6):
        tester.advance(WAIT_SECONDS)


def emit_known(tester: Tester) -> None:
    for url, authors in TWEETED_BY.items():
        tester.emit_many(TWEETS, [(author, tweet(f"{author} {url}", author, url)) for author in authors])
    for author, followers in FOLLOWED_BY.items():
        tester.emit_many(FOLLOWS, [(author, follow(author, follower)) for follower in followers])


def test_the_known_answers_come_out(tester: Tester) -> None:
    start(tester)
    emit_known(tester)
    settle(tester)
    found = table(tester)
    assert {url: found[url]["reach"] if url in found else 0 for url in REACHES} == REACHES
    assert round(found["foo.com/blog/1"]["estimate"]) == 16
    assert [one["author"] for one in found["foo.com/blog/1"]["top"]] == ["nathan", "sally", "bob", "tim"]


def test_reach_follows_what_comes_late_goes_away_or_comes_twice(tester: Tester) -> None:
    start(tester)
    emit_known(tester)
    settle(tester)
    emit_known(tester)  # all of it again
    tester.emit(FOLLOWS, "tim", follow("tim", "alex", yes=False, at=5))
    tester.emit(FOLLOWS, "tim", follow("tim", "alex", at=4))  # late
    tester.emit(FOLLOWS, "george", follow("george", "zoe"))
    tester.emit(TWEETS, "john", tweet("john tech.backtype.com/blog/123", "john", None))
    settle(tester)
    found = table(tester)
    assert {url: row["reach"] for url, row in found.items()} == {
        "foo.com/blog/1": 16,
        "engineering.twitter.com/blog/5": 14,
        "tech.backtype.com/blog/123": 2,
    }
    assert (found["tech.backtype.com/blog/123"]["tweets"], found["foo.com/blog/1"]["tweets"]) == (2, 5)


@pytest.mark.parametrize("record", [tweet("1", "ann", ""), tweet("1", "somebody", "foo.com")])
def test_a_tweet_that_breaks_a_rule_is_a_dead_letter_and_stops_no_task(tester: Tester, record: Tweet) -> None:
    start(tester)
    tester.emit(TWEETS, "ann", record)
    tester.emit(TWEETS, "ann", tweet("2", "ann", "foo.com"))
    settle(tester)
    assert len(tester.dead_letters(AUTHORS)) == 1
    assert table(tester)["foo.com"]["tweets"] == 1


def test_facts_of_one_url_come_from_all_partitions_and_its_row_is_written_from_one(tester: Tester) -> None:
    start(tester)
    emit_known(tester)
    settle(tester)
    written: dict[str, set[int]] = {}
    for record in tester.records(changes("tweet-reach")):
        written.setdefault(str(record.key), set()).add(record.partition)
    assert {len(partitions) for partitions in written.values()} == {1}
    assert len({record.partition for record in tester.records(TWEETS)}) > 1


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_moves_and_crashes_change_no_answer(seed: int) -> None:
    random = Random(seed)
    tweets: list[Tweet] = []
    follows: list[Follow] = []
    with Tester() as tester:
        start(tester, members=2)
        for step in range(24):
            author, at = random.choice("abc"), random.randrange(9)
            if random.random() < 0.3:
                url = random.choice(["foo.com", "bar.org", "baz.net", None])
                tweets.append(tweet(str(random.randrange(6)), author, url))
                tester.emit(TWEETS, author, tweets[-1])
            else:
                yes = random.random() < 0.7
                follows.append(follow(author, f"user-{random.randrange(8)}", yes=yes, at=at))
                tester.emit(FOLLOWS, author, follows[-1])
            group = random.choice([AUTHORS, URLS])
            if step % 10 == 9:
                tester.leave(group)
                tester.advance(random.choice([0.05, WAIT_SECONDS]))
                tester.join(group)
            elif step % 10 == 5:
                tester.stop(group)
                tester.start(group)
            elif random.random() < 0.3:
                tester.advance(random.choice([0.05, WAIT_SECONDS]))
        settle(tester)
        found = {url: row["reach"] for url, row in table(tester).items()}
    expected = counted(tweets, follows)
    assert found == {url: len(set().union(*authors.values())) for url, authors in expected.items()}
