"""Metrics of the calls of a gRPC server, under the names that dashboards for gRPC servers expect."""

from dataclasses import dataclass
from typing import Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

UNKNOWN: Final = ("unknown", "unknown")
"""The service and method labels of calls to methods that do not exist: labels must not be the caller's choice."""
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


@dataclass(frozen=True)
class CallMetrics:
    """The instruments of one server.

    Attributes:
        handled: Calls that have ended, by service, method and code.
        seconds: The duration of unary calls, by service and method.
        open_streams: Streams that are open, by service and method.
    """

    handled: Counter
    seconds: Histogram
    open_streams: Gauge

    @classmethod
    def register(cls, registry: CollectorRegistry) -> Self:
        """Create the instruments in a registry, once for each registry."""
        method = ("grpc_service", "grpc_method")
        return cls(
            handled=Counter(
                "grpc_server_handled", "Calls that have ended", (*method, "grpc_code"), registry=registry
            ),
            seconds=Histogram(
                "grpc_server_handling_seconds",
                "Duration of unary calls",
                method,
                buckets=_SECONDS,
                registry=registry,
            ),
            open_streams=Gauge(
                "grpc_server_open_streams", "Streams that are open", method, registry=registry
            ),
        )


def labels_of(path: str) -> tuple[str, str]:
    """Return service and method of a path "/service/method"."""
    service, _, method = path.lstrip("/").partition("/")
    return service, method
