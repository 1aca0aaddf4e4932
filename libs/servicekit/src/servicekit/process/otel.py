"""Tracing by OpenTelemetry, sent as OTLP over gRPC. Only this module imports it, and only if traces are sent.

Spans are sent by a thread, in batches. While no collector accepts them, they are dropped, which is logged once and
affects nothing else.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Thread
from typing import Final, Self

import structlog
from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan

from streamtable.base.tracing import TRACEPARENT, Fact, contexts, is_context
from streamtable.base.types import Headers, RecordBatch

log = structlog.get_logger()
_CLOSE_SECONDS: Final = 3.0
_EXPORTER_LOG: Final = "opentelemetry.exporter.otlp.proto.grpc"
# The library's attributes under the names of OpenTelemetry's semantic conventions; the rest keep names of our own.
_CONVENTIONS: Final = {
    "partition": "messaging.destination.partition.id",
    "offset": "messaging.kafka.offset",
    "records": "messaging.batch.message_count",
    "topic": "messaging.destination.name",
    "group": "messaging.consumer.group.name",
    "operation": "messaging.operation.name",
    "system": "messaging.system",
}


class OpenTelemetry:
    """A `servicekit.tracing.ServerTracer` on OpenTelemetry.

    Args:
        endpoint: The collector, as `http://host:port` or `https://host:port`.
        service: The name of the process in traces.
        instance: Distinguishes the replicas of a service.
    """

    def __init__(self, endpoint: str, service: str, instance: str) -> None:
        # The exporter would log each failed attempt; here it is logged once.
        logging.getLogger(_EXPORTER_LOG).setLevel(logging.CRITICAL)
        resource = {"service.name": service, "service.instance.id": instance}
        self._exporter = _LoggingExporter(OTLPSpanExporter(endpoint=endpoint), endpoint)
        # It reads the sampler from the environment, where `TraceSettings` has checked it.
        self._provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("streamtable")

    def send(self, topic: str) -> "_Span":
        facts = {"system": "kafka", "operation": "send", "topic": topic}
        return self._begin(f"send {topic}", SpanKind.PRODUCER, facts)

    def process(self, group: str, batches: Sequence[RecordBatch]) -> "_Span":
        facts: dict[str, Fact] = {"system": "kafka", "operation": "process", "group": group}
        facts["records"] = sum(map(len, batches))
        topics = list(dict.fromkeys(batch.topic for batch in batches))
        if len(topics) == 1:
            facts["topic"] = topics[0]
        if len(batches) == 1:
            facts |= {"partition": batches[0].partition, "offset": batches[0].first_offset}
        return self._begin(f"process {group}", SpanKind.CONSUMER, facts, contexts(batches))

    def commit(self, group: str, sources: Sequence[Headers]) -> "_Span":
        facts = {"system": "kafka", "operation": "commit", "group": group}
        return self._begin(f"commit {group}", SpanKind.CLIENT, facts, sources)

    def apply(self, view: str, records: RecordBatch) -> "_Span":
        facts: dict[str, Fact] = {"system": "kafka", "operation": "apply", "view": view}
        facts["topic"] = records.topic
        facts |= {"partition": records.partition, "offset": records.first_offset, "records": len(records)}
        return self._begin(f"apply {records.topic}", SpanKind.CONSUMER, facts, contexts([records]))

    def ask(self, store: str, operation: str, keys: int) -> "_Span":
        facts: dict[str, Fact] = {"db.operation.name": operation, "db.namespace": store, "keys": keys}
        return self._begin(f"{operation} {store}", SpanKind.CLIENT, facts)

    def serve(self, name: str, traceparent: bytes | None) -> "_Span":
        given = traceparent is not None and is_context(traceparent)
        source = [((TRACEPARENT, traceparent),)] if given else []
        return self._begin(name, SpanKind.SERVER, {}, source, linked=False, named=given)

    def close(self) -> None:
        """Send the remaining spans, for three seconds at most: stopping a process does not wait for a collector."""
        ending = Thread(target=self._provider.shutdown, name="traces-close", daemon=True)
        ending.start()
        ending.join(_CLOSE_SECONDS)
        if ending.is_alive():
            log.warning(
                "the last traces are dropped: the collector did not accept them in time",
                seconds=_CLOSE_SECONDS,
            )

    def _begin(
        self,
        name: str,
        kind: SpanKind,
        facts: Mapping[str, Fact],
        sources: Sequence[Headers] = (),
        *,
        linked: bool = True,
        named: bool = False,
    ) -> "_Span":
        """Continue the trace of the first source; without one, the current span if there is any."""
        found = [_context_of(headers) for headers in sources]
        parent: Context | None = set_span_in_context(NonRecordingSpan(found[0]), Context()) if found else None
        links = [Link(each) for each in found] if linked else None
        span = self._tracer.start_span(name, parent, kind, _named(facts), links)
        return _Span(span, named=named)


class _Span:
    """A `servicekit.tracing.ServerSpan`. `named`: log lines name its trace even if it is not sampled."""

    def __init__(self, span: OtelSpan, *, named: bool) -> None:
        context = span.get_span_context()
        self.traceresponse = (
            f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
        )
        self.headers: Headers = ((TRACEPARENT, self.traceresponse),) if context.trace_flags.sampled else ()
        self._span = span
        self._named = named or context.trace_flags.sampled
        self._current = ExitStack()
        self._failed = False

    def note(self, **facts: Fact) -> None:
        self._span.set_attributes(_named(facts))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, reason: str) -> None:
        self._failed = True
        self._span.set_attribute("error.type", reason)
        self._span.set_status(StatusCode.ERROR)

    def end(self, failure: BaseException | None = None) -> None:
        if failure is not None and not self._failed:
            # Its text may quote a record; the log has it, with the trace id.
            self.fail(type(failure).__name__)
        self._span.end()

    def __enter__(self) -> Self:
        self._current.callback(current.detach, current.attach(set_span_in_context(self._span)))
        if self._named:
            _, trace, span, _ = self.traceresponse.decode().split("-")
            self._current.enter_context(structlog.contextvars.bound_contextvars(trace_id=trace, span_id=span))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._current.close()
        self.end(error)


class _LoggingExporter(SpanExporter):
    """An exporter that logs once when spans are dropped, and once when they are accepted again."""

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._dropped = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            if self._dropped:
                log.info("traces are accepted again", endpoint=self._endpoint, dropped=self._dropped)
            self._dropped = 0
            return result
        if not self._dropped:
            log.warning(
                "traces are dropped until a collector accepts them; nothing else is affected",
                endpoint=self._endpoint,
            )
        self._dropped += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _context_of(headers: Headers) -> SpanContext:
    ((_, traceparent),) = headers
    _, trace, span, flags = (traceparent or b"").decode().split("-")[:4]
    return SpanContext(
        int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16) & 1)
    )


def _named(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return attributes under OpenTelemetry's names; names with a dot are kept."""
    named = {
        word if "." in word else _CONVENTIONS.get(word, f"streamtable.{word}"): fact
        for word, fact in facts.items()
    }
    partition = _CONVENTIONS["partition"]
    return named | {partition: str(named[partition])} if partition in named else named
