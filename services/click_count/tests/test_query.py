import json
import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

import httpx
import pytest

from click_count.query import build_query
from localkafka.waiting import wait_until
from servicekit.http.cursors import Cursors
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit.tables.top_list import TopList
from servicekit_testing import MemoryTable
from streamtable.base.types import Ack

WRITE = Ack("user-clicks", 3, 41)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[MemoryTable[int], httpx.Client]]:
    counts: MemoryTable[int] = MemoryTable()
    top = TopList(counts, int)
    events = EventStreams(Streams(limit=4), heartbeat_seconds=0.2)
    writes = ReadYourWrites({WRITE.topic: counts}, 0.3)
    cursors = Cursors(b"0123456789abcdef")
    app = build_query(counts, top, cursors, events, metrics=lambda: b"up 1\n", writes=writes)
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    top.start()
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield counts, client
    server.stop()
    events.close()
    top.close()


@pytest.fixture
def counts(served: tuple[MemoryTable[int], httpx.Client]) -> MemoryTable[int]:
    served[0].reset()
    return served[0]


@pytest.fixture
def client(counts: MemoryTable[int], served: tuple[MemoryTable[int], httpx.Client]) -> httpx.Client:
    return served[1]


def assert_problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    return document


def test_a_users_count_comes_with_its_place_and_age(counts: MemoryTable[int], client: httpx.Client) -> None:
    counts.put("alice", 3)
    assert client.get("/clicks/alice").json() == {
        "user_id": "alice",
        "count": 3,
        "partition": 0,
        "offset": 1,
        "age_seconds": 0.25,
        "stale": False,
    }


def test_ids_beyond_ascii_are_found(counts: MemoryTable[int], client: httpx.Client) -> None:
    counts.put("é 用户%", 3)
    assert client.get("/clicks/%C3%A9%20%E7%94%A8%E6%88%B7%25").json()["user_id"] == "é 用户%"


def test_an_unknown_user_is_a_problem_404(client: httpx.Client) -> None:
    document = assert_problem(client.get("/clicks/unknown"), 404)
    assert "unknown" not in json.dumps(document)


@pytest.mark.parametrize("user", ["x" * 129, "%EF%BF%BD", "%C2%85", "%2e%2e%2e%2e" * 40])
def test_what_cannot_be_a_user_id_is_refused(client: httpx.Client, user: str) -> None:
    document = assert_problem(client.get(f"/clicks/{user}"), 422)
    assert document["errors"][0]["where"] == "path.user"


@pytest.mark.parametrize("user", ["%00", "%ff", "a%2Fb", "%C0%AE"])
def test_what_is_no_clean_text_is_refused(client: httpx.Client, user: str) -> None:
    assert_problem(client.get(f"/clicks/{user}"), 400)
    assert_problem(client.get(f"/clicks/{user}/events"), 400)


def test_nothing_is_sent_again_while_the_count_is_the_same(
    counts: MemoryTable[int], client: httpx.Client
) -> None:
    counts.put("alice", 3)
    tag = client.get("/clicks/alice").headers["etag"]
    for given in (tag, f'"other", {tag}', "*", tag.removeprefix("W/")):
        response = client.get("/clicks/alice", headers={"If-None-Match": given})
        assert response.status_code == 304
        assert response.headers["etag"] == tag
        assert response.content == b""
    counts.stale = True
    assert client.get("/clicks/alice", headers={"If-None-Match": tag}).status_code == 200
    counts.stale = False
    counts.put("alice", 4)
    assert client.get("/clicks/alice", headers={"If-None-Match": tag}).json()["count"] == 4


def test_a_question_with_a_token_waits_until_its_click_is_counted(
    counts: MemoryTable[int], client: httpx.Client
) -> None:
    asked = {"Streamtable-Token": WRITE.token}
    assert_problem(client.get("/clicks/alice", headers=asked), 504)
    threading.Timer(0.1, counts.put, ("alice", 1, WRITE)).start()
    assert client.get("/clicks/alice", headers=asked).json()["count"] == 1
    assert_problem(client.get("/clicks?limit=1", headers={"Streamtable-Token": "x"}), 422)


def all_pages(client: httpx.Client, **query: Any) -> list[list[str]]:
    pages = []
    cursor = None
    while True:
        given = {**query, "cursor": cursor} if cursor else query
        answer = client.get("/clicks", params=given).json()
        pages.append([item["user_id"] for item in answer["items"]])
        cursor = answer["next"]
        if cursor is None:
            return pages


def test_pages_go_through_all_users_in_order(counts: MemoryTable[int], client: httpx.Client) -> None:
    users = [f"user-{n:03}" for n in range(25)]
    for user in reversed(users):
        counts.put(user, 1)
    counts.put("other/é", 1)
    assert [len(page) for page in all_pages(client, prefix="user-", limit=10)] == [10, 10, 5]
    assert list(chain(*all_pages(client, prefix="user-", limit=10))) == users
    assert list(chain(*all_pages(client, limit=1))) == ["other/é", *users]
    assert all_pages(client, prefix="unknown") == [[]]


def test_a_cursor_that_was_not_made_for_the_query_is_refused(
    counts: MemoryTable[int], client: httpx.Client
) -> None:
    for n in range(3):
        counts.put(f"user-{n}", 1)
    cursor = client.get("/clicks", params={"limit": 1}).json()["next"]
    for given in (
        {"cursor": cursor, "prefix": "user-"},
        {"cursor": cursor[:-4]},
        {"cursor": "A" * 40},
        {"cursor": ""},
    ):
        assert_problem(client.get("/clicks", params=given), 422)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=nan",
        "limit=1e2",
        "limit=" + "9" * 3000,
        "limit=%EF%BC%91",
        "limt=1",
        "limit=1&limit=2",
        "prefix=" + "x" * 129,
        "prefix=%EF%BF%BD",
        "user=alice",
    ],
)
def test_bad_queries_are_refused(client: httpx.Client, query: str) -> None:
    assert_problem(client.get(f"/clicks?{query}"), 422)


def test_the_top_list_is_sorted(counts: MemoryTable[int], client: httpx.Client) -> None:
    for user, count in (("a", 1), ("b", 3), ("c", 2), ("d", 3)):
        counts.put(user, count)
    wait_until(lambda: len(client.get("/top").json().get("items", ())) == 4)
    answer = client.get("/top?limit=3").json()
    assert [(item["user_id"], item["count"]) for item in answer["items"]] == [("b", 3), ("d", 3), ("c", 2)]
    assert answer["stale"] is False
    assert answer["age_seconds"] >= 0.25
    assert_problem(client.get("/top?limit=1001"), 422)


def test_every_endpoint_answers_503_until_the_table_is_ready(
    counts: MemoryTable[int], client: httpx.Client
) -> None:
    counts.ready = False
    for path in ("/clicks/alice", "/clicks", "/top", "/clicks/alice/events", "/events", "/readyz"):
        response = client.get(path)
        assert_problem(response, 503)
        assert response.headers["retry-after"] == "1"
    assert client.get("/readyz").json()["detail"] == "Kafka does not answer"
    assert client.get("/livez").status_code == 200


def test_a_users_events_begin_with_the_count_and_go_on_with_changes(
    counts: MemoryTable[int], client: httpx.Client
) -> None:
    counts.put("alice", 3)
    with client.stream("GET", "/clicks/alice/events") as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("data:")).startswith(
            'data: {"user_id": "alice", "count": 3'
        )
        counts.put("bob", 1)
        counts.put("alice", 4)
        assert next(line for line in lines if line.startswith("data:")) == (
            'data: {"user_id": "alice", "count": 4, "partition": 0, "offset": 3}'
        )


def test_events_of_a_prefix_carry_deletions_too(counts: MemoryTable[int], client: httpx.Client) -> None:
    with client.stream("GET", "/events?prefix=a") as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 3000"
        counts.put("bob", 1)
        counts.put("alice", None)
        assert next(line for line in lines if line.startswith("data:")).startswith(
            'data: {"user_id": "alice", "count": null'
        )


def test_a_caller_who_missed_changes_is_notified(counts: MemoryTable[int], client: httpx.Client) -> None:
    with client.stream("GET", "/events") as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 3000"
        counts.overrun()
        assert "event: missed" in list(lines)


def test_silent_streams_carry_heartbeats(client: httpx.Client) -> None:
    with client.stream("GET", "/events") as response:
        assert any(line == ": still here" for line in response.iter_lines())


def test_an_unreadable_row_stops_no_list_and_is_counted_there(
    counts: MemoryTable[int], client: httpx.Client
) -> None:
    for user, count in (("a", 1), ("b", 3), ("d", 2)):
        counts.put(user, count)
    counts.spoil("c")
    page = client.get("/clicks?limit=2").json()
    assert ([item["user_id"] for item in page["items"]], page["unreadable"]) == (["a", "b"], 0)
    page = client.get("/clicks", params={"limit": 2, "cursor": page["next"]}).json()
    assert ([item["user_id"] for item in page["items"]], page["unreadable"]) == (["d"], 1)
    wait_until(lambda: client.get("/top").json().get("unreadable") == 1)
    assert [item["user_id"] for item in client.get("/top").json()["items"]] == ["b", "d", "a"]


def test_an_unreadable_row_that_is_asked_for_is_an_error_that_says_where_it_is(
    counts: MemoryTable[int], client: httpx.Client
) -> None:
    counts.spoil("alice")
    response = client.get("/clicks/alice")
    assert_problem(response, 500)
    problem = response.json()
    assert problem["detail"] == "the stored row cannot be decoded; its key must be written again"
    assert (problem["topic"], problem["partition"]) == ("counts", 0)


def test_readiness_tells_how_the_top_list_is(counts: MemoryTable[int], client: httpx.Client) -> None:
    wait_until(
        lambda: client.get("/readyz").json().get("details", {}).get("top", {}).get("error", "") is None
    )
    top = client.get("/readyz").json()["details"]["top"]
    assert (top["behind_seconds"] < 5, top["unreadable"]) == (True, 0)
