"""A collector of traces for tests: it accepts OTLP over gRPC, like a real one, and keeps the spans."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from localkafka.waiting import Deadline


@dataclass(frozen=True)
class Collected:
    """A received span; ids in hexadecimal digits, `links` as pairs of trace and span, `words` of a failure."""

    service: str
    name: str
    kind: str
    trace: str
    span: str
    parent: str
    links: tuple[tuple[str, str], ...]
    facts: Mapping[str, Any]
    failed: bool
    words: str
    began: int
    ended: int


class TraceCollector(TraceServiceServicer):
    """Keeps spans, in the order of their arrival."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        del context
        for resource in request.resource_spans:
            service = _facts(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_collected(service, span) for span in scope.spans]
        return pb.ExportTraceServiceResponse()

    def wait(
        self, matches: Callable[[Collected], bool], count: int = 1, seconds: float = 20.0
    ) -> list[Collected]:
        """Return the matching spans once there are this many.

        Raises:
            AssertionError: There are fewer at the timeout.
        """
        end = Deadline(seconds)
        while len(found := [span for span in list(self.spans) if matches(span)]) < count:
            assert not end.passed(), f"{len(found)} of {count} spans, among {[s.name for s in self.spans]}"
            time.sleep(0.02)
        return found


@contextmanager
def collecting(collector: TraceCollector, port: int = 0) -> Iterator[int]:
    """Serve the collector on loopback within the block. Yields the port."""
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call] # generated code
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield bound
    finally:
        server.stop(0).wait()


def _collected(service: str, span: Any) -> Collected:
    return Collected(
        service,
        span.name,
        type(span).SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        _facts(span.attributes),
        span.status.code == span.status.STATUS_CODE_ERROR,
        f"{span.status.message}{''.join(str(event) for event in span.events)}",
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
