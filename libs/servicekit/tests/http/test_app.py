import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Query
from pydantic import Field
from starlette.responses import Response, StreamingResponse
from structlog.testing import capture_logs

from localkafka.waiting import Deadline, wait_until
from servicekit.http.app import PLAIN_DIGITS, HttpEdge, Strict, build_app, only
from servicekit.http.guard import RequestLimits
from servicekit.http.problems import MEDIA_TYPE
from servicekit.http.server import HttpServer
from streamtable.errors import NotReady, StoreBroken

SECRET_TEXT = "a secret text of the implementation"
EVIL = "<evil>"


LIMITS = RequestLimits(
    body_bytes=1000,
    path_bytes=200,
    query_bytes=300,
    headers=20,
    requests=8,
    queue_seconds=0.5,
    deadline_seconds=1.5,
)


class Order(Strict):
    name: Annotated[str, Field(max_length=5)]
    amount: Annotated[int, Field(ge=0, le=1000)]
    price: float = 1.0


class State:
    def __init__(self) -> None:
        self.ready = True
        self.at_work = 0
        self.most_at_work = 0
        self.lock = threading.Lock()
        self.release = threading.Event()


@pytest.fixture(scope="module")
def state() -> Iterator[State]:
    state = State()
    yield state
    state.release.set()


def app_of(state: State, limits: RequestLimits) -> FastAPI:
    app = build_app(
        "test",
        "1",
        ready=lambda: state.ready,
        metrics=lambda: b"up 1\n",
        limits=limits,
    )

    @app.post("/orders")
    def order(order: Order) -> Order:
        return order

    @app.get("/list", dependencies=[only("limit")])
    def rows(limit: Annotated[int, Query(ge=1, le=100), PLAIN_DIGITS] = 10) -> int:
        return limit

    @app.get("/items/{name}", dependencies=[only()])
    def item(name: str) -> str:
        return name

    @app.get("/crash")
    def crash() -> None:
        raise RuntimeError(SECRET_TEXT)

    @app.get("/loading")
    def loading() -> None:
        raise NotReady(SECRET_TEXT)

    @app.get("/slow")
    def slow() -> None:
        with state.lock:
            state.at_work += 1
            state.most_at_work = max(state.most_at_work, state.at_work)
        state.release.wait(30)
        with state.lock:
            state.at_work -= 1

    @app.get("/stream")
    async def stream() -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            time.sleep(1.8)  # noqa: ASYNC251 longer than the deadline
            yield b" second"

        return StreamingResponse(parts())

    return app


@contextmanager
def served(app: FastAPI) -> Iterator[httpx.Client]:
    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), timeout=60) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def client(state: State) -> Iterator[httpx.Client]:
    """A client of a server whose deadlines no request exceeds, even on a busy machine."""
    with served(app_of(state, replace(LIMITS, queue_seconds=20.0, deadline_seconds=30.0))) as client:
        yield client


@pytest.fixture(scope="module")
def impatient(state: State) -> Iterator[httpx.Client]:
    """A client of a server that soon gives up waiting requests."""
    with served(app_of(state, LIMITS)) as client:
        yield client


def assert_problem(response: httpx.Response, status: int) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    document: dict[str, object] = response.json()
    assert document["status"] == status
    assert document["type"] == "about:blank"
    assert SECRET_TEXT not in response.text
    assert EVIL not in response.text
    assert "Traceback" not in response.text
    return document


def post(client: httpx.Client, body: bytes | str, media_type: str = "application/json") -> httpx.Response:
    return client.post("/orders", content=body, headers={"content-type": media_type})


def test_a_valid_body_reaches_the_handler(client: httpx.Client) -> None:
    assert post(client, '{"name": "a", "amount": 3}').json() == {"name": "a", "amount": 3, "price": 1.0}


@pytest.mark.parametrize("number", ["3", "3.0", "3e0", "0.3e1", "30E-1"])
def test_a_whole_number_may_be_written_as_json_allows(client: httpx.Client, number: str) -> None:
    assert post(client, f'{{"name": "a", "amount": {number}}}').json()["amount"] == 3


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "a", "amount": NaN}',
        '{"name": "a", "amount": 1, "price": NaN}',
        '{"name": "a", "amount": 1, "price": Infinity}',
        '{"name": "a", "amount": 1, "price": 1e400}',
        '{"name": "a", "amount": true}',
        '{"name": "a", "amount": "1"}',
        '{"name": "a", "amount": 1.5}',
        '{"name": "a", "amount": 1e16}',
        '{"name": "a", "amount": 0.9999999999999999}',
        '{"name": "a", "amount": 1001}',
        '{"name": "a", "amount": 9223372036854775808}',
        '{"name": 1, "amount": 1}',
        '{"name": "toolong<evil>", "amount": 1}',
        '{"name": "\\ud800", "amount": 1}',
        '{"name": "a"}',
        '{"name": "a", "amount": 1, "<evil>": 2}',
        '["<evil>"]',
        '"<evil>"',
        "null",
        "",
        "{<evil>",
        '{"name": "a", "amount": 1, "amount": 2}',
        '{"name": "a", "amount": 1, "\\u0061mount": 2}',
    ],
)
def test_an_invalid_body_is_answered_with_422_that_names_fields_but_quotes_nothing(
    client: httpx.Client, body: str
) -> None:
    document = assert_problem(post(client, body), 422)
    assert document["errors"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "a", "amount": ' + b"9" * 800 + b"}",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe\xfa",
        b'{"name": "\xff", "amount": 1}',
        b"[" * 900,
        '{"name": "a", "amount": 1}'.encode("utf-16"),
    ],
)
def test_bytes_that_are_not_strict_json_are_answered_with_a_client_error(
    client: httpx.Client, body: bytes
) -> None:
    response = post(client, body)
    assert response.status_code in {400, 422}
    assert_problem(response, response.status_code)


def test_an_exceeded_bound_is_named(client: httpx.Client) -> None:
    document = assert_problem(post(client, '{"name": "a", "amount": 1001}'), 422)
    assert document["errors"] == [{"where": "body.amount", "what": "must be at most 1000"}]


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_only_json_bodies_are_accepted(client: httpx.Client, media_type: str) -> None:
    assert_problem(post(client, '{"name": "a", "amount": 3}', media_type), 415)


def test_compressed_bodies_are_refused(client: httpx.Client) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert_problem(client.post("/orders", content=b"x", headers=headers), 415)


def test_a_body_announced_too_large_is_refused(client: httpx.Client) -> None:
    assert_problem(post(client, " " * 1001), 413)


def test_a_body_without_a_length_is_refused_when_it_grows_too_large(client: httpx.Client) -> None:
    parts = (b" " * 100 for _ in range(11))
    headers = {"content-type": "application/json"}
    assert_problem(client.post("/orders", content=parts, headers=headers), 413)


@pytest.mark.parametrize(
    "limit",
    [
        "0",
        "-1",
        "101",
        "1e3",
        "1.0",
        "%201",
        "1_0",
        "+1",
        "nan",
        "9" * 100,
        "%EF%BC%91",
        "",
        "true",
        "9223372036854775808",
    ],
)
def test_a_number_in_a_query_is_plain_digits_within_bounds(client: httpx.Client, limit: str) -> None:
    assert_problem(client.get(f"/list?limit={limit}"), 422)


def test_unknown_and_repeated_query_parameters_are_refused(client: httpx.Client) -> None:
    assert client.get("/list?limit=7").json() == 7
    assert_problem(client.get("/list?limti=7"), 422)
    assert_problem(client.get("/list?%3Cevil%3E=7"), 422)
    assert_problem(client.get("/list?limit=7&limit=7"), 422)
    assert_problem(client.get("/items/a?x=1"), 422)


@pytest.mark.parametrize("name", ["%00", "%ff", "a%0Ab", "%C0%AF", "..%2fx", "%ED%A0%80", "%7f"])
def test_a_path_that_is_not_clean_utf8_is_refused(client: httpx.Client, name: str) -> None:
    assert_problem(client.get(f"/items/{name}"), 400)


@pytest.mark.parametrize("query", ["limit=%ff", "limit=%00", "a=%C0%80"])
def test_a_query_that_is_not_clean_utf8_is_refused(client: httpx.Client, query: str) -> None:
    assert_problem(client.get(f"/list?{query}"), 400)


def test_other_characters_reach_the_handler_unchanged(client: httpx.Client) -> None:
    assert client.get("/items/%C3%A9%20%25").json() == "é %"


def test_addresses_and_headers_have_limits(client: httpx.Client) -> None:
    assert_problem(client.get("/items/" + "a" * 200), 414)
    assert_problem(client.get("/list?limit=" + "1" * 300), 414)
    assert_problem(client.get("/list", headers={f"x-{n}": "1" for n in range(20)}), 431)
    assert_problem(client.get("/list", headers={"x": "a" * 16_384}), 431)


def test_unknown_addresses_and_methods_are_problems(client: httpx.Client) -> None:
    assert_problem(client.get("/nothing"), 404)
    assert_problem(client.get("/list/"), 404)
    response = client.put("/list")
    assert_problem(response, 405)
    assert response.headers["allow"] == "GET"
    assert_problem(client.request("TRACE", "/list"), 405)
    assert_problem(client.options("/list"), 405)


def test_an_exception_is_logged_and_answered_with_a_fixed_text(client: httpx.Client) -> None:
    with capture_logs() as logged:
        assert_problem(client.get("/crash"), 500)
    assert [(line["event"], line["path"]) for line in logged] == [("request failed", "/crash")]


def test_retry_later_is_answered_with_503_and_retry_after(client: httpx.Client) -> None:
    response = client.get("/loading")
    assert_problem(response, 503)
    assert response.headers["retry-after"] == "1"


def test_a_handler_that_takes_too_long_is_given_up(impatient: httpx.Client) -> None:
    end = Deadline(5)
    response = impatient.get("/slow")
    assert not end.passed()
    assert_problem(response, 503)
    assert response.headers["retry-after"] == "1"


def test_requests_beyond_the_limit_are_rejected(impatient: httpx.Client, state: State) -> None:
    state.release.clear()
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: impatient.get("/slow"), range(12)))
    assert {answer.status_code for answer in answers} == {503}
    details = [answer.json()["detail"] for answer in answers]
    assert any("too many requests" in detail for detail in details)
    state.release.set()
    wait_until(lambda: impatient.get("/list").status_code == 200)


def test_hanging_handlers_keep_their_slots_after_they_were_given_up(
    impatient: httpx.Client, state: State
) -> None:
    state.release.clear()

    def all_places_are_kept() -> bool:
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: impatient.get("/slow"), range(10)))
        assert {each.status_code for each in answers} == {503}
        return state.at_work == 8

    wait_until(all_places_are_kept)
    assert all_places_are_kept()
    assert state.most_at_work == 8
    state.release.set()
    wait_until(lambda: state.at_work == 0)
    wait_until(lambda: impatient.get("/list").status_code == 200)


def test_a_response_that_has_begun_is_not_cut_off_by_the_deadline(impatient: httpx.Client) -> None:
    assert impatient.get("/stream").text == "first second"


def test_liveness_and_readiness_are_separate_probes(client: httpx.Client, state: State) -> None:
    assert client.get("/readyz").status_code == 200
    state.ready = False
    assert client.get("/livez").status_code == 200
    assert_problem(client.get("/readyz"), 503)
    state.ready = True


def test_metrics_are_served_as_the_service_returns_them(client: httpx.Client) -> None:
    response = client.get("/metrics")
    assert response.text == "up 1\n"
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_openapi_is_served_and_its_pages_are_not(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    text = json.dumps(document)
    assert "Problem" in document["components"]["schemas"]
    assert "HTTPValidationError" not in text
    limit = document["paths"]["/list"]["get"]["parameters"][0]["schema"]
    assert (limit["minimum"], limit["maximum"]) == (1, 100)
    assert_problem(client.get("/docs"), 404)
    assert_problem(client.get("/redoc"), 404)


def test_the_documentation_pages_can_be_enabled() -> None:
    app = build_app("test", "1", ready=lambda: True, metrics=lambda: b"", edge=HttpEdge(docs=True))
    server = HttpServer(app, "127.0.0.1", 0)
    assert httpx.get(server.start() + "/docs").status_code == 200
    server.stop()


def test_readyz_of_a_service_with_a_stopped_view_answers_503_with_the_reason() -> None:
    def ready() -> bool:
        raise StoreBroken("the disk is full")

    app = build_app("test", "1.0.0", ready=ready, metrics=lambda: b"")
    server = HttpServer(app, "127.0.0.1", 0)
    response = httpx.get(f"{server.start()}/readyz")
    server.stop()
    assert response.status_code == 503
    assert response.json()["detail"] == "stopped: the disk is full"
