"""The topics of tweet reach. Output topics have the group's name as a prefix, so that two versions can run side by side."""

from typing import Final

from contracts.records import (
    FOLLOW,
    REACH,
    REACH_FACT,
    REACH_REBUILD,
    REACH_WORK,
    TWEET,
    Follow,
    Reach,
    ReachFact,
    ReachRebuild,
    ReachWork,
    Tweet,
)
from streamtable import Avro, Stream, String, Table

TWEETS: Final[Stream[str, Tweet]] = Stream("tweets", key=String(), value=Avro(TWEET))
"""Tweets and their deletions, keyed by author."""

FOLLOWS: Final[Stream[str, Follow]] = Stream("twitter-followers", key=String(), value=Avro(FOLLOW))
"""Follow events of users, keyed by author."""


def facts(group: str) -> Stream[str, ReachFact]:
    """Return the topic of facts from the first stage to the second: the followers that authors add to URLs, keyed by URL."""
    return Stream(f"{group}-facts", key=String(), value=Avro(REACH_FACT))


def work(group: str) -> Stream[str, ReachWork]:
    """Return the topic of the first stage's remaining tasks for later batches, keyed by author."""
    return Stream(f"{group}-work", key=String(), value=Avro(REACH_WORK))


def rebuilds(group: str) -> Stream[str, ReachRebuild]:
    """Return the topic of the second stage's remaining sketch rebuilds, keyed by URL."""
    return Stream(f"{group}-rebuilds", key=String(), value=Avro(REACH_REBUILD))


def changes(group: str) -> Stream[str, Reach]:
    """Return the table as the stream that the second stage writes."""
    return Stream(f"{group}-table", key=String(), value=Avro(REACH))


def reaches(group: str) -> Table[str, Reach]:
    """Return the table that views read."""
    return Table(f"{group}-table", key=String(), value=Avro(REACH))
