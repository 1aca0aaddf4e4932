"""The seam for tracing; no tracing library is imported here.

A piece of work is a span. Which one it is, its context, travels in a record's header as W3C's `traceparent`, so that the
next program can say what its own work comes from. Work on a batch comes from many records: its span is linked to the
contexts of `CONTEXTS_MAX` of them, and continues the trace of the first.

A single record has a span of its own only when it is emitted, and records that are not traced cost nothing.
"""

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from streamtable.base.types import Headers, RecordBatch

TRACEPARENT: Final = "traceparent"
CONTEXTS_MAX: Final = 32
"""The maximum number of links of a span."""

Fact = str | int | Sequence[str]
# Version, trace, span, and flags, whose last bit says that the span is kept.
_CONTEXT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


class Span(Protocol):
    """A unit of work, from its creation until `end`.

    In a `with` block it is the thread's (or the asyncio task's) current work, and ends with the block, by the block's
    exception if there is one.
    """

    @property
    def headers(self) -> Headers:
        """The context as headers for the records of this span; empty if it is not sampled."""

    def note(self, **facts: Fact) -> None:
        """Add attributes."""

    def end(self, failure: BaseException | None = None) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Tracer(Protocol):
    """Starts spans. Any thread. Never raises and never blocks."""

    def send(self, topic: str) -> Span:
        """Start the span of an emitted record, which ends with Kafka's answer. Part of the thread's current work."""

    def process(self, group: str, batches: Sequence[RecordBatch]) -> Span:
        """Start the span of a group's handlers processing these records."""

    def commit(self, group: str, sources: Sequence[Headers]) -> Span:
        """Start the span of a commit that holds the work of these contexts."""

    def apply(self, view: str, records: RecordBatch) -> Span:
        """Start the span of a view applying changes of a table."""

    def ask(self, store: str, operation: str, keys: int) -> Span:
        """Start the span of a request to a central store for this many keys. Part of the thread's current work."""


class _Untraced:
    """A span and a tracer that record nothing."""

    headers: Headers = ()

    def note(self, **facts: Fact) -> None: ...

    def end(self, failure: BaseException | None = None) -> None: ...

    def _begin(self, *_: object, **__: object) -> Self:
        return self

    send = process = commit = apply = ask = __enter__ = _begin

    def __exit__(self, *_: object) -> None: ...


UNTRACED: Final = _Untraced()
"""The tracer that traces nothing. It has no state."""


def tracer_of(log: object) -> Tracer:
    """Return the tracer of a log (Kafka); most have none."""
    tracer: Tracer | None = getattr(log, "tracer", None)
    return UNTRACED if tracer is None else tracer


def contexts(batches: Iterable[RecordBatch]) -> list[Headers]:
    """Return the contexts of the first `CONTEXTS_MAX` records with a sampled one, without reading other records."""
    found: list[Headers] = []
    for batch in batches:
        for headers in batch.each_headers():
            for header in headers or ():
                if header[0] == TRACEPARENT and is_kept(header[1]):
                    found.append((header,))
                    break
            if len(found) == CONTEXTS_MAX:
                return found
    return found


def is_context(traceparent: bytes) -> bool:
    """Return whether the text is a well-formed trace context."""
    return _CONTEXT.fullmatch(traceparent) is not None


def is_kept(traceparent: bytes | None) -> bool:
    """Return whether the text is a well-formed trace context of a sampled span."""
    return traceparent is not None and is_context(traceparent) and int(traceparent[53:55], 16) & 1 == 1


def carrying(headers: Headers, context: Headers) -> Headers:
    """Return the headers with this context added, unless they have one: their sender's wins."""
    if not context or any(name == TRACEPARENT for name, _ in headers):
        return headers
    return (*headers, *context)
