"""Callers behind a trusted proxy, and callers that pretend to be one."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from servicekit.auth.access import Admission
from servicekit.auth.proxies import TrustedProxies, networks_of
from servicekit.auth.rate_limit import RateLimiter
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.audit import AuditEntry, AuditTrail
from servicekit.http.server import HttpServer


@contextmanager
def serving(trusted: str, noted: list[AuditEntry]) -> Iterator[httpx.Client]:
    edge = HttpEdge(
        Admission(None, RateLimiter(0.001, 1)),
        audit=AuditTrail(noted.append),
        proxies=TrustedProxies(networks_of(trusted)),
    )
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", edge=edge)

    @app.post("/items")
    def add() -> str:
        return "added"

    server = HttpServer(app, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.start(), timeout=30) as client:
            yield client
    finally:
        server.stop()


def ask(client: httpx.Client, *forwarded: str) -> int:
    return client.post("/items", headers=[("Forwarded", value) for value in forwarded]).status_code


def test_limits_and_audit_use_the_caller_that_a_trusted_proxy_names() -> None:
    noted: list[AuditEntry] = []
    with serving("127.0.0.1", noted) as client:
        assert ask(client, "for=192.0.2.1") == 200
        assert ask(client, "for=192.0.2.2") == 200
        assert ask(client, "for=192.0.2.9", "for=192.0.2.2") == 429
        assert ask(client) == 200
    assert [entry.peer for entry in noted] == ["192.0.2.1", "192.0.2.2", "192.0.2.2", "127.0.0.1"]


@pytest.mark.parametrize("trusted", ["127.0.0.2", "10.0.0.0/8"])
def test_the_forwarded_header_of_an_untrusted_peer_is_ignored(trusted: str) -> None:
    noted: list[AuditEntry] = []
    with serving(trusted, noted) as client:
        assert [ask(client, "for=192.0.2.1"), ask(client, "for=192.0.2.2")] == [200, 429]
    assert {entry.peer for entry in noted} == {"127.0.0.1"}
