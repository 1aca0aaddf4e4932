"""The topics of tweet reach. What the groups write bears the group's name, so that two versions can run side by side."""

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
"""Who follows an author and who does so no longer, keyed by author."""


def facts(group: str) -> Stream[str, ReachFact]:
    """What authors bring to URLs, keyed by URL: from the first stage to the second."""
    return Stream(f"{group}-facts", key=String(), value=Avro(REACH_FACT))


def work(group: str) -> Stream[str, ReachWork]:
    """What the first stage has left over for later batches, keyed by author."""
    return Stream(f"{group}-work", key=String(), value=Avro(REACH_WORK))


def rebuilds(group: str) -> Stream[str, ReachRebuild]:
    """The same of the second stage, keyed by URL."""
    return Stream(f"{group}-rebuilds", key=String(), value=Avro(REACH_REBUILD))


def changes(group: str) -> Stream[str, Reach]:
    """The table, as the second stage writes it."""
    return Stream(f"{group}-table", key=String(), value=Avro(REACH))


def reaches(group: str) -> Table[str, Reach]:
    """The table, as views read it."""
    return Table(f"{group}-table", key=String(), value=Avro(REACH))
