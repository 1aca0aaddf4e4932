"""What REST and gRPC servers ask of a tracer. No tracing library is known here: `servicekit.process.otel` knows one."""

from collections.abc import Iterable
from typing import Protocol

from streamtable.tracing import TRACEPARENT, Span, Tracer


class ServerSpan(Span, Protocol):
    """The answering of a request.

    Attributes:
        traceresponse: where to find the span, in the form of `traceparent`; sent to the caller.
    """

    traceresponse: bytes

    def rename(self, name: str) -> None: ...

    def fail(self, reason: str) -> None:
        """It has ended badly, and that is not the caller's fault."""
        ...


class ServerTracer(Tracer, Protocol):
    """A tracer that makes spans for requests too."""

    def serve(self, name: str, traceparent: bytes | None) -> ServerSpan:
        """A request has come, with this header; one that is malformed counts as none."""
        ...


def context_of(metadata: Iterable[tuple[str | bytes, str | bytes]]) -> bytes | None:
    """The context that a request comes with, of its headers or metadata. Of two, neither counts."""
    names = (TRACEPARENT, TRACEPARENT.encode())
    given = [value for name, value in metadata if name in names]
    if len(given) != 1:
        return None
    return given[0] if isinstance(given[0], bytes) else given[0].encode()
