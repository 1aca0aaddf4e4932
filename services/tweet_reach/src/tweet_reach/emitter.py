"""The emitter service: takes tweets, deletions and followers by REST and answers when Kafka has acknowledged them."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from fastapi import Body, FastAPI, Path, Request
from fastapi.responses import JSONResponse

from contracts.event_time import MAX_AHEAD_SECONDS
from contracts.records import Follow, Tweet
from servicekit.http import read_your_writes
from servicekit.http.app import Edge, build_app, only
from servicekit.http.event_time import EventTimes
from servicekit.http.guard import Limits
from servicekit.http.produce import (
    Accepted,
    Outgoing,
    RecordEmitter,
    SendTimeouts,
    not_all_responses,
    send_all,
)
from servicekit.http.user_ids import UserPath, user_of_path
from tweet_reach.models import AcceptedEvents, NewFollow, NewFollows, NewTweet, NewTweets

R = TypeVar("R")
T = TypeVar("T")
VERSION: Final = "1.1.0"
BODY_BYTES: Final = 512 * 1024  # a list of 1000 tweets with URLs of about 200 characters
DESCRIPTION: Final = "Takes tweets, their deletions, and who follows whom. An answer of 200 or 201 means that Kafka has stored them on all in-sync replicas."

_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": Accepted, "description": "One was stored", "headers": read_your_writes.RESPONSE_HEADERS},
    **not_all_responses("events"),
}


def build_emitter(
    tweets: RecordEmitter[Tweet],
    follows: RecordEmitter[Follow],
    *,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    new_id: Callable[[], UUID],
    now_ms: Callable[[], int],
    max_ahead_seconds: float = MAX_AHEAD_SECONDS,
    timeouts: SendTimeouts | None = None,
    edge: Edge | None = None,
) -> FastAPI:
    """Make the application.

    Args:
        tweets: sends tweets and deletions.
        follows: sends who follows whom.
        ready: whether Kafka can be reached.
        metrics: what `/metrics` answers.
        new_id: makes the id of an event that comes without one.
        now_ms: the time of an event that comes without one, in milliseconds since 1970.
        max_ahead_seconds: how far the time of an event may be ahead of the clock.
        timeouts: how long one request waits for Kafka; default `SendTimeouts()`.
        edge: who may call, and what is measured.
    """
    timeouts = timeouts or SendTimeouts()
    times = EventTimes(now_ms, max_ahead_seconds)
    app = build_app(
        "tweet-reach emitter",
        VERSION,
        ready=ready,
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        limits=Limits(body_bytes=BODY_BYTES, deadline_seconds=timeouts.request),
    )

    async def send(
        request: Request, emitter: RecordEmitter[R], outgoing: Sequence[Outgoing[R]], *, one: bool
    ) -> JSONResponse:
        accepted = await send_all(request, emitter, outgoing, timeouts)
        if not one:
            return JSONResponse({"accepted": accepted})
        headers = {read_your_writes.HEADER: accepted[0]["token"]}
        return JSONResponse(accepted[0], status_code=HTTPStatus.CREATED, headers=headers)

    def tweet(given: NewTweet, where: str) -> Outgoing[Tweet]:
        record = Tweet(
            id=str(given.id or new_id()),
            author=given.author,
            url=given.url,
            text=given.text,
            at=times.of(given.at, where),
        )
        return Outgoing(record["id"], given.author, record)

    def follow(given: NewFollow, where: str) -> Outgoing[Follow]:
        record = Follow(
            id=str(given.id or new_id()),
            author=given.author,
            follower=given.follower,
            follows=given.follows,
            at=times.of(given.at, where),
        )
        return Outgoing(record["id"], given.author, record)

    @app.post("/tweets", dependencies=[only()], response_model=AcceptedEvents, responses=_RESPONSES)
    async def send_tweets(request: Request, body: Annotated[NewTweets, Body()]) -> Any:
        """One tweet (answered with 201) or a list of them (200).

        503 when Kafka does not acknowledge in time: `accepted` and `unknown` say what became of each. An unknown one may
        be stored or not: send it again with the same `id`.
        """
        return await send(
            request,
            tweets,
            [tweet(each, where) for where, each in _placed(body)],
            one=not isinstance(body, list),
        )

    @app.delete(
        "/users/{user}/tweets/{tweet_id}",
        dependencies=[only()],
        response_model=Accepted,
        responses={
            200: {"description": "The deletion was stored", "headers": read_your_writes.RESPONSE_HEADERS},
            **not_all_responses("events"),
        },
    )
    async def delete_tweet(
        request: Request, user: UserPath, tweet_id: Annotated[UUID, Path(description="of the tweet")]
    ) -> Any:
        """Delete a tweet of an author, for good: its id counts no more, though it may be sent again.

        There need not be such a tweet: what is known is decided when the event is processed.
        """
        author = user_of_path(user)
        record = Tweet(id=str(tweet_id), author=author, url=None, text="", at=now_ms())
        deletion = Outgoing(record["id"], author, record)
        (answer,) = await send_all(request, tweets, [deletion], timeouts)
        return JSONResponse(answer, headers={read_your_writes.HEADER: answer["token"]})

    @app.post("/follows", dependencies=[only()], response_model=AcceptedEvents, responses=_RESPONSES)
    async def send_follows(request: Request, body: Annotated[NewFollows, Body()]) -> Any:
        """One follower of an author, who comes or goes (answered with 201), or a list of them (200). 503: as for tweets."""
        return await send(
            request,
            follows,
            [follow(each, where) for where, each in _placed(body)],
            one=not isinstance(body, list),
        )

    return app


def _placed(body: T | list[T]) -> list[tuple[str, T]]:
    """Return each event of a request with the place of its time, for errors."""
    return (
        [(f"body.{n}.at", each) for n, each in enumerate(body)]
        if isinstance(body, list)
        else [("body.at", body)]
    )
