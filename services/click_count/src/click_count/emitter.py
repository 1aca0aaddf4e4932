"""The emitter service: takes clicks by REST and answers when Kafka has acknowledged them."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse

from click_count.models import AcceptedClicks, Click, Clicks
from contracts.event_time import MAX_AHEAD_SECONDS
from contracts.records import UserClick
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

VERSION: Final = "1.2.0"
BODY_BYTES: Final = 512 * 1024  # a list of 1000 clicks with URLs of about 400 characters
DESCRIPTION: Final = (
    "Takes clicks. An answer of 200 or 201 means that Kafka has stored them on all in-sync replicas."
)


def build_emitter(
    emitter: RecordEmitter[UserClick],
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
        emitter: sends the clicks.
        ready: whether Kafka can be reached.
        metrics: what `/metrics` answers.
        new_id: makes the id of a click that comes without one.
        now_ms: the time of a click that comes without one, in milliseconds since 1970.
        max_ahead_seconds: how far the time of an event may be ahead of the clock.
        timeouts: how long one request waits for Kafka; default `SendTimeouts()`.
        edge: who may call, and what is measured.
    """
    timeouts = timeouts or SendTimeouts()
    times = EventTimes(now_ms, max_ahead_seconds)
    app = build_app(
        "click-count emitter",
        VERSION,
        ready=ready,
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        limits=Limits(body_bytes=BODY_BYTES, deadline_seconds=timeouts.request),
    )

    @app.post(
        "/clicks",
        dependencies=[only()],
        response_model=AcceptedClicks,
        responses={
            201: {
                "model": Accepted,
                "description": "One click was stored",
                "headers": read_your_writes.RESPONSE_HEADERS,
            },
            **not_all_responses("clicks"),
        },
    )
    async def send_clicks(request: Request, body: Annotated[Clicks, Body()]) -> Any:
        """One click (answered with 201) or a list of them (200).

        503 when Kafka does not acknowledge in time: `accepted` and `unknown` say what became of each click. An unknown
        one may be stored or not: send it again with the same `id`. Those in `not_sent` too are certainly not stored.
        """
        one = isinstance(body, Click)
        given = (
            {"body.at": body} if isinstance(body, Click) else {f"body.{n}.at": c for n, c in enumerate(body)}
        )
        clicks = [_outgoing(click, new_id, times.of(click.at, where)) for where, click in given.items()]
        accepted = await send_all(request, emitter, clicks, timeouts)
        if one:
            headers = {read_your_writes.HEADER: accepted[0]["token"]}
            return JSONResponse(accepted[0], status_code=HTTPStatus.CREATED, headers=headers)
        return JSONResponse({"accepted": accepted})

    return app


def _outgoing(click: Click, new_id: Callable[[], UUID], at: int) -> Outgoing[UserClick]:
    record = UserClick(
        id=str(click.id or new_id()),
        user_id=click.user_id,
        url=click.url,
        at=at,
    )
    return Outgoing(record["id"], click.user_id, record)
