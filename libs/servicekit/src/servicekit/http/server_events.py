"""Server-sent events from an awaitable source, such as a watch on a view: a stream takes no thread.

It uses a response class of its own: it shares limits and shutdown with the service's other streams, its server may run in
any thread. `servicekit.http.connections` disconnects a caller that does not read.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any, Final

from anyio import CancelScope
from pydantic_core import to_jsonable_python
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from servicekit.auth.rate_limit import peer_name
from servicekit.http.problems import Problem
from servicekit.peer_places import PeerPlaces, TooManyOfPeer
from servicekit.streams import RECHECK_SECONDS, STILL_VALID, Streams, ended_when_invalid, unless

_OPENING_MAX: Final = 8
"""The number of sources that are opened or closed at a time: each occupies a thread, and may wait for a store."""


@dataclass(frozen=True)
class ServerEvent:
    """An event: its name, its data (sent as JSON), and an id for the client; without a name it is a heartbeat.

    Clients dispatch no event for a heartbeat with an id, but send the id as `Last-Event-ID` when they reconnect.
    """

    name: str
    data: Mapping[str, Any]
    id: str = ""

    @cached_property
    def encoded(self) -> bytes:
        """The event in the wire format of server-sent events."""
        if not self.name:
            return f": still here\nid: {self.id}\n\n".encode()
        # As pydantic writes the answer to a GET: JSON alone has no NaN, times or decimals, and an error would end the stream
        # each time that a client comes back. JSON has no raw line ends, which would end the field.
        data = json.dumps(to_jsonable_python(self.data, inf_nan_mode="null"))
        lines = [f"event: {self.name}", *([f"id: {self.id}"] if self.id else []), f"data: {data}"]
        return ("\n".join(lines) + "\n\n").encode()


Source = Callable[[float], Coroutine[Any, Any, ServerEvent | None]]
"""Waits at most this many seconds for the next event; None: there is none. Raises `StopAsyncIteration` after the last.

Cancelling it while it waits loses no event.
"""


class EventStreams:
    """Makes responses of server-sent events.

    Args:
        streams: Admits the streams.
        per_peer: The maximum number of streams to one address, so that one caller cannot take all.
        of_many: The maximum number of streams of the changes of many rows: each buffers up to 10,000 changes for a slow
            reader.
        of_many_per_peer: The maximum number of those to one address.
        heartbeat_seconds: A comment is sent after this time without events, so that proxies keep the connection.
        recheck_seconds: The interval at which the credentials of open streams are checked again.
    """

    def __init__(
        self,
        streams: Streams,
        *,
        per_peer: int = 16,
        of_many: int = 100,
        of_many_per_peer: int = 8,
        heartbeat_seconds: float = 15.0,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self.streams = streams
        self._places = PeerPlaces(streams.limit, per_peer)
        self._places_of_many = PeerPlaces(of_many, of_many_per_peer)
        self.heartbeat_seconds = heartbeat_seconds
        self.recheck_seconds = recheck_seconds
        self.pool = ThreadPoolExecutor(_OPENING_MAX, thread_name_prefix="events")

    def response(self, source: AbstractContextManager[Source], *, of_many: bool = False) -> Response:
        """Answer with the events of `source`, which is entered when the stream is admitted and always left.

        Args:
            source: The events.
            of_many: Whether they are the changes of many rows.
        """
        return _EventResponse(self, source, of_many=of_many)

    @contextmanager
    def admit(self, peer: str, *, of_many: bool = False) -> Iterator["asyncio.Future[Any]"]:
        """Admit a stream, as `Streams.admit_in_loop` does.

        A stream of the changes of many rows takes the place of one of an address that has more of them, if all are taken.

        Raises:
            Problem: The address has reached its limit.
            RetryLater: The server has reached its limit of streams, or is stopping.
        """
        with ExitStack() as stack:
            over = stack.enter_context(self.streams.admit_in_loop())
            try:
                for places in (self._places, self._places_of_many)[: 1 + of_many]:
                    stack.enter_context(places.take(peer, partial(_end, over)))
            except TooManyOfPeer as error:
                raise Problem(HTTPStatus.TOO_MANY_REQUESTS, str(error), retry_after=5) from None
            yield over

    def close(self) -> None:
        """End all streams and wait for their threads."""
        self.streams.stop()
        self.pool.shutdown()


class _EventResponse(Response):
    media_type = "text/event-stream"

    def __init__(self, owner: EventStreams, source: AbstractContextManager[Source], *, of_many: bool) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._owner = owner
        self._source = source
        self._of_many = of_many

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = peer_name(scope["client"][0] if scope["client"] else None)
        with self._owner.admit(peer, of_many=self._of_many) as over:
            with CancelScope(shield=True):  # if cancelled now, the source would be entered and never left
                next_event = await self._in_thread(self._source.__enter__)
            gone = asyncio.ensure_future(_disconnected(receive, over))
            try:
                start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
                await send(start)
                valid, end = scope.get(STILL_VALID), partial(_end, over)
                with ended_when_invalid(valid, end, self._owner.recheck_seconds):
                    await unless(over, self._pump(next_event, send))
                    await _send(send, b"", more=False)
            finally:
                gone.cancel()
                await asyncio.shield(self._in_thread(self._source.__exit__, None, None, None))

    async def _pump(self, next_event: Source, send: Send) -> None:
        """Send events until the last one, or until cancelled."""
        await _send(send, b"retry: 3000\n\n")
        while True:
            try:
                event = await next_event(self._owner.heartbeat_seconds)
            except StopAsyncIteration:
                return
            await _send(send, b": still here\n\n" if event is None else event.encoded)
            # While events wait and the caller reads, nothing above suspends: other requests get a turn after each event.
            await asyncio.sleep(0)

    def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        return asyncio.get_running_loop().run_in_executor(self._owner.pool, function, *arguments)


async def _send(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def _disconnected(receive: Receive, over: "asyncio.Future[Any]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    _end(over)


def _end(over: "asyncio.Future[Any]") -> None:
    if not over.done():
        over.set_result(None)
