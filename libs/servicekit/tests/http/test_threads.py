"""Requests that are rejected under overload; the long fault tests measure how fast."""

import asyncio
import selectors
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from anyio.to_thread import current_default_thread_limiter
from starlette.types import Message, Receive, Scope, Send

from localkafka.waiting import wait_until
from servicekit.http.app import build_app
from servicekit.http.guard import Guard, RequestLimits
from servicekit.http.server import HttpServer
from servicekit.http.threads import in_thread


class World:
    """A server with one thread, and a handler that is released by the test."""

    def __init__(self, requests: int = 256, *, slow_metrics: bool = False) -> None:
        self.begun: list[int] = []
        self.release = threading.Event()

        def metrics() -> bytes:
            if slow_metrics:
                self.begun.append(0)
                assert self.release.wait(600)
            return b"up 1"

        app = build_app(
            "test",
            "1",
            ready=lambda: True,
            metrics=metrics,
            limits=RequestLimits(requests=requests, queue_seconds=1.5, deadline_seconds=600),
        )

        @app.get("/job/{number}")
        def job(number: int) -> int:
            self.begun.append(number)
            assert self.release.wait(600)
            return number

        @app.get("/loop")
        async def loop() -> str:
            return "answered"

        self.server = HttpServer(app, "127.0.0.1", 0, threads=1)
        self.url = self.server.start()
        self._pool = ThreadPoolExecutor(20)

    def ask(self, path: str) -> "Future[httpx.Response]":
        return self._pool.submit(httpx.get, f"{self.url}{path}", timeout=600)

    def close(self) -> None:
        self.release.set()
        self._pool.shutdown()
        self.server.stop()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def begun(world: World, number: int) -> Callable[[], bool]:
    return lambda: number in world.begun


def test_a_request_that_was_not_begun_in_time_is_rejected_and_never_begun(world: World) -> None:
    first = world.ask("/job/0")
    wait_until(begun(world, 0))
    refused = [future.result() for future in [world.ask(f"/job/{number}") for number in range(1, 9)]]
    assert {answer.status_code for answer in refused} == {503}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert {answer.json()["detail"] for answer in refused} == {"too many requests at once; retry the request"}
    assert not first.done(), "a request that was begun continues"
    world.release.set()
    assert first.result().json() == 0
    assert world.ask("/job/9").result().json() == 9
    assert world.begun == [0, 9]


def test_the_metrics_page_answers_while_all_threads_wait(world: World) -> None:
    first = world.ask("/job/0")
    wait_until(begun(world, 0))
    assert world.ask("/metrics").result().text == "up 1"
    assert not first.done()


def test_a_page_of_metrics_that_no_thread_can_make_in_time_is_refused() -> None:
    world = World(slow_metrics=True)
    first = world.ask("/metrics")
    wait_until(begun(world, 0))
    assert world.ask("/metrics").result().status_code == 503
    world.release.set()
    assert first.result().text == "up 1"
    world.close()


def test_a_handler_in_the_event_loop_and_livez_need_no_thread(world: World) -> None:
    first = world.ask("/job/0")
    wait_until(begun(world, 0))
    assert world.ask("/loop").result().json() == "answered"
    assert world.ask("/livez").result().status_code == 200
    assert not first.done()


def test_livez_answers_while_the_limit_of_requests_is_reached() -> None:
    world = World(requests=1)
    first = world.ask("/job/0")
    wait_until(begun(world, 0))
    assert world.ask("/loop").result().status_code == 503
    assert world.ask("/livez").result().status_code == 200
    assert not first.done()
    world.close()


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with simulated time: its clock jumps to the next timer when nothing else is ready."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = selectors.DefaultSelector()
        look = selector.select

        def advance(timeout: float | None = None) -> Any:
            if timeout:
                self.now += timeout
            return look(0)

        selector.select = advance  # type: ignore[method-assign] # only timers are awaited
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def test_the_waits_for_a_slot_and_for_a_thread_share_one_limit() -> None:
    answered: dict[str, tuple[float, int]] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/first":
            await asyncio.sleep(0.6)
            return
        await in_thread(lambda: None)()

    async def ask(guard: Guard, path: str) -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered[path] = loop.time(), message["status"]

        scope = {"type": "http", "http_version": "1.1", "path": path, "query_string": b"", "headers": []}
        await guard(scope, receive, send)

    async def two() -> None:
        current_default_thread_limiter().total_tokens = 1
        await current_default_thread_limiter().acquire_on_behalf_of(object())
        guard = Guard(app, RequestLimits(requests=1), lambda _: {})
        await asyncio.gather(ask(guard, "/first"), ask(guard, "/second"))

    loop = SimulatedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(two())
    seconds, status = answered["/second"]
    assert (round(seconds, 3), status) == (0.75, 503), "which leaves a quarter of a second for the answer"
