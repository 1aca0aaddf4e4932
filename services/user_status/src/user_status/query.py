"""The query service: users' statuses with their clicks over REST, from local copies of both tables."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query
from starlette.responses import Response

from contracts.records import UserStatus
from servicekit.http import read_your_writes
from servicekit.http.app import HttpEdge, build_app, only
from servicekit.http.cursors import Cursors
from servicekit.http.problems import Problem
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit.http.responses import json_answer, matches, page_after
from servicekit.http.server_events import EventStreams
from servicekit.http.table_api import Cursor, IfNoneMatch, PageLimit, etag, events_options
from servicekit.http.table_events import ChangeSource, TableEvents
from servicekit.http.user_ids import Prefix, UserPath, user_of_path
from servicekit.tables.listing import LeftOut
from servicekit.tables.protocol import TableAnswer, UserTable, freshness, place_of, why_not_ready
from user_status import models
from user_status.domain import joined

VERSION: Final = "1.1.0"
DESCRIPTION: Final = (
    "The latest status of each user, with the present click count, from this replica's local copies of both tables. "
    "Every response has the age of the copies; until they are complete the service responds with 503."
)


@dataclass(frozen=True)
class Tables:
    """The joined tables."""

    statuses: UserTable[UserStatus]
    clicks: UserTable[int]

    @property
    def ready(self) -> bool:
        return self.statuses.ready and self.clicks.ready


def build_query(
    tables: Tables,
    cursors: Cursors,
    events: EventStreams,
    writes: ReadYourWrites,
    *,
    metrics: Callable[[], bytes],
    edge: HttpEdge | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        tables: The tables.
        cursors: Signs the cursors of pages.
        events: Server-sent events.
        writes: Waits for the writes that requests name.
        metrics: Returns what `/metrics` answers.
        edge: Authentication, limits and instruments.
    """
    app = build_app(
        "user-status query",
        VERSION,
        ready=lambda: tables.ready,
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        not_ready=lambda: why_not_ready(tables.statuses, tables.clicks),
    )
    _add_users(app, tables, cursors, writes)
    _add_events(app, tables, events)
    return app


def _add_users(app: FastAPI, tables: Tables, cursors: Cursors, writes: ReadYourWrites) -> None:
    responses: dict[int | str, dict[str, Any]] = {
        304: {"description": "It is what If-None-Match names"},
        404: {"description": "Neither a status nor clicks of this user are known"},
        **read_your_writes.RESPONSES,
    }

    @app.get(
        "/users/{user}",
        dependencies=[only(), writes.dependency],
        response_model=models.UserAnswer,
        responses=responses,
        tags=["users"],
    )
    def get_user(user: UserPath, if_none_match: IfNoneMatch = None) -> Any:
        """The latest status and the present click count of a user; 404 if the user has neither.

        With `If-None-Match` an unchanged row is not sent again.
        """
        user = user_of_path(user)
        status, clicks = tables.statuses.answer(user), tables.clicks.answer(user)
        if status.value is None and clicks.value is None:
            raise Problem(HTTPStatus.NOT_FOUND, "neither a status nor clicks of this user are known")
        tag = etag(status.value, status.stale, clicks.value, clicks.stale)
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if matches(if_none_match, tag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        body = models.UserAnswer(
            user_id=user,
            status=status.value and _status(status.value),
            clicks=clicks.value,
            tables=models.Places(status=_place(status), clicks=_place(clicks)),
        )
        return json_answer(body, headers)

    @app.get(
        "/users",
        dependencies=[only("prefix", "cursor", "limit"), writes.dependency],
        response_model=models.UserPage,
        responses={**read_your_writes.RESPONSES},
        tags=["users"],
    )
    def list_users(
        prefix: Annotated[Prefix, Query()] = "", cursor: Cursor = None, limit: PageLimit = 100
    ) -> Any:
        """All users of either table, a page at a time. This is no snapshot: each page has the state at the time of its request."""
        after = page_after(cursors, prefix, cursor)
        items, more, unreadable = _page(tables, prefix, after, limit)
        body = models.UserPage(
            items=items,
            next=cursors.seal(prefix, items[-1].user_id) if more else None,
            tables=models.Ages(status=_age(tables.statuses), clicks=_age(tables.clicks)),
            unreadable=unreadable,
        )
        return json_answer(body)


def _page(
    tables: Tables, prefix: str, after: str | None, limit: int
) -> tuple[list[models.UserRow], bool, int]:
    """Return the users of a page, whether there are more, and the number of skipped users.

    Skips a user if either row cannot be decoded: returning the other one alone would mean that there is no such row.
    """
    left_out = LeftOut()
    statuses = tables.statuses.iterate(prefix, after, on_unreadable=left_out.found)
    clicks = tables.clicks.iterate(prefix, after, on_unreadable=left_out.found)
    items: list[models.UserRow] = []
    unreadable = 0
    for user, status, count in joined(statuses, clicks):
        if left_out.passes(user):
            continue
        if len(items) == limit:
            return items, True, unreadable
        items.append(models.UserRow(user_id=user, status=status and _status(status), clicks=count))
        unreadable = left_out.count
    left_out.end()
    return items, False, left_out.count


_EVENTS: Final = (
    'Server-sent events `status`, with data like `{"user_id": "alice", "status": {"text": "at lunch", '
    '"at": 1700000000000, "id": "...", "clicks": 3}, "partition": 9, "offset": 41}`, and `clicks`, with data like '
    '`{"user_id": "alice", "clicks": 4, "partition": 9, "offset": 52}`; null means that there is no row. '
    "`unreadable` is sent instead of a row that cannot be decoded, with `of`: `status` or `clicks`. `missed` is sent "
    "last if changes were missed: reconnect."
)


def _add_events(app: FastAPI, tables: Tables, events: EventStreams) -> None:
    changes = (
        TableEvents(tables.statuses, "status", lambda row: {"status": row and _status(row).model_dump()}),
        TableEvents(tables.clicks, "clicks", lambda count: {"clicks": count}),
    )

    @app.get("/users/{user}/events", tags=["live"], **events_options(_EVENTS))
    def watch_user(user: UserPath) -> Response:
        """The user's status and clicks now, and each of them when it changes."""
        return events.response(ChangeSource(*changes, key=user_of_path(user)))


def _status(row: UserStatus) -> models.Status:
    return models.Status(text=row["status"], at=row["at"], id=row["id"], clicks=row["clicks"])


def _place(answer: TableAnswer[object]) -> models.Place:
    return models.Place(**place_of(answer))


def _age(table: UserTable[object]) -> models.Age:
    return models.Age(**freshness(table))
