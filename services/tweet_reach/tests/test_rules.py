import pytest

from contracts.records import Follow, ReachFact, Tweet
from tweet_reach.domain.rules import fault_of_fact, fault_of_follow, fault_of_tweet

NOW_MS = 1_700_000_000_000
TWEET = Tweet(id="1", author="ann", url="foo.com", text="read this", at=0)
FOLLOW = Follow(id="", author="ann", follower="bob", follows=True, at=NOW_MS + 300_000)


def test_a_tweet_a_deletion_and_a_follow_are_in_order() -> None:
    assert fault_of_tweet("ann", TWEET, NOW_MS) is None
    assert fault_of_tweet("ann", {**TWEET, "url": None}, NOW_MS) is None
    assert fault_of_follow("ann", FOLLOW, NOW_MS) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"author": "bob"},
        {"id": ""},
        {"url": ""},
        {"url": "x" * 2049},
        {"text": "x" * 281},
        {"at": -1},
        {"at": 1 << 62},
        {"at": NOW_MS + 300_001},
    ],
)
def test_a_tweet_that_breaks_a_rule_is_reported(changed: dict[str, object]) -> None:
    assert fault_of_tweet("ann", {**TWEET, **changed}, NOW_MS) is not None  # type: ignore[typeddict-item] # any of them


@pytest.mark.parametrize(
    "changed",
    [{"author": "bob"}, {"follower": ""}, {"follower": "x" * 129}, {"at": -1}, {"at": NOW_MS + 300_001}],
)
def test_a_follow_that_breaks_a_rule_is_reported(changed: dict[str, object]) -> None:
    assert fault_of_follow("ann", {**FOLLOW, **changed}, NOW_MS) is not None  # type: ignore[typeddict-item] # any of them


def test_facts_have_bounds() -> None:
    fact = ReachFact(author="ann", tweets=1, added=["bob"] * 1000, removed=[])
    assert fault_of_fact("foo.com", fact) is None
    assert fault_of_fact("", fact) is not None
    assert fault_of_fact("foo.com", {**fact, "removed": ["bob"]}) is not None
    assert fault_of_fact("foo.com", {**fact, "tweets": -1}) is not None
