"""The query service: the reach of URLs over REST, from a local copy of the table."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import FastAPI

from contracts.records import Reach
from servicekit.http.app import HttpEdge
from servicekit.http.server_events import EventStreams
from servicekit.http.table_api import GetRow, TableApi, TopRows, WatchRow
from servicekit.http.urls import URL
from servicekit.tables.protocol import UserTable
from servicekit.tables.top_list import TopList
from tweet_reach.models import Author, Numbers, ReachAnswer, TopUrls, UrlReach
from tweet_reach.search import Search, SearchTweets

VERSION: Final = "1.1.0"
DESCRIPTION: Final = (
    "The number of distinct users that a URL reaches through the followers of its authors, from this replica's local "
    "copy of the table. Every response has the age of the copy; until it is complete the service responds with 503."
)
_EVENTS: Final = (
    'Server-sent events `reach`, with data like `{"url": "foo.com/blog/1", "reach": 16, "estimate": 16.0, "tweets": 5, '
    '"authors": 5, "top": [{"author": "nathan", "followers": 8}], "partition": 9, "offset": 41}`. `unreadable`, with the '
    "`url`, is sent instead of a reach that cannot be decoded. `missed` is sent last if changes were missed: reconnect."
)


def build_query(
    reaches: UserTable[Reach],
    top: TopList[Reach],
    events: EventStreams,
    *,
    metrics: Callable[[], bytes],
    edge: HttpEdge | None = None,
    search: Search | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        reaches: The table.
        top: The URLs with the highest reach.
        events: Server-sent events.
        metrics: Returns what `/metrics` answers.
        edge: Authentication, limits and instruments.
        search: Finds tweets; None: the store cannot search.
    """
    api: TableApi[Reach] = TableApi(
        title="tweet-reach query",
        version=VERSION,
        text=DESCRIPTION,
        members=members_of,
        event="reach",
        events_text=_EVENTS,
        key=URL,
        routes=(
            GetRow(
                "/reach",
                "get_reach",
                "The reach of a URL; zeros if it is in no tweet. With `If-None-Match` an unchanged row is not sent again.",
                "reach",
                ReachAnswer,
                waits=False,
            ),
            TopRows(
                "/reach/top",
                "get_top",
                "The URLs with the highest reach; equal ones by URL.",
                "reach",
                TopUrls,
                UrlReach,
                number="reach",
            ),
            SearchTweets(search),
            WatchRow("/reach/events", "watch_reach", "The reach of a URL now and each time it changes."),
        ),
    )
    return api.build(reaches, top, None, events, metrics=metrics, edge=edge)


def members_of(row: Reach | None) -> Mapping[str, Any]:
    """Return the members of responses and events for a row; None: the URL is not tweeted."""
    if row is None:
        return Numbers(reach=0, estimate=0.0, tweets=0, authors=0, top=[]).model_dump()
    top = [Author(author=one["author"], followers=one["followers"]) for one in row["top"]]
    return Numbers(
        reach=row["reach"], estimate=row["estimate"], tweets=row["tweets"], authors=row["authors"], top=top
    ).model_dump()
