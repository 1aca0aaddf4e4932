"""The emitter service: takes statuses by REST and answers when Kafka has acknowledged them."""

from collections.abc import Callable
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Body, FastAPI
from fastapi.responses import JSONResponse

from contracts.records import UserStatusUpdate
from servicekit import own_writes
from servicekit.guard import Limits
from servicekit.rest import Edge, build_app, only
from servicekit.sending import (
    ACKNOWLEDGED_SECONDS,
    NOT_ALL_CONTENT,
    Accepted,
    Outgoing,
    RecordEmitter,
    send_all,
)
from servicekit.user_ids import UserPath, user_of_path
from user_status.models import AcceptedUpdates, NewStatus, Updates

VERSION: Final = "1.0.0"
BODY_BYTES: Final = 512 * 1024  # a list of 1000 updates with statuses of about 400 bytes
DESCRIPTION: Final = "Takes what users say they are doing. An answer of 200 means that Kafka has stored it on all in-sync replicas."

_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    503: {"description": "Not now, or only some updates were acknowledged", "content": NOT_ALL_CONTENT}
}


def build_emitter(
    emitter: RecordEmitter[UserStatusUpdate],
    *,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    new_id: Callable[[], UUID],
    now_ms: Callable[[], int],
    acknowledged_seconds: float = ACKNOWLEDGED_SECONDS,
    edge: Edge | None = None,
) -> FastAPI:
    """Make the application.

    Args:
        emitter: sends the updates.
        ready: whether Kafka can be reached.
        metrics: what `/metrics` answers.
        new_id: makes the id of an update that comes without one.
        now_ms: the time of an update that comes without one, in milliseconds since 1970.
        acknowledged_seconds: how long one request waits for Kafka.
        edge: who may call, and what is measured.
    """
    app = build_app(
        "user-status emitter",
        VERSION,
        ready=ready,
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        limits=Limits(body_bytes=BODY_BYTES, deadline_seconds=acknowledged_seconds + 5),
    )

    def outgoing(user: str, status: NewStatus) -> Outgoing[UserStatusUpdate]:
        record = UserStatusUpdate(
            id=str(status.id or new_id()),
            user_id=user,
            status=status.status,
            at=now_ms() if status.at is None else status.at,
        )
        return Outgoing(record["id"], user, record)

    accepted = {"description": "It was stored", "headers": own_writes.RESPONSE_HEADERS}

    @app.put(
        "/users/{user}/status",
        dependencies=[only()],
        response_model=Accepted,
        responses={200: accepted, **_RESPONSES},
    )
    def set_status(user: UserPath, body: NewStatus) -> Any:
        """What a user says now, or said at the time `at`.

        503 when Kafka does not acknowledge in time: it may be stored or not; send it again with the `id` in `unknown`.
        """
        (answer,) = send_all(emitter, [outgoing(user_of_path(user), body)], acknowledged_seconds)
        return JSONResponse(answer, headers={own_writes.HEADER: answer["token"]})

    @app.post("/statuses", dependencies=[only()], response_model=AcceptedUpdates, responses=_RESPONSES)
    def set_statuses(body: Annotated[Updates, Body()]) -> Any:
        """What several users say.

        503 when Kafka does not acknowledge in time: `accepted` and `unknown` say what became of each update. An unknown
        one may be stored or not: send it again with the same `id`.
        """
        updates = [outgoing(update.user_id, update) for update in body]
        return JSONResponse({"accepted": send_all(emitter, updates, acknowledged_seconds)})

    return app
