"""A REST API that writes events to Kafka, declared by its routes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Protocol, TypeVar
from uuid import UUID

from fastapi import Body, FastAPI, Request
from pydantic import BaseModel, Discriminator, Field, Tag, create_model
from starlette.responses import JSONResponse, Response

from contracts.event_time import MAX_AHEAD_SECONDS
from servicekit.http import read_your_writes
from servicekit.http.app import HttpEdge, build_app, only
from servicekit.http.guard import RequestLimits
from servicekit.http.problems import invalid
from servicekit.http.produce import (
    Accepted,
    OutgoingRecord,
    RecordEmitter,
    SendTimeouts,
    not_all_responses,
    send_all,
)
from servicekit.http.signatures import with_parameters

R = TypeVar("R")
EVENTS_MAX: Final = 1000
BODY_BYTES: Final = 512 * 1024  # a list of 1000 events of about 500 bytes


@dataclass(frozen=True)
class Sender:
    """Sends the events of requests to one stream.

    Attributes:
        emitter: Writes the records.
        new_id: Makes the id of an event that has none.
        now_ms: The clock, in milliseconds since 1970.
        max_ahead_seconds: The maximum time by which an event may be ahead of it.
        timeouts: The timeouts of sending to Kafka.
    """

    emitter: RecordEmitter[Any]
    new_id: Callable[[], UUID]
    now_ms: Callable[[], int]
    max_ahead_seconds: float
    timeouts: SendTimeouts

    def outgoing(
        self, event: Any, record: Callable[[Any, str, int], R], key: str, where: str = "body.at"
    ) -> OutgoingRecord[R]:
        """Return the record of an event.

        Args:
            event: An event with `id` and `at`, each of which may be None.
            record: Makes the record of the event, its id and its time.
            key: The record's key.
            where: The place of the event's time in the request, for errors.
        """
        identity = str(event.id or self.new_id())
        return OutgoingRecord(identity, key, record(event, identity, self.time_of(event.at, where)))

    def time_of(self, at: int | None, where: str) -> int:
        """Return the time of an event. Raises a `Problem` of status 422 if it is too far in the future."""
        now = self.now_ms()
        if at is None:
            return now
        if at > now + self.max_ahead_seconds * 1000:
            what = f"must be at most {self.max_ahead_seconds:g} seconds ahead of the clock of the service"
            raise invalid(where, what)
        return at

    async def send_one(
        self, request: Request, outgoing: OutgoingRecord[Any], status: int = HTTPStatus.OK
    ) -> Response:
        """Send one record; a header of the answer names the write."""
        (accepted,) = await send_all(request, self.emitter, [outgoing], self.timeouts)
        headers = {read_your_writes.HEADER: accepted["token"]}
        return JSONResponse(accepted, status_code=status, headers=headers)

    async def send_many(self, request: Request, outgoing: Sequence[OutgoingRecord[Any]]) -> Response:
        """Send several records."""
        return JSONResponse({"accepted": await send_all(request, self.emitter, outgoing, self.timeouts)})


class EmitterRoute(Protocol):
    """Adds an operation to an application; the senders are in the order of the streams."""

    def add(self, app: FastAPI, senders: Sequence[Sender], what: str) -> None: ...


@dataclass(frozen=True)
class PostEvents:
    """Accepts one event (answered with 201) or a list of them (200), or only lists.

    Attributes:
        path: The address.
        name: The operationId, from which generated clients take their names.
        text: The description for OpenAPI.
        event: The model of an event, with `id` and `at`. A missing id is generated, a missing time is that of the clock.
        accepted: The model of the answer to a list; see `accepted_model`.
        record: Makes the record of an event, its id and its time.
        key: Returns the key of an event's record.
        one: The description of the answer to one event; None: only lists are accepted.
        stream: The index of the stream that the events are sent to.
    """

    path: str
    name: str
    text: str
    event: type[BaseModel]
    accepted: type[BaseModel]
    record: Callable[[Any, str, int], Any]
    key: Callable[[Any], str]
    one: str | None = None
    stream: int = 0

    def add(self, app: FastAPI, senders: Sequence[Sender], what: str) -> None:
        sender = senders[self.stream]

        async def post_events(request: Request, body: Any) -> Response:
            if isinstance(body, list):
                places = [(f"body.{n}.at", event) for n, event in enumerate(body)]
                outgoing = [sender.outgoing(event, self.record, self.key(event), at) for at, event in places]
                return await sender.send_many(request, outgoing)
            outgoing_one = sender.outgoing(body, self.record, self.key(body))
            return await sender.send_one(request, outgoing_one, HTTPStatus.CREATED)

        kind = many(self.event) if self.one is None else one_or_many(self.event)
        app.add_api_route(
            self.path,
            with_parameters(post_events, {"request": Request, "body": Annotated[kind, Body()]}),
            methods=["POST"],
            name=self.name,
            description=self.text,
            dependencies=[only()],
            response_model=self.accepted,
            responses={
                **({} if self.one is None else {201: {"model": Accepted, **stored(self.one)}}),
                **not_all_responses(what),
            },
        )


@dataclass(frozen=True)
class EmitterApi:
    """An emitter service.

    Attributes:
        title: The title for OpenAPI.
        version: The version of the API.
        text: The description for OpenAPI.
        what: The name of the events, in the plural.
        routes: The operations.
    """

    title: str
    version: str
    text: str
    what: str
    routes: Sequence[EmitterRoute]

    def build(
        self,
        *emitters: RecordEmitter[Any],
        ready: Callable[[], bool],
        metrics: Callable[[], bytes],
        new_id: Callable[[], UUID],
        now_ms: Callable[[], int],
        max_ahead_seconds: float = MAX_AHEAD_SECONDS,
        timeouts: SendTimeouts | None = None,
        edge: HttpEdge | None = None,
    ) -> FastAPI:
        """Build the application.

        Args:
            emitters: One for each stream.
            ready: Returns whether Kafka can be reached.
            metrics: Returns what `/metrics` answers.
            new_id: Makes the id of an event that has none.
            now_ms: The clock, in milliseconds since 1970.
            max_ahead_seconds: The maximum time by which an event may be ahead of the clock.
            timeouts: The timeouts of sending to Kafka; default `SendTimeouts()`.
            edge: Authentication, limits and instruments.
        """
        timeouts = timeouts or SendTimeouts()
        limits = RequestLimits(body_bytes=BODY_BYTES, deadline_seconds=timeouts.request)
        named = partial(build_app, self.title, self.version, description=self.text)
        app = named(ready=ready, metrics=metrics, edge=edge, limits=limits)
        senders = [Sender(each, new_id, now_ms, max_ahead_seconds, timeouts) for each in emitters]
        for route in self.routes:
            route.add(app, senders, self.what)
        return app


def accepted_model(name: str, text: str) -> type[BaseModel]:
    """Return the model of the answer to a list of events."""
    return create_model(name, __doc__=text, accepted=(list[Accepted], ...))


def stored(text: str) -> dict[str, Any]:
    """Return the description for OpenAPI of an answer to one write, whose header names it."""
    return {"description": text, "headers": read_your_writes.RESPONSE_HEADERS}


def many(event: Any) -> Any:
    """Return the type of a list of events."""
    return Annotated[list[event], Field(min_length=1, max_length=EVENTS_MAX)]


def one_or_many(event: Any) -> Any:
    """Return the type of an event or a list of events."""
    return Annotated[
        Annotated[event, Tag("one")] | Annotated[many(event), Tag("many")], Discriminator(_one_or_many)
    ]


def _one_or_many(body: object) -> str:
    return "many" if isinstance(body, list) else "one"
