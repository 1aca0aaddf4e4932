"""The outermost layer of a REST service: limits, the deadline, and a problem document for every error."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_to_bytes

import structlog
from anyio import CancelScope
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servicekit.http.deadline import RequestDeadline
from servicekit.http.problems import Problem, invalid, unavailable
from servicekit.http.threads import BEGIN_BY, in_time
from servicekit.tables.listing import NoPrefixes
from streamtable.errors import RetryLater, UnreadableRow

log = structlog.get_logger()
_CONTROL = frozenset(range(0x20)) | {0x7F}
_SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_CLOSE = {"Connection": "close"}
_ONCE = frozenset(
    b"host origin content-type content-encoding authorization x-api-key streamtable-token last-event-id".split()
)

# Load balancers and kubelets use host names of their own, and these answers hold no data: a host that is missing in the
# settings must not get a healthy process restarted.
LIVENESS: Final = "/livez"
PROBES: Final = frozenset({LIVENESS, "/readyz"})

Admit = Callable[[Scope], Mapping[str, str]]
"""Lets a request in, and returns headers for its answer; raises `Problem`."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request.

    Attributes:
        body_bytes: The size of a body, whether its length is announced or not.
        bodies_bytes: The size of all bodies that have not arrived completely; beyond it the oldest is rejected.
        path_bytes: The size of the path as sent.
        query_bytes: The size of the query string as sent: the longest URL has 24 KiB, percent-encoded.
        headers: The number of headers.
        headers_bytes: The size of the headers' names and values together.
        requests: The number of requests that are handled at a time.
        queue_seconds: The time a request waits for another one to end and for a thread, together; then it is answered
            with 503. It is less than a second, so that the answer comes within one.
        deadline_seconds: The time from the head of the request to the start of the answer.
    """

    body_bytes: int = 64 * 1024
    bodies_bytes: int = 64 * 1024 * 1024
    path_bytes: int = 2048
    query_bytes: int = 25 * 1024
    headers: int = 64
    headers_bytes: int = 16 * 1024
    requests: int = 256
    queue_seconds: float = 0.75
    deadline_seconds: float = 10.0


class Guard:
    """ASGI middleware that reads the body within its limits, sets the deadline and catches all other errors.

    Args:
        limits: The limits of one request.
        admit: Called before the body is read, so that unauthenticated callers cannot make the service buffer one.
    """

    def __init__(self, app: ASGIApp, limits: RequestLimits, admit: Admit) -> None:
        self._app = app
        self._limits = limits
        self._admit = admit
        self._reading: dict[asyncio.Timeout, int] = {}  # the bytes of incoming bodies, the oldest first
        self._slots = asyncio.Semaphore(limits.requests)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        answer = _Answer(send, loop.create_future())
        # asyncio's clock is time.monotonic.
        deadline = RequestDeadline(loop.time() + self._limits.deadline_seconds)
        deadline.put(scope)
        try:
            self._check_head(scope)
            answer.headers = [(k.lower().encode(), v.encode()) for k, v in self._admit(scope).items()]
            body = await self._read_body(receive, deadline.at)
            if body is None:
                return
            if scope["path"] == LIVENESS:
                await self._app(scope, _Replay(body, receive), answer)
            else:
                await self._run(scope, _Replay(body, receive), answer, deadline.at)
        except Exception as error:  # noqa: BLE001 - it is logged, and the caller gets a fixed text
            problem = _problem_of(error, scope)
            # With the outcome of its writes; it can write nothing after that.
            problem.members.update(deadline.report())
            await answer.instead(problem, scope)

    def _check_head(self, scope: Scope) -> None:
        limits = self._limits
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(path) > limits.path_bytes or len(query) > limits.query_bytes:
            raise Problem(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
        headers_bytes = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > limits.headers or headers_bytes > limits.headers_bytes:
            raise Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large or too many")
        if b"%2f" in path.lower() or not _is_clean(path) or not _is_clean(query):
            # Servers decode leniently: invalid bytes become U+FFFD, so different keys would become equal.
            raise Problem(
                HTTPStatus.BAD_REQUEST,
                "the address must be percent-encoded UTF-8 without control characters and encoded slashes",
            )
        _check_framing(scope["http_version"], headers)
        _check_body_headers(headers, limits.body_bytes)

    async def _read_body(self, receive: Receive, end: float) -> bytes | None:
        """Return the whole body; None if the caller has disconnected."""
        body = bytearray()
        timeout = asyncio.timeout_at(end)
        try:
            async with timeout:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._limits.body_bytes:
                        raise _too_large(self._limits.body_bytes)
                    if not message.get("more_body", False):
                        return bytes(body)
                    self._keep_reading(timeout, len(body))
        except TimeoutError:
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time") from None
        finally:
            self._reading.pop(timeout, None)

    def _keep_reading(self, timeout: asyncio.Timeout, size: int) -> None:
        self._reading[timeout] = size
        while sum(self._reading.values()) > self._limits.bodies_bytes:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            if not oldest.expired():
                oldest.reschedule(0)  # the oldest incomplete body belongs to the client that stalls longest

    async def _run(self, scope: Scope, receive: Receive, answer: "_Answer", end: float) -> None:
        until = asyncio.get_running_loop().time() + self._limits.queue_seconds
        await in_time(self._slots.acquire(), until)
        # A task of its own, because a handler that blocks in a worker thread cannot be cancelled, only abandoned. It
        # keeps its slot and its thread until it ends: cancelled by asyncio it would give them back at once, and
        # handlers that hang would fill the process with threads.
        patience = CancelScope()
        task = asyncio.create_task(_call(self._app, scope, receive, answer, patience, until))
        slot = ExitStack()
        slot.callback(self._slots.release)
        task.add_done_callback(lambda _: slot.close())
        try:
            left = max(0.0, end - asyncio.get_running_loop().time())
            await asyncio.wait((task, answer.started), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done() or answer.started.done():
                if answer.is_event_stream:
                    slot.close()  # a stream lasts for minutes and does no work; `Streams` limits their number
                await task
                return
        except asyncio.CancelledError:
            task.cancel()
            raise
        patience.cancel()
        task.add_done_callback(_log_late_failure)
        log.warning("request given up", path=scope["path"], seconds=self._limits.deadline_seconds)
        raise unavailable("the answer took too long; retry the request")


def _log_late_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("request that was given up failed later", error=type(error).__name__)


class _Answer:
    """The response that is being sent, and whether it has begun."""

    def __init__(self, send: Send, started: asyncio.Future[None]) -> None:
        self.started = started
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_event_stream = False
        self._send = send
        self._open = True

    async def __call__(self, message: Message) -> None:
        if self._open:
            await self._pass_on(message)

    async def instead(self, problem: Problem, scope: Scope) -> None:
        """Send the problem; if a response has begun, the connection ends before the end of its body instead."""
        if self.started.done():
            return
        self._open = False  # the handler may still be running: its response comes too late
        await problem.response()(scope, _no_more, self._pass_on)

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            has = dict(message["headers"])
            self.is_event_stream = has.get(b"content-type", b"").startswith(b"text/event-stream")
            safe = [header for header in _SAFE_HEADERS if header[0] not in has]
            message["headers"] = [*message["headers"], *safe, *self.headers]
            if not self.started.done():
                self.started.set_result(None)
        await self._send(message)


class _Replay:
    """Replays the body that was read already, then passes on the real messages (only a disconnect can follow)."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._first: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._first is None:
            return await self._receive()
        body, self._first = self._first, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _call(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, patience: CancelScope, begin_by: float
) -> None:
    BEGIN_BY.set(begin_by)  # of this task alone
    with patience:
        await app(scope, receive, send)


async def _no_more() -> Message:
    return {"type": "http.disconnect"}


def _problem_of(error: Exception, scope: Scope) -> Problem:
    """Return the answer to an error of the handler or the guard. An unknown one is logged."""
    match error:
        case Problem():
            return error
        case RetryLater():
            return unavailable()
        case NotImplementedError():  # by a ranking where there is no copy of the table
            return Problem(HTTPStatus.NOT_IMPLEMENTED, str(error))
        case NoPrefixes():
            return invalid("query.prefix", str(error))
        case UnreadableRow():
            place = {"topic": error.topic, "partition": error.partition, "before_offset": error.position}
            detail = "the stored row cannot be decoded; its key must be written again"
            members = {name: fact for name, fact in place.items() if fact is not None}
        case _:
            log.error("request failed", path=scope["path"], exc_info=error)
            detail, members = "the service failed", {}
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, members=members)


def _is_clean(encoded: bytes) -> bool:
    decoded = unquote_to_bytes(encoded)
    try:
        decoded.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _CONTROL.isdisjoint(decoded)


def _check_framing(version: str, headers: list[tuple[bytes, bytes]]) -> None:
    """Reject framing that two servers in a chain could read as requests of different lengths, and end the connection."""
    if version not in {"1.0", "1.1"}:
        raise Problem(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "speak HTTP/1.1", headers=_CLOSE)
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and (b"content-length" in names or version == "1.0"):
        detail = "send either Content-Length or, with HTTP/1.1, Transfer-Encoding"
        raise Problem(HTTPStatus.BAD_REQUEST, detail, headers=_CLOSE)
    if any(names.count(name) > 1 for name in _ONCE):
        raise Problem(HTTPStatus.BAD_REQUEST, "a header that must not be repeated is repeated")


def _check_body_headers(headers: list[tuple[bytes, bytes]], body_bytes: int) -> None:
    named = {name: value for name, value in headers if name.startswith((b"content-", b"transfer-"))}
    length = named.get(b"content-length", b"0")
    if not length.isdigit():
        raise Problem(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
    if len(length) > len(str(body_bytes)) or int(length) > body_bytes:
        raise _too_large(body_bytes)
    if b"content-encoding" in named:
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body uncompressed")
    media_type = named.get(b"content-type", b"").split(b";")[0].strip().lower()
    if (length != b"0" or b"transfer-encoding" in named) and media_type != b"application/json":
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body as application/json")


def _too_large(body_bytes: int) -> Problem:
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body must have at most {body_bytes} bytes")
