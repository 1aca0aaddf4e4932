from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from uuid import UUID

import httpx
import pytest

from contracts.records import Follow, Tweet
from servicekit.http.produce import SendTimeouts
from servicekit.http.server import HttpServer
from streamtable.base.types import Ack
from streamtable.errors import RetryLater
from tweet_reach.emitter import build_emitter

ID = "0190f6a2-5a7c-7c3e-8f3e-1d2c3b4a5968"
NEW_ID = UUID(int=7, version=4)
NOW_MS = 1_700_000_000_000
TWEET = {"author": "ann", "url": "https://example.org/"}
FOLLOW = {"author": "ann", "follower": "bob"}


class MemoryEmitter:
    """Acknowledges all events except from the authors `silent` (never) and `full` (refused)."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records: list[tuple[str, Any]] = []

    def emit(self, key: str, value: Any) -> "Future[Ack]":
        future: Future[Ack] = Future()
        if key == "full":
            raise RetryLater("the queue is full")
        if key != "silent":
            future.set_result(Ack(self.topic, 3, len(self.records)))
            self.records.append((key, value))
        return future

    def close(self, timeout: float) -> None: ...


Shared = tuple[MemoryEmitter, MemoryEmitter, httpx.Client]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    tweets, follows = MemoryEmitter("tweets"), MemoryEmitter("twitter-followers")
    app = build_emitter(
        tweets,
        follows,
        ready=lambda: True,
        metrics=lambda: b"",
        new_id=lambda: NEW_ID,
        now_ms=lambda: NOW_MS,
        timeouts=SendTimeouts(delivery=4.0, wait=5.0),  # a stall of a busy machine is shorter
    )
    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield tweets, follows, client
    server.stop()


@pytest.fixture
def tweets(shared: Shared) -> MemoryEmitter:
    shared[0].records.clear()
    return shared[0]


@pytest.fixture
def follows(shared: Shared) -> MemoryEmitter:
    shared[1].records.clear()
    return shared[1]


@pytest.fixture
def client(shared: Shared) -> httpx.Client:
    return shared[2]


def test_a_tweet_is_answered_with_its_place_and_a_token(tweets: MemoryEmitter, client: httpx.Client) -> None:
    response = client.post("/tweets", json={**TWEET, "id": ID, "at": 5, "text": "read this"})
    assert response.status_code == 201
    assert response.json() == {"id": ID, "partition": 3, "offset": 0, "token": "tweets:3:0"}
    assert response.headers["streamtable-token"] == "tweets:3:0"
    expected = Tweet(id=ID, author="ann", url="https://example.org/", text="read this", at=5)
    assert tweets.records == [("ann", expected)]


def test_what_a_tweet_comes_without_is_added(tweets: MemoryEmitter, client: httpx.Client) -> None:
    assert client.post("/tweets", json=[TWEET, TWEET]).status_code == 200
    assert [record["id"] for _, record in tweets.records] == [str(NEW_ID)] * 2
    assert {(record["text"], record["at"]) for _, record in tweets.records} == {("", NOW_MS)}


def test_a_deletion_names_author_and_tweet(tweets: MemoryEmitter, client: httpx.Client) -> None:
    assert client.delete(f"/users/ann/tweets/{ID}").json()["token"] == "tweets:3:0"
    assert tweets.records == [("ann", Tweet(id=ID, author="ann", url=None, text="", at=NOW_MS))]


def test_followers_come_and_go(follows: MemoryEmitter, client: httpx.Client) -> None:
    assert client.post("/follows", json={**FOLLOW, "id": ID}).status_code == 201
    response = client.post("/follows", json=[{**FOLLOW, "follows": False, "at": 7}])
    assert [each["token"] for each in response.json()["accepted"]] == ["twitter-followers:3:1"]
    assert follows.records == [
        ("ann", Follow(id=ID, author="ann", follower="bob", follows=True, at=NOW_MS)),
        ("ann", Follow(id=str(NEW_ID), author="ann", follower="bob", follows=False, at=7)),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"url": ""},
        {"url": "x" * 2049},
        {"url": "a\nb"},
        {"url": "a\ufffdb"},
        {"url": None},
        {"author": "a/b"},
        {"author": ""},
        {"text": "x" * 281},
        {"text": "a\x00b"},
        {"id": "1"},
        {"at": -1},
        {"at": 1.5},
        {"at": 2**53},
        {"more": 1},
    ],
)
def test_a_tweet_that_breaks_a_rule_is_refused(
    tweets: MemoryEmitter, client: httpx.Client, changed: dict[str, Any]
) -> None:
    response = client.post("/tweets", json={**TWEET, **changed})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert tweets.records == []


@pytest.mark.parametrize("changed", [{"follower": ""}, {"follower": "a/b"}, {"follows": 1}, {"author": None}])
def test_a_follower_that_breaks_a_rule_is_refused(
    follows: MemoryEmitter, client: httpx.Client, changed: dict[str, Any]
) -> None:
    assert client.post("/follows", json={**FOLLOW, **changed}).status_code == 422
    assert follows.records == []


@pytest.mark.parametrize("path", ["/users/ann/tweets/1", "/users/a%00b/tweets/" + ID])
def test_a_deletion_of_what_cannot_be_is_refused(client: httpx.Client, path: str) -> None:
    assert client.delete(path).status_code in {400, 422}


def test_lists_have_bounds(client: httpx.Client) -> None:
    assert client.post("/follows", json=[]).status_code == 422
    assert client.post("/follows", json=[FOLLOW] * 1001).status_code == 422
    assert client.post("/follows", json=[FOLLOW] * 1000).status_code == 200


def test_what_kafka_does_not_acknowledge_is_reported_by_id(client: httpx.Client) -> None:
    response = client.post("/tweets", json=[TWEET, {**TWEET, "author": "silent", "id": ID}])
    assert response.status_code == 503
    assert response.json()["unknown"] == [ID]
    assert [each["id"] for each in response.json()["accepted"]] == [str(NEW_ID)]
    assert client.post("/follows", json={**FOLLOW, "author": "full"}).status_code == 503


@pytest.mark.parametrize(("path", "event"), [("/tweets", TWEET), ("/follows", FOLLOW)])
def test_a_time_far_ahead_of_the_clock_is_refused_with_its_bound(
    tweets: MemoryEmitter, follows: MemoryEmitter, client: httpx.Client, path: str, event: dict[str, Any]
) -> None:
    late = {**event, "at": NOW_MS + 300_001}
    what = "must be at most 300 seconds ahead of the clock of the service"
    for body, where in ((late, "body.at"), ([event, late], "body.1.at")):
        response = client.post(path, json=body)
        assert response.status_code == 422
        assert response.json()["errors"] == [{"where": where, "what": what}]
    assert tweets.records == follows.records == []
