"""A span for each request over REST, named after its route."""

from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servicekit.http.metrics import PROBES, method_of, route_of
from servicekit.tracing import ServerTracer, context_of


class Trace:
    """ASGI middleware: a span for each request, named after its route, without any text of the caller."""

    def __init__(self, app: ASGIApp, tracer: ServerTracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        method = method_of(scope)
        with self._tracer.serve(method, context_of(scope["headers"])) as span:

            async def with_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.note(**{"http.response.status_code": status})
                    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                        span.fail(str(status))
                    message["headers"] = [*message["headers"], (b"traceresponse", span.traceresponse)]
                await send(message)

            try:
                await self._app(scope, receive, with_status)
            finally:
                span.note(**{"http.request.method": method})
                if (route := route_of(scope)) is not None:
                    span.rename(f"{method} {route}")
                    span.note(**{"http.route": route})
