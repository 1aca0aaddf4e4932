"""Requests by pages of other sites, and by DNS rebinding, are rejected."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from servicekit.http.app import HttpEdge, build_app
from servicekit.http.origins import BrowserRules
from servicekit.http.problems import MEDIA_TYPE
from servicekit.http.server import HttpServer
from streamtable.base.hosts import OwnHosts

OWN = OwnHosts(frozenset({"service.example", "*.svc"}))


@contextmanager
def serving(rules: BrowserRules) -> Iterator[httpx.Client]:
    edge = HttpEdge(browsers=rules, public=frozenset({"/page"}))
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"up 1\n", edge=edge)

    @app.get("/items")
    def items() -> str:
        return "items"

    @app.get("/page")
    def page() -> str:
        return "page"

    @app.post("/items")
    def add(item: dict[str, int]) -> str:
        return "added"

    server = HttpServer(app, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.start(), timeout=30) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(BrowserRules(OWN)) as found:
        yield found


@pytest.fixture(scope="module")
def closed() -> Iterator[httpx.Client]:
    """A client of an application that rejects reads too."""
    with serving(BrowserRules(OWN, reads=True)) as found:
        yield found


def write(client: httpx.Client, **headers: str) -> int:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/items", json={"a": 1}, headers=names).status_code


def test_a_server_answers_only_to_its_own_hosts(client: httpx.Client) -> None:
    port = client.base_url.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "service.example", "Query.Streamtable.svc:8080"):
        assert client.get("/items", headers={"Host": host}).status_code == 200
    for path in ("/items", "/page", "/metrics", "/openapi.json", "/nothing"):
        answer = client.get(path, headers={"Host": f"attacker.example:{port}"})
        assert answer.status_code == 421, path
        assert answer.headers["content-type"] == MEDIA_TYPE
        assert "SERVICEKIT_HOSTS" in answer.json()["detail"]
        assert "attacker" not in answer.text
    assert write(client, Host="attacker.example", Origin="http://attacker.example") == 421


def test_health_probes_may_name_any_host(client: httpx.Client) -> None:
    for path in ("/livez", "/readyz"):
        assert client.get(path, headers={"Host": "10.1.2.3:8080"}).status_code == 200
        assert client.get(path, headers={"Host": "kubelet.probe"}).status_code == 200


def test_a_request_that_names_two_origins_is_refused(client: httpx.Client) -> None:
    own = ("Origin", f"http://127.0.0.1:{client.base_url.port}")
    assert client.get("/items", headers=[own, ("Origin", "https://attacker.example")]).status_code == 400


def test_writes_of_programs_and_of_own_pages_are_accepted(client: httpx.Client) -> None:
    port = client.base_url.port
    own = f"http://127.0.0.1:{port}"
    assert write(client) == 200
    assert write(client, Origin=own, Sec_Fetch_Site="same-origin") == 200
    assert write(client, Sec_Fetch_Site="none") == 200
    # behind a proxy that ends TLS
    assert write(client, Host="service.example", Origin="https://service.example") == 200
    assert write(client, Host="service.example:443", Origin="https://service.example") == 200
    assert write(client, Origin="https://service.example", Sec_Fetch_Site="cross-site") == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://attacker.example", "Sec_Fetch_Site": "cross-site"},
        {"Origin": "https://attacker.example"},
        {"Origin": "http://127.0.0.1:1"},  # another program of the same machine
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "https://"},
        {"Origin": "http://[::1"},
        {"Origin": "ftp://service.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_writes_of_other_sites_pages_are_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    assert write(client, **headers) == 403


def test_reads_of_other_sites_pages_are_rejected_where_that_is_set(
    client: httpx.Client, closed: httpx.Client
) -> None:
    foreign = {"Origin": "https://attacker.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}
    for headers in foreign:
        assert client.get("/items", headers=headers).status_code == 200
        answer = closed.get("/items", headers=headers)
        assert answer.status_code == 403
        assert "another site" in answer.json()["detail"]
        # A link on another site may lead to the page itself, which holds no data.
        assert closed.get("/page", headers=headers).status_code == 200
    for headers in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert closed.get("/items", headers=headers).status_code == 200
