"""Clicks by user and minute and by URL and hour: the flow, and the questions for windows over REST and gRPC."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import httpx
import pytest
from confluent_kafka import Producer

from click_count.query import build_query
from click_count.topics import USER_CLICKS
from click_count.view import ClickCountsService
from click_count.windows import CLICK_MINUTES, HOUR_MS, MINUTE_MS, URL_HOURS, click_windows
from contracts.grpc.click_count.v1 import click_count_pb2 as pb
from contracts.grpc.click_count.v1.click_count_pb2_grpc import ClickCountsStub
from contracts.records import UserClick
from localkafka.broker import Broker
from localkafka.fixtures import Topics
from localkafka.waiting import wait_until
from servicekit.grpc.guard import GrpcLimits
from servicekit.grpc.server import GrpcServer
from servicekit.http.cursors import Cursors
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams
from servicekit.streams import Streams
from servicekit.tables.top_list import TopList
from servicekit_testing import MemoryTable
from streamtable import App, Kafka, Stream
from streamtable.base.partitioner import partition_for
from streamtable.base.ports import TopicDescription
from streamtable.flow import Windowed
from streamtable_testing import Tester

NOON_MS = 1_700_000_040_000  # a full minute, near the Tester's clock
HOURS_MS = NOON_MS // HOUR_MS * HOUR_MS
URL = "https://example.org/"


def click(tester: Tester, user: str, at: int, number: int, url: str = URL) -> None:
    record = UserClick(id=str(UUID(int=number)), user_id=user, url=url, at=NOON_MS + at)
    tester.emit(USER_CLICKS, user, record, timestamp_ms=NOON_MS + at)  # accepted when it happened


def run(tester: Tester) -> None:
    tester.create(CLICK_MINUTES)
    tester.create(URL_HOURS)
    for group in click_windows().flow.groups:
        tester.run(group)


def closed(
    tester: Tester, stream: Stream[Windowed[str], int] = CLICK_MINUTES
) -> Mapping[Windowed[str], int | None]:
    found = {}
    for record in tester.records(stream):
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


def test_an_hour_of_a_url_counts_the_clicks_of_all_users_and_comes_out_once_when_it_has_closed(
    tester: Tester,
) -> None:
    run(tester)
    hour = Windowed(URL, HOURS_MS, HOURS_MS + HOUR_MS)
    for number, user in enumerate(("alice", "bob", "carol", "alice")):
        click(tester, user, number, number)
    click(tester, "bob", 1, 1)  # sent again
    click(tester, "bob", 5, 5, url="https://example.org/other")
    view = tester.view(click_windows().hours)
    assert list(view.windows(URL)) == [(hour, 4)]
    assert closed(tester, URL_HOURS) == {}
    for _ in range(60):
        tester.advance(60)
    assert closed(tester, URL_HOURS)[hour] == 4
    assert [record.key for record in tester.records(URL_HOURS)].count(hour) == 1


class Minutes:
    """A view of windows, as far as the questions need it."""

    def __init__(self) -> None:
        self.ready = True
        self.asked: list[tuple[str, int, int]] = []

    @property
    def not_ready(self) -> str:
        return "" if self.ready else "Kafka does not answer"

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
    app = build_query(
        counts, top, Cursors(b"0123456789abcdef"), events, metrics=lambda: b"", windows={"minutes": minutes, "hours": minutes},
    )  # fmt: skip
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


def test_the_hours_of_a_url_are_answered(client: httpx.Client, minutes: Minutes) -> None:
    answer = client.get("/urls/hours", params={"url": URL, "since": NOON_MS})
    assert answer.json()["url"] == URL
    assert [each["count"] for each in answer.json()["items"]] == [3, 1]
    assert minutes.asked[-1] == (URL, NOON_MS, 2**53 - 1)


@pytest.mark.parametrize("query", ["", "url=", f"url={URL}&until=-1", f"url={URL}&url={URL}"])
def test_a_question_for_hours_without_one_url_and_a_range_is_a_problem(
    client: httpx.Client, query: str
) -> None:
    assert client.get(f"/urls/hours?{query}").status_code == 422


@pytest.fixture
def stub(minutes: Minutes) -> Iterator[Any]:
    streams = Streams(limit=4)
    service = ClickCountsService(MemoryTable(), streams, windows={"minutes": minutes, "hours": minutes})
    with serving(service, streams) as channel:
        yield ClickCountsStub(channel)


@contextmanager
def serving(service: Any, streams: Streams) -> Iterator[grpc.Channel]:
    server = GrpcServer(
        "127.0.0.1",
        0,
        service.register,
        ready=lambda: True,
        streams=streams,
        limits=GrpcLimits(drain_seconds=0),
    )
    with grpc.insecure_channel(server.start()) as channel:
        yield channel
    server.stop()


def test_windows_are_answered_over_grpc_as_over_rest(stub: Any, minutes: Minutes) -> None:
    asked = pb.ListMinutesRequest(user_id="alice", since_ms=NOON_MS, until_ms=NOON_MS + 1)
    expected = [
        pb.ClickWindow(start_ms=NOON_MS, end_ms=NOON_MS + MINUTE_MS, count=3),
        pb.ClickWindow(start_ms=NOON_MS + 2 * MINUTE_MS, end_ms=NOON_MS + 3 * MINUTE_MS, count=1),
    ]
    assert stub.ListMinutes(asked, timeout=5) == pb.ListMinutesResponse(windows=expected, age_seconds=0.25)
    assert minutes.asked[-1] == ("alice", NOON_MS, NOON_MS + 1)
    answer = stub.ListHours(pb.ListHoursRequest(url=URL), timeout=5)
    assert answer == pb.ListHoursResponse(windows=expected, age_seconds=0.25)
    assert minutes.asked[-1] == (URL, 0, 2**53 - 1)  # 0 is no bound


def code_of(call: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    code: grpc.StatusCode = error.code()
    return code


@pytest.mark.parametrize(
    "request_", [{"user_id": "a/b"}, {"user_id": "a", "since_ms": -1}, {"user_id": "a", "until_ms": 2**53}]
)
def test_a_call_for_windows_that_names_no_user_or_no_range_is_refused(
    stub: Any, request_: Mapping[str, Any]
) -> None:
    call = pb.ListMinutesRequest(**request_)
    assert code_of(lambda: stub.ListMinutes(call, timeout=5)) == grpc.StatusCode.INVALID_ARGUMENT


def test_windows_are_unavailable_until_their_copy_is_complete(stub: Any, minutes: Minutes) -> None:
    minutes.ready = False
    try:
        call = pb.ListMinutesRequest(user_id="alice")
        assert code_of(lambda: stub.ListMinutes(call, timeout=5)) == grpc.StatusCode.UNAVAILABLE
    finally:
        minutes.ready = True


def test_a_server_without_windows_does_not_implement_the_calls_for_them() -> None:
    streams = Streams(limit=4)
    with serving(ClickCountsService(MemoryTable(), streams), streams) as channel:
        call = pb.ListHoursRequest(url=URL)
        found = code_of(lambda: ClickCountsStub(channel).ListHours(call, timeout=5))
    assert found == grpc.StatusCode.UNIMPLEMENTED


class ClosedMinutes:
    """The topic of closed minutes on a real broker, as a query service follows it."""

    def __init__(self, broker: Broker, topics: Topics) -> None:
        self._broker = broker
        self.stream = replace(CLICK_MINUTES, name=topics.name("minutes"))
        cluster = Kafka(broker.bootstrap_servers).cluster()
        cluster.create_topics([TopicDescription(self.stream.name, 4, 1, {})])
        wait_until(lambda: cluster.topics([self.stream.name]))
        cluster.close()
        self._producer = Producer(
            {"enable.idempotence": True, "bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1}
        )

    def close(self, user: str, minute: int, count: int) -> None:
        """Write what the flow writes when a minute has closed."""
        key, value = self.stream.key.encode(window(user, minute)), self.stream.value.encode(count)
        self._producer.produce(self.stream.name, value, key, partition_for(user.encode(), 4))
        assert self._producer.flush(60) == 0

    @contextmanager
    def served(self, folder: Path, heartbeat_seconds: float = 15.0) -> Iterator[httpx.Client]:
        with ExitStack() as stack:
            app = stack.enter_context(App(self._broker.bootstrap_servers, folder))
            tail = app.tail(self.stream)
            wait_until(lambda: tail.ready)
            counts: MemoryTable[int] = MemoryTable()
            top, events = (
                TopList(counts, int),
                EventStreams(Streams(), per_peer=2, heartbeat_seconds=heartbeat_seconds),
            )
            stack.callback(events.close)
            api = build_query(
                counts, top, Cursors(b"0123456789abcdef"), events, metrics=lambda: b"", closed={"minutes": tail}
            )  # fmt: skip
            server = HttpServer(api, "127.0.0.1", 0, streams=events.streams)
            yield stack.enter_context(httpx.Client(base_url=server.start(), timeout=60))
            server.stop()


@pytest.fixture
def closed_minutes(broker: Broker, topics: Topics) -> ClosedMinutes:
    return ClosedMinutes(broker, topics)


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield name, id and data of each event, and of each place without one."""
    name, last, data = "", "", None
    for line in lines:
        field, _, text = line.partition(": ")
        if field == "event":
            name = text
        elif field == "id":
            last = text
        elif field == "data":
            data = json.loads(text)
        elif not line and last:
            yield name, last, data
            name, last, data = "", "", None


def test_a_client_that_is_cut_off_gets_each_minute_once_though_the_service_was_started_again(
    closed_minutes: ClosedMinutes, tmp_path: Path
) -> None:
    home = partition_for(b"alice", 4)

    def minute(number: int, count: int) -> Mapping[str, Any]:
        bounds = {"start_ms": NOON_MS + number * MINUTE_MS, "end_ms": NOON_MS + (number + 1) * MINUTE_MS}
        return {"user_id": "alice", "count": count, **bounds, "partition": home, "offset": number}

    closed_minutes.close("alice", 0, 7)
    path, found = "/clicks/alice/minutes/closed", []
    with closed_minutes.served(tmp_path) as client:
        with client.stream("GET", path) as response:
            events = events_of(response.iter_lines())
            assert next(events) == ("", f"{home}-1", None)  # the place alone
        closed_minutes.close("alice", 1, 3)
        with client.stream("GET", path, headers={"Last-Event-ID": f"{home}-1"}) as response:
            events = events_of(response.iter_lines())
            next(events)
            found.append(next(events))
            closed_minutes.close("bob", 2, 1)
            closed_minutes.close("alice", 2, 5)
            found.append(next(events))
    closed_minutes.close("alice", 3, 1)
    again = {"Last-Event-ID": found[-1][1]}
    with closed_minutes.served(tmp_path) as client, client.stream("GET", path, headers=again) as response:
        events = events_of(response.iter_lines())
        next(events)
        found.append(next(events))
    assert [(name, data["start_ms"], data["count"]) for name, _, data in found] == [
        ("closed", NOON_MS + number * MINUTE_MS, count) for number, count in ((1, 3), (2, 5), (3, 1))
    ]
    assert found[0] == ("closed", f"{home}-2", minute(1, 3))


def test_a_heartbeat_says_how_far_a_client_has_come_though_nothing_was_for_it(
    closed_minutes: ClosedMinutes, tmp_path: Path
) -> None:
    home = partition_for(b"alice", 4)
    other = next(user for user in map(str, range(99)) if partition_for(user.encode(), 4) == home)
    path = "/clicks/alice/minutes/closed"
    with (
        closed_minutes.served(tmp_path, heartbeat_seconds=0.05) as client,
        client.stream("GET", path) as response,
    ):
        events = events_of(response.iter_lines())
        assert next(events)[1] == f"{home}-0"
        closed_minutes.close(other, 0, 1)
        assert next(event for event in events if event[1] != f"{home}-0") == ("", f"{home}-1", None)


def test_streams_of_closed_minutes_are_bounded_as_the_others_and_refuse_places_that_are_none(
    closed_minutes: ClosedMinutes, tmp_path: Path
) -> None:
    path, elsewhere = "/clicks/alice/minutes/closed", f"{(partition_for(b'alice', 4) + 1) % 4}-0"
    with closed_minutes.served(tmp_path) as client:
        for given in ("", "x", "1", "-1-1", "1-9223372036854775808", "01-1", elsewhere):
            refused = client.get(path, headers={"Last-Event-ID": given})
            assert refused.status_code == 422, given
            assert refused.json()["errors"][0]["where"] == "header.last-event-id"
        with client.stream("GET", path), client.stream("GET", "/events"):
            assert client.get(path).status_code == 429
        assert client.get("/urls/hours/closed", params={"url": URL}).status_code == 404
        assert client.get("/urls/hours/closed").status_code == 422
