"""The load generator: generated tweets and followers, the same for the same seed."""

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from contracts.records import Follow, Tweet
from servicekit.process.load import LoadOptions, id_choice, key_choice

TWEETS_SHARE: Final = 0.1
TAKEN_BACK_SHARE: Final = 0.05
_URLS: Final = 1000
_REMEMBERED: Final = 1000


def events(load: LoadOptions, now_ms: Callable[[], int]) -> Iterator[tuple[str, Tweet | Follow]]:
    """Yield the events of a load with their authors, without end. Everything but their times follows from the seed.

    Nine of ten are follow events. The authors who are followed are chosen by Zipf's law with the load's exponent, so
    a few have very many followers; followers and tweeting authors are chosen uniformly. Some of the 1,000 URLs are tweeted
    much more than others. One tweet in twenty is deleted again, one follower in twenty is removed.
    """
    random = Random(load.seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    followed_of = key_choice(load.keys, load.skew, load.seed)
    anyone_of = key_choice(load.keys, 0, load.seed + 1)
    url_of = key_choice(_URLS, 1.0, load.seed + 2)
    id_of = id_choice(load.seed)
    tweeted: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)
    followed: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)
    while True:
        taken_back = random.random() < TAKEN_BACK_SHARE
        if random.random() < TWEETS_SHARE:
            if taken_back and tweeted:
                author, identity = tweeted.popleft()
                yield author, Tweet(id=identity, author=author, url=None, text="", at=now_ms())
                continue
            author, url = anyone_of(), f"https://example.org/{url_of().removeprefix('user-')}"
            tweeted.append((author, str(id_of())))
            yield author, Tweet(id=tweeted[-1][1], author=author, url=url, text="read this", at=now_ms())
        else:
            if taken_back and followed:
                author, follower = followed.popleft()
            else:
                author, follower = followed_of(), anyone_of()
                followed.append((author, follower))
            yes = not taken_back
            yield author, Follow(id=str(id_of()), author=author, follower=follower, follows=yes, at=now_ms())
