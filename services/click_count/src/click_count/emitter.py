"""The emitter service: takes clicks by REST and answers when Kafka has acknowledged them."""

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from http import HTTPStatus
from typing import Annotated, Any, Final, Protocol
from uuid import UUID

from fastapi import Body, FastAPI
from fastapi.responses import JSONResponse

from click_count.models import Accepted, AcceptedClicks, Click, Clicks
from contracts.records import UserClick
from servicekit.guard import Limits
from servicekit.problems import Problem
from servicekit.rest import build_app, only
from streamtable.errors import RetryLater
from streamtable.types import Ack

VERSION: Final = "1.0.0"
ACKNOWLEDGED_SECONDS: Final = 5.0
BODY_BYTES: Final = 512 * 1024  # a list of 1000 clicks with URLs of about 400 characters
DESCRIPTION: Final = (
    "Takes clicks. An answer of 200 or 201 means that Kafka has stored them on all in-sync replicas."
)


class ClickEmitter(Protocol):
    """`streamtable.Emitter` for clicks by user."""

    def emit(self, key: str, value: UserClick) -> Future[Ack]: ...

    def close(self, timeout: float) -> None: ...


def build_emitter(
    emitter: ClickEmitter,
    *,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    new_id: Callable[[], UUID],
    now_ms: Callable[[], int],
    acknowledged_seconds: float = ACKNOWLEDGED_SECONDS,
    docs: bool = False,
) -> FastAPI:
    """Make the application.

    Args:
        emitter: sends the clicks.
        ready: whether Kafka can be reached.
        metrics: what `/metrics` answers.
        new_id: makes the id of a click that comes without one.
        now_ms: the time of a click that comes without one, in milliseconds since 1970.
        acknowledged_seconds: how long one request waits for Kafka.
        docs: serve `/docs` too.
    """
    app = build_app(
        "click-count emitter",
        VERSION,
        ready=ready,
        metrics=metrics,
        description=DESCRIPTION,
        docs=docs,
        limits=Limits(body_bytes=BODY_BYTES, deadline_seconds=acknowledged_seconds + 5),
    )

    @app.post(
        "/clicks",
        dependencies=[only()],
        response_model=AcceptedClicks,
        responses={201: {"model": Accepted, "description": "One click was stored"}},
    )
    def clicks(body: Annotated[Clicks, Body()]) -> Any:
        """One click (answered with 201) or a list of them (200).

        503 when Kafka does not acknowledge in time: `accepted` and `unknown` say what became of each click. An unknown
        one may be stored or not: send it again with the same `id`.
        """
        one = isinstance(body, Click)
        records = [_record(click, new_id, now_ms) for click in ([body] if isinstance(body, Click) else body)]
        accepted = _emit(emitter, records, acknowledged_seconds)
        if one:
            return JSONResponse(accepted[0], status_code=HTTPStatus.CREATED)
        return JSONResponse({"accepted": accepted})

    return app


def _record(click: Click, new_id: Callable[[], UUID], now_ms: Callable[[], int]) -> UserClick:
    return UserClick(
        id=str(click.id or new_id()),
        user_id=click.user_id,
        url=click.url,
        at=now_ms() if click.at is None else click.at,
    )


def _emit(emitter: ClickEmitter, records: list[UserClick], seconds: float) -> list[dict[str, Any]]:
    """Send all and wait for all. Raises a `Problem` that lists what became of each, unless all were acknowledged."""
    end = time.monotonic() + seconds
    futures: list[Future[Ack]] = []
    for record in records:
        try:
            futures.append(emitter.emit(record["user_id"], record))
        except RetryLater:
            break  # the queue is full: those that follow are not sent, which keeps their order
    wait(futures, max(0.0, end - time.monotonic()))
    accepted = []
    unknown = [record["id"] for record in records[len(futures) :]]
    for record, future in zip(records, futures, strict=False):
        ack = _ack(future)
        if ack is None:
            unknown.append(record["id"])
        else:
            accepted.append({"id": record["id"], "partition": ack.partition, "offset": ack.offset})
    if unknown:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Kafka did not acknowledge all clicks in time; send the unknown ones again with the same ids",
            retry_after=1,
            members={"accepted": accepted, "unknown": unknown},
        )
    return accepted


def _ack(future: Future[Ack]) -> Ack | None:
    if not future.done():
        return None
    error = future.exception()
    return None if isinstance(error, RetryLater) else future.result()
