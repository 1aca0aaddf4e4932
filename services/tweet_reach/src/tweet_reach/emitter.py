"""The emitter service: accepts tweets, deletions and followers over REST and responds once Kafka has acknowledged them."""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import FastAPI, Path, Request

from contracts.records import Follow, Tweet
from servicekit.http.app import only
from servicekit.http.emitter_api import EmitterApi, PostEvents, Sender, stored
from servicekit.http.produce import Accepted, OutgoingRecord, not_all_responses
from servicekit.http.user_ids import UserPath, user_of_path
from tweet_reach.models import AcceptedEvents, NewFollow, NewTweet


class _DeleteTweet:
    def add(self, app: FastAPI, senders: Sequence[Sender], what: str) -> None:
        @app.delete(
            "/users/{user}/tweets/{tweet_id}",
            dependencies=[only()],
            response_model=Accepted,
            responses={200: stored("The deletion was stored"), **not_all_responses(what)},
        )
        async def delete_tweet(
            request: Request,
            user: UserPath,
            tweet_id: Annotated[UUID, Path(description="the id of the tweet")],
        ) -> Any:
            """Delete a tweet of an author permanently: its id is ignored if it is sent again.

            The tweet need not exist: the processor decides when it processes the event.
            """
            author = user_of_path(user)
            record = Tweet(id=str(tweet_id), author=author, url=None, text="", at=senders[0].now_ms())
            return await senders[0].send_one(request, OutgoingRecord(record["id"], author, record))


def _tweet(given: NewTweet, identity: str, at: int) -> Tweet:
    return Tweet(id=identity, author=given.author, url=given.url, text=given.text, at=at)


def _follow(given: NewFollow, identity: str, at: int) -> Follow:
    return Follow(id=identity, author=given.author, follower=given.follower, follows=given.follows, at=at)


EMITTER: Final = EmitterApi(
    title="tweet-reach emitter",
    version="1.1.0",
    text="Accepts tweets, their deletions, and follow events. A response of 200 or 201 means that Kafka has stored them on "
    "all in-sync replicas.",
    what="events",
    routes=(
        PostEvents(
            "/tweets",
            "send_tweets",
            "One tweet (answered with 201) or a list of them (200).\n\n503 if Kafka does not acknowledge in time: "
            "`accepted` and `unknown` list the outcome of each. An unknown one may\nbe stored or not: retry it with "
            "the same `id`.",
            NewTweet,
            AcceptedEvents,
            _tweet,
            key=lambda tweet: tweet.author,
            one="The event was stored",
        ),
        _DeleteTweet(),
        PostEvents(
            "/follows",
            "send_follows",
            "One follow event of an author, added or removed (answered with 201), or a list of them (200). 503: as "
            "for tweets.",
            NewFollow,
            AcceptedEvents,
            _follow,
            key=lambda follow: follow.author,
            one="The event was stored",
            stream=1,
        ),
    ),
)
build_emitter: Final = EMITTER.build
