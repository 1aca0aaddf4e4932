"""The web service: accepts messages, blocks and translations, serves feeds, and serves a page for both.

There are no accounts: every caller with the scope `write` may write as any sender. See `SERVICEKIT_API_KEYS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final
from uuid import UUID

from fastapi import FastAPI, Request
from starlette.responses import Response

from contracts.records import Block, Feed, Message, Translation
from messaging import models
from servicekit.http.app import HttpEdge, build_app, only
from servicekit.http.guard import RequestLimits
from servicekit.http.produce import (
    Accepted,
    OutgoingRecord,
    RecordEmitter,
    SendTimeouts,
    not_all_responses,
    send_all,
)
from servicekit.http.read_your_writes import DOES_NOT_WAIT
from servicekit.http.responses import json_answer
from servicekit.http.server_events import EventStreams
from servicekit.http.table_events import ChangeSource, TableEvents
from servicekit.http.user_ids import UserPath, user_of_path
from servicekit.tables.protocol import UserTable, place_of

VERSION: Final = "1.1.0"
DESCRIPTION: Final = (
    "Messages between users. An accepted message is stored on all in-sync replicas of Kafka; it appears in the "
    "recipient's feed shortly after, unless the recipient has blocked the sender, or the sender is a spammer."
)
_PAGE: Final = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": 'Server-sent events `feed`, with data like `{"user_id": "alice", "messages": [...], "partition": 3, '
        '"offset": 41}`, messages as in the feed. `missed` is sent last if changes were missed: reconnect.',
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@dataclass(frozen=True)
class Emitters:
    """The emitters of the three streams."""

    messages: RecordEmitter[Message]
    blocks: RecordEmitter[Block]
    translations: RecordEmitter[Translation]


def build_web(
    emitters: Emitters,
    feeds: UserTable[Feed],
    events: EventStreams,
    *,
    ready: Callable[[], bool],
    metrics: Callable[[], bytes],
    new_id: Callable[[], UUID],
    now_ms: Callable[[], int],
    timeouts: SendTimeouts | None = None,
    edge: HttpEdge | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        emitters: Send the accepted records.
        feeds: The collector's table.
        events: Server-sent events.
        ready: Returns whether Kafka can be reached and the feeds are loaded.
        metrics: Returns what `/metrics` answers.
        new_id: Makes the id of a message that has none.
        now_ms: The clock, in milliseconds since 1970.
        timeouts: The timeouts of sending to Kafka; default `SendTimeouts()`.
        edge: Authentication, limits and instruments.
    """
    timeouts = timeouts or SendTimeouts()
    app = build_app(
        "messaging web",
        VERSION,
        ready=ready,
        not_ready=lambda: feeds.not_ready or "Kafka does not answer",
        metrics=metrics,
        description=DESCRIPTION,
        edge=edge,
        limits=RequestLimits(deadline_seconds=timeouts.request),
    )
    _add_page(app)
    _add_feeds(app, feeds, events)
    unknown = {
        "description": "Not available, or not acknowledged in time: it may be stored or not; send it again"
    }

    @app.post(
        "/messages",
        dependencies=[only()],
        response_model=Accepted,
        responses={**not_all_responses("messages"), 503: {**not_all_responses("messages")[503], **unknown}},
    )
    async def send_message(request: Request, body: models.NewMessage) -> Any:
        """Send a message to a user."""
        message = Message(
            id=str(body.id or new_id()),
            sender=body.sender,
            recipient=body.recipient,
            text=body.text,
            at=now_ms(),
        )
        outgoing = OutgoingRecord(message["id"], message["sender"], message)
        return (await send_all(request, emitters.messages, [outgoing], timeouts))[0]

    @app.post("/blocks", dependencies=[only()], status_code=204, responses={503: unknown})
    async def block(request: Request, body: models.NewBlock) -> Response:
        """Block a sender, or remove the block. Messages in flight may still be delivered.

        A sender whom more than 500 users have blocked stays blocked for all.
        """
        record = Block(by=body.recipient, blocked=body.blocked)
        outgoing = OutgoingRecord(body.sender, body.sender, record)
        await send_all(request, emitters.blocks, [outgoing], timeouts)
        return Response(status_code=204)

    @app.post("/translations", dependencies=[only()], status_code=204, responses={503: unknown})
    async def translate(request: Request, body: models.NewTranslation) -> Response:
        """Replace a word in all messages from now on, or end its replacement."""
        record = Translation(replacement=body.replacement)
        outgoing = OutgoingRecord(body.word, body.word, record)
        await send_all(request, emitters.translations, [outgoing], timeouts)
        return Response(status_code=204)

    return app


def _add_feeds(app: FastAPI, feeds: UserTable[Feed], events: EventStreams) -> None:
    def members(feed: Feed | None) -> Mapping[str, Any]:
        return {"messages": [each.model_dump() for each in _messages(feed)]}

    @app.get("/users/{user}/feed", dependencies=[only(), DOES_NOT_WAIT], response_model=models.FeedAnswer)
    def get_feed(user: UserPath) -> Any:
        """The latest messages to a user; empty for a user without messages."""
        user = user_of_path(user)
        answer = feeds.answer(user)
        body = models.FeedAnswer(user_id=user, messages=_messages(answer.value), **place_of(answer))
        return json_answer(body, {"Cache-Control": "no-store"})

    @app.get(
        "/users/{user}/feed/events",
        dependencies=[only(), DOES_NOT_WAIT],
        responses=_EVENTS,
        response_class=Response,
    )
    def watch_feed(user: UserPath) -> Response:
        """The feed now, and again after each new message."""
        return events.response(ChangeSource(TableEvents(feeds, "feed", members), key=user_of_path(user)))


def _messages(feed: Feed | None) -> list[models.FeedMessage]:
    messages = feed["messages"] if feed else []
    return [
        models.FeedMessage(id=each["id"], sender=each["sender"], text=each["text"], at=each["at"])
        for each in messages
    ]


def _add_page(app: FastAPI) -> None:
    for path, (name, media_type) in _PAGE.items():
        app.add_api_route(
            path,
            _sent(files("messaging").joinpath("page", name).read_bytes(), f"{media_type}; charset=utf-8"),
            methods=["GET"],
            dependencies=[only()],
            include_in_schema=False,
        )


def _sent(content: bytes, media_type: str) -> Callable[[], Response]:
    headers = {"Content-Security-Policy": _PAGE_POLICY, "Cache-Control": "no-cache"}

    def page() -> Response:
        return Response(content, media_type=media_type, headers=headers)

    return page
