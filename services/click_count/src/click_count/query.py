"""The query service: click counts over REST, from a local copy of the table."""

from collections.abc import Callable
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Query, Request
from starlette.responses import Response

from click_count.counts import STALE_SECONDS, Counts, age_seconds
from click_count.domain import user_id
from click_count.live import Changes
from click_count.models import Prefix, TopUsers, UserCount, UserCountAnswer, UserCountPage
from click_count.top import SIZE, TopList
from servicekit.events import EventStreams
from servicekit.pages import BadCursor, Cursors
from servicekit.problems import Problem
from servicekit.rest import Digits, build_app, only

PAGE_MAX: Final = 1000
VERSION: Final = "1.0.0"
DESCRIPTION: Final = (
    "How many clicks each user made, from this replica's own copy of the table. Every answer says how old it may be; "
    "until the copy is complete the service answers 503."
)


def build_query(
    counts: Counts,
    top: TopList,
    cursors: Cursors,
    events: EventStreams,
    *,
    metrics: Callable[[], bytes],
    docs: bool = False,
) -> FastAPI:
    """Make the application.

    Args:
        counts: the table.
        top: its highest users.
        cursors: for pages.
        events: for server-sent events.
        metrics: what `/metrics` answers.
        docs: serve `/docs` too.
    """
    app = build_app(
        "click-count query",
        VERSION,
        ready=lambda: counts.ready,
        metrics=metrics,
        description=DESCRIPTION,
        docs=docs,
    )
    _add_counts(app, counts, cursors)
    _add_top(app, counts, top)
    _add_events(app, counts, events)
    return app


def _add_counts(app: FastAPI, counts: Counts, cursors: Cursors) -> None:
    @app.get("/clicks/{user}", dependencies=[only()], response_model=UserCountAnswer, tags=["counts"])
    def get(user: str, if_none_match: Annotated[str | None, Header()] = None) -> Any:
        """The clicks of one user; 404 if there are none. `If-None-Match` saves sending what has not changed."""
        answer = counts.answer(_user(user))
        if answer.value is None:
            raise Problem(HTTPStatus.NOT_FOUND, "no clicks of this user are known")
        # Weak: it stands for the count and whether it is stale, not for the age, which always changes.
        tag = f'W/"{answer.value}-{"stale" if answer.stale else "live"}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if _matches(if_none_match, tag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        body = UserCountAnswer(
            user_id=user,
            count=answer.value,
            partition=answer.partition,
            offset=answer.offset,
            age_seconds=answer.age_seconds,
            stale=answer.stale,
        )
        return Response(body.model_dump_json(), headers=headers, media_type="application/json")

    @app.get("/clicks", dependencies=[only("prefix", "cursor", "limit")], tags=["counts"])
    def page(
        prefix: Annotated[Prefix, Query()] = "",
        cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
        limit: Annotated[Digits, Query(ge=1, le=PAGE_MAX)] = 100,
    ) -> UserCountPage:
        """All users, a page at a time. Clicks go on meanwhile: each page is as of its own moment."""
        after = None
        if cursor is not None:
            try:
                after = cursors.open(prefix, cursor)
            except BadCursor as error:
                raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
        rows = list(islice(counts.iterate(prefix, after), limit + 1))
        more = len(rows) > limit
        age = age_seconds(counts)
        return UserCountPage(
            items=[UserCount(user_id=user, count=count) for user, count in rows[:limit]],
            next=cursors.seal(prefix, rows[limit - 1][0]) if more else None,
            age_seconds=age,
            stale=age > STALE_SECONDS,
        )


def _add_top(app: FastAPI, counts: Counts, top: TopList) -> None:
    @app.get("/top", dependencies=[only("limit")], tags=["counts"])
    def highest(limit: Annotated[Digits, Query(ge=1, le=SIZE)] = 10) -> TopUsers:
        """The users with the most clicks; equal counts by id."""
        found = top.top(limit)
        age = age_seconds(counts) + found.behind_seconds
        items = [UserCount(user_id=user, count=count) for user, count in found.rows]
        return TopUsers(items=items, age_seconds=age, stale=age > STALE_SECONDS)


_EVENT_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events `count`, with data like "
        '`{"user_id": "alice", "count": 3, "partition": 9, "offset": 41}`; `count` is null when the user was '
        "deleted. `missed` comes last when changes were left out: connect again.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def _add_events(app: FastAPI, counts: Counts, events: EventStreams) -> None:
    options: dict[str, Any] = {
        "responses": _EVENT_RESPONSES,
        "response_class": Response,
        "tags": ["live"],
    }

    @app.get("/clicks/{user}/events", dependencies=[only()], **options)
    def of_user(user: str, request: Request) -> Response:
        """The user's count now and each time it changes."""
        del request
        return events.response(Changes(counts, key=_user(user)))

    @app.get("/events", dependencies=[only("prefix")], **options)
    def of_prefix(prefix: Annotated[Prefix, Query()] = "") -> Response:
        """Each change of a count from now on."""
        return events.response(Changes(counts, prefix=prefix))


def _user(text: str) -> str:
    try:
        return user_id(text)
    except ValueError as error:
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "the request is not valid; see the list of errors",
            members={"errors": [{"where": "path.user", "what": str(error)}]},
        ) from None


def _matches(header: str | None, tag: str) -> bool:
    """Whether one of the tags in If-None-Match is this one, by weak comparison."""
    if header is None:
        return False
    given = {part.strip().removeprefix("W/") for part in header.split(",")}
    return "*" in given or tag.removeprefix("W/") in given
