"""A REST API over a table, declared by its routes: single rows, pages, rankings and live changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar

from fastapi import FastAPI, Header, Query
from pydantic import BaseModel
from starlette.responses import Response

from servicekit.http import read_your_writes
from servicekit.http.app import PLAIN_DIGITS, HttpEdge, build_app, only
from servicekit.http.cursors import Cursors
from servicekit.http.fields import TIME_MS_MAX
from servicekit.http.problems import Problem
from servicekit.http.read_your_writes import DOES_NOT_WAIT, ReadYourWrites
from servicekit.http.responses import json_answer, matches, page_after
from servicekit.http.server_events import EventStreams
from servicekit.http.signatures import with_parameters
from servicekit.http.table_events import ChangeSource, TableEvents
from servicekit.http.user_ids import Prefix, UserPath, user_of_path
from servicekit.http.window_events import ClosedSource, LastEventId, WindowPlace
from servicekit.tables.listing import listing
from servicekit.tables.protocol import (
    ClosedWindows,
    UserTable,
    WindowTable,
    freshness,
    place_of,
    why_not_ready,
)
from servicekit.tables.top_list import SIZE, TopList

V = TypeVar("V")
PAGE_MAX: Final = 1000
Cursor = Annotated[str | None, Query(description="`next` of the page before, unchanged")]
PageLimit = Annotated[int, Query(ge=1, le=PAGE_MAX), PLAIN_DIGITS]
Since = Annotated[
    int,
    Query(ge=0, le=TIME_MS_MAX, description="from this time on, in milliseconds since 1970"),
    PLAIN_DIGITS,
]
Until = Annotated[int, Query(ge=0, le=TIME_MS_MAX, description="up to this time, exclusive"), PLAIN_DIGITS]
_NO_WINDOWS: Final = "this service has no windows"
IfNoneMatch = Annotated[str | None, Header()]


@dataclass(frozen=True)
class KeyParameter:
    """The key of a row in requests and responses.

    Attributes:
        name: The parameter of the path or the query.
        kind: The type of that parameter, with description and bounds, as FastAPI expects it.
        check: Returns the key if it is valid; else raises `Problem`.
        member: The member of answers and events that holds the key.
        prefix: The type of the query parameter `prefix`, with description and bounds.
    """

    name: str
    kind: Any
    check: Callable[[str], str]
    member: str
    prefix: Any = Annotated[Prefix, Query()]

    def in_query(self, path: str) -> tuple[str, ...]:
        """Return its name if it is a parameter of the query, as it is none of the path."""
        return () if f"{{{self.name}}}" in path else (self.name,)


USER: Final = KeyParameter("user", UserPath, user_of_path, "user_id")


@dataclass(frozen=True)
class Served(Generic[V]):
    """The parts that the routes of an application share; see `TableApi` and its `build`."""

    api: "TableApi[V]"
    table: UserTable[V]
    changes: TableEvents[V]
    top: TopList[V] | None
    cursors: Cursors | None
    events: EventStreams
    writes: ReadYourWrites
    windows: Mapping[str, WindowTable[Any]]
    closed: Mapping[str, ClosedWindows[Any]]


class TableRoute(Protocol):
    """Adds an operation to an application."""

    def add(self, app: FastAPI, served: Served[Any]) -> None: ...


@dataclass(frozen=True)
class Operation:
    """The parts that all operations have.

    Attributes:
        path: The address.
        name: The operationId, from which generated clients take their names.
        text: The description for OpenAPI.
        tag: The operation's group in OpenAPI.
    """

    path: str
    name: str
    text: str
    tag: str

    def get(self, app: FastAPI, handler: Callable[..., Any], **options: Any) -> None:
        """Add a GET operation."""
        app.add_api_route(
            self.path,
            handler,
            methods=["GET"],
            name=self.name,
            description=self.text,
            tags=[self.tag],
            **options,
        )


@dataclass(frozen=True)
class GetRow(Operation):
    """Returns one row, with an ETag.

    Attributes:
        model: The answer; see `servicekit.http.models.answer_model`.
        missing: The text of the 404 for a row that does not exist; None: it is returned like an empty one.
        waits: Whether a request may name a write and is answered once the row shows it. Only for the service's own table.
        table: The table; None: the service's own.
        key: The kind of its keys; None: that of the service's rows.
    """

    model: type[BaseModel]
    missing: str | None = None
    waits: bool = True
    table: UserTable[Any] | None = None
    key: KeyParameter | None = None

    def add(self, app: FastAPI, served: Served[Any]) -> None:
        key_of, table = self.key or served.api.key, served.table if self.table is None else self.table
        waits = self.waits and self.table is None

        def get_row(**given: Any) -> Any:
            key = key_of.check(given[key_of.name])
            answer = table.answer(key)
            if answer.value is None and self.missing is not None:
                raise Problem(HTTPStatus.NOT_FOUND, self.missing)
            members = served.api.members(answer.value)
            tag = etag(members, answer.stale)
            headers = {"ETag": tag, "Cache-Control": "no-cache"}
            if matches(given["if_none_match"], tag):
                return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
            return json_answer(self.model(**{key_of.member: key}, **members, **place_of(answer)), headers)

        checks = [only(*key_of.in_query(self.path)), served.writes.dependency if waits else DOES_NOT_WAIT]
        responses: dict[int | str, dict[str, Any]] = {
            304: {"description": "The row has not changed: its ETag is in If-None-Match"},
            **(
                {404: {"description": f"{self.missing[0].upper()}{self.missing[1:]}"}} if self.missing else {}
            ),
            **(read_your_writes.RESPONSES if waits else {}),
        }
        parameters = {key_of.name: key_of.kind, "if_none_match": IfNoneMatch}
        handler = with_parameters(get_row, parameters, if_none_match=None)
        self.get(app, handler, dependencies=checks, response_model=self.model, responses=responses)


@dataclass(frozen=True)
class ListRows(Operation):
    """Returns all rows in the order of their keys, page by page.

    Attributes:
        model: The answer; see `servicekit.http.models.page_model`.
        row: The model of one row.
    """

    model: type[BaseModel]
    row: type[BaseModel]

    def add(self, app: FastAPI, served: Served[Any]) -> None:
        table, cursors, key_of = served.table, served.cursors, served.api.key

        def list_rows(prefix: str, cursor: str | None, limit: int) -> Any:
            assert cursors is not None
            after = page_after(cursors, prefix, cursor)
            found = listing(table, prefix, after, limit)
            items = [self.row(**{key_of.member: key}, **served.api.members(row)) for key, row in found.rows]
            body = self.model(
                items=items,
                next=cursors.seal(prefix, found.rows[-1][0]) if found.more else None,
                unreadable=found.unreadable,
                **freshness(table),
            )
            return json_answer(body)

        checks = [only("prefix", "cursor", "limit"), served.writes.dependency]
        responses = dict(read_your_writes.RESPONSES)
        parameters = {"prefix": key_of.prefix, "cursor": Cursor, "limit": PageLimit}
        handler = with_parameters(list_rows, parameters, prefix="", cursor=None, limit=100)
        self.get(app, handler, dependencies=checks, response_model=self.model, responses=responses)


@dataclass(frozen=True)
class TopRows(Operation):
    """Returns the rows with the highest numbers.

    Attributes:
        model: The answer; see `servicekit.http.models.top_model`.
        row: The model of one row.
        number: The member of a row that holds its number.
    """

    model: type[BaseModel]
    row: type[BaseModel]
    number: str

    def add(self, app: FastAPI, served: Served[Any]) -> None:
        top, member = served.top, served.api.key.member

        def get_top(limit: Annotated[int, Query(ge=1, le=SIZE), PLAIN_DIGITS] = 10) -> Any:
            if top is None:
                raise NotImplementedError("this service has no ranking: ask one with a copy of the table")
            found = top.top(limit)
            items = [self.row(**{member: key, self.number: number}) for key, number in found.rows]
            current = freshness(served.table, found.behind_seconds)
            return json_answer(self.model(items=items, unreadable=found.unreadable, **current))

        self.get(app, get_top, dependencies=[only("limit"), DOES_NOT_WAIT], response_model=self.model)


@dataclass(frozen=True)
class WatchRow(Operation):
    """Sends one row and its changes as server-sent events."""

    tag: str = "live"

    def add(self, app: FastAPI, served: Served[Any]) -> None:
        key_of = served.api.key

        async def watch_row(**given: Any) -> Response:
            key = key_of.check(given[key_of.name])
            return served.events.response(ChangeSource(served.changes, key=key))

        handler = with_parameters(watch_row, {key_of.name: key_of.kind})
        self.get(app, handler, **events_options(served.api.events_text, *key_of.in_query(self.path)))


@dataclass(frozen=True)
class WatchRows(Operation):
    """Sends the changes of all rows with a prefix as server-sent events."""

    tag: str = "live"

    def add(self, app: FastAPI, served: Served[Any]) -> None:
        async def watch_rows(prefix: str) -> Response:
            return served.events.response(ChangeSource(served.changes, prefix=prefix), of_many=True)

        handler = with_parameters(watch_rows, {"prefix": served.api.key.prefix}, prefix="")
        self.get(app, handler, **events_options(served.api.events_text, "prefix"))


@dataclass(frozen=True)
class ListWindows(Operation):
    """Returns the windows of one key in a range of time.

    Attributes:
        model: The answer; see `servicekit.http.models.windows_model`.
        members: Returns the members of the response for a row.
        table: The name of the windowed table among those of the service.
        key: The kind of its keys; None: that of the service's rows.
    """

    model: type[BaseModel]
    members: Callable[[Any], Mapping[str, Any]]
    table: str
    key: KeyParameter | None = None

    def add(self, app: FastAPI, served: Served[Any]) -> None:
        key_of = self.key or served.api.key
        windows = served.windows.get(self.table)

        def list_windows(**given: Any) -> Any:
            key = key_of.check(given[key_of.name])
            if windows is None:
                raise Problem(HTTPStatus.NOT_FOUND, _NO_WINDOWS)
            found = windows.windows(key, given["since"], given["until"])
            items = [
                {**self.members(row), "start_ms": window.start_ms, "end_ms": window.end_ms}
                for window, row in found
            ]
            body = {key_of.member: key, "items": items, "unreadable": found.unreadable}
            return json_answer(self.model(**body, **freshness(windows)))

        parameters = {key_of.name: key_of.kind, "since": Since, "until": Until}
        handler = with_parameters(list_windows, parameters, since=0, until=TIME_MS_MAX)
        responses: dict[int | str, dict[str, Any]] = {404: {"description": "The service has no windows"}}
        checks = [only(*key_of.in_query(self.path), "since", "until"), DOES_NOT_WAIT]
        self.get(app, handler, dependencies=checks, response_model=self.model, responses=responses)


@dataclass(frozen=True, kw_only=True)
class WatchWindows(Operation):
    """Sends each window of one key as a server-sent event once it has closed.

    Attributes:
        events_text: The description of the event stream for OpenAPI.
        members: Returns the members of an event for a row.
        closed: The name of the topic of closed windows among those of the service.
        key: The kind of its keys; None: that of the service's rows.
        event: The name of the events.
    """

    events_text: str
    members: Callable[[Any], Mapping[str, Any]]
    closed: str
    key: KeyParameter | None = None
    event: str = "closed"
    tag: str = "live"

    def add(self, app: FastAPI, served: Served[Any]) -> None:
        key_of = self.key or served.api.key
        closed = served.closed.get(self.closed)

        async def watch_windows(**given: Any) -> Response:
            key, last = key_of.check(given[key_of.name]), given["last_event_id"]
            begin = None if last is None else WindowPlace.of(last)
            if closed is None:
                raise Problem(HTTPStatus.NOT_FOUND, _NO_WINDOWS)
            source = ClosedSource(
                closed, key, begin, name=self.event, member=key_of.member, members=self.members
            )
            return served.events.response(source)

        parameters = {key_of.name: key_of.kind, "last_event_id": LastEventId}
        handler = with_parameters(watch_windows, parameters, last_event_id=None)
        options = events_options(self.events_text, *key_of.in_query(self.path))
        options["responses"][404] = {"description": "The service has no windows"}
        self.get(app, handler, **options)


@dataclass(frozen=True)
class TableApi(Generic[V]):
    """A query service over one table.

    Attributes:
        title: The title for OpenAPI.
        version: The version of the API.
        text: The description for OpenAPI.
        members: Returns the members of responses and events for a row; None: the row does not exist.
        event: The name of the events.
        events_text: The description of the event stream for OpenAPI.
        routes: The operations, in the order of the document.
        key: The kind of keys.
    """

    title: str
    version: str
    text: str
    members: Callable[[V | None], Mapping[str, Any]]
    event: str
    events_text: str
    routes: Sequence[TableRoute]
    key: KeyParameter = USER

    def build(
        self,
        table: UserTable[V],
        top: TopList[V] | None,
        cursors: Cursors | None,
        events: EventStreams,
        *,
        metrics: Callable[[], bytes],
        edge: HttpEdge | None = None,
        writes: ReadYourWrites | None = None,
        windows: Mapping[str, WindowTable[Any]] | None = None,
        closed: Mapping[str, ClosedWindows[Any]] | None = None,
    ) -> FastAPI:
        """Build the application.

        Args:
            table: The table.
            top: The ranking of rows; None: no route needs it.
            cursors: Signs the cursors of pages; None: no route needs them.
            events: Server-sent events.
            metrics: Returns what `/metrics` answers.
            edge: Authentication, limits and instruments.
            writes: Waits for the writes that requests name; default: no write is known.
            windows: Windowed tables by name; routes to one that is not among them answer 404.
            closed: Topics of closed windows by name; routes to one that is not among them answer 404.
        """
        windowed, followed = dict(windows or {}), dict(closed or {})
        copies: list[Any] = [table, *windowed.values(), *followed.values()]
        app = build_app(
            self.title,
            self.version,
            ready=lambda: all(each.ready for each in copies),
            metrics=metrics,
            description=self.text,
            edge=edge,
            details=None if top is None else lambda: {"top": top.detail()},
            not_ready=lambda: why_not_ready(table, *windowed.values()),
        )
        changes = TableEvents(table, self.event, self.members, self.key.member)
        writes = writes or ReadYourWrites({}, 0)
        served = Served(self, table, changes, top, cursors, events, writes, windowed, followed)
        for route in self.routes:
            route.add(app, served)
        return app


def etag(*known: object) -> str:
    """Return a weak tag for the state of a row, without the age of the copy, which always changes."""
    return f'W/"{blake2b(repr(known).encode(), digest_size=8).hexdigest()}"'


def events_options(text: str, *parameters: str) -> dict[str, Any]:
    """Return the options of a route that answers with server-sent events and takes these query parameters."""
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "dependencies": [only(*parameters), DOES_NOT_WAIT],
        "responses": {200: {"description": text, "content": content}},
        "response_class": Response,
    }
