"""Prometheus metrics of requests: their number, outcome and duration."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from servicekit.http.connections import REASONS

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_NONE: Final = "none"
PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Routes of probes and scrapers. A 503 of `/readyz` at the start is a valid answer and not a failure."""


@dataclass(frozen=True)
class HttpMetrics:
    """The instruments of a process's REST server. No label holds a caller's text.

    Attributes:
        requests: The number of requests by method, route (its template, such as `/clicks/{user}`; "none" if no route matches) and
            status ("none" if the caller disconnected before the response).
        seconds: The time from a request's head to the start of its answer, by route.
        in_flight: The number of requests whose response has not ended, including open streams.
        dropped: The number of dropped connections, by reason.
    """

    requests: Counter
    seconds: Histogram
    in_flight: Gauge
    dropped: Counter

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Create the instruments in a registry, once for each registry."""
        made = cls(
            Counter("http_requests", "Requests", ("method", "route", "status"), registry=registry),
            Histogram(
                "http_request_seconds",
                "Time to the start of the answer",
                ("route",),
                buckets=_SECONDS,
                registry=registry,
            ),
            Gauge("http_requests_in_flight", "Requests whose answer has not ended", registry=registry),
            Counter("http_connections_dropped", "Connections dropped", ("reason",), registry=registry),
        )
        for reason in REASONS:
            made.dropped.labels(reason)
        return made

    def count_dropped(self, reason: str) -> None:
        self.dropped.labels(reason).inc()


class Measure:
    """ASGI middleware that measures requests, outside of all others.

    Args:
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, app: ASGIApp, metrics: HttpMetrics, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = self._clock()
        status = _NONE

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
                self._metrics.seconds.labels(_route(scope)).observe(self._clock() - begun)
            await send(message)

        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, observed)
            finally:
                self._metrics.requests.labels(method_of(scope), _route(scope), status).inc()


def method_of(scope: Scope) -> str:
    """Return a request's method; "other" if it is not a standard one."""
    method: str = scope["method"]
    return method if method in _METHODS else "other"


def route_of(scope: Scope) -> str | None:
    """Return the template of the route that was found, such as `/clicks/{user}`."""
    return getattr(scope.get("route"), "path", None)


def _route(scope: Scope) -> str:
    return route_of(scope) or _NONE
