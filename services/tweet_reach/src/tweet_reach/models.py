"""What the REST services take and give, as OpenAPI describes it."""

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Discriminator, Field, Tag

from servicekit.http.app import Strict
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA, TIME_MS
from servicekit.http.produce import Accepted
from servicekit.http.user_ids import UserId
from tweet_reach.domain.rules import TEXT_CHARACTERS_MAX
from tweet_reach.urls import Url

LIST_MAX = 1000


class NewTweet(Strict):
    """An author has tweeted a URL."""

    author: UserId
    url: Url
    text: Annotated[
        str,
        Field(max_length=TEXT_CHARACTERS_MAX, json_schema_extra=LINE_SCHEMA, examples=["read this"]),
        LINE,
    ] = ""
    id: Annotated[
        UUID | None,
        CANONICAL_UUID,
        Field(
            description="names the tweet: it is deleted by it, and a repeated request counts once. Default: a new one"
        ),
    ] = None
    at: Annotated[
        int | None, TIME_MS, Field(description="when, in milliseconds since 1970; default: now")
    ] = None


class NewFollow(Strict):
    """Somebody follows an author, or does so no longer."""

    author: UserId
    follower: UserId
    follows: Annotated[bool, Field(description="false: no longer")] = True
    id: Annotated[UUID | None, CANONICAL_UUID, Field(description="names the event; default: a new one")] = (
        None
    )
    at: Annotated[
        int | None,
        TIME_MS,
        Field(
            description="when, in milliseconds since 1970; of an author and a follower the latest counts, in whatever "
            "order they come. Default: now"
        ),
    ] = None


def _one_or_many(body: object) -> str:
    return "many" if isinstance(body, list) else "one"


NewTweets = Annotated[
    Annotated[NewTweet, Tag("one")]
    | Annotated[list[NewTweet], Field(min_length=1, max_length=LIST_MAX), Tag("many")],
    Discriminator(_one_or_many),
]
NewFollows = Annotated[
    Annotated[NewFollow, Tag("one")]
    | Annotated[list[NewFollow], Field(min_length=1, max_length=LIST_MAX), Tag("many")],
    Discriminator(_one_or_many),
]


class AcceptedEvents(BaseModel):
    """The events of a list, in its order."""

    accepted: list[Accepted]


class Freshness(BaseModel):
    """How current an answer is."""

    age_seconds: Annotated[
        float, Field(description="seconds since this replica last held all that the broker had")
    ]
    stale: Annotated[
        bool, Field(description="true when the broker does not answer: newer rows may be missing")
    ]


class Author(BaseModel):
    """How many followers an author brings."""

    author: str
    followers: int


class Numbers(BaseModel):
    """The reach of a URL; zeros for one that nobody tweets."""

    reach: Annotated[int, Field(description="distinct users who follow somebody who tweeted it")]
    estimate: Annotated[float, Field(description="the same as a sketch of 4 KB has it")]
    tweets: int
    authors: Annotated[int, Field(description="who tweeted it")]
    top: Annotated[list[Author], Field(description="those who bring most followers, at most 10")]


class ReachAnswer(Numbers, Freshness):
    """The reach of a URL, and where in the table it stands."""

    url: str
    partition: int
    offset: Annotated[int, Field(description="of the table's partition, up to which the answer holds all")]


class FoundTweet(BaseModel):
    """A tweet that was not deleted."""

    id: str
    author: str
    url: str
    text: str
    at: Annotated[int, Field(description="when, in milliseconds since 1970")]


class FoundTweets(BaseModel):
    """Tweets that have all the words, those that fit best first."""

    items: list[FoundTweet]


class UrlReach(BaseModel):
    """The reach of a URL."""

    url: str
    reach: int


class TopUrls(Freshness):
    """The URLs with the highest reach, the highest first."""

    items: list[UrlReach]
    unreadable: Annotated[
        int, Field(description="rows that were left out because they cannot be decoded")
    ] = 0
