import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest

from click_count.emitter import build_emitter
from contracts.records import UserClick
from servicekit.http.produce import SendTimeouts
from servicekit.http.server import HttpServer
from streamtable.base.types import Ack
from streamtable.errors import RetryLater

ID = "0190f6a2-5a7c-7c3e-8f3e-1d2c3b4a5968"
NEW_ID = UUID(int=7, version=4)
NOW_MS = 1_700_000_000_000


class MemoryEmitter:
    """Acknowledges all clicks except from the users `silent` (never), `late` (with an error) and `full` (refused)."""

    def __init__(self) -> None:
        self.records: list[tuple[str, UserClick]] = []

    def emit(self, key: str, value: UserClick) -> "Future[Ack]":
        future: Future[Ack] = Future()
        if key == "full":
            raise RetryLater("the queue is full")
        if key == "late":
            future.set_exception(RetryLater("not acknowledged in time"))
        elif key != "silent":
            future.set_result(Ack("user-clicks", 3, len(self.records)))
            self.records.append((key, value))
        return future

    def close(self, timeout: float) -> None: ...


@contextmanager
def serving(timeouts: SendTimeouts) -> Iterator[tuple[MemoryEmitter, httpx.Client]]:
    emitter = MemoryEmitter()
    app = build_emitter(
        emitter,
        ready=lambda: True,
        metrics=lambda: b"",
        new_id=lambda: NEW_ID,
        now_ms=lambda: NOW_MS,
        timeouts=timeouts,
    )
    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield emitter, client
    server.stop()


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[MemoryEmitter, httpx.Client]]:
    with serving(SendTimeouts(delivery=4.0, wait=5.0)) as made:  # a stall of a busy machine is shorter
        yield made


@pytest.fixture
def emitter(shared: tuple[MemoryEmitter, httpx.Client]) -> MemoryEmitter:
    shared[0].records.clear()
    return shared[0]


@pytest.fixture
def client(shared: tuple[MemoryEmitter, httpx.Client]) -> httpx.Client:
    return shared[1]


def click(**changes: Any) -> dict[str, Any]:
    return {"user_id": "alice", "url": "https://example.org/", **changes}


def test_one_click_is_answered_with_its_place_in_kafka_and_a_token(
    emitter: MemoryEmitter, client: httpx.Client
) -> None:
    response = client.post("/clicks", json=click(id=ID, at=5))
    assert response.status_code == 201
    token = "user-clicks:3:0"
    assert response.json() == {"id": ID, "partition": 3, "offset": 0, "token": token}
    assert response.headers["streamtable-token"] == token
    expected = UserClick(id=ID, user_id="alice", url="https://example.org/", at=5)
    assert emitter.records == [("alice", expected)]


def test_id_and_time_are_given_where_they_are_missing(emitter: MemoryEmitter, client: httpx.Client) -> None:
    assert client.post("/clicks", json=click()).json()["id"] == str(NEW_ID)
    assert emitter.records[0][1]["at"] == NOW_MS


def test_a_list_is_answered_in_its_order(emitter: MemoryEmitter, client: httpx.Client) -> None:
    response = client.post("/clicks", json=[click(user_id=f"u{n}") for n in range(1000)])
    assert response.status_code == 200
    assert [accepted["offset"] for accepted in response.json()["accepted"]] == list(range(1000))


def test_ids_are_kept_in_lower_case(client: httpx.Client) -> None:
    assert client.post("/clicks", json=click(id=ID.upper())).json()["id"] == ID


@pytest.fixture(scope="module")
def impatient() -> Iterator[httpx.Client]:
    """Of a service that waits for half a second."""
    with serving(SendTimeouts(delivery=0.2, wait=0.5)) as (_, client):
        yield client


@pytest.mark.parametrize("user", ["silent", "late", "full"])
def test_what_kafka_did_not_acknowledge_is_reported_with_503(impatient: httpx.Client, user: str) -> None:
    response = impatient.post("/clicks", json=[click(), click(user_id=user, id=ID)])
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    document = response.json()
    assert [accepted["id"] for accepted in document["accepted"]] == [str(NEW_ID)]
    assert document["unknown"] == [ID]


def test_nothing_is_sent_after_a_full_queue(emitter: MemoryEmitter, client: httpx.Client) -> None:
    response = client.post("/clicks", json=[click(user_id="full", id=ID), click()])
    assert response.json()["unknown"] == [ID, str(NEW_ID)]
    assert emitter.records == []


BAD_CLICKS = [
    {},
    {"user_id": "alice"},
    click(user_id=""),
    click(user_id="x" * 129),
    click(user_id="a\x00"),
    click(user_id="a\nb"),
    click(user_id="a/b"),
    click(user_id="\ufffd"),
    click(user_id=7),
    click(user_id=None),
    click(url=""),
    click(url="x" * 2049),
    click(url="a\r\nb"),
    click(url="https://example.org/\ufffd"),  # as no address can ask for it
    click(url=["https://example.org/"]),
    click(id="7"),
    click(id="urn:uuid:" + ID),
    click(id="{" + ID + "}"),
    click(id=ID.replace("-", "")),
    click(id=7),
    click(at=-1),
    click(at=2**53),
    click(at=2**64),
    click(at=1.5),
    click(at="5"),
    click(at=True),
    click(at=[]),
    click(extra=1),
    [],
    [click(), {}],
    [click()] * 1001,
    [[click()]],
    "alice",
    7,
    None,
]


@pytest.mark.parametrize("body", BAD_CLICKS)
def test_what_is_no_click_is_refused_whole(emitter: MemoryEmitter, client: httpx.Client, body: Any) -> None:
    response = client.post("/clicks", content=json.dumps(body), headers={"content-type": "application/json"})
    assert response.status_code == 422, response.text
    assert response.json()["errors"]
    assert emitter.records == []


@pytest.mark.parametrize(
    "text",
    [
        b'{"user_id": "a", "url": "b", "at": NaN}',
        b'{"user_id": "a", "url": "b", "at": 1e400}',
        b'{"user_id": "\\ud800", "url": "b"}',
        b'{"user_id": "a", "url": "\\ud800"}',
        b'{"user_id": "a", "url": "b", "at": ' + b"9" * 5000 + b"}",
        b'{"user_id": "\xff", "url": "b"}',
        b"[" * 100_000,
        b"",
        b"{",
        b"\xef\xbb\xbf{}",
    ],
)
def test_hostile_json_is_an_error_of_the_caller(
    emitter: MemoryEmitter, client: httpx.Client, text: bytes
) -> None:
    response = client.post("/clicks", content=text, headers={"content-type": "application/json"})
    assert response.status_code in {400, 422}
    assert response.headers["content-type"] == "application/problem+json"
    assert emitter.records == []


def test_too_large_a_body_is_refused(client: httpx.Client) -> None:
    response = client.post("/clicks", content=b" " * 600_000, headers={"content-type": "application/json"})
    assert response.status_code == 413


def test_other_methods_and_parameters_are_refused(client: httpx.Client) -> None:
    assert client.get("/clicks").status_code == 405
    assert client.post("/clicks?x=1", json=click()).status_code == 422
    assert client.post("/clicks", data={"user_id": "alice"}).status_code == 415


def test_a_time_far_ahead_of_the_clock_is_refused_with_its_bound_and_nothing_is_sent(
    emitter: MemoryEmitter, client: httpx.Client
) -> None:
    response = client.post("/clicks", json=[click(at=NOW_MS + 300_000), click(at=NOW_MS + 300_001)])
    assert response.status_code == 422
    bound = "must be at most 300 seconds ahead of the clock of the service"
    assert response.json()["errors"] == [{"where": "body.1.at", "what": bound}]
    assert emitter.records == []
    assert client.post("/clicks", json=click(at=NOW_MS + 300_000)).status_code == 201
