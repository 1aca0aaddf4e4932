from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from uuid import UUID

import httpx
import pytest

from inventory.emitter import build_emitter
from servicekit.http.server import HttpServer
from streamtable.base.types import Ack

NEW_ID = UUID(int=7, version=4)
NOW_MS = 1_700_000_000_000
ITEM = {"product": "lamp", "warehouse": "berlin"}
STAMP = {"id": str(NEW_ID), "at": NOW_MS}


class MemoryEmitter:
    """Acknowledges all events."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records: list[tuple[str, Any]] = []

    def emit(self, key: str, value: Any) -> "Future[Ack]":
        future: Future[Ack] = Future()
        future.set_result(Ack(self.topic, 3, len(self.records)))
        self.records.append((key, value))
        return future

    def close(self, timeout: float) -> None: ...


Shared = tuple[list[MemoryEmitter], httpx.Client]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    emitters = [MemoryEmitter(name) for name in ("stock-movements", "products", "price-adjustments")]
    app = build_emitter(
        *emitters,
        ready=lambda: True,
        metrics=lambda: b"",
        new_id=lambda: NEW_ID,
        now_ms=lambda: NOW_MS,
    )
    server = HttpServer(app, "127.0.0.1", 0)
    with httpx.Client(base_url=server.start()) as client:
        yield emitters, client
    server.stop()


@pytest.fixture
def emitters(shared: Shared) -> list[MemoryEmitter]:
    for each in shared[0]:
        each.records.clear()
    return shared[0]


@pytest.fixture
def client(shared: Shared) -> httpx.Client:
    return shared[1]


@pytest.mark.parametrize(
    ("path", "body", "stream", "key", "record"),
    [
        ("/listings", {**ITEM, "threshold": 5}, 0, "lamp@berlin", {"kind": "listed", "quantity": 5, **ITEM}),
        ("/shipments", {**ITEM, "quantity": 5}, 0, "lamp@berlin", {"kind": "shipped", "quantity": 5, **ITEM}),
        ("/sales", {**ITEM, "quantity": 1}, 0, "lamp@berlin", {"kind": "sold", "quantity": 1, **ITEM}),
        (
            "/products",
            {"product": "lamp", "category": "light", "price": 0},
            1,
            "lamp",
            {"product": "lamp", "category": "light", "price": 0},
        ),
        ("/adjustments", {**ITEM, "percent": -100}, 2, "lamp@berlin", {"percent": -100, **ITEM}),
        ("/adjustments", {**ITEM, "percent": None}, 2, "lamp@berlin", {"percent": None, **ITEM}),
    ],
)
def test_an_event_goes_to_its_stream_by_its_key(
    emitters: list[MemoryEmitter],
    client: httpx.Client,
    path: str,
    body: dict[str, Any],
    stream: int,
    key: str,
    record: dict[str, Any],
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["streamtable-token"]
    assert emitters[stream].records == [(key, {**record, **STAMP})]
    assert client.post(path, json=[body, body]).status_code == 200
    assert len(emitters[stream].records) == 3
    assert sum(len(each.records) for each in emitters) == 3


@pytest.mark.parametrize(
    ("path", "wrong", "place"),
    [
        ("/sales", {"quantity": -1}, "body.one.quantity"),
        ("/sales", {"quantity": 0}, "body.one.quantity"),
        ("/sales", {"quantity": 2**63}, "body.one.quantity"),
        ("/sales", {"quantity": 10**400}, "body.one.quantity"),
        ("/sales", {"quantity": 1.5}, "body.one.quantity"),
        ("/sales", {"quantity": "1"}, "body.one.quantity"),
        ("/sales", {"quantity": True}, "body.one.quantity"),
        ("/sales", {"product": "Lamp"}, "body.one.product"),
        ("/sales", {"warehouse": "a@b"}, "body.one.warehouse"),
        ("/sales", {"warehouse": ""}, "body.one.warehouse"),
        ("/sales", {"kind": "shipped"}, "body.one"),
        ("/sales", {"at": NOW_MS + 3_600_000}, "body.at"),
    ],
)
def test_an_event_that_cannot_be_is_refused_with_its_place(
    emitters: list[MemoryEmitter], client: httpx.Client, path: str, wrong: dict[str, Any], place: str
) -> None:
    answer = client.post(path, json={**ITEM, "quantity": 1, **wrong})
    assert answer.status_code == 422, answer.text
    assert place in answer.text
    assert emitters[0].records == []
