"""The query service: the reach of URLs over REST, from a local copy of the table."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Query
from starlette.responses import Response

from contracts.records import Reach
from servicekit.http.app import PLAIN_DIGITS, Edge, build_app, only
from servicekit.http.responses import json_answer, matches
from servicekit.http.server_events import EventStreams
from servicekit.http.table_events import Changes, Told
from servicekit.tables.protocol import STALE_SECONDS, UserTable, age_seconds
from servicekit.tables.top_list import SIZE, TopList
from tweet_reach.models import Author, Numbers, ReachAnswer, TopUrls, UrlReach
from tweet_reach.search import Search, add_search
from tweet_reach.urls import UrlQuery, url_of_query

VERSION: Final = "1.1.0"
DESCRIPTION: Final = (
    "How many distinct users a URL reaches by those who tweet it, from this replica's own copy of the table. Every "
    "answer says how old it may be; until the copy is complete the service answers 503."
)
_EVENT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events `reach`, with data like `{"
        '"url": "foo.com/blog/1", "reach": 16, "estimate": 16.0, "tweets": 5, "authors": 5, "top": [{"author": "nathan", '
        '"followers": 8}], "partition": 9, "offset": 41}`. `unreadable`, with the `url`, comes '
        "instead of a reach that cannot be decoded. `missed` comes last when changes were left out: connect again.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def build_query(
    reaches: UserTable[Reach],
    top: TopList[Reach],
    events: EventStreams,
    *,
    metrics: Callable[[], bytes],
    edge: Edge | None = None,
    search: Search | None = None,
) -> FastAPI:
    """Make the application.

    Args:
        reaches: the table.
        top: its URLs with the highest reach.
        events: for server-sent events.
        metrics: what `/metrics` answers.
        edge: who may call, and what is measured.
        search: finds tweets; None: the store cannot.
    """
    app = build_app(
        "tweet-reach query",
        VERSION,
        ready=lambda: reaches.ready,
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        details=lambda: {"top": top.detail()},
    )

    @app.get(
        "/reach",
        dependencies=[only("url")],
        response_model=ReachAnswer,
        responses={304: {"description": "It is what If-None-Match names"}},
        tags=["reach"],
    )
    def get_reach(url: UrlQuery, if_none_match: Annotated[str | None, Header()] = None) -> Any:
        """The reach of a URL; zeros if nobody tweets it. `If-None-Match` saves sending what has not changed."""
        url = url_of_query(url)
        answer = reaches.answer(url)
        numbers = numbers_of(answer.value)
        known = blake2b(repr((numbers, answer.stale)).encode(), digest_size=8).hexdigest()
        # Weak: it stands for the numbers and whether they are stale, not for the age, which always changes.
        headers = {"ETag": f'W/"{known}"', "Cache-Control": "no-cache"}
        if matches(if_none_match, headers["ETag"]):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        body = ReachAnswer(
            url=url,
            **numbers.model_dump(),
            partition=answer.partition,
            offset=answer.offset,
            age_seconds=answer.age_seconds,
            stale=answer.stale,
        )
        return json_answer(body, headers)

    @app.get("/reach/top", dependencies=[only("limit")], response_model=TopUrls, tags=["reach"])
    def get_top(limit: Annotated[int, Query(ge=1, le=SIZE), PLAIN_DIGITS] = 10) -> Any:
        """The URLs with the highest reach; equal ones by URL."""
        found = top.top(limit)
        age = age_seconds(reaches) + found.behind_seconds
        items = [UrlReach(url=url, reach=reach) for url, reach in found.rows]
        body = TopUrls(items=items, age_seconds=age, stale=age > STALE_SECONDS, unreadable=found.unreadable)
        return json_answer(body)

    add_search(app, search)
    told = Told(reaches, "reach", _told, key="url")

    @app.get(
        "/reach/events",
        dependencies=[only("url")],
        responses=_EVENT_RESPONSES,
        response_class=Response,
        tags=["live"],
    )
    def watch_reach(url: UrlQuery) -> Response:
        """The reach of a URL now and each time it changes."""
        return events.response(Changes(told, key=url_of_query(url)))

    return app


def numbers_of(row: Reach | None) -> Numbers:
    """What is told of a row; None: nobody tweets the URL."""
    if row is None:
        return Numbers(reach=0, estimate=0.0, tweets=0, authors=0, top=[])
    top = [Author(author=one["author"], followers=one["followers"]) for one in row["top"]]
    return Numbers(
        reach=row["reach"], estimate=row["estimate"], tweets=row["tweets"], authors=row["authors"], top=top
    )


def _told(row: Reach | None) -> Mapping[str, Any]:
    return numbers_of(row).model_dump()
