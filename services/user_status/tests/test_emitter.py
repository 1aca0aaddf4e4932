import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest

from contracts.records import UserStatusUpdate
from servicekit.http.produce import SendTimeouts
from servicekit.http.server import HttpServer
from streamtable.base.types import Ack
from streamtable.errors import RetryLater
from user_status.emitter import build_emitter

ID = "0190f6a2-5a7c-7c3e-8f3e-1d2c3b4a5968"
NEW_ID = UUID(int=7, version=4)
NOW_MS = 1_700_000_000_000


class MemoryEmitter:
    """Acknowledges all updates except from the users `silent` (never), `late` (with an error) and `full` (refused)."""

    def __init__(self) -> None:
        self.records: list[tuple[str, UserStatusUpdate]] = []

    def emit(self, key: str, value: UserStatusUpdate) -> "Future[Ack]":
        future: Future[Ack] = Future()
        if key == "full":
            raise RetryLater("the queue is full")
        if key == "late":
            future.set_exception(RetryLater("not acknowledged in time"))
        elif key != "silent":
            future.set_result(Ack("user-status-updates", 3, len(self.records)))
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


def update(**changes: Any) -> dict[str, Any]:
    return {"user_id": "alice", "status": "at lunch", **changes}


def test_a_status_is_answered_with_its_place_in_kafka_and_a_token(
    emitter: MemoryEmitter, client: httpx.Client
) -> None:
    response = client.put("/users/alice/status", json={"status": "at lunch", "id": ID, "at": 5})
    assert response.status_code == 200
    token = "user-status-updates:3:0"
    assert response.json() == {"id": ID, "partition": 3, "offset": 0, "token": token}
    assert response.headers["streamtable-token"] == token
    expected = UserStatusUpdate(id=ID, user_id="alice", status="at lunch", at=5)
    assert emitter.records == [("alice", expected)]


def test_id_and_time_are_given_where_they_are_missing(emitter: MemoryEmitter, client: httpx.Client) -> None:
    response = client.put("/users/%C3%A9%20%E7%94%A8/status", json={"status": "🎵"})
    assert response.json()["id"] == str(NEW_ID)
    user, record = emitter.records[0]
    assert (user, record["user_id"], record["status"], record["at"]) == ("é 用", "é 用", "🎵", NOW_MS)


def test_a_list_is_answered_in_its_order(emitter: MemoryEmitter, client: httpx.Client) -> None:
    response = client.post("/statuses", json=[update(user_id=f"u{n}") for n in range(1000)])
    assert response.status_code == 200
    accepted = response.json()["accepted"]
    assert [each["offset"] for each in accepted] == list(range(1000))
    assert accepted[7]["token"] == "user-status-updates:3:7"


@pytest.fixture(scope="module")
def impatient() -> Iterator[httpx.Client]:
    """Of a service that waits for half a second."""
    with serving(SendTimeouts(delivery=0.2, wait=0.5)) as (_, client):
        yield client


@pytest.mark.parametrize("user", ["silent", "late", "full"])
def test_what_kafka_did_not_acknowledge_is_reported_with_503(impatient: httpx.Client, user: str) -> None:
    response = impatient.post("/statuses", json=[update(), update(user_id=user, id=ID)])
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    document = response.json()
    assert [each["id"] for each in document["accepted"]] == [str(NEW_ID)]
    assert document["unknown"] == [ID]
    alone = impatient.put(f"/users/{user}/status", json={"status": "x", "id": ID})
    assert (alone.status_code, alone.json()["unknown"]) == (503, [ID])


BAD_STATUSES: list[Any] = [
    {},
    {"status": ""},
    {"status": "x" * 281},
    {"status": "a\nb"},
    {"status": "\x85"},
    {"status": 7},
    {"status": None},
    {"status": "x", "id": "7"},
    {"status": "x", "id": "{" + ID + "}"},
    {"status": "x", "at": -1},
    {"status": "x", "at": 2**53},
    {"status": "x", "at": "5"},
    {"status": "x", "at": True},
    {"status": "x", "user_id": "alice"},
    {"status": "x", "more": 1},
    [],
    "x",
    None,
]
BAD_LISTS: list[Any] = [
    [],
    {},
    update(),
    [update()] * 1001,
    [update(), {}],
    [[update()]],
    [update(user_id="a/b")],
    [update(user_id="")],
    [{"status": "x"}],
    [update(status="")],
]


@pytest.mark.parametrize("body", BAD_STATUSES)
def test_what_is_no_status_is_refused(emitter: MemoryEmitter, client: httpx.Client, body: Any) -> None:
    sent = json.dumps(body), {"content-type": "application/json"}
    response = client.put("/users/alice/status", content=sent[0], headers=sent[1])
    assert response.status_code == 422, response.text
    assert response.json()["errors"]
    assert emitter.records == []


@pytest.mark.parametrize("body", BAD_LISTS)
def test_a_list_with_something_wrong_is_refused_whole(
    emitter: MemoryEmitter, client: httpx.Client, body: Any
) -> None:
    response = client.post("/statuses", json=body)
    assert response.status_code == 422, response.text
    assert response.json()["errors"]
    assert emitter.records == []


@pytest.mark.parametrize("user", ["x" * 129, "%EF%BF%BD", "%C2%85"])
def test_what_cannot_be_a_user_id_is_refused(emitter: MemoryEmitter, client: httpx.Client, user: str) -> None:
    response = client.put(f"/users/{user}/status", json={"status": "x"})
    assert response.status_code == 422
    assert response.json()["errors"][0]["where"] == "path.user"
    assert emitter.records == []


def test_other_methods_and_parameters_are_refused(client: httpx.Client) -> None:
    assert client.get("/users/alice/status").status_code == 405
    assert client.put("/users/alice/status?x=1", json={"status": "x"}).status_code == 422
    assert client.put("/users/alice/status", data={"status": "x"}).status_code == 415


def test_a_time_far_ahead_of_the_clock_is_refused_with_its_bound(
    emitter: MemoryEmitter, client: httpx.Client
) -> None:
    late = {"status": "for ever", "at": NOW_MS + 300_001}
    one = client.put("/users/alice/status", json=late)
    many = client.post("/statuses", json=[update(), {"user_id": "alice", **late}])
    what = "must be at most 300 seconds ahead of the clock of the service"
    assert (one.status_code, many.status_code) == (422, 422)
    assert one.json()["errors"] == [{"where": "body.at", "what": what}]
    assert many.json()["errors"] == [{"where": "body.1.at", "what": what}]
    assert emitter.records == []
