"""The emitter service: accepts statuses over REST and responds once Kafka has acknowledged them."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import FastAPI, Request

from contracts.records import UserStatusUpdate
from servicekit.http.app import only
from servicekit.http.emitter_api import EmitterApi, PostEvents, Sender, stored
from servicekit.http.produce import Accepted, not_all_responses
from servicekit.http.user_ids import UserPath, user_of_path
from user_status.models import AcceptedUpdates, NewStatus, StatusUpdate


class _SetStatus:
    def add(self, app: FastAPI, senders: Sequence[Sender], what: str) -> None:
        @app.put(
            "/users/{user}/status",
            dependencies=[only()],
            response_model=Accepted,
            responses={200: stored("It was stored"), **not_all_responses(what)},
        )
        async def set_status(request: Request, user: UserPath, body: NewStatus) -> Any:
            """Set the status of a user, at the time `at` if given.

            503 if Kafka does not acknowledge in time: it may be stored or not; retry it with the `id` in `unknown`.
            """
            user = user_of_path(user)
            outgoing = senders[0].outgoing(body, lambda *update: _record(user, *update), user)
            return await senders[0].send_one(request, outgoing)


def _record(user: str, update: NewStatus, identity: str, at: int) -> UserStatusUpdate:
    return UserStatusUpdate(id=identity, user_id=user, status=update.status, at=at)


EMITTER: Final = EmitterApi(
    title="user-status emitter",
    version="1.1.0",
    text="Accepts the statuses of users. A response of 200 means that Kafka has stored them on all in-sync replicas.",
    what="updates",
    routes=(
        _SetStatus(),
        PostEvents(
            "/statuses",
            "set_statuses",
            "Set the statuses of several users.\n\n503 if Kafka does not acknowledge in time: `accepted` and `unknown` list the "
            "outcome of each update. An unknown\none may be stored or not: retry it with the same `id`.",
            StatusUpdate,
            AcceptedUpdates,
            lambda update, identity, at: _record(update.user_id, update, identity, at),
            key=lambda update: update.user_id,
        ),
    ),
)
build_emitter: Final = EMITTER.build
