"""The seam for tracing REST and gRPC servers. No tracing library is imported here; see `servicekit.process.otel`."""

from collections.abc import Iterable
from typing import Protocol

from streamtable.base.tracing import TRACEPARENT, Span, Tracer


class ServerSpan(Span, Protocol):
    """The span of a request.

    Attributes:
        traceresponse: The ids of the span, in the form of `traceparent`; sent to the caller.
    """

    traceresponse: bytes

    def rename(self, name: str) -> None: ...

    def fail(self, reason: str) -> None:
        """Mark the span as failed by a fault of the server."""


class ServerTracer(Tracer, Protocol):
    """A tracer that makes spans for requests too."""

    def serve(self, name: str, traceparent: bytes | None) -> ServerSpan:
        """Start the span of a request with this trace context header; a malformed one is ignored."""


def context_of(metadata: Iterable[tuple[str | bytes, str | bytes]]) -> bytes | None:
    """Return the trace context in a request's headers or metadata; none if there are two."""
    names = (TRACEPARENT, TRACEPARENT.encode())
    given = [value for name, value in metadata if name in names]
    if len(given) != 1:
        return None
    return given[0] if isinstance(given[0], bytes) else given[0].encode()
