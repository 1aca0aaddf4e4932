"""The query service: click counts over REST, from a local copy of the table."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Query
from starlette.responses import Response

from click_count.models import TopUsers, UserCount, UserCountAnswer, UserCountPage
from servicekit.http import read_your_writes
from servicekit.http.app import PLAIN_DIGITS, Edge, build_app, only
from servicekit.http.cursors import Cursors
from servicekit.http.problems import Problem
from servicekit.http.read_your_writes import OwnWrites
from servicekit.http.responses import json_answer, matches, page_after
from servicekit.http.server_events import EventStreams
from servicekit.http.table_events import Changes, Told
from servicekit.http.user_ids import Prefix, UserPath, user_of_path
from servicekit.tables.listing import listing
from servicekit.tables.protocol import STALE_SECONDS, UserTable, age_seconds
from servicekit.tables.top_list import SIZE, TopList

PAGE_MAX: Final = 1000
VERSION: Final = "1.2.0"
DESCRIPTION: Final = (
    "How many clicks each user made, from this replica's own copy of the table. Every answer says how old it may be; "
    "until the copy is complete the service answers 503."
)


def build_query(
    counts: UserTable[int],
    top: TopList[int],
    cursors: Cursors,
    events: EventStreams,
    *,
    metrics: Callable[[], bytes],
    edge: Edge | None = None,
    writes: OwnWrites | None = None,
) -> FastAPI:
    """Make the application.

    Args:
        counts: the table.
        top: its highest users.
        cursors: for pages.
        events: for server-sent events.
        metrics: what `/metrics` answers.
        edge: who may call, and what is measured.
        writes: for questions that name a write; default: none is known.
    """
    app = build_app(
        "click-count query",
        VERSION,
        ready=lambda: counts.ready,
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        details=lambda: {"top": top.detail()},
    )
    _add_counts(app, counts, cursors, writes or OwnWrites({}, 0))
    _add_top(app, counts, top)
    _add_events(app, counts, events)
    return app


def _add_counts(app: FastAPI, counts: UserTable[int], cursors: Cursors, writes: OwnWrites) -> None:
    responses: dict[int | str, dict[str, Any]] = {
        304: {"description": "It is what If-None-Match names"},
        404: {"description": "No clicks of this user are known"},
        **read_your_writes.RESPONSES,
    }

    @app.get(
        "/clicks/{user}",
        dependencies=[only(), writes.dependency],
        response_model=UserCountAnswer,
        responses=responses,
        tags=["counts"],
    )
    def get_count(user: UserPath, if_none_match: Annotated[str | None, Header()] = None) -> Any:
        """The clicks of one user; 404 if there are none. `If-None-Match` saves sending what has not changed."""
        answer = counts.answer(user_of_path(user))
        if answer.value is None:
            raise Problem(HTTPStatus.NOT_FOUND, "no clicks of this user are known")
        # Weak: it stands for the count and whether it is stale, not for the age, which always changes.
        tag = f'W/"{answer.value}-{"stale" if answer.stale else "live"}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if matches(if_none_match, tag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        body = UserCountAnswer(
            user_id=user,
            count=answer.value,
            partition=answer.partition,
            offset=answer.offset,
            age_seconds=answer.age_seconds,
            stale=answer.stale,
        )
        return json_answer(body, headers)

    @app.get(
        "/clicks",
        dependencies=[only("prefix", "cursor", "limit"), writes.dependency],
        response_model=UserCountPage,
        responses={**read_your_writes.RESPONSES},
        tags=["counts"],
    )
    def list_counts(
        prefix: Annotated[Prefix, Query()] = "",
        cursor: Annotated[str | None, Query(description="`next` of the page before, unchanged")] = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX), PLAIN_DIGITS] = 100,
    ) -> Any:
        """All users, a page at a time. Clicks go on meanwhile: each page is as of its own moment."""
        after = page_after(cursors, prefix, cursor)
        found = listing(counts, prefix, after, limit)
        age = age_seconds(counts)
        body = UserCountPage(
            items=[UserCount(user_id=user, count=count) for user, count in found.rows],
            next=cursors.seal(prefix, found.rows[-1][0]) if found.more else None,
            age_seconds=age,
            stale=age > STALE_SECONDS,
            unreadable=found.unreadable,
        )
        return json_answer(body)


def _add_top(app: FastAPI, counts: UserTable[int], top: TopList[int]) -> None:
    @app.get("/top", dependencies=[only("limit")], response_model=TopUsers, tags=["counts"])
    def get_top(limit: Annotated[int, Query(ge=1, le=SIZE), PLAIN_DIGITS] = 10) -> Any:
        """The users with the most clicks; equal counts by id."""
        found = top.top(limit)
        age = age_seconds(counts) + found.behind_seconds
        items = [UserCount(user_id=user, count=count) for user, count in found.rows]
        body = TopUsers(items=items, age_seconds=age, stale=age > STALE_SECONDS, unreadable=found.unreadable)
        return json_answer(body)


_EVENT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events `count`, with data like "
        '`{"user_id": "alice", "count": 3, "partition": 9, "offset": 41}`; `count` is null when the user was '
        'deleted. `unreadable`, with data like `{"user_id": "alice", "of": "count", "partition": 9, "before_offset": 42}`, '
        "comes instead of a count that cannot be decoded. `missed` comes last when changes were left out: connect again.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def _add_events(app: FastAPI, counts: UserTable[int], events: EventStreams) -> None:
    def of_count(count: int | None) -> Mapping[str, Any]:
        return {"count": count}

    told = Told(counts, "count", of_count)
    options: dict[str, Any] = {
        "responses": _EVENT_RESPONSES,
        "response_class": Response,
        "tags": ["live"],
    }

    @app.get("/clicks/{user}/events", dependencies=[only()], **options)
    def watch_user(user: UserPath) -> Response:
        """The user's count now and each time it changes."""
        return events.response(Changes(told, key=user_of_path(user)))

    @app.get("/events", dependencies=[only("prefix")], **options)
    def watch_users(prefix: Annotated[Prefix, Query()] = "") -> Response:
        """Each change of a count from now on."""
        return events.response(Changes(told, prefix=prefix))
