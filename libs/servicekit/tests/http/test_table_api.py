import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from localkafka.waiting import wait_until
from servicekit.http.cursors import Cursors
from servicekit.http.models import answer_model, page_model, top_model
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.http.table_api import GetRow, ListRows, TableApi, TopRows, WatchRow, WatchRows
from servicekit.streams import Streams
from servicekit.tables.protocol import UserTable
from servicekit.tables.top_list import TopList
from servicekit_testing import MemoryTable
from streamtable import Avro, Codec, Count, Group, Input, Json, Long, Persist, Stream
from streamtable_testing import Tester


class UserScore(BaseModel):
    user_id: str
    score: int


ANSWER = answer_model("ScoreAnswer", "A score.", UserScore)
PAGE = page_model("ScorePage", "Scores.", UserScore)
TOP = top_model("TopScores", "The highest scores.", UserScore, "scores")
API: TableApi[int] = TableApi(
    title="scores",
    version="1.0.0",
    text="Scores of users.",
    members=lambda score: {"score": score},
    event="score",
    events_text="Events `score`.",
    routes=(
        GetRow("/scores/{user}", "get_score", "One score.", "scores", ANSWER, missing="no score is known"),
        ListRows("/scores", "list_scores", "All scores.", "scores", PAGE, UserScore),
        TopRows("/top", "get_top", "The highest.", "scores", TOP, UserScore, number="score"),
        WatchRow("/scores/{user}/events", "watch_score", "A score, live."),
        WatchRows("/events", "watch_scores", "All scores, live."),
    ),
)


@pytest.fixture
def table() -> MemoryTable[int]:
    return MemoryTable()


@contextmanager
def serving(table: UserTable[int]) -> Iterator[httpx.Client]:
    top, events = TopList(table, int), EventStreams(Streams())
    top.start()
    app = API.build(table, top, Cursors(b"0" * 16), events, metrics=lambda: b"")
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()
    events.close()
    top.close()


@pytest.fixture
def client(table: MemoryTable[int]) -> Iterator[httpx.Client]:
    with serving(table) as client:
        yield client


def test_a_row_has_its_position_and_an_etag_for_conditional_requests(
    table: MemoryTable[int], client: httpx.Client
) -> None:
    table.put("alice", 3)
    response = client.get("/scores/alice")
    assert response.json() == {
        "user_id": "alice",
        "score": 3,
        "partition": 0,
        "offset": 1,
        "age_seconds": 0.25,
        "stale": False,
    }
    unchanged = {"If-None-Match": response.headers["ETag"]}
    assert client.get("/scores/alice", headers=unchanged).status_code == 304
    table.put("alice", 4)
    assert client.get("/scores/alice", headers=unchanged).status_code == 200


def test_a_missing_row_is_a_404_with_the_text_of_the_service(client: httpx.Client) -> None:
    response = client.get("/scores/alice")
    assert (response.status_code, response.json()["detail"]) == (404, "no score is known")


def test_pages_follow_each_other_by_cursor(table: MemoryTable[int], client: httpx.Client) -> None:
    for user in "abc":
        table.put(user, 1)
    first = client.get("/scores", params={"limit": 2}).json()
    second = client.get("/scores", params={"limit": 2, "cursor": first["next"]}).json()
    assert [row["user_id"] for page in (first, second) for row in page["items"]] == ["a", "b", "c"]
    assert second["next"] is None


def test_a_ranking_lists_the_highest_first(table: MemoryTable[int], client: httpx.Client) -> None:
    table.put("a", 1)
    table.put("b", 2)
    found: list[Any] = []
    while len(found) < 2:
        found = client.get("/top", params={"limit": 2}).json().get("items", [])
    assert found == [{"user_id": "b", "score": 2}, {"user_id": "a", "score": 1}]


@pytest.mark.parametrize("path", ["/scores/alice/events", "/events?prefix=al"])
def test_changes_are_sent_as_events(table: MemoryTable[int], client: httpx.Client, path: str) -> None:
    with client.stream("GET", path) as response:
        lines = response.iter_lines()
        next(lines)
        table.put("alice", 5)
        for line in lines:
            if line.startswith("data: ") and json.loads(line.removeprefix("data: "))["score"] is not None:
                break
        else:
            pytest.fail("the stream has ended")
        assert json.loads(line.removeprefix("data: "))["score"] == 5


@pytest.mark.parametrize(
    "path", ["/scores/alice?x=1", "/scores?limit=0", "/scores?cursor=x", "/top?limit=1.0", "/events?limit=1"]
)
def test_invalid_parameters_of_an_operation_are_rejected(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 422


@pytest.mark.parametrize("path", ["/top", "/scores/alice/events", "/events"])
def test_the_token_of_a_write_is_refused_by_operations_that_do_not_wait_for_writes(
    client: httpx.Client, path: str
) -> None:
    with client.stream("GET", path, headers={"Streamtable-Token": "scores:0:41"}) as response:
        assert response.status_code == 422
        (error,) = json.loads(response.read())["errors"]
    assert error == {
        "where": "header.streamtable-token",
        "what": "this address does not wait for writes: ask without the header",
    }


@pytest.mark.parametrize("codec", [Json(), Avro("string")])
def test_rows_are_listed_ranked_and_watched_whose_keys_have_no_prefixes(codec: Codec[Any]) -> None:
    """No encoded key of JSON or Avro begins with another one, so a view refuses each prefix, the empty one too."""
    games: Stream[Any, Any] = Stream("games", codec, Json())
    scores = Group("scores", Input(games, aggregate=Count()), Persist(Long()))
    with Tester() as tester:
        tester.run(scores)
        view: Any = tester.view(scores.table)
        for user in ("alice", "bob", "alice"):
            tester.emit(games, user, {})
        tester.advance(2)
        with serving(view) as client:
            assert {row["user_id"] for row in client.get("/scores").json()["items"]} == {"alice", "bob"}
            wait_until(lambda: client.get("/top").status_code == 200, 20, "the ranking is made")
            assert client.get("/top?limit=1").json()["items"] == [{"user_id": "alice", "score": 2}]
            with client.stream("GET", "/events") as response:
                assert (response.status_code, next(response.iter_lines())) == (200, "retry: 3000")
            for path in ("/scores?prefix=al", "/events?prefix=al"):
                with client.stream("GET", path) as response:
                    assert response.status_code == 422
                    (error,) = json.loads(response.read())["errors"]
                    what = "the keys of this table have no prefixes: ask without one"
                    assert error == {"where": "query.prefix", "what": what}


def test_operations_have_their_declared_names_and_texts(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    operations = {path: item["get"] for path, item in document["paths"].items()}
    assert {path: found["operationId"] for path, found in operations.items()} == {
        "/scores/{user}": "get_score",
        "/scores": "list_scores",
        "/top": "get_top",
        "/scores/{user}/events": "watch_score",
        "/events": "watch_scores",
    }
    assert operations["/top"]["description"] == "The highest."
    assert operations["/scores/{user}"]["responses"]["404"]["description"] == "No score is known"
    assert [each["name"] for each in operations["/scores/{user}"]["parameters"]] == [
        "user",
        "if-none-match",
        "Streamtable-Token",
    ]
