"""The request and response models of the REST services, for OpenAPI."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field

from servicekit.http.app import Strict
from servicekit.http.emitter_api import accepted_model
from servicekit.http.fields import CANONICAL_UUID, LINE, LINE_SCHEMA, TIME_MS
from servicekit.http.models import answer_model, top_model
from servicekit.http.urls import Url
from servicekit.http.user_ids import UserId
from tweet_reach.domain.rules import TEXT_CHARACTERS_MAX


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
            description="the id of the tweet, for deletions and to recognise a repeated request. Default: a new one"
        ),
    ] = None
    at: Annotated[
        int | None,
        TIME_MS,
        Field(description="the time of the tweet, in milliseconds since 1970; default: now"),
    ] = None


class NewFollow(Strict):
    """A user follows an author, or stops following."""

    author: UserId
    follower: UserId
    follows: Annotated[bool, Field(description="false: the user stops following")] = True
    id: Annotated[
        UUID | None, CANONICAL_UUID, Field(description="the id of the event; default: a new one")
    ] = None
    at: Annotated[
        int | None,
        TIME_MS,
        Field(
            description="when, in milliseconds since 1970; of an author and a follower the latest counts, in whatever "
            "order they come. Default: now"
        ),
    ] = None


AcceptedEvents: Final = accepted_model("AcceptedEvents", "The events of a list, in its order.")


class Author(BaseModel):
    """The number of followers that an author adds."""

    author: str
    followers: int


class Numbers(BaseModel):
    """The reach of a URL; zeros for one that is in no tweet."""

    reach: Annotated[
        int, Field(description="the number of distinct users who follow an author who tweeted the URL")
    ]
    estimate: Annotated[
        float, Field(description="the number of distinct users as estimated by a sketch of 4 KB")
    ]
    tweets: int
    authors: Annotated[int, Field(description="the number of authors who tweeted the URL")]
    top: Annotated[list[Author], Field(description="the authors with the most followers, at most 10")]


class _UrlNumbers(Numbers):
    url: str


ReachAnswer: Final = answer_model(
    "ReachAnswer", "The reach of a URL, with its position in the table.", _UrlNumbers
)


class FoundTweet(BaseModel):
    """A tweet that was not deleted."""

    id: str
    author: str
    url: str
    text: str
    at: Annotated[int, Field(description="the time of the tweet, in milliseconds since 1970")]


class FoundTweets(BaseModel):
    """Tweets with all the words, the best matches first."""

    items: list[FoundTweet]


class UrlReach(BaseModel):
    """The reach of a URL."""

    url: str
    reach: int


TopUrls: Final = top_model("TopUrls", "The URLs with the highest reach, the highest first.", UrlReach)
