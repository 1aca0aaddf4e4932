"""Emits followers and tweets at a steady rate, twenty to one, and computes the expected sum of all reaches."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import cast

from bench.clicks import filler, put
from bench.job import Job
from bench.programs.marks import mark, tell

from contracts.records import Follow, Tweet
from servicekit.process.load import key_choice
from tweet_reach.topics import FOLLOWS, TWEETS

FOLLOWERS_A_TWEET = 20
_AUTHORS = 10_000
_URLS = 1_000
_LEAVES_SHARE = 0.05
_BEGAN_MS = 1_700_000_000_000
_TICK_SECONDS = 0.01


def events(records: int, keys: int) -> Iterator[Tweet | Follow]:
    """Yield events a millisecond apart. A few authors have many followers, a few URLs are tweeted often.

    Args:
        records: The number of records.
        keys: The number of possible followers.
    """
    random = Random(1)
    followed, tweeting = key_choice(_AUTHORS, 1.0, 2), key_choice(_AUTHORS, 0, 3)
    follower, url = key_choice(keys, 0, 4), key_choice(_URLS, 1.0, 5)
    last: tuple[str, str] | None = None
    for number in range(records):
        at, name = _BEGAN_MS + number, str(number)
        if not number % (FOLLOWERS_A_TWEET + 1):
            place = f"https://example.org/{url()}"
            yield Tweet(id=name, author=tweeting(), url=place, text="read this", at=at)
        elif last is not None and random.random() < _LEAVES_SHARE:
            yield Follow(id=name, author=last[0], follower=last[1], follows=False, at=at)
        else:
            last = followed(), follower()
            yield Follow(id=name, author=last[0], follower=last[1], follows=True, at=at)


def reach_of_all(made: list[Tweet | Follow]) -> int:
    """Return the sum of the reaches of all URLs."""
    followers: dict[str, set[str]] = defaultdict(set)
    authors: dict[str, set[str]] = defaultdict(set)
    for event in made:
        author = event["author"]
        if "follower" not in event:
            authors[str(event["url"])].add(author)
            continue
        follow = cast("Follow", event)
        if follow["follows"]:
            followers[author].add(follow["follower"])
        else:
            followers[author].discard(follow["follower"])
    return sum(len(set().union(*(followers[author] for author in those))) for those in authors.values())


def _encoded(event: Tweet | Follow) -> tuple[str, bytes, bytes]:
    key = event["author"].encode()
    if "follower" in event:
        return FOLLOWS.name, key, FOLLOWS.value.encode(cast("Follow", event))
    return TWEETS.name, key, TWEETS.value.encode(event)


def main() -> None:
    job = Job.from_environment(os.environ)
    made = list(events(job.records, job.keys))
    # Encoded in advance, so that the load takes little CPU from the stages on the same machine.
    encoded = [_encoded(event) for event in made]
    producer = filler(job.broker)
    began, sent = time.monotonic(), 0
    mark("first")
    while sent < job.records:
        due = min(int((time.monotonic() - began) * job.rate), job.records)
        for topic, key, value in encoded[sent:due]:
            put(producer, topic, key, value)
        sent = due
        producer.poll(0)
        time.sleep(_TICK_SECONDS)
    producer.flush()
    mark("last")
    tell({"reach": reach_of_all(made)})


if __name__ == "__main__":
    main()
