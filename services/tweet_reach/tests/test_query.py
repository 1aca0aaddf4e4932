import json
from collections.abc import Iterator

import httpx
import pytest

from contracts.records import Reach, ReachAuthor, Tweeted
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit.tables.top_list import TopList
from servicekit.tables.urls import URL_CHARACTERS_MAX
from servicekit_testing import MemoryTable
from tweet_reach.query import build_query

URL = "foo.com/blog/1"


def row(reach: int) -> Reach:
    top = [ReachAuthor(author="ann", followers=reach)]
    return Reach(reach=reach, estimate=reach + 0.1, sketch=b"", tweets=3, authors=1, top=top)


def found(words: str, limit: int) -> list[Tweeted]:
    """One tweet with all of the words, and one that was deleted."""
    row = Tweeted(id="1", author="ann", url=URL, text=f"{words} {limit}", at=5)
    return [row, {**row, "url": None}]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[MemoryTable[Reach], httpx.Client]]:
    reaches: MemoryTable[Reach] = MemoryTable()
    top = TopList(reaches, lambda row: row["reach"])
    events = EventStreams(Streams(limit=4), heartbeat_seconds=0.2)
    app = build_query(reaches, top, events, metrics=lambda: b"up 1\n", search=found)
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    top.start()
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield reaches, client
    server.stop()
    events.close()
    top.close()


@pytest.fixture
def table(served: tuple[MemoryTable[Reach], httpx.Client]) -> MemoryTable[Reach]:
    served[0].reset()
    return served[0]


@pytest.fixture
def client(table: MemoryTable[Reach], served: tuple[MemoryTable[Reach], httpx.Client]) -> httpx.Client:
    return served[1]


def test_a_url_is_answered_with_its_reach_and_its_place(
    table: MemoryTable[Reach], client: httpx.Client
) -> None:
    table.put(URL, row(16))
    assert client.get("/reach", params={"url": URL}).json() == {
        "url": URL,
        "reach": 16,
        "estimate": 16.1,
        "tweets": 3,
        "authors": 1,
        "top": [{"author": "ann", "followers": 16}],
        "partition": 0,
        "offset": 1,
        "age_seconds": 0.25,
        "stale": False,
    }


def test_a_url_may_stand_in_the_address_as_it_is(table: MemoryTable[Reach], client: httpx.Client) -> None:
    table.put("https://example.org/?a=1&b=ü", row(2))
    assert client.get("/reach?url=https://example.org/?a=1%26b=%C3%BC").json()["reach"] == 2


def test_a_url_that_is_not_tweeted_has_no_reach(client: httpx.Client) -> None:
    answer = client.get("/reach", params={"url": "notaurl.com"})
    assert (answer.status_code, answer.json()["reach"], answer.json()["top"]) == (200, 0, [])


def test_what_the_caller_has_already_is_not_sent_again(
    table: MemoryTable[Reach], client: httpx.Client
) -> None:
    table.put(URL, row(16))
    tag = client.get("/reach", params={"url": URL}).headers["etag"]
    again = {"params": {"url": URL}, "headers": {"If-None-Match": tag}}
    assert client.get("/reach", **again).status_code == 304  # type: ignore[arg-type] # of two kinds
    table.put(URL, row(17))
    assert client.get("/reach", **again).status_code == 200  # type: ignore[arg-type] # of two kinds


@pytest.mark.parametrize("character", ["/", "語", "\U0001f600"])
def test_the_longest_url_of_any_characters_can_be_asked_for(
    table: MemoryTable[Reach], client: httpx.Client, character: str
) -> None:
    """Percent-encoded, a character has up to 12 bytes."""
    longest = character * URL_CHARACTERS_MAX
    table.put(longest, row(2))
    assert client.get("/reach", params={"url": longest}).json()["reach"] == 2
    headers = {f"X-{n}": "x" * 1000 for n in range(6)}  # as proxies and cookies add them
    assert client.get("/reach", params={"url": longest}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "question", ["", "url=", "url=a%00b", "url=%ff", "url=a&url=b", "url=a&limit=1", f"url={'x' * 2049}"]
)
def test_a_question_that_breaks_a_rule_is_refused(client: httpx.Client, question: str) -> None:
    assert client.get(f"/reach?{question}").status_code in {400, 422}


@pytest.mark.parametrize("path", ["/reach?url=x", "/reach/top", "/reach/events?url=x", "/tweets?words=x"])
def test_the_token_of_an_event_is_refused_since_no_query_waits_for_it(
    client: httpx.Client, path: str
) -> None:
    with client.stream("GET", path, headers={"Streamtable-Token": "tweets:0:41"}) as response:
        assert response.status_code == 422


def test_the_top_are_the_urls_with_the_highest_reach(table: MemoryTable[Reach], client: httpx.Client) -> None:
    for n in range(5):
        table.put(f"foo.com/{n}", row(n))
    found: list[tuple[str, int]] = []
    while found != [("foo.com/4", 4), ("foo.com/3", 3)]:
        answer = client.get("/reach/top?limit=2")
        found = [(item["url"], item["reach"]) for item in answer.json().get("items", [])]
    assert client.get("/reach/top?limit=0").status_code == 422
    assert client.get("/reach/top?limit=1001").status_code == 422


def test_changes_are_reported_as_they_come(table: MemoryTable[Reach], client: httpx.Client) -> None:
    with client.stream("GET", "/reach/events", params={"url": URL}) as response:
        lines = (line.removeprefix("data:") for line in response.iter_lines() if line.startswith("data:"))
        first = json.loads(next(lines))
        assert (first["url"], first["reach"]) == (URL, 0)
        table.put("other.com", row(1))
        table.put(URL, row(16))
        assert json.loads(next(lines))["reach"] == 16


def test_tweets_are_found_by_their_words(client: httpx.Client) -> None:
    answer = client.get("/tweets", params={"words": "read this"}).json()
    assert answer == {"items": [{"id": "1", "author": "ann", "url": URL, "text": "read this 20", "at": 5}]}


@pytest.mark.parametrize("question", ["", "words=", "words=a%00", f"words={'x' * 281}", "words=a&limit=101"])
def test_a_search_that_breaks_a_rule_is_refused(client: httpx.Client, question: str) -> None:
    assert client.get(f"/tweets?{question}").status_code in {400, 422}


def test_a_store_that_cannot_search_is_reported() -> None:
    reaches: MemoryTable[Reach] = MemoryTable()
    top = TopList(reaches, lambda row: row["reach"])
    app = build_query(reaches, top, EventStreams(Streams(limit=1)), metrics=lambda: b"")
    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        assert client.get("/tweets", params={"words": "read"}).status_code == 501
    server.stop()


def test_until_the_copy_is_complete_the_answer_is_503(
    table: MemoryTable[Reach], client: httpx.Client
) -> None:
    table.ready = False
    assert client.get("/reach", params={"url": URL}).status_code == 503
    assert client.get("/readyz").status_code == 503
