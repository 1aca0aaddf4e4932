"""The entries of the audit trail."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import httpx

from servicekit.auth.access import Admission
from servicekit.auth.authentication import ApiKey, ApiKeys
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.audit import AuditEntry, AuditTrail
from servicekit.http.server import HttpServer

KEYS = ApiKeys(
    [
        ApiKey("reader", frozenset({"read"}), sha256(b"reader's").digest()),
        ApiKey("writer", frozenset({"shop/write", "shop/read"}), sha256(b"writer's").digest()),
        ApiKey("neighbour", frozenset({"stock/write", "stock/read"}), sha256(b"neighbour's").digest()),
    ]
)


@contextmanager
def serving(noted: list[AuditEntry]) -> Iterator[httpx.Client]:
    admission = Admission(KEYS, service="shop")
    edge = HttpEdge(admission, audit=AuditTrail(noted.append, reads=("/records/",)))
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", edge=edge)

    @app.get("/items")
    def items() -> str:
        return "items"

    @app.get("/records/{topic}")
    def records(topic: str) -> str:
        return topic

    @app.post("/items/{item}")
    def add(item: str, body: dict[str, int]) -> str:
        return item

    server = HttpServer(app, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.start(), timeout=30) as client:
            yield client
    finally:
        server.stop()


def named(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}'s"}


def test_each_write_and_each_read_of_records_is_audited_with_caller_path_peer_and_status() -> None:
    noted: list[AuditEntry] = []
    with serving(noted) as client:
        assert client.post("/items/a%20b", json={"n": 1}, headers=named("writer")).status_code == 200
        assert client.post("/items/c", json={"n": "x"}, headers=named("writer")).status_code == 422
        assert client.get("/records/clicks?prefix=secret", headers=named("reader")).status_code == 200
    assert noted == [
        AuditEntry("writer", "POST", "/items/a b", "127.0.0.1", 200),
        AuditEntry("writer", "POST", "/items/c", "127.0.0.1", 422),
        AuditEntry("reader", "GET", "/records/clicks", "127.0.0.1", 200),
    ]


def test_rejected_requests_are_audited_with_the_caller_if_known() -> None:
    noted: list[AuditEntry] = []
    with serving(noted) as client:
        client.post("/items/c", json={"n": 1}, headers=named("reader"))
        client.post("/items/c", json={"n": 1}, headers=named("stranger"))
        client.post("/items/c", json={"n": 1})
        client.post("/items/c", json={"n": 1}, headers={"Host": "attacker.example"})
    assert [(each.caller, each.status) for each in noted] == [
        ("reader", 403),
        (None, 401),
        (None, 401),
        (None, 421),
    ]


def test_other_reads_and_probes_are_not_audited() -> None:
    noted: list[AuditEntry] = []
    with serving(noted) as client:
        for path in ("/items", "/livez", "/metrics", "/openapi.json"):
            assert client.get(path, headers=named("reader")).status_code == 200
    assert noted == []


def test_a_key_of_another_service_is_rejected_for_every_request() -> None:
    with serving([]) as client:
        assert client.get("/items", headers=named("writer")).status_code == 200
        for answer in (
            client.get("/items", headers=named("neighbour")),
            client.get("/records/clicks", headers=named("neighbour")),
            client.post("/items/c", json={"n": 1}, headers=named("neighbour")),
        ):
            assert answer.status_code == 403
            assert "scope" in answer.json()["detail"]
