from collections.abc import Iterator
from concurrent.futures import Future
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from pydantic import Field

from servicekit.http.app import Strict
from servicekit.http.emitter_api import EmitterApi, PostEvents, accepted_model
from servicekit.http.fields import CANONICAL_UUID
from servicekit.http.server import HttpServer
from streamtable.base.types import Ack

ID = UUID("0190f6a2-5a7c-7c3e-8f3e-1d2c3b4a5968")
NOW_MS = 1_700_000_000_000
ACCEPTED = accepted_model("AcceptedVotes", "The votes of a list, in its order.")


class Vote(Strict):
    user_id: str
    points: Annotated[int, Field(ge=0)]
    id: Annotated[UUID | None, CANONICAL_UUID] = None
    at: int | None = None


def record(vote: Vote, identity: str, at: int) -> dict[str, Any]:
    return {"id": identity, "points": vote.points, "at": at}


def votes(path: str, one: str | None, stream: int) -> PostEvents:
    name = path.removeprefix("/")
    return PostEvents(
        path, name, "Votes.", Vote, ACCEPTED, record, lambda vote: vote.user_id, one=one, stream=stream
    )


API = EmitterApi(
    "votes", "1.0.0", "Takes votes.", "votes", [votes("/votes", "One", 0), votes("/lists", None, 1)]
)


class MemoryEmitter:
    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records: list[tuple[str, Any]] = []

    def emit(self, key: str, value: Any) -> "Future[Ack]":
        future: Future[Ack] = Future()
        future.set_result(Ack(self.topic, 0, len(self.records)))
        self.records.append((key, value))
        return future

    def close(self, timeout: float) -> None: ...


@pytest.fixture
def emitters() -> tuple[MemoryEmitter, MemoryEmitter]:
    return MemoryEmitter("votes"), MemoryEmitter("lists")


@pytest.fixture
def client(emitters: tuple[MemoryEmitter, MemoryEmitter]) -> Iterator[httpx.Client]:
    app = API.build(
        *emitters, ready=lambda: True, metrics=lambda: b"", new_id=lambda: ID, now_ms=lambda: NOW_MS
    )
    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()


def test_one_event_gets_an_id_and_a_time_and_the_response_has_a_token(
    emitters: tuple[MemoryEmitter, MemoryEmitter], client: httpx.Client
) -> None:
    response = client.post("/votes", json={"user_id": "alice", "points": 3})
    assert response.status_code == 201
    assert response.headers["Streamtable-Token"] == response.json()["token"]
    assert emitters[0].records == [("alice", {"id": str(ID), "points": 3, "at": NOW_MS})]


def test_a_list_is_sent_to_the_stream_of_its_route(
    emitters: tuple[MemoryEmitter, MemoryEmitter], client: httpx.Client
) -> None:
    response = client.post("/lists", json=[{"user_id": user, "points": 1} for user in ("alice", "bob")])
    assert response.status_code == 200
    assert [each["offset"] for each in response.json()["accepted"]] == [0, 1]
    assert [key for key, _ in emitters[1].records] == ["alice", "bob"]
    assert not emitters[0].records


def test_a_time_too_far_ahead_is_rejected_with_its_position(client: httpx.Client) -> None:
    vote = {"user_id": "alice", "points": 1}
    late = {**vote, "at": NOW_MS + 10**9}
    for path, body, where in (("/votes", late, "body.at"), ("/lists", [vote, late], "body.1.at")):
        response = client.post(path, json=body)
        assert response.status_code == 422
        assert response.json()["errors"][0]["where"] == where


@pytest.mark.parametrize(
    ("path", "body"),
    [("/votes", {"points": 1}), ("/votes", []), ("/lists", {"user_id": "a", "points": 1}), ("/lists", [1])],
)
def test_invalid_events_are_rejected(client: httpx.Client, path: str, body: Any) -> None:
    assert client.post(path, json=body).status_code == 422
