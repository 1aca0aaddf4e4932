"""The console over HTTP: a page, its requests, and the events that it follows."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Query, Request
from pydantic import Field
from starlette.responses import JSONResponse, Response

from console import models
from console.clusters import LIMITS, Clusters
from console.collector import Collector, Pictures
from console.decode import PageDecoder
from console.letters import LETTERS_MAX, DeadLetters, letter_document
from console.runs import RUNS_MAX, NoSuchRun, Runs
from console.sign_in import PARAMETER, SignIn
from console.tables import NoTable, RowChanges, Tables
from servicekit.http.app import PLAIN_DIGITS, HttpEdge, Strict, build_app, only
from servicekit.http.guard import RequestLimits
from servicekit.http.problems import Problem
from servicekit.http.server_events import EventStreams
from streamtable_admin.errors import NoSuchDeadLetter, NoSuchTopic, Refused
from streamtable_admin.records import first_records, last_records, starts_at

VERSION: Final = "1.1.0"
ROWS_MAX: Final = 500
DESCRIPTION: Final = (
    "All processes of a fleet with their graph, lag, tables, dead letters and topics; and the runs "
    "of batch jobs. Read-only, unless actions are on."
)
_SCRIPTS: Final = (
    "api", "app", "charts", "data", "dom", "findings", "fold", "graph", "history", "instances", "layout", "letters", "outline",
    "overview", "runs", "windows", "vendor/dagre",
)  # fmt: skip
PAGE: Final = {
    "/": ("index.html", "text/html"),
    "/console.css": ("console.css", "text/css"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in _SCRIPTS},
}
AUDITED: Final = ("/api/topics/", "/api/tables/", "/api/letters/")
"""The path prefixes of requests that show records."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NAME: Final = r"^[A-Za-z0-9._-]{1,249}$"
Name = Annotated[str, Path(pattern=_NAME)]
Limit = Annotated[int, Query(ge=1, le=ROWS_MAX), PLAIN_DIGITS]
Prefix = Annotated[str, Query(max_length=200, pattern=r"^[^\u0000-\u001f\ufffd]*$")]
_TIME_MS_MAX: Final = 2**53 - 1
_KEY_DIGITS_MAX: Final = 8192
# A request for rows names the key after which they begin, and a prefix.
_LIMITS: Final = RequestLimits(query_bytes=_KEY_DIGITS_MAX + 4096)


def _streamed(description: str) -> Any:
    return {
        "response_class": Response,
        "responses": {
            200: {
                "description": f"Server-sent events {description}",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }
        },
    }


_NOT_FOUND: Final[Any] = {404: {"description": "There is no such topic, partition, group or run"}}
_CONFLICT: Final[Any] = {409: {"description": "They cannot be sent as asked; nothing was sent"}}


class Replay(Strict):
    """The dead letters to replay."""

    letters: Annotated[
        list[Annotated[str, Field(pattern=r"^[0-9]{1,9}:[0-9]{1,18}$", max_length=28)]],
        Field(min_length=1, max_length=LETTERS_MAX),
    ]
    again: bool = False


@dataclass(frozen=True)
class Parts:
    """The components of the console; `actions`: dead letters can be replayed."""

    collector: Collector
    clusters: Clusters
    tables: Tables
    letters: DeadLetters
    runs: Runs
    decoder: PageDecoder
    events: EventStreams
    actions: bool


def build_web(
    parts: Parts,
    *,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    edge: HttpEdge | None = None,
    not_ready: Callable[[], str] = lambda: "",
    sign_in: SignIn | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        parts: The components of the console.
        ready: Returns whether the statuses of processes are loaded.
        metrics: Returns what `/metrics` answers.
        not_ready: Returns the reason why they are not, for `/readyz`.
        edge: Authentication, limits and instruments; the page's own files should be public, because they hold no data.
        sign_in: Signs browsers in by a code in the page's address; None: it does not.
    """
    app = build_app(
        "console",
        VERSION,
        ready=ready,
        not_ready=not_ready,
        metrics=metrics,
        description=DESCRIPTION,
        limits=_LIMITS,
        edge=edge,
    )
    _add_page(app, sign_in)
    _add_fleet(app, parts)
    _add_topics(app, parts)
    _add_tables(app, parts)
    _add_letters(app, parts)
    _add_runs(app, parts.runs)
    return app


def _add_page(app: FastAPI, sign_in: SignIn | None) -> None:
    for path, (name, media_type) in PAGE.items():
        content = files("console").joinpath("page", *name.split("/")).read_bytes()
        signs_in = sign_in if path == "/" else None
        app.add_api_route(
            path,
            _sent(content, f"{media_type}; charset=utf-8", signs_in),
            methods=["GET"],
            dependencies=[only() if signs_in is None else only(PARAMETER)],
            include_in_schema=False,
        )


def _sent(content: bytes, media_type: str, sign_in: SignIn | None) -> Callable[[Request], Response]:
    headers = {
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
    }

    def page(request: Request) -> Response:
        token = request.query_params.get(PARAMETER)
        if sign_in is not None and token is not None:
            return sign_in.answer(request, token)
        return Response(content, media_type=media_type, headers=headers)

    return page


def _answer(body: Any) -> Response:
    return JSONResponse(body, headers={"Cache-Control": "no-store"})


@contextmanager
def _found() -> Iterator[None]:
    try:
        yield
    except NoSuchTopic:
        raise Problem(HTTPStatus.NOT_FOUND, "there is no such topic or partition") from None
    except NoSuchRun:
        raise Problem(HTTPStatus.NOT_FOUND, "no run of this name is known") from None
    except NoTable:
        detail = "this topic is not compacted, so its records are no rows of a table"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from None


def _add_fleet(app: FastAPI, parts: Parts) -> None:
    @app.get("/api/fleet", dependencies=[only()], response_model=models.Fleet, tags=["fleet"])
    def get_fleet() -> Any:
        """All processes, and their graph."""
        return _answer(parts.collector.document())

    every_second = _streamed("`fleet`: what `/api/fleet` answers, every second.")

    @app.get("/api/events", dependencies=[only()], tags=["fleet"], **every_second)
    def watch_fleet() -> Response:
        """The fleet, every second."""
        return parts.events.response(Pictures(parts.collector))

    @app.get("/api/history", dependencies=[only()], response_model=models.Events, tags=["fleet"])
    def get_history() -> Any:
        """The events of the fleet, the latest first, including those before the console's start that the status topic still has."""
        return _answer({"events": parts.collector.history.events()})

    @app.get("/api/lags", dependencies=[only()], response_model=models.Lags, tags=["fleet"])
    def get_lags() -> Any:
        """The lag of each partition in the last ten minutes."""
        return _answer({"lags": parts.collector.history.lags()})

    @app.get("/api/measures", dependencies=[only()], response_model=models.Measures, tags=["fleet"])
    def get_measures() -> Any:
        """The rate, the lag and the commit time of each group in the last hour."""
        return _answer({"groups": parts.collector.history.measures()})


def _add_topics(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/topics/{topic}/records",
        dependencies=[only("partition", "offset", "since", "limit")],
        response_model=models.Records,
        responses=_NOT_FOUND,
        tags=["topics"],
    )
    def get_records(
        topic: Name,
        partition: Annotated[int | None, Query(ge=0, le=100_000), PLAIN_DIGITS] = None,
        offset: Annotated[int | None, Query(ge=0, le=2**63 - 1), PLAIN_DIGITS] = None,
        since: Annotated[int | None, Query(ge=0, le=_TIME_MS_MAX), PLAIN_DIGITS] = None,
        limit: Limit = 50,
    ) -> Any:
        """The last records of a topic; or the first from an offset or a timestamp in milliseconds on."""
        if offset is not None and since is not None:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "offset and since exclude each other")
        with _found(), parts.clusters.connected() as cluster:
            places = cluster.partitions(topic, () if partition is None else [partition])
            marks = cluster.admin.watermarks_known(places)
            if offset is None and since is None:
                found = last_records(cluster, marks, limit, limits=LIMITS)[::-1]
            else:
                starts = starts_at(cluster, marks, offset=offset, time_ms=since or 0)
                ends = {place: mark.high for place, mark in marks.items()}
                found = first_records(cluster, starts, ends, limit, limits=LIMITS)
        return _answer({"records": [parts.decoder.record(record) for record in found]})


def _add_tables(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/tables/{table}/rows",
        dependencies=[only("prefix", "after", "limit")],
        response_model=models.Rows,
        responses=_NOT_FOUND,
        tags=["tables"],
    )
    def get_rows(
        table: Name,
        prefix: Prefix = "",
        after: Annotated[
            str | None, Query(pattern=r"^([0-9a-f]{2}){0,4096}$", max_length=_KEY_DIGITS_MAX)
        ] = None,
        limit: Limit = 50,
    ) -> Any:
        """Rows in the order of their keys. `after` is the `next` of the previous page."""
        last = None if after is None else bytes.fromhex(after)
        with _found():
            return _answer(parts.tables.rows(table, prefix.encode(), last, limit))

    changes = _streamed(
        '`rows`: `{"rows": [...], "changed": 3}` with the newest changed rows, and the number of all changed rows; a '
        "row without value was deleted. `missed` comes last when changes were skipped: request the rows again."
    )
    changes["responses"] |= _NOT_FOUND

    @app.get("/api/tables/{table}/events", dependencies=[only("prefix")], tags=["tables"], **changes)
    def watch_rows(table: Name, prefix: Prefix = "") -> Response:
        """The rows that change from now on."""
        with _found():
            parts.tables.view(table)
        return parts.events.response(RowChanges(parts.tables, table, prefix.encode()), of_many=True)


def _add_letters(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/letters/{group}",
        dependencies=[only("limit")],
        response_model=models.Letters,
        responses=_NOT_FOUND,
        tags=["dead letters"],
    )
    def get_letters(group: Name, limit: Limit = 100) -> Any:
        """The latest dead letters of a group."""
        with _found():
            found, complete = parts.letters.latest(group, limit)
        letters = [letter_document(letter, parts.decoder) for letter in found]
        return _answer({"letters": letters, "complete": complete})

    @app.post(
        "/api/letters/{group}/replay",
        dependencies=[only()],
        response_model=models.Replayed,
        responses=_NOT_FOUND | _CONFLICT,
        tags=["dead letters"],
    )
    def replay(group: Name, body: Replay) -> Any:
        """Replay dead letters to their group, each once."""
        if not parts.actions:
            raise Problem(
                HTTPStatus.FORBIDDEN, "actions are off: start the console with CONSOLE_ACTIONS=true"
            )
        try:
            with _found():
                return _answer(parts.letters.replay(group, body.letters, again=body.again))
        except (Refused, NoSuchDeadLetter) as error:
            raise Problem(HTTPStatus.CONFLICT, f"{error.message}; nothing was sent") from None


def _add_runs(app: FastAPI, runs: Runs) -> None:
    @app.get(
        "/api/runs",
        dependencies=[only("limit")],
        response_model=models.Runs,
        responses=_NOT_FOUND,
        tags=["runs"],
    )
    def get_runs(limit: Annotated[int, Query(ge=1, le=RUNS_MAX), PLAIN_DIGITS] = 100) -> Any:
        """The latest runs of batch jobs, without their inputs and differences."""
        with _found():
            return _answer({"runs": runs.latest(limit, _now_ms())})

    @app.get(
        "/api/runs/{run}",
        dependencies=[only()],
        response_model=models.WholeRun,
        responses=_NOT_FOUND,
        tags=["runs"],
    )
    def get_run(run: Annotated[str, Path(pattern=r"^[A-Za-z0-9._:-]{1,249}$")]) -> Any:
        """The whole report of a run."""
        with _found():
            return _answer(runs.one(run, _now_ms()))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
