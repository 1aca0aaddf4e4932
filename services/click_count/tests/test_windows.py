"""Clicks by user and minute: the flow, and the question for minutes over REST."""

from collections.abc import Iterator, Mapping
from uuid import UUID

import httpx
import pytest

from click_count.query import build_query
from click_count.topics import USER_CLICKS
from click_count.windows import CLICK_MINUTES, MINUTE_MS, clicks_per_minute
from contracts.records import UserClick
from servicekit.http.cursors import Cursors
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit.tables.top_list import TopList
from servicekit_testing import MemoryTable
from streamtable.flow import Windowed
from streamtable_testing import Tester

NOON_MS = 1_700_000_040_000  # a full minute, near the Tester's clock


def click(tester: Tester, user: str, at: int, number: int) -> None:
    record = UserClick(id=str(UUID(int=number)), user_id=user, url="https://example.org/", at=NOON_MS + at)
    tester.emit(USER_CLICKS, user, record)


def run(tester: Tester) -> None:
    flow, _ = clicks_per_minute()
    tester.create(CLICK_MINUTES)
    for group in flow.groups:
        tester.run(group)


def closed(tester: Tester) -> Mapping[Windowed[str], int | None]:
    found = {}
    for record in tester.records(CLICK_MINUTES):
        assert record.key is not None
        found[record.key] = record.value
    return found


def window(user: str, minute: int) -> Windowed[str]:
    return Windowed(user, NOON_MS + minute * MINUTE_MS, NOON_MS + (minute + 1) * MINUTE_MS)


def test_a_minute_comes_out_once_when_it_has_closed_and_repeated_and_late_clicks_are_not_in_it(
    tester: Tester,
) -> None:
    run(tester)
    for number, at in enumerate((0, 59_999, 30_000)):
        click(tester, "alice", at, number)
    click(tester, "alice", 30_000, 1)  # sent again
    click(tester, "alice", 69_999, 4)
    assert closed(tester) == {}
    click(tester, "alice", 70_000, 5)  # ten seconds after the end: the first minute closes
    assert closed(tester) == {window("alice", 0): 3}
    click(tester, "alice", 1_000, 6)  # late
    click(tester, "alice", 200_000, 7)
    assert closed(tester) == {window("alice", 0): 3, window("alice", 1): 2}
    assert len(tester.records(CLICK_MINUTES)) == 2


def test_the_last_minute_closes_though_nothing_follows(tester: Tester) -> None:
    run(tester)
    click(tester, "alice", 0, 1)
    for _ in range(30):
        tester.advance(10)
    assert closed(tester) == {window("alice", 0): 1}


class Minutes:
    """A view of minutes, as far as the question needs it."""

    def __init__(self) -> None:
        self.ready = True
        self.asked: list[tuple[str, int, int]] = []

    def windows(self, key: str, since_ms: int, until_ms: int) -> "Found":
        self.asked.append((key, since_ms, until_ms))
        return Found([(window(key, 0), 3), (window(key, 2), 1)])

    def position(self) -> Mapping[int, "Place"]:
        return {0: Place()}


class Place:
    age_seconds = 0.25


class Found(list[tuple[Windowed[str], int]]):
    unreadable = 0


@pytest.fixture(scope="module")
def minutes() -> Minutes:
    return Minutes()


@pytest.fixture(scope="module")
def client(minutes: Minutes) -> Iterator[httpx.Client]:
    counts: MemoryTable[int] = MemoryTable()
    top, events = TopList(counts, int), EventStreams(Streams())
    app = build_query(counts, top, Cursors(b"0123456789abcdef"), events, metrics=lambda: b"", windows=minutes)
    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()
    events.close()


def test_a_users_minutes_are_answered_with_their_bounds(client: httpx.Client, minutes: Minutes) -> None:
    answer = client.get("/clicks/alice/minutes", params={"since": NOON_MS, "until": NOON_MS + 1})
    assert answer.json() == {
        "user_id": "alice",
        "items": [
            {"count": 3, "start_ms": NOON_MS, "end_ms": NOON_MS + MINUTE_MS},
            {"count": 1, "start_ms": NOON_MS + 2 * MINUTE_MS, "end_ms": NOON_MS + 3 * MINUTE_MS},
        ],
        "unreadable": 0,
        "age_seconds": 0.25,
        "stale": False,
    }
    assert minutes.asked[-1] == ("alice", NOON_MS, NOON_MS + 1)


@pytest.mark.parametrize("query", ["since=-1", "until=x", "since=1&since=2", "from=1"])
def test_a_range_that_is_none_is_a_problem(client: httpx.Client, query: str) -> None:
    assert client.get(f"/clicks/alice/minutes?{query}").status_code == 422
