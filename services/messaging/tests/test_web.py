import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import httpx
import pytest

from contracts.records import Feed, Message
from messaging.web import Emitters, build_web
from servicekit.http.produce import SendTimeouts
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit_testing import MemoryTable
from streamtable.base.types import Ack
from streamtable.errors import RetryLater

ID = "0190f6a2-5a7c-7c3e-8f3e-1d2c3b4a5968"
NEW_ID = UUID(int=7, version=4)
NOW_MS = 1_700_000_000_000


@dataclass
class MemoryEmitter:
    """Acknowledges all records except those with the key `late`."""

    topic: str
    records: list[tuple[str, Any]] = field(default_factory=list)

    def emit(self, key: str, value: Any) -> "Future[Ack]":
        future: Future[Ack] = Future()
        if key == "late":
            future.set_exception(RetryLater("not acknowledged in time"))
        else:
            future.set_result(Ack(self.topic, 3, len(self.records)))
            self.records.append((key, value))
        return future

    def close(self, timeout: float) -> None: ...


@dataclass
class Served:
    client: httpx.Client
    feeds: MemoryTable[Feed]
    messages: MemoryEmitter
    blocks: MemoryEmitter
    translations: MemoryEmitter


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    feeds: MemoryTable[Feed] = MemoryTable()
    out = [MemoryEmitter(topic) for topic in ("messages", "blocks", "translations")]
    events = EventStreams(Streams(limit=4), heartbeat_seconds=0.2)
    app = build_web(
        Emitters(*out),
        feeds,
        events,
        ready=lambda: feeds.ready,
        metrics=lambda: b"",
        new_id=lambda: NEW_ID,
        now_ms=lambda: NOW_MS,
        timeouts=SendTimeouts(delivery=30.0, wait=31.0),
    )
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield Served(client, feeds, *out)
    server.stop()
    events.close()


@pytest.fixture
def served(shared: Served) -> Served:
    shared.feeds.reset()
    for emitter in (shared.messages, shared.blocks, shared.translations):
        emitter.records.clear()
    return shared


def feed(*texts: str) -> Feed:
    return Feed(
        messages=[
            Message(id=f"id-{text}", sender="bob", recipient="alice", text=text, at=NOW_MS) for text in texts
        ]
    )


def shown(*texts: str) -> list[dict[str, Any]]:
    return [{"id": f"id-{text}", "sender": "bob", "text": text, "at": NOW_MS} for text in texts]


def test_a_message_is_sent_with_its_sender_as_key_and_answered_with_its_place(served: Served) -> None:
    response = served.client.post(
        "/messages", json={"sender": "bob", "recipient": "é 用", "text": "hello", "id": ID}
    )
    assert response.json() == {"id": ID, "partition": 3, "offset": 0, "token": "messages:3:0"}
    expected = Message(id=ID, sender="bob", recipient="é 用", text="hello", at=NOW_MS)
    assert served.messages.records == [("bob", expected)]


def test_a_message_without_an_id_is_given_one(served: Served) -> None:
    response = served.client.post("/messages", json={"sender": "bob", "recipient": "alice", "text": "hello"})
    assert response.json()["id"] == str(NEW_ID)


def test_a_message_that_is_not_acknowledged_is_answered_with_503_and_its_id(served: Served) -> None:
    response = served.client.post(
        "/messages", json={"sender": "late", "recipient": "alice", "text": "hello", "id": ID}
    )
    assert (response.status_code, response.json()["unknown"]) == (503, [ID])


@pytest.mark.parametrize("blocked", [True, False])
def test_a_block_is_sent_with_the_sender_whom_it_is_about_as_key(served: Served, blocked: bool) -> None:  # noqa: FBT001 - a parameter
    body = {"sender": "mallory", "recipient": "alice", "blocked": blocked}
    assert served.client.post("/blocks", json=body).status_code == 204
    assert served.blocks.records == [("mallory", {"by": "alice", "blocked": blocked})]


@pytest.mark.parametrize("replacement", ["sun", None])
def test_a_translation_is_sent_with_the_folded_word_as_key(served: Served, replacement: str | None) -> None:
    body = {"word": "RAIN", "replacement": replacement}
    assert served.client.post("/translations", json=body).status_code == 204
    assert served.translations.records == [("rain", {"replacement": replacement})]


@pytest.mark.parametrize(
    ("path", "body", "where", "what"),
    [
        (
            "/messages",
            {"sender": "a/b", "recipient": "alice", "text": "a"},
            "body.sender",
            "must not contain control characters, half characters, '/' and U+FFFD",
        ),
        (
            "/messages",
            {"sender": "bob", "recipient": "", "text": "a"},
            "body.recipient",
            "must have 1 to 128 characters",
        ),
        (
            "/messages",
            {"sender": "bob", "recipient": "alice", "text": ""},
            "body.text",
            "must have at least 1 characters",
        ),
        (
            "/messages",
            {"sender": "bob", "recipient": "alice", "text": "a" * 1001},
            "body.text",
            "must have at most 1000 characters",
        ),
        (
            "/messages",
            {"sender": "bob", "recipient": "alice", "text": "a\nb"},
            "body.text",
            "must not contain control characters",
        ),
        (
            "/messages",
            {"sender": "bob", "recipient": "alice", "text": "a", "id": "1"},
            "body.id",
            "must be a UUID",
        ),
        ("/blocks", {"sender": "bob", "recipient": None}, "body.recipient", "must be a string"),
        (
            "/translations",
            {"word": "two words", "replacement": "a"},
            "body.word",
            "must be one word of 1 to 64 letters, digits and underscores",
        ),
        ("/translations", {"word": "a"}, "body.replacement", "is required"),
    ],
)
def test_what_is_wrong_is_reported_by_place_and_rule(
    served: Served, path: str, body: dict[str, Any], where: str, what: str
) -> None:
    response = served.client.post(path, json=body)
    assert response.status_code == 422
    assert response.json()["errors"] == [{"where": where, "what": what}]
    assert served.messages.records == served.blocks.records == served.translations.records == []


def test_a_feed_is_answered_with_its_place_and_age(served: Served) -> None:
    served.feeds.put("alice", feed("one", "two"))
    answer = served.client.get("/users/alice/feed").json()
    assert answer == {
        "user_id": "alice",
        "messages": shown("one", "two"),
        "partition": 0,
        "offset": 1,
        "age_seconds": 0.25,
        "stale": False,
    }


def test_the_feed_of_a_user_without_messages_is_empty(served: Served) -> None:
    assert served.client.get("/users/unknown/feed").json()["messages"] == []


def test_a_name_that_cannot_be_one_has_no_feed(served: Served) -> None:
    assert served.client.get("/users/%EF%BF%BD/feed").status_code == 422


@pytest.mark.parametrize("path", ["/users/alice/feed", "/users/alice/feed/events"])
def test_the_token_of_a_message_is_refused_since_feeds_do_not_wait_for_it(served: Served, path: str) -> None:
    with served.client.stream("GET", path, headers={"Streamtable-Token": "messages:0:41"}) as response:
        assert response.status_code == 422


def test_before_the_copy_is_complete_the_answer_is_503(served: Served) -> None:
    served.feeds.ready = False
    assert served.client.get("/users/alice/feed").status_code == 503
    assert served.client.get("/readyz").status_code == 503


def test_a_watched_feed_comes_at_once_and_with_each_message(served: Served) -> None:
    served.feeds.put("alice", feed("one"))
    with served.client.stream("GET", "/users/alice/feed/events") as response:
        lines = response.iter_lines()

        def reported() -> Any:
            return json.loads(next(line for line in lines if line.startswith("data:")).removeprefix("data:"))

        assert reported()["messages"] == shown("one")
        served.feeds.put("bob", feed("not for alice"))
        served.feeds.put("alice", feed("one", "two"))
        assert reported()["messages"] == shown("one", "two")


class Page(HTMLParser):
    """The references of a page, and its fields with labels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: set[str] = set()
        self.fields: set[str] = set()
        self.labels: set[str] = set()
        self.ids: list[str] = []
        self.inline = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.references |= {found[name] for name in ("href", "src", "action") if name in found}
        self.inline |= tag == "style" or (tag == "script" and "src" not in found) or "style" in found
        self.inline |= any(name.startswith("on") for name in found)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "input":
            self.fields.add(found["id"])
        if tag == "label":
            self.labels.add(found["for"])


def test_the_page_asks_this_service_only_and_its_policy_allows_no_more(served: Served) -> None:
    response = served.client.get("/")
    page = Page(response.text)
    assert page.references == {"page.css", "page.js", "data:,"}
    assert not page.inline
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy
    for name, kind in (("page.css", "text/css"), ("page.js", "text/javascript")):
        part = served.client.get(f"/{name}")
        assert part.headers["content-type"] == f"{kind}; charset=utf-8"
        assert "//" not in part.text.replace("https://", "//")


def test_each_field_of_the_page_has_a_label_and_the_script_finds_its_elements(served: Served) -> None:
    page = Page(served.client.get("/").text)
    assert page.fields == page.labels
    assert len(page.ids) == len(set(page.ids))
    script = served.client.get("/page.js").text
    asked = {part.partition('"')[0] for part in script.split('element("')[1:]}
    asked |= {part.partition('"')[0] for part in script.split('onSubmit("')[1:]}
    assert asked <= set(page.ids)
    assert "prefers-color-scheme: dark" in served.client.get("/page.css").text
