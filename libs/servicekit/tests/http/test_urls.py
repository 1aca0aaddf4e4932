from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from servicekit.http.cursors import Cursors
from servicekit.http.models import page_model
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.http.table_api import ListRows, TableApi, WatchRows
from servicekit.http.urls import URL
from servicekit.streams import Streams
from servicekit.tables.urls import URL_CHARACTERS_MAX
from servicekit_testing import MemoryTable


class UrlCount(BaseModel):
    url: str
    count: int


API: TableApi[int] = TableApi(
    title="urls",
    version="1.0.0",
    text="URLs.",
    members=lambda count: {"count": count},
    event="count",
    events_text="Events `count`.",
    key=URL,
    routes=(
        ListRows("/urls", "list_urls", "All.", "urls", page_model("Urls", "URLs.", UrlCount), UrlCount),
        WatchRows("/events", "watch_urls", "All, live."),
    ),
)


@pytest.fixture
def table() -> MemoryTable[int]:
    return MemoryTable()


@pytest.fixture
def client(table: MemoryTable[int]) -> Iterator[httpx.Client]:
    events = EventStreams(Streams())
    app = API.build(table, None, Cursors(b"0" * 16), events, metrics=lambda: b"")
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()
    events.close()


def test_a_list_of_the_longest_urls_is_read_to_its_end(table: MemoryTable[int], client: httpx.Client) -> None:
    begins = "https://example.例え/"
    for number in range(3):
        table.put(f"{begins}{number}".ljust(URL_CHARACTERS_MAX, "\U0001f600"), number)
    found: list[int] = []
    asked: dict[str, Any] = {"prefix": begins, "limit": 1}
    while True:
        page = client.get("/urls", params=asked).json()
        found += [row["count"] for row in page["items"]]
        if page["next"] is None:
            break
        asked["cursor"] = page["next"]
    assert found == [0, 1, 2]


def test_a_page_after_the_longest_url_with_the_longest_prefix_has_an_address_that_is_taken(
    table: MemoryTable[int], client: httpx.Client
) -> None:
    for number in range(2):
        table.put("\U0001f600" * (URL_CHARACTERS_MAX - 1) + str(number), number)
    asked: dict[str, Any] = {"prefix": "\U0001f600" * 1024, "limit": 1}
    asked["cursor"] = client.get("/urls", params=asked).json()["next"]
    assert [row["count"] for row in client.get("/urls", params=asked).json()["items"]] == [1]
    assert client.get("/urls", params={"prefix": "x" * 1025}).status_code == 422


@pytest.mark.parametrize("path", ["/urls", "/events"])
@pytest.mark.parametrize(("prefix", "status"), [("https://example.org/a", 200), ("\ufffd", 422)])
def test_rows_are_listed_and_watched_whose_url_begins_with_a_text(
    client: httpx.Client, path: str, prefix: str, status: int
) -> None:
    with client.stream("GET", path, params={"prefix": prefix}) as response:
        assert response.status_code == status
