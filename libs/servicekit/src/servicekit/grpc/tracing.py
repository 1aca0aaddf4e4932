"""A span for each gRPC call."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import structlog

from servicekit.tracing import ServerTracer, context_of

log = structlog.get_logger()
Call = Callable[[Any, Any], Awaitable[Any]]
_OURS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Status codes of server failures; the other codes are errors of the caller."""


def traced(tracer: ServerTracer, path: str, call: Call) -> Call:
    """Return the call of a method (its path) with a span around it."""
    name = path.lstrip("/")

    async def with_span(messages: Any, context: Any) -> Any:
        with tracer.serve(name, context_of(context.invocation_metadata() or ())) as span:
            span.note(**{"rpc.system": "grpc", "rpc.method": name})
            try:
                await context.send_initial_metadata((("traceresponse", span.traceresponse.decode()),))
            except Exception:  # noqa: BLE001 grpcio's error for a disconnected caller is private to it
                log.debug("caller disconnected before the call", method=name)
            try:
                answer, aborted = await call(messages, context), None
            except grpc.aio.AbortError as error:  # how grpcio ends a call that is refused
                answer, aborted = None, error
            code = grpc.StatusCode.OK if aborted is None else context.code()
            span.note(**{"rpc.response.status_code": code.name})
            if code in _OURS:
                span.fail(code.name)
        if aborted is not None:
            raise aborted
        return answer

    return with_span
