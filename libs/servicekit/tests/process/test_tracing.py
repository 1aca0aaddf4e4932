import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
import structlog
from fastapi.responses import Response
from structlog.testing import capture_logs

from localkafka.process import reserve_port
from localkafka.waiting import Deadline
from servicekit.grpc.errors import CallRefused
from servicekit.grpc.server import GrpcServer
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.server import HttpServer
from servicekit.process.otel import OpenTelemetry
from servicekit.process.tracing import TraceSettings, trace_settings, tracing
from servicekit.streams import Streams
from servicekit_testing.trace_collector import TraceCollector, collecting
from streamtable.errors import ConfigurationError, RetryLater

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
GIVEN = f"00-{TRACE}-{PARENT}-01"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}
log = structlog.get_logger()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds between two batches of spans


@pytest.fixture
def collector() -> TraceCollector:
    return TraceCollector()


def settings(port: int) -> TraceSettings:
    return TraceSettings(endpoint=f"http://127.0.0.1:{port}", service="test", instance="test-1")


@pytest.fixture
def tracer(collector: TraceCollector) -> Iterator[OpenTelemetry]:
    with collecting(collector) as port, tracing(settings(port)) as tracer:
        assert isinstance(tracer, OpenTelemetry)
        yield tracer


def read(environ: dict[str, str]) -> TraceSettings | None:
    return trace_settings(environ, "click-count", "one")


# ---- settings ------------------------------------------------------------------------------------------------------


def test_without_an_endpoint_there_are_no_traces() -> None:
    assert read({}) is None
    assert read({"OTEL_SERVICE_NAME": "clicks", "OTEL_TRACES_SAMPLER": "always_on"}) is None
    assert read({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}) is None
    assert read({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}) is None


def test_the_settings_are_the_standard_variables() -> None:
    assert read(ENDPOINT) == TraceSettings(
        endpoint="http://127.0.0.1:4317", service="click-count", instance="one"
    )
    more = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://elsewhere:4317",
        "OTEL_SERVICE_NAME": "clicks",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.01",
    }
    expected = TraceSettings(
        endpoint="https://elsewhere:4317",
        service="clicks",
        instance="one",
        sampler="parentbased_traceidratio",
        ratio=0.01,
    )
    assert read({**ENDPOINT, **more}) == expected


def test_all_invalid_tracing_settings_are_reported_at_once() -> None:
    wrong = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_TRACES_EXPORTER": "zipkin",
        "OTEL_TRACES_SAMPLER": "sometimes",
        "OTEL_TRACES_SAMPLER_ARG": "1%",
    }
    with pytest.raises(ConfigurationError) as error:
        read(wrong)
    assert all(name in str(error.value) for name in wrong)


def test_a_process_without_traces_does_not_import_opentelemetry() -> None:
    program = (
        "import sys, streamtable\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "import servicekit.process.serving, servicekit.http.app, servicekit.grpc.server\n"
        "from servicekit.process.tracing import trace_settings, tracing\n"
        "with tracing(trace_settings({}, 'test', 'one')) as tracer:\n"
        "    assert tracer is None\n"
        # FastAPI loads the interface of OpenTelemetry, but nothing that makes or sends spans.
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exp'))]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_error_of_missing_tracing_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "servicekit.process.otel", None)  # as if it could not be imported
    with (
        pytest.raises(ConfigurationError, match=r"pip install 'streamtable-servicekit\[tracing\]'"),
        tracing(settings(1)),
    ):
        pass


# ---- what is sent --------------------------------------------------------------------------------------------------


def test_work_continues_the_trace_of_its_first_source_and_is_linked_to_all(
    tracer: OpenTelemetry, collector: TraceCollector
) -> None:
    with tracer.serve("one", None) as one, tracer.serve("two", None) as two:
        pass
    with tracer.commit("counts", [one.headers, two.headers]) as commit:
        commit.note(outcome="committed", offsets=["clicks[0]@1"])
    (span,) = collector.wait(lambda span: span.name == "commit counts")
    (first,) = collector.wait(lambda span: span.name == "one")
    (second,) = collector.wait(lambda span: span.name == "two")
    assert (span.trace, span.parent, span.kind) == (first.trace, first.span, "client")
    assert span.links == ((first.trace, first.span), (second.trace, second.span))
    assert span.facts["messaging.consumer.group.name"] == "counts"
    assert span.facts["streamtable.outcome"] == "committed"
    assert span.facts["streamtable.offsets"] == ["clicks[0]@1"]
    assert span.service == "test"


def test_a_nested_span_belongs_to_its_parent_and_log_lines_have_its_trace_id(
    tracer: OpenTelemetry, collector: TraceCollector
) -> None:
    with tracer.commit("counts", []) as commit:
        with tracer.ask("counts", "write", 3) as ask:
            inner = structlog.contextvars.get_contextvars()
        outer = structlog.contextvars.get_contextvars()
    assert structlog.contextvars.get_contextvars() == {}
    (span,) = collector.wait(lambda span: span.name == "write counts")
    (parent,) = collector.wait(lambda span: span.name == "commit counts")
    assert (span.trace, span.parent) == (parent.trace, parent.span)
    assert span.facts["streamtable.keys"] == 3
    assert inner == {"trace_id": span.trace, "span_id": span.span}
    assert outer == {"trace_id": parent.trace, "span_id": parent.span}
    assert commit.headers != ask.headers


def test_a_failed_span_has_the_class_of_the_error_and_not_its_text(
    tracer: OpenTelemetry, collector: TraceCollector
) -> None:
    with pytest.raises(ValueError, match="too large"), tracer.commit("counts", []):
        raise ValueError("too large")
    (span,) = collector.wait(lambda span: span.failed)
    assert span.facts["error.type"] == "ValueError"
    assert span.words == ""


def test_only_sampled_traces_are_sent_and_propagated(
    collector: TraceCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servicekit.process.otel._CLOSE_SECONDS", 60.0)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    with collecting(collector) as port, tracing(settings(port)) as tracer:
        assert tracer is not None
        kept = 0
        for _ in range(400):
            with tracer.serve("question", None) as span:
                kept += bool(span.headers)
        with tracer.serve("asked for", GIVEN.encode()), tracer.serve("not", GIVEN[:-1].encode() + b"0"):
            pass
    assert 50 < kept < 150
    assert len([span for span in collector.spans if span.name == "question"]) == kept
    assert [span.name for span in collector.spans if span.trace == TRACE] == ["asked for"]


def test_pending_spans_are_sent_at_the_end(
    collector: TraceCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    monkeypatch.setattr("servicekit.process.otel._CLOSE_SECONDS", 60.0)
    with collecting(collector) as port, tracing(settings(port)) as tracer:
        assert tracer is not None
        for _ in range(1000):
            tracer.send("clicks").end()
    assert len(collector.spans) == 1000


def test_an_unreachable_collector_is_logged_once_and_delays_neither_work_nor_the_end(
    collector: TraceCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with reserve_port() as reserved, capture_logs() as lines:
        port: int = reserved.getsockname()[1]
        with tracing(settings(port)) as tracer:
            assert tracer is not None
            for number in range(4):
                tracer.send("clicks").end()
                wait_for(lines, 1) if number == 0 else time.sleep(0.3)
            assert len(lines) == 1
            with collecting(collector, port):
                wait_for(lines, 2, tracer)
        with tracing(settings(port)) as tracer:
            assert tracer is not None
            tracer.send("clicks").end()
            end = Deadline(5)
        assert not end.passed()
    reported = [(line["log_level"], line["event"]) for line in lines[:2]]
    assert reported == [
        ("warning", "traces are dropped until a collector accepts them; nothing else is affected"),
        ("info", "traces are accepted again"),
    ]
    assert lines[1]["dropped"] >= 1


def wait_for(lines: list[Any], count: int, tracer: Any = None) -> None:
    end = Deadline(20)
    while len(lines) < count:
        assert not end.passed(), lines
        if tracer is not None:
            tracer.send("clicks").end()
        time.sleep(0.05)


# ---- requests ------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(tracer: OpenTelemetry) -> Iterator[httpx.Client]:
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", edge=HttpEdge(tracer=tracer))

    @app.get("/items/{name}")
    def item(name: str) -> Any:
        if name == "broken":
            raise RetryLater(name)
        return Response(json.dumps(structlog.contextvars.get_contextvars()))

    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()


def test_a_request_continues_the_trace_of_its_caller_and_returns_its_span_id(
    client: httpx.Client, collector: TraceCollector
) -> None:
    answer = client.get("/items/secret", headers={"traceparent": GIVEN})
    (span,) = collector.wait(lambda span: span.kind == "server")
    assert (span.name, span.trace, span.parent) == ("GET /items/{name}", TRACE, PARENT)
    assert span.facts["http.request.method"] == "GET"
    assert span.facts["http.route"] == "/items/{name}"
    assert span.facts["http.response.status_code"] == 200
    assert "secret" not in str(span)
    assert answer.headers["traceresponse"] == f"00-{TRACE}-{span.span}-01"
    assert answer.json() == {"trace_id": TRACE, "span_id": span.span}


def test_the_id_of_an_unsampled_trace_is_still_in_the_log(
    client: httpx.Client, collector: TraceCollector
) -> None:
    answer = client.get("/items/a", headers={"traceparent": f"{GIVEN[:-1]}0"})
    assert answer.json()["trace_id"] == TRACE
    client.get("/items/b")
    collector.wait(lambda span: span.kind == "server")
    assert TRACE not in {span.trace for span in collector.spans}


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", "nonsense")],
        [("traceparent", GIVEN)] * 2,
        [("traceparent", GIVEN.replace("0a", "\xff"))],
    ],
)
def test_an_invalid_trace_context_begins_a_new_trace(
    client: httpx.Client, collector: TraceCollector, headers: Any
) -> None:
    assert client.get(
        "/items/a", headers=[(name, value.encode("latin-1")) for name, value in headers]
    ).is_success
    (span,) = collector.wait(lambda span: span.kind == "server")
    assert span.trace != TRACE
    assert span.parent == ""


def test_server_errors_mark_the_span_as_failed_and_client_errors_do_not(
    client: httpx.Client, collector: TraceCollector
) -> None:
    client.get("/items/broken")
    client.get("/nothing")
    (failed,) = collector.wait(lambda span: span.facts.get("http.response.status_code") == 503)
    (refused,) = collector.wait(lambda span: span.facts.get("http.response.status_code") == 404)
    assert failed.failed
    assert failed.facts["error.type"] == "503"
    assert (refused.name, refused.failed) == ("GET", False)


def test_health_and_metrics_are_not_traced(client: httpx.Client, collector: TraceCollector) -> None:
    for path in ("/livez", "/readyz", "/metrics", "/items/a"):
        client.get(path)
    collector.wait(lambda span: span.name == "GET /items/{name}")
    assert len(collector.spans) == 1


def echo(request: bytes, context: Any) -> bytes:
    if request == b"unknown":
        raise CallRefused(grpc.StatusCode.NOT_FOUND, "no such thing")
    if request == b"broken":
        raise RetryLater("away")
    return json.dumps(structlog.contextvars.get_contextvars()).encode()


def register(server: Any) -> None:
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))


@pytest.fixture
def method(tracer: OpenTelemetry) -> Iterator[Any]:
    server = GrpcServer("127.0.0.1", 0, register, ready=lambda: True, streams=Streams(), tracer=tracer)
    channel: Any
    with grpc.insecure_channel(server.start()) as channel:
        yield channel.unary_unary("/test.Echo/Echo")
    server.stop()


def test_a_call_continues_the_trace_of_its_caller_into_the_thread_that_answers(
    method: Any, collector: TraceCollector
) -> None:
    answer, call = method.with_call(b"x", timeout=5, metadata=[("traceparent", GIVEN)])
    (span,) = collector.wait(lambda span: span.kind == "server")
    assert (span.name, span.trace, span.parent) == ("test.Echo/Echo", TRACE, PARENT)
    assert span.facts["rpc.response.status_code"] == "OK"
    assert json.loads(answer) == {"trace_id": TRACE, "span_id": span.span}
    assert dict(call.initial_metadata())["traceresponse"] == f"00-{TRACE}-{span.span}-01"


@pytest.mark.parametrize(
    ("request_", "code", "failed"), [("unknown", "NOT_FOUND", False), ("broken", "UNAVAILABLE", True)]
)
def test_the_span_of_a_rejected_call_has_its_code(
    method: Any, collector: TraceCollector, request_: str, code: str, *, failed: bool
) -> None:
    with pytest.raises(grpc.RpcError):
        method(request_.encode(), timeout=5)
    (span,) = collector.wait(lambda span: span.kind == "server")
    assert (span.facts["rpc.response.status_code"], span.failed) == (code, failed)
