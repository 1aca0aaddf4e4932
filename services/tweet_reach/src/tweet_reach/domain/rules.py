"""The validation of authors, URLs and tweets: invalid records are not counted. The emitter rejects them."""

from typing import Final

from contracts.event_time import MAX_AHEAD_SECONDS, fault_of_time
from contracts.records import Follow, ReachFact, Tweet

NAME_CHARACTERS_MAX: Final = 128
URL_CHARACTERS_MAX: Final = 2048
TEXT_CHARACTERS_MAX: Final = 280
CHUNK_NAMES_MAX: Final = 1000


def fault_of_tweet(
    key: str, tweet: Tweet, recorded_ms: int, max_ahead_seconds: float = MAX_AHEAD_SECONDS
) -> str | None:
    """Return the reason why it is invalid; None if it is valid. `recorded_ms` is the timestamp of its record."""
    if key != tweet["author"]:
        return "the key is not the author"
    if not 1 <= len(tweet["id"]) <= NAME_CHARACTERS_MAX:
        return f"the id must have 1 to {NAME_CHARACTERS_MAX} characters"
    if tweet["url"] is not None and not 1 <= len(tweet["url"]) <= URL_CHARACTERS_MAX:
        return f"the URL must have 1 to {URL_CHARACTERS_MAX} characters"
    if len(tweet["text"]) > TEXT_CHARACTERS_MAX:
        return f"the text must have at most {TEXT_CHARACTERS_MAX} characters"
    return _fault_of_name(key) or fault_of_time(tweet["at"], recorded_ms, max_ahead_seconds)


def fault_of_follow(
    key: str, follow: Follow, recorded_ms: int, max_ahead_seconds: float = MAX_AHEAD_SECONDS
) -> str | None:
    """Return the reason why it is invalid; None if it is valid. `recorded_ms` is the timestamp of its record."""
    if key != follow["author"]:
        return "the key is not the author"
    fault = _fault_of_name(key) or _fault_of_name(follow["follower"])
    return fault or fault_of_time(follow["at"], recorded_ms, max_ahead_seconds)


def fault_of_fact(key: str, fact: ReachFact) -> str | None:
    """Return the reason why it is invalid; None if it is valid."""
    if not 1 <= len(key) <= URL_CHARACTERS_MAX:
        return f"the URL must have 1 to {URL_CHARACTERS_MAX} characters"
    if len(fact["added"]) + len(fact["removed"]) > CHUNK_NAMES_MAX:
        return f"a fact must have at most {CHUNK_NAMES_MAX} followers"
    return None if fact["tweets"] >= 0 else "the number of tweets must not be below 0"


def _fault_of_name(name: str) -> str | None:
    if 1 <= len(name) <= NAME_CHARACTERS_MAX:
        return None
    return f"ids of users must have 1 to {NAME_CHARACTERS_MAX} characters"
