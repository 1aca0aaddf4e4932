"""Traces of a service: whether there are any, and a span for each request over REST. No tracing library is known here.

`servicekit.otel` knows one. It is imported only where the environment says where traces go, so that a service without
them is as small, and as fast, as if there were no such thing.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, Self

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servicekit.measuring import method_of, route_of
from streamtable.errors import ConfigurationError
from streamtable.tracing import TRACEPARENT, Span, Tracer

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SAMPLERS: Final = frozenset(
    f"{parent}{root}"
    for parent in ("", "parentbased_")
    for root in ("always_on", "always_off", "traceidratio")
)
_UNTOLD: Final = frozenset(
    {"/livez", "/readyz", "/metrics"}
)  # asked every few seconds, by nobody who waits for it
_PROTOCOL: Final = "grpc"


class ServerSpan(Span, Protocol):
    """The answering of a request.

    Attributes:
        traceresponse: what the caller is told, in the form of `traceparent`: where to find it.
    """

    traceresponse: bytes

    def rename(self, name: str) -> None: ...

    def fail(self, reason: str) -> None:
        """It has ended badly, and that is not the caller's fault."""
        ...


class ServerTracer(Tracer, Protocol):
    """Is told of requests too."""

    def serve(self, name: str, traceparent: bytes | None) -> ServerSpan:
        """A request has come, with this header; one that is malformed counts as none."""
        ...


@dataclass(frozen=True)
class TraceSettings:
    """Where traces go, and how many: standard variables of OpenTelemetry.

    Attributes:
        endpoint: of a collector that takes OTLP over gRPC: `http://collector:4317`, `https://...` over TLS.
        service: what the process is called in traces.
        instance: tells apart its replicas.
        sampler: one of `SAMPLERS`. With `parentbased_` whoever calls decides for requests that come with a context.
        ratio: of the traces that begin here, how many are kept, 0 to 1; for `traceidratio`.
    """

    endpoint: str
    service: str
    instance: str
    sampler: str = "parentbased_always_on"
    ratio: float = 1.0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], service: str, instance: str) -> Self | None:
        """Read the settings; None if there are to be no traces.

        Args:
            environ: variables; those of the exporter itself, as its headers and certificates, it reads by itself.
            service: its name, unless OTEL_SERVICE_NAME says another.
            instance: of this process.

        Raises:
            ConfigurationError: lists what is wrong.
        """
        endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get(ENDPOINT)
        exporter = environ.get("OTEL_TRACES_EXPORTER") or "otlp"
        if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporter == "none":
            return None
        protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL"
        )
        sampler = environ.get("OTEL_TRACES_SAMPLER") or cls.sampler
        ratio = environ.get("OTEL_TRACES_SAMPLER_ARG") or "1"
        problems = []
        if not endpoint.startswith(("http://", "https://")):
            problems.append(
                f"{ENDPOINT}={endpoint!r}: expected http://host:port, or https://host:port for TLS"
            )
        if exporter != "otlp":
            problems.append(f"OTEL_TRACES_EXPORTER={exporter!r}: expected otlp or none")
        if protocol not in {None, "", _PROTOCOL}:
            problems.append(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: expected grpc")
        if sampler not in SAMPLERS:
            problems.append(f"OTEL_TRACES_SAMPLER={sampler!r}: expected {', '.join(sorted(SAMPLERS))}")
        if not 0 <= _number(ratio) <= 1:
            problems.append(f"OTEL_TRACES_SAMPLER_ARG={ratio!r}: expected a number from 0 to 1")
        if problems:
            raise ConfigurationError("\n".join(["settings are wrong; nothing was started:", *problems]))
        return cls(endpoint, environ.get("OTEL_SERVICE_NAME") or service, instance, sampler, _number(ratio))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@contextmanager
def tracing(settings: TraceSettings | None) -> Iterator[ServerTracer | None]:
    """A tracer for the block; None without settings. At the end it sends what it has, for a few seconds at most.

    Raises:
        ConfigurationError: what sends traces is not installed.
    """
    if settings is None:
        yield None
        return
    try:
        from servicekit.otel import OpenTelemetry  # noqa: PLC0415 - for those who want traces only
    except ImportError as error:
        raise ConfigurationError(
            f"{ENDPOINT} is set, but what sends traces is not installed: pip install 'servicekit[tracing]', or "
            f"unset it ({error})"
        ) from error
    tracer = OpenTelemetry(settings)
    try:
        yield tracer
    finally:
        tracer.close()


def context_of(metadata: Iterable[tuple[str | bytes, str | bytes]]) -> bytes | None:
    """The context that a request comes with, of its headers or metadata. Of two, neither counts."""
    names = (TRACEPARENT, TRACEPARENT.encode())
    given = [value for name, value in metadata if name in names]
    if len(given) != 1:
        return None
    return given[0] if isinstance(given[0], bytes) else given[0].encode()


class Trace:
    """ASGI middleware: a span for each request, named after its route. Nothing of the caller's text is in it."""

    def __init__(self, app: ASGIApp, tracer: ServerTracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTOLD:
            await self._app(scope, receive, send)
            return
        method = method_of(scope)
        with self._tracer.serve(method, context_of(scope["headers"])) as span:

            async def told(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.note(**{"http.response.status_code": status})
                    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                        span.fail(str(status))
                    message["headers"] = [*message["headers"], (b"traceresponse", span.traceresponse)]
                await send(message)

            try:
                await self._app(scope, receive, told)
            finally:
                span.note(**{"http.request.method": method})
                if (route := route_of(scope)) is not None:
                    span.rename(f"{method} {route}")
                    span.note(**{"http.route": route})
