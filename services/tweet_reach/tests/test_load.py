from collections import Counter
from itertools import islice

from contracts.records import Follow, Tweet
from servicekit.process.load import LoadOptions
from tweet_reach.domain.rules import fault_of_follow, fault_of_tweet
from tweet_reach.load import events
from tweet_reach.testing import is_follow, is_tweet


def made(load: LoadOptions) -> list[tuple[str, Tweet | Follow]]:
    return list(islice(events(load, lambda: 5), 5000))


def test_everything_but_the_time_follows_from_the_seed() -> None:
    assert made(LoadOptions(seed=1, skew=1.0)) == made(LoadOptions(seed=1, skew=1.0))
    assert made(LoadOptions(seed=1)) != made(LoadOptions(seed=2))


def test_all_that_is_made_can_be_counted_and_is_keyed_by_author() -> None:
    for key, event in made(LoadOptions(keys=20)):
        assert key == event["author"]
        assert not is_follow(event) or fault_of_follow(key, event, 5) is None
        assert not is_tweet(event) or fault_of_tweet(key, event, 5) is None


def test_a_few_authors_have_very_many_followers() -> None:
    followed = [key for key, event in made(LoadOptions(keys=1000, skew=1.0)) if "follower" in event]
    most = Counter(followed).most_common()
    assert most[0][1] > 20 * most[len(most) // 2][1]


def test_some_of_it_is_taken_back() -> None:
    records = [event for _, event in made(LoadOptions(keys=50))]
    tweets = [event for event in records if is_tweet(event)]
    assert 0.02 < sum(event["url"] is None for event in tweets) / len(tweets) < 0.1
    ids = {event["id"] for event in tweets if event["url"] is not None}
    assert ids >= {event["id"] for event in tweets if event["url"] is None}
    follows = [event for event in records if is_follow(event)]
    assert 0.02 < sum(not event["follows"] for event in follows) / len(follows) < 0.1
