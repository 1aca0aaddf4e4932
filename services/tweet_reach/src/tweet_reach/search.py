"""Full-text search of tweets, if the central store supports it."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query

from contracts.records import Tweeted
from servicekit.http.app import PLAIN_DIGITS, only
from servicekit.http.fields import LINE, LINE_SCHEMA
from servicekit.http.problems import Problem
from servicekit.http.read_your_writes import DOES_NOT_WAIT
from servicekit.http.responses import json_answer
from servicekit.http.table_api import Served
from tweet_reach.models import FoundTweet, FoundTweets

WORDS_CHARACTERS_MAX: Final = 280
LIMIT_MAX: Final = 100
Search = Callable[[str, int], list[Tweeted]]
"""Finds at most this many tweets with all of these words. It may raise `RetryLater`."""


@dataclass(frozen=True)
class SearchTweets:
    """The route; `search` None: the store does not support search, and the route responds with 501."""

    search: Search | None

    def add(self, app: FastAPI, _: Served[Any]) -> None:
        @app.get(
            "/tweets",
            dependencies=[only("words", "limit"), DOES_NOT_WAIT],
            response_model=FoundTweets,
            responses={501: {"description": "The central store of this service cannot search"}},
            tags=["tweets"],
        )
        def search_tweets(
            words: Annotated[
                str,
                Query(
                    min_length=1,
                    max_length=WORDS_CHARACTERS_MAX,
                    description="words that must all occur in the tweet or its URL",
                    json_schema_extra=LINE_SCHEMA,
                    examples=["read this"],
                ),
                LINE,
            ],
            limit: Annotated[int, Query(ge=1, le=LIMIT_MAX), PLAIN_DIGITS] = 20,
        ) -> Any:
            """Tweets with these words, without deleted ones; tweets of the last seconds may be missing."""
            if self.search is None:
                raise Problem(
                    HTTPStatus.NOT_IMPLEMENTED, "the central store of this service cannot search tweets"
                )
            items = [
                FoundTweet(id=row["id"], author=row["author"], url=row["url"], text=row["text"], at=row["at"])
                for row in self.search(words, limit)
                if row["url"] is not None
            ]
            return json_answer(FoundTweets(items=items))
