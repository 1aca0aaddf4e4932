from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from localkafka.waiting import wait_until
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.metrics import HttpMetrics
from servicekit.http.server import HttpServer


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def client(registry: CollectorRegistry) -> Iterator[httpx.Client]:
    edge = HttpEdge(measured=HttpMetrics.register(registry))
    app = build_app("test", "1", ready=lambda: False, metrics=lambda: b"", edge=edge)

    @app.get("/items/{name}")
    def item(name: str) -> float | None:
        return registry.get_sample_value("http_requests_in_flight")

    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()


def count(registry: CollectorRegistry, method: str, route: str, status: str) -> float | None:
    labels = {"method": method, "route": route, "status": status}
    return registry.get_sample_value("http_requests_total", labels)


def test_requests_are_counted_by_method_route_and_status(
    client: httpx.Client, registry: CollectorRegistry
) -> None:
    for path in ("/items/a", "/items/b", "/items/%00", "/readyz", "/nothing", "/x" * 2000):
        client.get(path)
    client.post("/items/a")
    client.request("EVIL", "/items/a")
    wait_until(lambda: count(registry, "other", "/items/{name}", "405") == 1)
    assert count(registry, "GET", "/items/{name}", "200") == 2
    assert count(registry, "GET", "/readyz", "503") == 1
    assert count(registry, "GET", "none", "400") == 1  # rejected before routing
    assert count(registry, "GET", "none", "404") == 1
    assert count(registry, "GET", "none", "414") == 1
    assert count(registry, "POST", "/items/{name}", "405") == 1


def test_the_response_time_is_measured_by_route(client: httpx.Client, registry: CollectorRegistry) -> None:
    client.get("/items/a")
    labels = {"route": "/items/{name}"}
    assert registry.get_sample_value("http_request_seconds_count", labels) == 1
    assert 0 < (registry.get_sample_value("http_request_seconds_sum", labels) or 0) < 5


def test_requests_in_flight_are_counted(client: httpx.Client, registry: CollectorRegistry) -> None:
    assert client.get("/items/a").json() == 1
    wait_until(lambda: registry.get_sample_value("http_requests_in_flight") == 0)
