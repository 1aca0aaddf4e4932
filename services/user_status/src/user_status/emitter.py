"""The emitter service: takes statuses by REST and answers when Kafka has acknowledged them."""

from collections.abc import Callable
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse

from contracts.event_time import MAX_AHEAD_SECONDS
from contracts.records import UserStatusUpdate
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
from user_status.models import AcceptedUpdates, NewStatus, Updates

VERSION: Final = "1.1.0"
BODY_BYTES: Final = 512 * 1024  # a list of 1000 updates with statuses of about 400 bytes
DESCRIPTION: Final = "Takes what users say they are doing. An answer of 200 means that Kafka has stored it on all in-sync replicas."

_RESPONSES: Final = not_all_responses("updates")


def build_emitter(
    emitter: RecordEmitter[UserStatusUpdate],
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
        emitter: sends the updates.
        ready: whether Kafka can be reached.
        metrics: what `/metrics` answers.
        new_id: makes the id of an update that comes without one.
        now_ms: the time of an update that comes without one, in milliseconds since 1970.
        max_ahead_seconds: how far the time of an event may be ahead of the clock.
        timeouts: how long one request waits for Kafka; default `SendTimeouts()`.
        edge: who may call, and what is measured.
    """
    timeouts = timeouts or SendTimeouts()
    times = EventTimes(now_ms, max_ahead_seconds)
    app = build_app(
        "user-status emitter",
        VERSION,
        ready=ready,
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        limits=Limits(body_bytes=BODY_BYTES, deadline_seconds=timeouts.request),
    )

    def outgoing(user: str, status: NewStatus, where: str = "body.at") -> Outgoing[UserStatusUpdate]:
        record = UserStatusUpdate(
            id=str(status.id or new_id()),
            user_id=user,
            status=status.status,
            at=times.of(status.at, where),
        )
        return Outgoing(record["id"], user, record)

    accepted = {"description": "It was stored", "headers": read_your_writes.RESPONSE_HEADERS}

    @app.put(
        "/users/{user}/status",
        dependencies=[only()],
        response_model=Accepted,
        responses={200: accepted, **_RESPONSES},
    )
    async def set_status(request: Request, user: UserPath, body: NewStatus) -> Any:
        """What a user says now, or said at the time `at`.

        503 when Kafka does not acknowledge in time: it may be stored or not; send it again with the `id` in `unknown`.
        """
        updates = [outgoing(user_of_path(user), body)]
        (answer,) = await send_all(request, emitter, updates, timeouts)
        return JSONResponse(answer, headers={read_your_writes.HEADER: answer["token"]})

    @app.post("/statuses", dependencies=[only()], response_model=AcceptedUpdates, responses=_RESPONSES)
    async def set_statuses(request: Request, body: Annotated[Updates, Body()]) -> Any:
        """What several users say.

        503 when Kafka does not acknowledge in time: `accepted` and `unknown` say what became of each update. An unknown
        one may be stored or not: send it again with the same `id`.
        """
        updates = [outgoing(update.user_id, update, f"body.{n}.at") for n, update in enumerate(body)]
        return JSONResponse({"accepted": await send_all(request, emitter, updates, timeouts)})

    return app
