"""Authentication, rate limits and response headers of a REST application."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import httpx
import pytest

from servicekit.auth.access import Admission
from servicekit.auth.authentication import ApiKey, ApiKeys
from servicekit.auth.rate_limit import RateLimiter
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.problems import MEDIA_TYPE
from servicekit.http.server import HttpServer

READER = {"Authorization": "Bearer reader's"}
WRITER = {"Authorization": "Bearer writer's"}
KEYS = ApiKeys(
    [
        ApiKey("reader", frozenset({"read"}), sha256(b"reader's").digest()),
        ApiKey("writer", frozenset({"write"}), sha256(b"writer's").digest()),
    ]
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def serving(edge: HttpEdge) -> Iterator[httpx.Client]:
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"up 1\n", edge=edge)

    @app.get("/items")
    def items() -> str:
        return "items"

    @app.post("/items")
    def add(item: dict[str, int]) -> str:
        return "added"

    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()


def assert_problem(response: httpx.Response, status: int) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == MEDIA_TYPE
    assert "'s" not in response.text


def test_callers_without_a_valid_credential_get_401() -> None:
    with serving(HttpEdge(Admission(KEYS))) as client:
        assert client.get("/items", headers=READER).json() == "items"
        assert client.get("/items", headers={"X-API-Key": "reader's"}).json() == "items"
        assert_problem(client.get("/items", headers={"X-API-Key": "stranger's"}), 401)
        both = {"X-API-Key": "reader's", "Authorization": "Bearer reader's"}
        assert_problem(client.get("/items", headers=both), 401)
        response = client.get("/items")
        assert_problem(response, 401)
        assert response.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer stranger's", "Basic reader's", "", "reader's"):
            response = client.get("/items", headers={"Authorization": wrong})
            assert_problem(response, 401)
            assert response.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert_problem(client.get("/nothing"), 401)
        assert_problem(client.get("/openapi.json"), 401)
        twice = [("Authorization", "Bearer x"), ("Authorization", "Bearer reader's")]
        assert_problem(client.get("/items", headers=twice), 400)
        for name in ("Streamtable-Token", "Last-Event-ID"):
            repeated = [("X-API-Key", "reader's"), (name, "a"), (name, "b")]
            assert_problem(client.get("/items", headers=repeated), 400)


def test_the_body_of_an_unauthenticated_caller_is_not_read() -> None:
    with serving(HttpEdge(Admission(KEYS))) as client:
        assert_problem(client.post("/items", content=iter([b"[" * 10]), headers={}), 415)
        assert_problem(client.post("/items", content=b"x" * 10**7, headers=json_type({})), 413)
        assert_problem(client.post("/items", content=iter([b" " * 10**5] * 100), headers=json_type({})), 401)


def json_type(headers: dict[str, str]) -> dict[str, str]:
    return {"Content-Type": "application/json", **headers}


def test_reading_and_writing_need_their_scopes() -> None:
    with serving(HttpEdge(Admission(KEYS))) as client:
        assert client.post("/items", json={"a": 1}, headers=WRITER).json() == "added"
        response = client.post("/items", json={"a": 1}, headers=READER)
        assert_problem(response, 403)
        assert response.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="write"'
        assert_problem(client.get("/items", headers=WRITER), 403)


def test_health_is_public_and_metrics_and_docs_follow_their_settings() -> None:
    with serving(HttpEdge(Admission(KEYS), docs=True)) as client:
        for path in ("/livez", "/readyz", "/metrics", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
    with serving(HttpEdge(Admission(KEYS), metrics_public=False)) as client:
        assert client.get("/livez").status_code == 200
        assert_problem(client.get("/metrics"), 401)
        assert client.get("/metrics", headers=READER).text == "up 1\n"
        for path in ("/metrics/", "//metrics", "/METRICS", "/livez/../items", "/livez/../metrics"):
            assert client.get(path).status_code in {401, 404}


def test_a_rate_limited_caller_learns_when_to_retry() -> None:
    clock = Clock()
    limiter = RateLimiter(0.1, 2, clock=clock)
    with serving(HttpEdge(Admission(KEYS, limiter))) as client:
        response = client.get("/items", headers=READER)
        assert response.headers["ratelimit-policy"] == '"caller";q=2;w=20'
        assert response.headers["ratelimit"] == '"caller";r=1;t=10'
        client.get("/items", headers=READER)
        response = client.get("/items", headers=READER)
        assert_problem(response, 429)
        assert response.headers["retry-after"] == "10"
        assert response.headers["ratelimit"] == '"caller";r=0;t=20'
        assert client.post("/items", json={}, headers=WRITER).status_code == 200
        assert client.get("/livez").status_code == 200
        clock.now += 10
        assert client.get("/items", headers=READER).status_code == 200


def test_callers_without_names_are_counted_by_address() -> None:
    limiter = RateLimiter(0.1, 1, clock=Clock())
    with serving(HttpEdge(Admission(None, limiter))) as client:
        assert client.get("/items").status_code == 200
        assert_problem(client.get("/items"), 429)
        forged = {"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1"}
        assert_problem(client.get("/items", headers=forged), 429)


@pytest.mark.parametrize("path", ["/items", "/nothing", "/livez"])
def test_responses_have_security_headers_and_no_server_header(path: str) -> None:
    with serving(HttpEdge()) as client:
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
        assert "x-powered-by" not in headers


def test_the_page_that_shows_the_api_may_run_its_own_scripts_only() -> None:
    with serving(HttpEdge(docs=True)) as client:
        response = client.get("/docs")
        policies = response.headers.get_list("content-security-policy")
        assert len(policies) == 1
        assert "default-src 'none'" in policies[0]
        scripts = next(part for part in policies[0].split("; ") if part.startswith("script-src"))
        assert "unsafe-inline" not in scripts
        assert scripts.count("'sha256-") == response.text.count("<script>") == 1
