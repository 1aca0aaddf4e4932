"""Checks around every gRPC call: authentication, deadline, message size, limits; every error becomes one of ours."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Final

import grpc
import structlog

from servicekit.auth.proxies import NO_PROXIES, TrustedProxies
from servicekit.auth.rate_limit import peer_name
from servicekit.grpc.call_limits import CallSlots, Patience
from servicekit.grpc.errors import RETRY_SECONDS, CallRefused, refusal
from servicekit.grpc.metrics import UNKNOWN, CallMetrics, labels_of
from servicekit.grpc.peers import caller_host
from servicekit.grpc.tracing import Call, traced
from servicekit.peer_places import GaveWay, PeerPlaces
from servicekit.streams import RECHECK_SECONDS, Stopping, ended_when_invalid
from servicekit.tracing import ServerTracer

log = structlog.get_logger()
_SLACK: Final = 1.05  # a deadline travels rounded up
_EARLY_SHARE: Final = 0.1
"""The share of a call's time so far, and in seconds the most, that may be left here when the caller's deadline ends it."""
_EARLY_SECONDS: Final = 0.25
_HEALTH: Final = "/grpc.health.v1.Health/"
HEALTH_WATCHES_MAX: Final = 64
_FAREWELL_SECONDS: Final = 1.0
_PEER_SHARE_PERCENT: Final = 75
"""The share of the unary calls at a time that one address may have, so that others find a place beside it."""
Context = Any  # grpc.aio.ServicerContext: its stubs differ from what the package does
StillValid = Callable[[], bool]
Check = Callable[[str, Context], StillValid | None]
"""Lets a call of a method (its path) through, or raises `CallRefused`. Called in the event loop.

Returns a function that returns whether the credential is still valid, called while a stream is open; None: it always is.
"""


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """The limits on the resources of callers.

    Attributes:
        receive_bytes: The maximum size of one message.
        metadata_bytes: The maximum size of a call's headers.
        threads: The number of unary calls that are handled at a time.
        stream_threads: The number of streams whose plain generators run at a time. More do not scan faster, because
            they share one interpreter, but delay the event loop and unary calls.
        waiting: The number of unary calls that may wait for a thread; more are rejected with RESOURCE_EXHAUSTED.
        deadline_seconds_max: The farthest deadline of a unary call, and the longest wait for a call's message.
        unsent: The number of calls whose message has not arrived; a newer call replaces the oldest.
        unread_seconds: A stream whose caller reads nothing for this time is ended.
        recheck_seconds: The interval at which the credentials of open streams are checked again.
        streams: The number of open streams of all callers together, without health checks.
        streams_per_peer: The number of open streams to one address; an IPv6 network /64 counts as one.
        connections: The number of open connections of all callers together; further ones are refused.
        handshake_seconds: The time that a new connection has for the HTTP/2 handshake.
        connection_idle_seconds: A connection without calls is closed after that.
        connection_age_seconds: The caller must reconnect after that, and so finds new replicas.
        connection_streams: The number of concurrent calls on one connection; further calls wait in the client.
        ping_seconds_min: A caller that pings more often is disconnected.
        drain_seconds: The time before the server stops in which new calls are rejected with UNAVAILABLE.
    """

    receive_bytes: int = 64 * 1024
    metadata_bytes: int = 16 * 1024
    threads: int = 16
    stream_threads: int = 1
    waiting: int = 64
    deadline_seconds_max: float = 5.0
    unsent: int = 256
    unread_seconds: float = 30.0
    recheck_seconds: float = RECHECK_SECONDS
    streams: int = 1024
    streams_per_peer: int = 256
    connections: int = 1024
    handshake_seconds: float = 5.0
    connection_idle_seconds: float = 300.0
    connection_age_seconds: float = 1800.0
    connection_streams: int = 100
    ping_seconds_min: float = 10.0
    drain_seconds: float = 0.5


class CallGuard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # it is generic in the stubs only
    """Wraps every method. Plain functions and generators are called in a thread.

    A unary method that works for long is a generator that yields None between slices of its work and returns the answer: one
    thread works on a slice of each such call in turn, so that calls of other methods get the interpreter in between.

    By default, grpcio keeps a call that sends no message open for ever, rejects calls without naming a remedy, and
    sends the text of an exception to the caller.

    Args:
        limits: The limits on the resources of callers.
        check: Checks each call except those of the health service; None: every call is allowed.
        metrics: Counts the calls; None: they are not counted.
        tracer: Makes a span for each call except those of the health service; None: there are no spans.
        proxies: The proxies whose metadata `forwarded` names the caller.
    """

    def __init__(
        self,
        limits: GrpcLimits,
        check: Check | None = None,
        metrics: CallMetrics | None = None,
        tracer: ServerTracer | None = None,
        proxies: TrustedProxies = NO_PROXIES,
    ) -> None:
        self.limits = limits
        self.proxies = proxies
        self.streams = PeerPlaces(limits.streams, limits.streams_per_peer)
        # Separate places: any client may watch health, and must not take the places of callers.
        self.health_watches = PeerPlaces(HEALTH_WATCHES_MAX, HEALTH_WATCHES_MAX)
        self.check = check
        self.metrics = metrics
        self.tracer = tracer
        calls = limits.threads + limits.waiting
        self.working = CallSlots(calls, max(1, calls * _PEER_SHARE_PERCENT // 100))
        self.unsent = Patience(limits.deadline_seconds_max, limits.unsent)
        self.stopping = False
        self.unary_pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="grpc-unary")
        self.slice_pool = ThreadPoolExecutor(1, thread_name_prefix="grpc-slices")
        self.stream_pool = ThreadPoolExecutor(limits.stream_threads, thread_name_prefix="grpc-stream")

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Wrap the method's handler."""
        found = await continuation(handler_call_details)
        if found is None:
            if self.metrics is not None:
                self.metrics.handled.labels(*UNKNOWN, grpc.StatusCode.UNIMPLEMENTED.name).inc()
            return None
        method = _Method(self, handler_call_details.method, found)
        call: Call = method.called
        if self.tracer is not None and not handler_call_details.method.startswith(_HEALTH):
            call = traced(self.tracer, handler_call_details.method, call)
        # Without a deserializer and with a stream of requests, grpcio calls the handler before the message arrives.
        if found.response_streaming:
            return grpc.stream_stream_rpc_method_handler(call, None, found.response_serializer)
        return grpc.stream_unary_rpc_method_handler(call, None, found.response_serializer)

    def close(self) -> None:
        """Release the threads; calls that run are finished."""
        for pool in (self.unary_pool, self.slice_pool, self.stream_pool):
            pool.shutdown(wait=False)


class _Method:
    """A method with the checks around it."""

    def __init__(self, guard: CallGuard, path: str, found: Any) -> None:
        self._guard = guard
        self._path = path
        self._labels = labels_of(path)
        self._found = found

    async def called(self, messages: AsyncIterator[bytes], context: Context) -> Any:
        """Run a call, count it, and end it with one of our errors if it fails."""
        begun = time.monotonic()
        code = grpc.StatusCode.CANCELLED  # the code if the call is cancelled from outside
        run = self._stream if self._found.response_streaming else self._unary
        try:
            answer = await run(messages, context, self._check(context))
            code = grpc.StatusCode.OK
        except grpc.aio.AbortError:
            # A servicer that knows nothing of `CallRefused` has ended the call by itself.
            code = context.code()
            raise
        except Exception as error:  # noqa: BLE001 it is logged, and the caller gets a fixed text
            refused = refusal(error)
            code = refused.code
        else:
            return answer
        finally:
            self._ended(_reported(code, context, begun), begun)
        return await _abort(context, refused)

    async def _unary(self, messages: AsyncIterator[bytes], context: Context, _: StillValid | None) -> Any:
        _check_deadline(context, self._guard.limits.deadline_seconds_max)
        return await self._answer(await self._request(messages), context)

    async def _stream(
        self, messages: AsyncIterator[bytes], context: Context, still_valid: StillValid | None
    ) -> None:
        metrics = self._guard.metrics
        opened = None if metrics is None else metrics.open_streams.labels(*self._labels)
        with nullcontext() if opened is None else opened.track_inprogress():
            request = await self._request(messages)
            async with self._place(context, still_valid) as active:
                await self._send(request, context, active)

    def _check(self, context: Context) -> StillValid | None:
        if self._path.startswith(_HEALTH):
            return None
        if self._guard.stopping:
            raise Stopping("the server is stopping; retry the request")
        return None if self._guard.check is None else self._guard.check(self._path, context)

    async def _request(self, messages: AsyncIterator[bytes]) -> Any:
        """Return the parsed request, or an iterator of requests."""
        if self._found.request_streaming:
            return (self._parsed(message) async for message in messages)
        try:
            async with self._guard.unsent.wait():
                message = await anext(aiter(messages), None)
        except TimeoutError:
            text = "the message did not come"
            raise CallRefused(grpc.StatusCode.DEADLINE_EXCEEDED, text, reason="NO_MESSAGE") from None
        if message is None:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "send one message", reason="NO_MESSAGE")
        return self._parsed(message)

    def _parsed(self, message: bytes) -> Any:
        parse = self._found.request_deserializer
        if parse is None:
            return message
        try:
            return parse(message)
        except Exception:  # noqa: BLE001 protobuf's errors quote the input
            text = "the message is not one of this method's; compare the .proto files"
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, text, reason="UNPARSABLE") from None

    async def _answer(self, request: Any, context: Context) -> Any:
        found, places = self._found, self._guard.working
        inner = found.stream_unary if found.request_streaming else found.unary_unary
        peer = peer_name(caller_host(context, self._guard.proxies))
        if not places.take(peer):
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            text = "the server has all the calls it can take; retry the request, or ask another one"
            raise CallRefused(code, text, reason="TOO_MANY_CALLS", retry_seconds=RETRY_SECONDS)
        if iscoroutinefunction(inner) or isgeneratorfunction(inner):
            try:
                answer = inner(request, context)
                return await (self._in_slices(answer) if isgeneratorfunction(inner) else answer)
            finally:
                places.release(peer)
        if self._guard.tracer is not None:
            inner = partial(copy_context().run, inner)  # passes the context of the call to the thread
        work = self._guard.unary_pool.submit(inner, request, context)
        # Released by the thread, not at the caller's deadline: a thread that hangs on the disk is still in use.
        work.add_done_callback(lambda _: places.release(peer))
        return await asyncio.wrap_future(work)

    async def _in_slices(self, slices: Generator[None, None, Any]) -> Any:
        """Run a unary call slice by slice, each behind the slices of other calls that wait, and return its answer."""
        run = asyncio.get_running_loop().run_in_executor
        while (ended := await run(self._guard.slice_pool, _run_slice, slices)) is None:
            pass
        return ended[0]

    @asynccontextmanager
    async def _place(
        self, context: Context, still_valid: StillValid | None
    ) -> AsyncIterator[Callable[[], None]]:
        """Take a place for a stream for the block.

        The block is cancelled when another stream gets the place, and raises `GaveWay`, or when the credential is no longer
        valid, and raises `CallRefused`.
        """
        of_health = self._path.startswith(_HEALTH)
        places = self._guard.health_watches if of_health else self._guard.streams
        patience = asyncio.timeout(None)
        reason: Exception = GaveWay("another address has fewer streams")

        def give_way() -> None:
            if not patience.expired():
                patience.reschedule(asyncio.get_running_loop().time())

        def expire() -> None:
            nonlocal reason
            text = "the credential is not valid or no longer so"
            reason = CallRefused(grpc.StatusCode.UNAUTHENTICATED, text)
            give_way()

        try:
            async with patience:
                peer = peer_name(caller_host(context, self._guard.proxies))
                with (
                    places.take(peer, give_way) as active,
                    ended_when_invalid(still_valid, expire, self._guard.limits.recheck_seconds),
                ):
                    yield active
        except TimeoutError:
            if not patience.expired():
                raise
            raise reason from None

    async def _send(self, request: Any, context: Context, active: Callable[[], None]) -> None:
        found = self._found
        inner = found.stream_stream if found.request_streaming else found.unary_stream
        answers = inner(request, context)
        if not isasyncgenfunction(inner):
            answers = self._from_thread(answers)
        try:
            async for answer in answers:
                await self._write(answer, context)
                del answer  # a thousand waiting streams must not hold a page each
                active()
        finally:
            await answers.aclose()

    async def _write(self, answer: Any, context: Context) -> None:
        try:
            async with asyncio.timeout(self._guard.limits.unread_seconds):
                await context.write(answer)
        except TimeoutError:
            text = "nothing was read for too long"
            raise CallRefused(grpc.StatusCode.CANCELLED, text, reason="UNREAD") from None
        except Exception:  # noqa: BLE001 grpcio's error for a disconnected caller is private to it
            raise CallRefused(grpc.StatusCode.CANCELLED, "the caller disconnected", reason="GONE") from None

    async def _from_thread(self, answers: Iterator[Any]) -> AsyncIterator[Any]:
        """Yield the items of a plain generator, which runs in a thread; no item is held while the caller reads."""
        loop, pool = asyncio.get_running_loop(), self._guard.stream_pool
        while (answer := await loop.run_in_executor(pool, next, answers, None)) is not None:
            yield answer
            del answer

    def _ended(self, code: grpc.StatusCode, begun: float) -> None:
        metrics = self._guard.metrics
        if metrics is None:
            return
        metrics.handled.labels(*self._labels, code.name).inc()
        if not self._found.response_streaming:
            metrics.seconds.labels(*self._labels).observe(time.monotonic() - begun)


def _run_slice(slices: Generator[None, None, Any]) -> tuple[Any] | None:
    """Run one slice. Returns the answer after the last one."""
    try:
        next(slices)
    except StopIteration as end:
        return (end.value,)
    return None


async def _abort(context: Context, refused: CallRefused) -> None:
    status = refused.status()
    try:
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await context.abort(status.code, status.details, status.trailing_metadata)
    except TimeoutError:
        return  # the caller does not read; the status is lost with the connection
    except grpc.aio.AbortError:
        raise  # how grpcio ends a call
    except Exception:  # noqa: BLE001 grpcio's error for a disconnected caller is private to it
        if refused.code is not grpc.StatusCode.CANCELLED:
            log.debug("caller disconnected before the status was sent", code=refused.code.name)


def _reported(code: grpc.StatusCode, context: Context, begun: float) -> grpc.StatusCode:
    """Return the code as the caller sees it: a deadline ends a call here as a cancellation does.

    The caller's deadline is mostly first, since its time began before the request travelled: some time is left here then.
    """
    left = context.time_remaining()
    if code is not grpc.StatusCode.CANCELLED or left is None:
        return code
    early = min(_EARLY_SECONDS, _EARLY_SHARE * (time.monotonic() - begun))
    return grpc.StatusCode.DEADLINE_EXCEEDED if left <= early else code


def _check_deadline(context: Context, seconds_max: float) -> None:
    left = context.time_remaining()
    if left is None or left > seconds_max * _SLACK:
        text = f"set a deadline of at most {seconds_max:g} seconds"
        raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, text, reason="NO_DEADLINE")
