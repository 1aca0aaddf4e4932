import asyncio
import json
import math
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx
import pytest
from pydantic import BaseModel
from starlette.responses import Response

from localkafka.waiting import Deadline, wait_until
from servicekit.auth.access import Admission
from servicekit.auth.authentication import Caller, Unauthenticated
from servicekit.http.app import HttpEdge, build_app
from servicekit.http.connections import ConnectionLimits
from servicekit.http.guard import RequestLimits
from servicekit.http.problems import Problem
from servicekit.http.responses import json_answer
from servicekit.http.server import HttpServer
from servicekit.http.server_events import EventStreams, ServerEvent, Source
from servicekit.streams import Streams
from streamtable.errors import NotReady


class Feed:
    """A source that a test fills."""

    def __init__(self) -> None:
        self.queue: queue.Queue[ServerEvent | None] = queue.Queue()
        self.entered = 0
        self.left = threading.Event()
        self.ready = True
        self.opening = threading.Event()
        self.may_open = threading.Event()
        self.may_open.set()

    @contextmanager
    def open(self) -> Iterator[Source]:
        if not self.ready:
            raise NotReady("not yet")
        self.opening.set()
        assert self.may_open.wait(30)
        self.entered += 1
        try:
            yield self.next
        finally:
            self.left.set()

    async def next(self, timeout: float) -> ServerEvent | None:  # noqa: ASYNC109 - as a source
        end = time.monotonic() + timeout
        while self.queue.empty():
            if time.monotonic() >= end:
                return None
            await asyncio.sleep(0.005)
        event = self.queue.get_nowait()
        if event is None:
            raise StopAsyncIteration
        return event


class Service:
    def __init__(self) -> None:
        self.feed = Feed()
        self.streams = Streams(limit=2)
        self.events = EventStreams(self.streams, heartbeat_seconds=0.2)
        limits = RequestLimits(deadline_seconds=3)
        app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", limits=limits)

        @app.get("/events")
        def events() -> Response:
            self.source = self.feed.open()  # kept, so that garbage collection does not close it
            return self.events.response(self.source)

        slow = ConnectionLimits(answer_seconds=0.5)
        self.server = HttpServer(app, "127.0.0.1", 0, streams=self.streams, limits=slow)
        self.url = self.server.start() + "/events"


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.server.stop()
    service.events.close()


def test_events_have_the_format_of_server_sent_events(service: Service) -> None:
    service.feed.queue.put(ServerEvent("change", {"user": "a\nb", "count": 3}, "0-17"))
    service.feed.queue.put(None)
    response = httpx.get(service.url)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text == 'retry: 3000\n\nevent: change\nid: 0-17\ndata: {"user": "a\\nb", "count": 3}\n\n'


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        datetime(2026, 1, 2, 3, tzinfo=UTC),
        date(2026, 1, 2),
        Decimal("1.50"),
        UUID(int=7),
        b"ab",
    ],
)
def test_an_event_says_a_value_as_the_answer_to_a_get_does(value: object) -> None:
    class Answer(BaseModel):
        value: Any

    said = ServerEvent("change", {"value": value}).encoded.decode().split("data: ")[1]
    assert json.loads(said) == json.loads(bytes(json_answer(Answer(value=value)).body))


def test_a_stream_without_events_sends_heartbeats(service: Service) -> None:
    with httpx.stream("GET", service.url) as response:
        lines = response.iter_lines()
        assert any(line == ": still here" for line in lines)


def test_the_source_is_closed_when_the_caller_disconnects(service: Service) -> None:
    with httpx.stream("GET", service.url) as response:
        lines = response.iter_lines()  # kept, since httpx closes the connection with its iterator
        next(lines)
        assert service.streams.open_count == 1
    assert service.feed.left.wait(60)
    wait_until(lambda: service.streams.open_count == 0)


def test_a_source_that_is_not_ready_is_answered_with_503(service: Service) -> None:
    service.feed.ready = False
    assert httpx.get(service.url).status_code == 503
    assert service.streams.open_count == 0


def test_a_source_that_opens_after_its_request_was_given_up_is_closed(service: Service) -> None:
    service.feed.may_open.clear()
    assert httpx.get(service.url, timeout=20).status_code == 503
    assert service.feed.opening.is_set()
    assert not service.feed.left.is_set()
    service.feed.may_open.set()
    assert service.feed.left.wait(60)
    wait_until(lambda: service.streams.open_count == 0)


def test_more_streams_than_the_limit_are_answered_with_503(service: Service) -> None:
    with httpx.stream("GET", service.url), httpx.stream("GET", service.url):
        response = httpx.get(service.url)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"


def test_a_caller_that_reads_nothing_is_disconnected(service: Service) -> None:
    with httpx.stream("GET", service.url):
        big = ServerEvent("change", {"text": "x" * 1_000_000})
        for _ in range(20):
            service.feed.queue.put(big)
        assert service.feed.left.wait(60)


def test_stopping_the_server_ends_streams_soon(service: Service) -> None:
    with httpx.stream("GET", service.url) as response:
        end = Deadline(5)
        service.server.stop()
        assert not end.passed()
        response.read()
    assert service.feed.left.is_set()


def test_one_address_cannot_take_all_streams() -> None:
    events = EventStreams(Streams(limit=4), per_peer=2)

    async def test() -> None:
        with events.admit("a"), events.admit("a"):
            with pytest.raises(Problem) as refused, events.admit("a"):
                pass
            assert refused.value.status == 429
            assert refused.value.headers["Retry-After"] == "5"
            with events.admit("b"):
                assert events.streams.open_count == 3
        with events.admit("a"):
            assert events.streams.open_count == 1

    asyncio.run(test())
    events.close()


class Revocable:
    """One key, which can be revoked."""

    def __init__(self) -> None:
        self.revoked = False

    def authenticate(self, _: str) -> Caller:
        if self.revoked:
            raise Unauthenticated(given=True)
        return Caller("reader", frozenset({"read"}))


def test_an_open_stream_ends_when_its_key_is_revoked() -> None:
    keys, feed = Revocable(), Feed()
    events = EventStreams(Streams(limit=2), recheck_seconds=0.05)
    edge = HttpEdge(admission=Admission(keys))
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", edge=edge)

    @app.get("/events")
    def stream() -> Response:
        return events.response(feed.open())

    server = HttpServer(app, "127.0.0.1", 0, streams=events.streams)
    url = server.start() + "/events"
    with httpx.stream("GET", url, headers={"x-api-key": "key"}, timeout=30) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        keys.revoked = True
        list(lines)  # until it ends
    assert httpx.get(url, headers={"x-api-key": "key"}, timeout=30).status_code == 401
    server.stop()
    events.close()


def test_one_address_may_watch_many_rows_less_often_than_single_rows() -> None:
    events = EventStreams(Streams(limit=9), per_peer=9, of_many_per_peer=2)

    async def admitted() -> None:
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(events.admit("a", of_many=True))
            with pytest.raises(Problem) as refused, events.admit("a", of_many=True):
                pass
            assert refused.value.status == 429
            with events.admit("a"), events.admit("b", of_many=True):
                assert events.streams.open_count == 4
        assert events.streams.open_count == 0

    asyncio.run(admitted())
    events.close()
