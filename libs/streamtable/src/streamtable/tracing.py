"""Traces: what a program tells of its work while it goes on. The seam only; no tracing library is known here.

A piece of work is a span. Which one it is, its context, travels in a record's header as W3C's `traceparent`, so that the
next program can say what its own work comes from. Work on a batch comes from many records: its span is linked to the
contexts of `CONTEXTS_MAX` of them, and continues the trace of the first.

A single record has a span of its own only when it is emitted, and records that are not traced cost nothing.
"""

import re
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from streamtable.types import Headers, RecordBatch

TRACEPARENT: Final = "traceparent"
CONTEXTS_MAX: Final = 32
"""A span is linked to so many others at most."""

Fact = str | int | Sequence[str]
# Version, trace, span, and flags, of which the last bit says that the span is kept.
_CONTEXT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


class Span(Protocol):
    """A piece of work, from when it is made until `end`.

    In a `with` block it is the thread's (or the asyncio task's) current work, and ends with the block, by the block's
    exception if there is one.
    """

    @property
    def headers(self) -> Headers:
        """Its context, for the records that it makes; empty if the span is not kept."""
        ...

    def note(self, **facts: Fact) -> None:
        """Say something about it."""
        ...

    def end(self, failure: BaseException | None = None) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Tracer(Protocol):
    """Starts a span where work begins. Any thread. Never raises, and never blocks."""

    def send(self, topic: str) -> Span:
        """A record is emitted; it ends with Kafka's answer. Part of the thread's current work."""
        ...

    def process(self, group: str, batches: Sequence[RecordBatch]) -> Span:
        """The handlers of a group are given these."""
        ...

    def commit(self, group: str, sources: Sequence[Headers]) -> Span:
        """What came of work with these contexts is committed together."""
        ...

    def apply(self, view: str, records: RecordBatch) -> Span:
        """Changes of a table are taken over into a view."""
        ...

    def ask(self, store: str, operation: str, keys: int) -> Span:
        """A central store is asked to read or write so many keys. Part of the thread's current work."""
        ...


class _Untraced:
    """A span, and a tracer, of which nothing is kept."""

    headers: Headers = ()

    def note(self, **facts: Fact) -> None: ...

    def end(self, failure: BaseException | None = None) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def send(self, topic: str) -> Span:  # noqa: ARG002 - as for all below: nothing is traced
        return self

    def process(self, group: str, batches: Sequence[RecordBatch]) -> Span:  # noqa: ARG002
        return self

    def commit(self, group: str, sources: Sequence[Headers]) -> Span:  # noqa: ARG002
        return self

    def apply(self, view: str, records: RecordBatch) -> Span:  # noqa: ARG002
        return self

    def ask(self, store: str, operation: str, keys: int) -> Span:  # noqa: ARG002
        return self


UNTRACED: Final = _Untraced()
"""The tracer that traces nothing. It has no state."""


def tracer_of(log: object) -> Tracer:
    """The tracer that a log (Kafka) brings; most kinds of it bring none."""
    tracer: Tracer | None = getattr(log, "tracer", None)
    return UNTRACED if tracer is None else tracer


def contexts(batches: Iterable[RecordBatch]) -> list[Headers]:
    """The contexts of the first `CONTEXTS_MAX` records that have one which is kept. No record is looked into."""
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
    """Whether it is well-formed."""
    return _CONTEXT.fullmatch(traceparent) is not None


def is_kept(traceparent: bytes | None) -> bool:
    """Whether it is well-formed, and the context of a span that is kept."""
    return traceparent is not None and is_context(traceparent) and int(traceparent[53:55], 16) & 1 == 1


def carrying(headers: Headers, context: Headers) -> Headers:
    """The headers with this context; those that have one keep it, as their sender knew better."""
    if not context or any(name == TRACEPARENT for name, _ in headers):
        return headers
    return (*headers, *context)
