import json
import threading
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import httpx
import pytest

from contracts.records import UserStatus
from servicekit.http.cursors import Cursors
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit_testing import MemoryTable
from streamtable.base.types import Ack
from user_status.query import Tables, build_query

LUNCH = UserStatus(status="at lunch", at=5, id="b", clicks=3)
WORK = UserStatus(status="at work", at=9, id="c", clicks=4)
WRITE = Ack("user-status-updates", 3, 41)
WAIT_SECONDS = 0.3

Served = tuple[MemoryTable[UserStatus], MemoryTable[int], httpx.Client]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    statuses: MemoryTable[UserStatus] = MemoryTable()
    clicks: MemoryTable[int] = MemoryTable()
    events = EventStreams(Streams(limit=4), heartbeat_seconds=0.2)
    writes = ReadYourWrites({"user-status-updates": statuses, "user-clicks": clicks}, WAIT_SECONDS)
    cursors = Cursors(b"0123456789abcdef")
    app = build_query(Tables(statuses, clicks), cursors, events, writes, metrics=lambda: b"up 1\n")
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield statuses, clicks, client
    server.stop()
    events.close()


@pytest.fixture
def statuses(served: Served) -> MemoryTable[UserStatus]:
    served[0].reset()
    return served[0]


@pytest.fixture
def clicks(served: Served) -> MemoryTable[int]:
    served[1].reset()
    return served[1]


@pytest.fixture
def client(served: Served, statuses: MemoryTable[UserStatus], clicks: MemoryTable[int]) -> httpx.Client:
    return served[2]


def assert_problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    return document


def test_a_status_comes_with_the_clicks_of_its_moment_and_those_of_now(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    statuses.put("alice", LUNCH)
    for count in (3, 4, 5):
        clicks.put("alice", count)
    assert client.get("/users/alice").json() == {
        "user_id": "alice",
        "status": {"text": "at lunch", "at": 5, "id": "b", "clicks": 3},
        "clicks": 5,
        "tables": {
            "status": {"partition": 0, "offset": 1, "age_seconds": 0.25, "stale": False},
            "clicks": {"partition": 0, "offset": 3, "age_seconds": 0.25, "stale": False},
        },
    }


def test_what_one_table_does_not_know_is_null(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    statuses.put("alice", LUNCH)
    clicks.put("bob", 2)
    alice, bob = client.get("/users/alice").json(), client.get("/users/bob").json()
    assert (alice["status"]["text"], alice["clicks"]) == ("at lunch", None)
    assert (bob["status"], bob["clicks"]) == (None, 2)


def test_a_user_whom_neither_table_knows_is_a_problem_404(client: httpx.Client) -> None:
    document = assert_problem(client.get("/users/unknown"), 404)
    assert "unknown" not in json.dumps(document)


@pytest.mark.parametrize("user", ["x" * 129, "%EF%BF%BD", "%C2%85"])
def test_what_cannot_be_a_user_id_is_refused(client: httpx.Client, user: str) -> None:
    assert assert_problem(client.get(f"/users/{user}"), 422)["errors"][0]["where"] == "path.user"
    assert_problem(client.get(f"/users/{user}/events"), 422)


def test_each_table_tells_its_own_age(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    statuses.put("alice", LUNCH)
    clicks.stale, clicks.age_seconds = True, 100.0
    tables = client.get("/users/alice").json()["tables"]
    assert (tables["status"]["stale"], tables["clicks"]["stale"]) == (False, True)
    tables = client.get("/users").json()["tables"]
    assert tables == {
        "status": {"age_seconds": 0.25, "stale": False},
        "clicks": {"age_seconds": 100.0, "stale": True},
    }


def test_nothing_is_sent_again_while_neither_table_has_changed(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    statuses.put("alice", LUNCH)
    clicks.put("alice", 3)
    tag = client.get("/users/alice").headers["etag"]
    response = client.get("/users/alice", headers={"If-None-Match": tag})
    assert (response.status_code, response.content, response.headers["etag"]) == (304, b"", tag)
    clicks.put("alice", 4)
    response = client.get("/users/alice", headers={"If-None-Match": tag})
    assert response.json()["clicks"] == 4
    tag = response.headers["etag"]
    statuses.put("alice", WORK)
    response = client.get("/users/alice", headers={"If-None-Match": tag})
    assert response.json()["status"]["text"] == "at work"


def all_pages(client: httpx.Client, **query: Any) -> list[list[str]]:
    pages = []
    cursor = None
    while True:
        given = {**query, "cursor": cursor} if cursor else query
        answer = client.get("/users", params=given).json()
        pages.append([item["user_id"] for item in answer["items"]])
        cursor = answer["next"]
        if cursor is None:
            return pages


def test_pages_go_through_the_users_of_both_tables_in_order(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    users = [f"user-{n:03}" for n in range(25)]
    for n, user in enumerate(reversed(users)):
        if n % 3 != 0:
            statuses.put(user, LUNCH)
        if n % 3 != 1:
            clicks.put(user, 1)
    clicks.put("other/é", 1)
    assert [len(page) for page in all_pages(client, prefix="user-", limit=10)] == [10, 10, 5]
    assert list(chain(*all_pages(client, prefix="user-", limit=10))) == users
    assert list(chain(*all_pages(client, limit=1))) == ["other/é", *users]
    assert all_pages(client, prefix="unknown") == [[]]


def test_a_page_shows_what_each_table_knows(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    statuses.put("alice", LUNCH)
    clicks.put("bob", 2)
    lunch = {"text": "at lunch", "at": 5, "id": "b", "clicks": 3}
    assert client.get("/users").json()["items"] == [
        {"user_id": "alice", "status": lunch, "clicks": None},
        {"user_id": "bob", "status": None, "clicks": 2},
    ]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=1e2", "limt=1", "limit=1&limit=2", "prefix=%EF%BF%BD", "cursor=AAAA"],
)
def test_bad_queries_are_refused(client: httpx.Client, query: str) -> None:
    assert_problem(client.get(f"/users?{query}"), 422)


def test_everything_answers_503_until_both_tables_are_ready(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    for table in (statuses, clicks):
        table.ready = False
        for path in ("/users/alice", "/users", "/users/alice/events", "/readyz"):
            response = client.get(path)
            assert_problem(response, 503)
            assert response.headers["retry-after"] == "1"
        table.ready = True
    assert client.get("/readyz").status_code == 200


def data_of(lines: Iterator[str]) -> dict[str, Any]:
    line = next(line for line in lines if line.startswith("data:"))
    data: dict[str, Any] = json.loads(line.removeprefix("data:"))
    return data


def test_events_of_a_user_begin_with_both_rows_and_go_on_with_changes_of_either(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    statuses.put("alice", LUNCH)
    with client.stream("GET", "/users/alice/events") as response:
        lines = response.iter_lines()
        lunch = {"text": "at lunch", "at": 5, "id": "b", "clicks": 3}
        assert data_of(lines) == {"user_id": "alice", "status": lunch, "partition": 0, "offset": 1}
        assert data_of(lines) == {"user_id": "alice", "clicks": None, "partition": 0, "offset": 0}
        clicks.put("bob", 1)
        clicks.put("alice", 1)
        assert data_of(lines) == {"user_id": "alice", "clicks": 1, "partition": 0, "offset": 2}
        statuses.put("alice", None)
        assert data_of(lines) == {"user_id": "alice", "status": None, "partition": 0, "offset": 2}


def test_a_question_with_a_token_waits_until_its_write_shows(
    statuses: MemoryTable[UserStatus], client: httpx.Client
) -> None:
    threading.Timer(0.1, statuses.put, ("alice", LUNCH, WRITE)).start()
    for path in ("/users/alice", "/users?prefix=alice"):
        response = client.get(path, headers={"Streamtable-Token": WRITE.token})
        assert response.status_code == 200
        assert "at lunch" in response.text


def test_a_write_that_does_not_show_in_time_is_a_problem_504(
    statuses: MemoryTable[UserStatus], client: httpx.Client
) -> None:
    statuses.put("alice", LUNCH)
    began = time.monotonic()
    response = client.get("/users/alice", headers={"Streamtable-Token": WRITE.token})
    assert_problem(response, 504)
    assert response.headers["retry-after"] == "1"
    assert time.monotonic() - began >= WAIT_SECONDS


@pytest.mark.parametrize(
    "token",
    ["", "x", "other-topic:0:1", "user-clicks:0", "user-clicks:-1:1", f"user-clicks:0:{10**30}", ":" * 5000],
)
def test_what_is_no_token_of_these_tables_is_refused(client: httpx.Client, token: str) -> None:
    document = assert_problem(client.get("/users/alice", headers={"Streamtable-Token": token}), 422)
    assert document["errors"][0]["where"] == "header.streamtable-token"


def test_a_user_with_an_unreadable_row_is_left_out_of_the_list_and_counted(
    statuses: MemoryTable[UserStatus], clicks: MemoryTable[int], client: httpx.Client
) -> None:
    for user in ("a", "b", "c", "e"):
        statuses.put(user, LUNCH)
        clicks.put(user, 1)
    statuses.spoil("b")
    clicks.spoil("c")
    for table in (statuses, clicks):
        table.spoil("d")
        table.spoil("f")
    first = client.get("/users?limit=1").json()
    assert ([row["user_id"] for row in first["items"]], first["unreadable"]) == (["a"], 0)
    rest = client.get("/users", params={"limit": 1, "cursor": first["next"]}).json()
    assert ([row["user_id"] for row in rest["items"]], rest["unreadable"]) == (["e"], 4)
