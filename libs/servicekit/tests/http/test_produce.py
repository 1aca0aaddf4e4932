import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import httpx
import pytest
from fastapi import Request

from servicekit.http.app import build_app
from servicekit.http.guard import RequestLimits
from servicekit.http.produce import Accepted, OutgoingRecord, SendTimeouts, send_all
from servicekit.http.server import HttpServer
from streamtable.base.types import Ack
from streamtable.errors import Fenced, QueueFull, RetryLater, SerializationError

IDS = [f"0190f6a2-5a7c-7c3e-8f3e-{n:012}" for n in range(100)]
TIMEOUTS = SendTimeouts(delivery=1.0, wait=2.0)


class MemoryEmitter:
    """Acknowledges all records except those whose value names another outcome."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.hold = threading.Event()
        self.held = threading.Semaphore(0)

    def emit(self, key: str, value: str) -> Future[Ack]:
        future: Future[Ack] = Future()
        match value:
            case "closed":
                raise RetryLater("the emitter is closed")
            case "misfit":
                raise SerializationError("does not fit its schema")
            case "broken":
                raise ZeroDivisionError
            case "full":
                future.set_exception(QueueFull("no room"))
            case "bad":
                future.set_exception(SerializationError("too large"))
            case "late":
                future.set_exception(RetryLater("not acknowledged in time"))
            case "fenced":
                future.set_exception(Fenced("another one has started"))
            case "held":
                self.held.release()
                self.hold.wait(60)
                self.records.append(value)
            case "silent":
                self.records.append(value)
            case _:
                future.set_result(Ack("clicks", 3, len(self.records)))
                self.records.append(value)
        return future

    def close(self, timeout: float) -> None: ...


class Service:
    """A service that sends the records of a request; its guard gives a request up after a deadline."""

    def __init__(self, timeouts: SendTimeouts, deadline_seconds: float, queue_seconds: float = 30.0) -> None:
        self.emitter = MemoryEmitter()
        limits = RequestLimits(queue_seconds=queue_seconds, deadline_seconds=deadline_seconds)
        app = build_app("test", "1.0.0", ready=lambda: True, metrics=lambda: b"", limits=limits)

        @app.post("/records")
        async def send(request: Request, body: list[str]) -> Any:
            outgoing = [
                OutgoingRecord(name, "alice", record) for name, record in zip(IDS, body, strict=False)
            ]
            return await send_all(request, self.emitter, outgoing, timeouts)

        self.server = HttpServer(app, "127.0.0.1", 0, threads=2)

    def post(self, *records: str) -> httpx.Response:
        return self.client.post("/records", json=records)

    def __enter__(self) -> Self:
        self.client = httpx.Client(base_url=self.server.start(), timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self.emitter.hold.set()
        self.client.close()
        self.server.stop()


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(TIMEOUTS, deadline_seconds=60) as made:
        yield made


@pytest.fixture
def slow_service() -> Iterator[Service]:
    """A service whose handlers wait longer than the guard."""
    with Service(SendTimeouts(delivery=4, wait=5), deadline_seconds=3) as made:
        yield made


def lists(response: httpx.Response) -> tuple[list[str], list[str], list[str], list[str]]:
    document = response.json()
    accepted = [each["id"] for each in document["accepted"]]
    return accepted, document["unknown"], document["not_sent"], document["rejected"]


def test_acknowledged_records_are_returned_in_order_with_position_and_token(service: Service) -> None:
    response = service.post("a", "b")
    assert response.status_code == 200
    accepted = response.json()
    assert accepted == [
        {"id": IDS[0], "partition": 3, "offset": 0, "token": "clicks:3:0"},
        {"id": IDS[1], "partition": 3, "offset": 1, "token": "clicks:3:1"},
    ]
    assert Accepted.model_validate(accepted[0]).offset == 0


@pytest.mark.parametrize("record", ["silent", "late"])
def test_a_record_that_was_not_acknowledged_is_unknown(service: Service, record: str) -> None:
    response = service.post("a", record, "b")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert lists(response) == ([IDS[0], IDS[2]], [IDS[1]], [], [])


@pytest.mark.parametrize("record", ["full", "closed"])
def test_a_record_that_finds_the_queue_full_and_all_after_it_are_not_sent(
    service: Service, record: str
) -> None:
    response = service.post("a", record, "b")
    assert response.status_code == 503
    assert lists(response) == ([IDS[0]], IDS[1:3], IDS[1:3], [])
    assert service.emitter.records == ["a"]


@pytest.mark.parametrize("record", ["bad", "misfit"])
def test_a_record_that_kafka_refuses_is_rejected_and_the_others_are_sent(
    service: Service, record: str
) -> None:
    response = service.post("a", record, "b")
    assert response.status_code == 422
    assert lists(response) == ([IDS[0], IDS[2]], [], [], [IDS[1]])


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("fenced", ([IDS[0], IDS[2]], [IDS[1]], [], [])),
        ("broken", ([IDS[0]], IDS[1:3], [IDS[2]], [])),
    ],
)
def test_the_error_of_a_service_fault_names_all_ids_too(
    service: Service, record: str, expected: object
) -> None:
    response = service.post("a", record, "b")
    assert response.status_code == 500
    assert lists(response) == expected


def test_the_error_of_an_abandoned_request_names_all_ids_and_nothing_more_is_sent(
    slow_service: Service,
) -> None:
    response = slow_service.post("a", "held", "b", "c")
    assert response.status_code == 503
    assert lists(response) == ([IDS[0]], IDS[1:4], IDS[2:4], [])
    slow_service.emitter.hold.set()
    slow_service.server.stop()  # waits for the handler
    assert slow_service.emitter.records == ["a", "held"]


def test_a_request_that_finds_no_thread_before_its_deadline_sends_nothing(slow_service: Service) -> None:
    responses: list[httpx.Response] = []
    held = [
        threading.Thread(target=lambda: responses.append(slow_service.post("held"))) for _ in range(2)
    ]  # as many as the server has threads
    for thread in held:
        thread.start()
    for _ in held:
        assert slow_service.emitter.held.acquire(timeout=60)
    third = slow_service.post("a", "b")
    for thread in held:
        thread.join()
    assert third.status_code == 503
    assert lists(third) == ([], IDS[:2], IDS[:2], [])
    assert [lists(response) for response in responses] == [([], [IDS[0]], [], [])] * 2
    slow_service.emitter.hold.set()
    slow_service.server.stop()
    assert slow_service.emitter.records == ["held", "held"]


def test_a_request_that_gets_no_thread_in_time_is_refused_and_sends_nothing_later() -> None:
    with Service(TIMEOUTS, deadline_seconds=60, queue_seconds=0.2) as service, ThreadPoolExecutor() as pool:
        held = [pool.submit(service.post, "held") for _ in range(2)]  # as many as the server has threads
        for _ in held:
            assert service.emitter.held.acquire(timeout=60)
        refused = service.post("a", "b")
        assert not any(each.done() for each in held)
        service.emitter.hold.set()
        service.server.stop()
    assert refused.status_code == 503
    assert refused.json()["detail"] == "too many requests at once; retry the request"
    assert lists(refused) == ([], IDS[:2], IDS[:2], [])
    assert service.emitter.records == ["held", "held"]
