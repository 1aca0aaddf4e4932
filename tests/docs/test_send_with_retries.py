"""The page on retries: its client brings every click in, whatever the service answers or does not answer."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import httpx
import pytest

from click_count.emitter import build_emitter
from contracts.records import UserClick
from servicekit.http.produce import SendTimeouts
from servicekit.http.server import HttpServer
from streamtable.base.types import Ack
from streamtable.errors import QueueFull, RetryLater, SerializationError

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/send-with-retries.md").read_text("utf-8")
(CLIENT,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


class UnreliableEmitter:
    """Fails at random in every way that Kafka does; `topic` is what is really stored."""

    def __init__(self, random: Random) -> None:
        self.topic: list[str] = []
        self._random = random

    def emit(self, key: str, value: UserClick) -> "Future[Ack]":
        future: Future[Ack] = Future()
        if value["url"] == "too large":
            future.set_exception(SerializationError("too large"))
            return future
        fate = self._random.choice(["stored", "stored", "stored", "unanswered", "lost", "full"])
        if fate in {"stored", "unanswered"}:
            self.topic.append(value["id"])
        if fate == "stored":
            future.set_result(Ack("user-clicks", 0, len(self.topic)))
        elif fate == "full":
            future.set_exception(QueueFull("no room"))
        else:
            future.set_exception(RetryLater("not acknowledged in time"))
        return future

    def close(self, timeout: float) -> None: ...


class LostAnswers(httpx.BaseTransport):
    """Loses some answers on their way."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if self._random.random() < 0.2:
            response.read()
            raise httpx.ReadError("the connection was reset")
        return response

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def emitter() -> UnreliableEmitter:
    return UnreliableEmitter(Random(1))


@pytest.fixture
def client(emitter: UnreliableEmitter) -> Iterator[httpx.Client]:
    app = build_emitter(
        emitter, ready=lambda: True, metrics=lambda: b"", new_id=uuid4, now_ms=lambda: time.time_ns() // 1_000_000,
        timeouts=SendTimeouts(delivery=0.1, wait=0.2),
    )  # fmt: skip
    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start(), transport=LostAnswers(Random(2))) as made:
        yield made
    server.stop()


def test_the_client_of_the_page_brings_every_click_in_and_makes_no_id_twice(
    emitter: UnreliableEmitter, client: httpx.Client
) -> None:
    names: dict[str, Any] = {}
    exec(CLIENT, names)
    clicks = [names["click"](f"user-{n % 7}", "https://example.org/") for n in range(50)]
    refused = names["click"]("alice", "too large")
    waited: list[float] = []
    assert names["send"](client, [*clicks, refused], waited.append) == [refused]
    assert waited
    assert set(emitter.topic) == {each["id"] for each in clicks}


def test_the_client_of_the_page_does_not_repeat_a_request_that_is_wrong(client: httpx.Client) -> None:
    names: dict[str, Any] = {}
    exec(CLIENT, names)
    with pytest.raises(httpx.HTTPStatusError):
        names["send"](client, [{**names["click"]("alice", "x"), "unheard": 1}], lambda _: None)
